-- Sent before the migrations in one transaction with them, so that of many starters one creates the table and the others find it.
-- The key is "lease_mi" in ASCII.
SELECT pg_advisory_xact_lock(7810756276993879401);
