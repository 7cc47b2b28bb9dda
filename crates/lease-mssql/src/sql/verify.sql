-- Verifies that @P2 has the lease @P1 in the term of the token @P3, inside a transaction of the caller's own; @P4 names the lease's
-- application lock. One row, a 1, when it has; no row when it has not, and then the transaction must be rolled back.
--
-- The application lock is shared, comes first, and belongs to the transaction: from then until it ends nobody else is granted the lease, for
-- whatever ends a term takes that lock exclusively before it looks at the row. Then the row is read as it is committed, whatever the
-- transaction's isolation level and READ_COMMITTED_SNAPSHOT say. Renewals take no application lock, and go on.
-- Nothing is committed or rolled back here, and no setting of the session is changed. Each step needs the one before to have gone well, for
-- with XACT_ABORT OFF an error ends its statement and not the batch.
DECLARE @verified int;
DECLARE @locked int;
DECLARE @resource nvarchar(255);
IF @@TRANCOUNT = 0 OR XACT_STATE() <> 1
    THROW 51206, N'there is no open transaction that can be committed', 1;
SET @resource = N'lease:' + CAST(OBJECT_ID(N'singleton_leases') AS nvarchar(11)) + N':' + @P4;
EXEC @locked = sp_getapplock @Resource = @resource, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 1000;
IF ISNULL(@locked, -999) < 0
    THROW 51205, N'the application lock was refused', 1;
SELECT @verified = 1
FROM singleton_leases WITH (READCOMMITTEDLOCK)
WHERE name = @P1 AND owner = @P2 AND token = @P3 AND expires_at > SYSUTCDATETIME();
SELECT @verified AS outcome WHERE @verified = 1;
