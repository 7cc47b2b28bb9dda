-- What the server and the database are: the version's number, the edition, whether it is Babelfish, the compatibility level, and the
-- database's delayed durability (0 disabled, 1 allowed, 2 forced).
SELECT CAST(SERVERPROPERTY(N'ProductVersion') AS nvarchar(128)) AS outcome,
       CAST(SERVERPROPERTY(N'EngineEdition') AS int) AS edition,
       CASE WHEN SERVERPROPERTY(N'babelfish') = 1 THEN 1 ELSE 0 END AS babelfish,
       CAST(compatibility_level AS int) AS compatibility,
       CAST(delayed_durability AS int) AS durability
FROM sys.databases
WHERE database_id = DB_ID();
