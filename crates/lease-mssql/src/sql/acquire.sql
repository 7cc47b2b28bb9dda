-- Grants the lease @P1 to @P2 for @P3 seconds and @P4 milliseconds, or says who has it; @P5 names its application lock. One row: 0 when the
-- lease is contended, 1 with the token of a grant, 2 with the owner of a held lease and the microseconds that it has left.
--
-- * The guard is the first SELECT. It reads what is committed, under whatever READ_COMMITTED_SNAPSHOT says, skips a row that somebody has
--   locked, and keeps no lock; a refusal ends with it. A row that it cannot see but NOLOCK can is contended, and nobody waits for it.
-- * A grant ends another's term, so it takes the application lock, which the fenced transactions of that term share. That is asked for
--   without waiting; so is everything else: READPAST skips the row, NOWAIT refuses a page, a table or another session's insert.
-- * The row is locked exclusively before the clock is read, in the statement after it, so that no wait is taken off the term (S7). A
--   placeholder stands in for a row that is absent: nobody else sees it.
-- * The UPDATE judges again. Where the hints are obeyed it cannot have to wait, for the row is locked; where it did have to, or a trigger
--   took its time, the loop writes the term anew, and now the row is this transaction's own.
-- * All that losing a race can look like ends in the CATCH: a lock refused (1222, 51205), a deadlock (1205), a conflict of snapshots (3960),
--   a row that came first (2627, 2601). Whatever else it is is thrown.
DECLARE @outcome int = 0;
DECLARE @free int;
DECLARE @owner nvarchar(255);
DECLARE @expires_at datetime2(6);
DECLARE @token bigint;
DECLARE @now datetime2(6) = SYSUTCDATETIME();
DECLARE @epoch datetime2(6) = N'1970-01-01T00:00:00';
DECLARE @clock bigint;
DECLARE @locked int;
DECLARE @resource nvarchar(255);
DECLARE @attempts int = 0;
DECLARE @granted TABLE (token bigint NOT NULL);
BEGIN TRY
    SELECT @owner = owner, @expires_at = expires_at, @free = CASE WHEN owner = @P2 OR expires_at <= @now THEN 1 ELSE 0 END
    FROM singleton_leases WITH (READCOMMITTEDLOCK, READPAST, NOWAIT)
    WHERE name = @P1;
    IF @free = 0
        SET @outcome = 2;
    ELSE IF @free = 1 OR NOT EXISTS (SELECT 1 FROM singleton_leases WITH (NOLOCK) WHERE name = @P1)
    BEGIN
        SET @free = NULL;
        SET @resource = N'lease:' + CAST(OBJECT_ID(N'singleton_leases') AS nvarchar(11)) + N':' + @P5;
        BEGIN TRANSACTION;
        EXEC @locked = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        IF ISNULL(@locked, -999) < 0
            THROW 51205, N'the application lock was refused', 1;
        SELECT @free = CASE WHEN owner = @P2 OR expires_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END
        FROM singleton_leases WITH (XLOCK, READPAST, READCOMMITTEDLOCK, NOWAIT)
        WHERE name = @P1;
        IF @free IS NULL
        BEGIN
            INSERT INTO singleton_leases WITH (NOWAIT) (name, owner, token, acquired_at, expires_at, hand_over_at)
            VALUES (@P1, NULL, 0, @epoch, @epoch, NULL);
            SET @free = 1;
        END;
        WHILE @free = 1 AND @attempts < 3
        BEGIN
            SET @attempts = @attempts + 1;
            SET @now = SYSUTCDATETIME();
            SET @clock = DATEDIFF_BIG(microsecond, @epoch, @now);
            DELETE FROM @granted;
            UPDATE singleton_leases WITH (ROWLOCK, NOWAIT)
            SET owner = @P2,
                token = CASE WHEN token >= @clock THEN token + 1 ELSE @clock END,
                acquired_at = @now,
                expires_at = DATEADD(millisecond, @P4, DATEADD(second, @P3, @now)),
                hand_over_at = NULL
            OUTPUT inserted.token INTO @granted (token)
            WHERE name = @P1 AND (owner = @P2 OR expires_at <= @now);
            IF SYSUTCDATETIME() <= DATEADD(millisecond, 2, @now)
                BREAK;
        END;
        COMMIT TRANSACTION;
        SELECT @token = token, @outcome = 1 FROM @granted;
    END;
END TRY
BEGIN CATCH
    IF XACT_STATE() <> 0
        ROLLBACK TRANSACTION;
    IF ERROR_NUMBER() NOT IN (1205, 1222, 2601, 2627, 3960, 51205)
        THROW;
    SET @outcome = 0;
END CATCH;
SELECT @outcome AS outcome, @token AS token, DATEDIFF_BIG(microsecond, @now, @expires_at) AS remaining, @owner AS owner;
