-- Sent before the migrations in one transaction with them, so that of many starters one creates the table and the others find it.
DECLARE @locked int;
BEGIN TRANSACTION;
EXEC @locked = sp_getapplock @Resource = N'lease:migrate', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
