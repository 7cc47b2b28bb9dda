-- Moves the expiries of many leases to @P2 seconds and @P3 milliseconds from now: those of the pairs in @P1, an array of arrays [name, owner].
-- One row for each pair: the columns of `renew.sql`, and its place, which counts from zero. The outcome is 2 where the pair has to be
-- renewed alone: the row is locked by somebody and `found` is 1, or is not to be seen at all.
--
-- Nobody is waited for. READPAST skips a row that somebody has locked, or it would hold the others up until they run out. FORCESEEK
-- keeps the UPDATE to the rows that it is asked for: a scan would lock others. A chunk is too small for its locks to be escalated.
-- No table can have an alias's name, for those have a hyphen.
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
        UPDATE [lease-row]
        SET expires_at = DATEADD(millisecond, @P3, DATEADD(second, @P2, @now))
        OUTPUT inserted.name, inserted.owner, inserted.token, inserted.hand_over_at INTO @renewed (name, owner, token, hand_over_at)
        FROM singleton_leases AS [lease-row] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        INNER JOIN @asked AS [asked-pair] ON [asked-pair].name = [lease-row].name AND [asked-pair].owner = [lease-row].owner;
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
SELECT CASE WHEN [renewed-pair].token IS NOT NULL THEN 1
            WHEN [seen-row].name IS NULL OR [seen-row].owner = [asked-pair].owner THEN 2
            ELSE 0 END AS outcome,
       [renewed-pair].token AS token,
       CASE WHEN [renewed-pair].hand_over_at IS NULL THEN 0 ELSE 1 END AS hand_over,
       CASE WHEN [there-row].name IS NULL THEN 0 ELSE 1 END AS found,
       [seen-row].owner AS owner,
       [asked-pair].place AS place
FROM @asked AS [asked-pair]
LEFT JOIN @renewed AS [renewed-pair] ON [renewed-pair].name = [asked-pair].name AND [renewed-pair].owner = [asked-pair].owner
LEFT JOIN singleton_leases AS [seen-row] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON [seen-row].name = [asked-pair].name
LEFT JOIN singleton_leases AS [there-row] WITH (NOLOCK, FORCESEEK) ON [there-row].name = [asked-pair].name;
