-- Moves the expiries of many leases to @P2 days and @P3 milliseconds from now: those of the pairs in @P1, an array of arrays [name, owner].
-- One row for each pair: the columns of `renew.sql`, and its place, which counts from zero. The outcome is 2 where the pair has to be
-- renewed alone: the row is locked by somebody and `found` is 1, or is not to be seen at all.
--
-- Nobody is waited for. READPAST skips a row that somebody has locked, or it would hold the others up until they run out. FORCESEEK
-- keeps the UPDATE to the rows that it is asked for: a scan would lock others. A chunk is too small for its locks to be escalated.
-- What was not renewed is read only where it is committed; that a row is not there is nobody's word but the UPDATE's of `renew.sql`.
DECLARE @now datetime2(6);
DECLARE @attempts int = 0;
DECLARE @asked TABLE (
    place int NOT NULL PRIMARY KEY,
    name  nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL
);
DECLARE @renewed TABLE (
    name         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    token        bigint NOT NULL,
    hand_over_at datetime2(6) NULL
);
INSERT INTO @asked (place, name, owner)
SELECT CAST([key] AS int), JSON_VALUE([value], N'$[0]'), JSON_VALUE([value], N'$[1]') FROM OPENJSON(@P1);
BEGIN TRY
    BEGIN TRANSACTION;
    WHILE @attempts < 2
    BEGIN
        SET @attempts = @attempts + 1;
        SET @now = SYSUTCDATETIME();
        DELETE FROM @renewed;
        UPDATE lease
        SET expires_at = DATEADD(millisecond, @P3, DATEADD(day, @P2, @now))
        OUTPUT inserted.name, inserted.owner, inserted.token, inserted.hand_over_at INTO @renewed (name, owner, token, hand_over_at)
        FROM singleton_leases AS lease WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        INNER JOIN @asked AS asked ON asked.name = lease.name AND asked.owner = lease.owner;
        IF SYSUTCDATETIME() <= DATEADD(millisecond, 100, @now)
            BREAK;
    END;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF XACT_STATE() <> 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT CASE WHEN renewed.token IS NOT NULL THEN 1
            WHEN seen.name IS NULL OR seen.owner = asked.owner THEN 2
            ELSE 0 END AS outcome,
       renewed.token AS token,
       CASE WHEN renewed.hand_over_at IS NULL THEN 0 ELSE 1 END AS hand_over,
       CASE WHEN there.name IS NULL THEN 0 ELSE 1 END AS found,
       seen.owner AS owner,
       asked.place AS place
FROM @asked AS asked
LEFT JOIN @renewed AS renewed ON renewed.name = asked.name AND renewed.owner = asked.owner
LEFT JOIN singleton_leases AS seen WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON seen.name = asked.name
LEFT JOIN singleton_leases AS there WITH (NOLOCK, FORCESEEK) ON there.name = asked.name;
