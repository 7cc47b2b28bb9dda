-- Moves the expiry of ?2's lease ?1 to ?3 microseconds from now. No row when the lease is not ?2's.
UPDATE main.singleton_leases
SET expires_at = lease_clock() + ?3
WHERE name = ?1 AND owner = ?2
RETURNING token, hand_over_at IS NOT NULL;
