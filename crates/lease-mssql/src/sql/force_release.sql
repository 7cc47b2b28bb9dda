-- Forces the holder of @P1 out; @P3 names its application lock. With @P2 = 1 the lease is free at once, and a rest ends too; without, it
-- rests until it would have expired. One row: 0 when it is contended, 1 with the former owner and the microseconds that the rest has left
-- when it was ended, 2 when there is nothing to end.
--
-- It ends another's term, so it takes the application lock first, and waits for nobody: a lease that a fenced transaction has verified is
-- not ended. The row is locked exclusively before the clock is read.
DECLARE @outcome int = 0;
DECLARE @owner nvarchar(255);
DECLARE @expires_at datetime2(6);
DECLARE @now datetime2(6);
DECLARE @epoch datetime2(6) = N'1970-01-01T00:00:00';
DECLARE @clock bigint;
DECLARE @found int;
DECLARE @locked int;
DECLARE @resource nvarchar(255);
DECLARE @ended TABLE (expires_at datetime2(6) NOT NULL);
SET @resource = N'lease:' + CAST(OBJECT_ID(N'singleton_leases') AS nvarchar(11)) + N':' + @P3;
BEGIN TRY
    SELECT @found = CASE WHEN owner IS NOT NULL OR (@P2 = 1 AND expires_at > SYSUTCDATETIME()) THEN 1 ELSE 0 END
    FROM singleton_leases WITH (READCOMMITTEDLOCK, READPAST, NOWAIT)
    WHERE name = @P1;
    IF @found = 0
        SET @outcome = 2;
    ELSE IF @found IS NULL
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM singleton_leases WITH (NOLOCK) WHERE name = @P1)
            SET @outcome = 2;
    END
    ELSE
    BEGIN
        BEGIN TRANSACTION;
        EXEC @locked = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        IF ISNULL(@locked, -999) < 0
            THROW 51205, N'the application lock was refused', 1;
        SET @found = NULL;
        SELECT @owner = owner, @found = 1
        FROM singleton_leases WITH (XLOCK, READPAST, READCOMMITTEDLOCK, NOWAIT)
        WHERE name = @P1;
        IF @found = 1
        BEGIN
            SET @now = SYSUTCDATETIME();
            SET @clock = DATEDIFF_BIG(microsecond, @epoch, @now);
            UPDATE singleton_leases WITH (ROWLOCK, NOWAIT)
            SET owner = NULL,
                token = CASE WHEN token >= @clock THEN token + 1 ELSE @clock END,
                expires_at = CASE WHEN @P2 = 1 THEN @epoch ELSE expires_at END,
                hand_over_at = NULL
            OUTPUT inserted.expires_at INTO @ended (expires_at)
            WHERE name = @P1 AND (owner = @owner OR (owner IS NULL AND @owner IS NULL AND @P2 = 1 AND expires_at > @now));
            SELECT @expires_at = expires_at, @outcome = 1 FROM @ended;
            IF @outcome = 0
                SET @outcome = CASE WHEN @owner IS NULL THEN 2 ELSE 0 END;
        END;
        COMMIT TRANSACTION;
    END;
END TRY
BEGIN CATCH
    IF XACT_STATE() <> 0
        ROLLBACK TRANSACTION;
    IF ERROR_NUMBER() NOT IN (1205, 1222, 2601, 2627, 3960, 51205)
        THROW;
    SET @outcome = 0;
END CATCH;
SELECT @outcome AS outcome, DATEDIFF_BIG(microsecond, @now, @expires_at) AS remaining, @owner AS owner;
