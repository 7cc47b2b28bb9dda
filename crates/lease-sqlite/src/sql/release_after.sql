-- Gives up ?2's lease ?1, which rests until ?3 microseconds after its grant. No row when the lease is not ?2's.
-- The inner min keeps a foreign `acquired_at` at the end of time from overflowing.
UPDATE main.singleton_leases
SET owner = NULL, expires_at = min(acquired_at, 9223372036854775807 - ?3) + ?3, hand_over_at = NULL
WHERE name = ?1 AND owner = ?2
RETURNING token;
