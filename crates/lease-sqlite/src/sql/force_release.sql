-- Forces the holder of ?1 out. With ?2 the lease is free at once and a rest ends too; without, it rests until it would have
-- expired. No row when there is nothing to end. Answers the microseconds of rest, not positive when there is none.
UPDATE main.singleton_leases
SET owner = NULL, token = max(token + 1, lease_clock()), expires_at = iif(?2, 0, expires_at), hand_over_at = NULL
WHERE name = ?1 AND (owner IS NOT NULL OR (?2 AND expires_at > lease_clock()))
RETURNING max(expires_at, 0) - lease_clock();
