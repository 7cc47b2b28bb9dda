-- Frees $2's lease $1, and wakes whoever listens on the channel $3. No row when the lease is not $2's.
-- This commit alone does not wait for the disk: a release that a crash undoes leaves the lease to run out.
WITH quick AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
), released AS (
    UPDATE singleton_leases AS lease
    SET owner = NULL, expires_at = 'epoch', hand_over_at = NULL
    FROM quick
    WHERE lease.name = $1 AND lease.owner = $2
    RETURNING lease.name
)
SELECT pg_notify($3, name) IS NOT NULL FROM released;
