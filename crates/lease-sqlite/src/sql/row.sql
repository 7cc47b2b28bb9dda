-- Who has the lease ?1, with which token, whether he shall hand it over, and the microseconds left, which are not positive once it
-- has run out; max, for an expiry before 1970 could overflow. No row when there is no such lease.
-- It is the guard that keeps a refusal from writing, and after a write it is the proof of what became of it.
SELECT owner, token, hand_over_at IS NOT NULL, max(expires_at, 0) - lease_clock()
FROM main.singleton_leases
WHERE name = ?1;
