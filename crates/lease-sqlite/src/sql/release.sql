-- Frees ?2's lease ?1. No row when the lease is not ?2's.
UPDATE main.singleton_leases
SET owner = NULL, expires_at = 0, hand_over_at = NULL
WHERE name = ?1 AND owner = ?2
RETURNING token;
