-- Verifies as `verify.sql` does, and commits the caller's transaction if that went well. One row, a 1, when it was committed; no row when
-- the lease is not held in that term. A plain batch, whose parameters are declared before it: in a query with parameters the server
-- complains of a transaction that is gone at its end (266).
--
-- It must be the outermost transaction: an inner COMMIT commits nothing.
DECLARE @verified int;
DECLARE @locked int;
DECLARE @resource nvarchar(255);
IF @@TRANCOUNT <> 1 OR XACT_STATE() <> 1
    THROW 51206, N'there is no open transaction that can be committed, or it is not the outermost', 1;
SET @resource = N'lease:' + CAST(OBJECT_ID(N'singleton_leases') AS nvarchar(11)) + N':' + @P4;
EXEC @locked = sp_getapplock @Resource = @resource, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 1000;
IF ISNULL(@locked, -999) < 0
    THROW 51205, N'the application lock was refused', 1;
SELECT @verified = 1
FROM singleton_leases WITH (READCOMMITTEDLOCK)
WHERE name = @P1 AND owner = @P2 AND token = @P3 AND expires_at > SYSUTCDATETIME();
IF @verified = 1
    COMMIT TRANSACTION;
SELECT @verified AS outcome WHERE @verified = 1;
