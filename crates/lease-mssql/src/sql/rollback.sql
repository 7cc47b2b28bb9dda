-- Ends the caller's transaction after a commit that was refused.
IF @@TRANCOUNT > 0
    ROLLBACK TRANSACTION;
