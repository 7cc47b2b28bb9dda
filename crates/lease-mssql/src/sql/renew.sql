-- Moves the expiry of @P2's lease @P1 to @P3 seconds and @P4 milliseconds from now. Always one row: 1 with the token, and whether a hand-over
-- was requested; 0 with who has the lease, if there is one.
--
-- Whoever has locked the row is waited for, for no longer than the session's LOCK_TIMEOUT. The clock is read before that wait, so the
-- statement after it looks again: when time was lost, the term is written anew (S7), and now the row is this transaction's own, which
-- nobody can be waited for. Both are one transaction, for one flush of the log; the UPDATE alone decides whose the lease is.
-- A renewal ends nobody's term, so it takes no application lock, and goes on while a fenced transaction of its term is open.
DECLARE @now datetime2(6);
DECLARE @attempts int = 0;
DECLARE @renewed TABLE (token bigint NOT NULL, hand_over_at datetime2(6) NULL);
DECLARE @found int = 0;
DECLARE @owner nvarchar(255);
DECLARE @token bigint;
DECLARE @hand_over_at datetime2(6);
DECLARE @outcome int = 0;
BEGIN TRY
    BEGIN TRANSACTION;
    WHILE @attempts < 3
    BEGIN
        SET @attempts = @attempts + 1;
        SET @now = SYSUTCDATETIME();
        DELETE FROM @renewed;
        UPDATE singleton_leases WITH (ROWLOCK)
        SET expires_at = DATEADD(millisecond, @P4, DATEADD(second, @P3, @now))
        OUTPUT inserted.token, inserted.hand_over_at INTO @renewed (token, hand_over_at)
        WHERE name = @P1 AND owner = @P2;
        IF SYSUTCDATETIME() <= DATEADD(millisecond, 2, @now) OR NOT EXISTS (SELECT 1 FROM @renewed)
            BREAK;
    END;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF XACT_STATE() <> 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @token = token, @hand_over_at = hand_over_at, @outcome = 1 FROM @renewed;
IF @outcome = 0
    SELECT @owner = owner, @found = 1 FROM singleton_leases WHERE name = @P1;
SELECT @outcome AS outcome, @token AS token, CASE WHEN @hand_over_at IS NULL THEN 0 ELSE 1 END AS hand_over, @found AS found,
       @owner AS owner;
