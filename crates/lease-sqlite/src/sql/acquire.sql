-- Grants the lease ?1 to ?2 for ?3 microseconds, unless somebody else has it or it rests.
-- The clock is read once, under the write lock (S7): `excluded` is the new row.
-- Without RETURNING and MATERIALIZED, for each would set up a temporary table that costs more than all the rest.
INSERT INTO main.singleton_leases AS lease (name, owner, token, acquired_at, expires_at, hand_over_at)
SELECT ?1, ?2, now, now, now + ?3, NULL FROM (SELECT lease_clock() AS now) WHERE true
ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    token = max(lease.token + 1, excluded.token),
    acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at,
    hand_over_at = NULL
WHERE lease.owner IS excluded.owner OR lease.expires_at <= excluded.acquired_at;
