-- Moves the expiry of ?2's lease ?1 to ?3 microseconds from now.
UPDATE main.singleton_leases
SET expires_at = lease_clock() + ?3
WHERE name = ?1 AND owner = ?2;
