-- Forces the holder of $1 out. With $2 the lease is free at once, a rest ends too, and whoever listens on the channel $3 is woken;
-- without, it rests until it would have expired. One row when there is a lease to end: whether it was ended, when its rest ends, the
-- clock, and the former owner.
--
-- It ends another's term, so it locks FOR UPDATE first, and waits for nobody: a row that a fenced transaction has locked is not
-- ended. The clock is read after the lock, and a crash must not undo what an operator was told.
WITH seen AS MATERIALIZED (
    SELECT FROM singleton_leases WHERE name = $1 AND (owner IS NOT NULL OR ($2 AND expires_at > clock_timestamp()))
), locked AS MATERIALIZED (
    SELECT name, owner
    FROM singleton_leases
    WHERE name = $1 AND (owner IS NOT NULL OR ($2 AND expires_at > clock_timestamp()))
    FOR UPDATE SKIP LOCKED
), durable AS MATERIALIZED (
    SELECT name, owner, clock_timestamp() AS now,
           CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
    FROM locked
), ended AS (
    UPDATE singleton_leases AS lease
    SET owner = NULL,
        token = greatest(lease.token + 1, (extract(epoch FROM durable.now) * 1000000)::bigint),
        expires_at = CASE WHEN $2 THEN 'epoch' ELSE lease.expires_at END,
        hand_over_at = NULL
    FROM durable
    WHERE lease.name = durable.name
    RETURNING lease.expires_at, durable.now, durable.owner
)
SELECT ended.now IS NOT NULL, ended.expires_at, ended.now, ended.owner,
       CASE WHEN $2 AND ended.now IS NOT NULL THEN pg_notify($3, $1) END IS NOT NULL
FROM seen
LEFT JOIN ended ON true;
