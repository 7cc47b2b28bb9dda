-- What every session of the store is told when it is opened: the statements are written for these settings, whatever the server, the
-- database and the login have for theirs.
--
-- READ COMMITTED and no implicit transactions: a statement is its own transaction, and is over when it has answered. An error ends the
-- batch and rolls back what it had begun. A lock is waited for a quarter of the time that a call has, and 1.25 s at most (S12).
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT lock_timeout_milliseconds;
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET QUOTED_IDENTIFIER ON;
SET ROWCOUNT 0;
