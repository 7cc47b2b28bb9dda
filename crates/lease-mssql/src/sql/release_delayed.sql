-- As `release.sql`, for a database that allows its transactions not to wait for the disk: a release that a crash undoes leaves the lease to
-- run out.
DECLARE @released TABLE (name nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
BEGIN TRY
    BEGIN TRANSACTION;
    UPDATE singleton_leases WITH (ROWLOCK)
    SET owner = NULL, expires_at = N'1970-01-01T00:00:00', hand_over_at = NULL
    OUTPUT inserted.name INTO @released (name)
    WHERE name = @P1 AND owner = @P2;
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF XACT_STATE() <> 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT COUNT(*) AS outcome FROM @released;
