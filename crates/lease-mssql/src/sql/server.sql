-- What the server and the database are: the version's number, the edition, whether it is Babelfish, the compatibility level, the database's
-- delayed durability (0 disabled, 1 allowed, 2 forced), and whether it knows OPENJSON, which is asked of it and not of its level.
DECLARE @json int = 0;
BEGIN TRY
    EXEC (N'DECLARE @none int; SELECT @none = COUNT(*) FROM OPENJSON(N''[]'')');
    SET @json = 1;
END TRY
BEGIN CATCH
    SET @json = 0;
END CATCH;
SELECT CAST(SERVERPROPERTY(N'ProductVersion') AS nvarchar(128)) AS outcome,
       CAST(SERVERPROPERTY(N'EngineEdition') AS int) AS edition,
       CASE WHEN SERVERPROPERTY(N'babelfish') = 1 THEN 1 ELSE 0 END AS babelfish,
       CAST(compatibility_level AS int) AS compatibility,
       CAST(delayed_durability AS int) AS durability,
       @json AS json
FROM sys.databases
WHERE database_id = DB_ID();
