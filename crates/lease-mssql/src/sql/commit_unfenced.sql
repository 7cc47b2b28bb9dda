-- Commits the caller's transaction where there is no lease to verify.
IF @@TRANCOUNT <> 1 OR XACT_STATE() <> 1
    THROW 51206, N'there is no open transaction that can be committed, or it is not the outermost', 1;
COMMIT TRANSACTION;
