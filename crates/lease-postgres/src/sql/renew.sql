-- Moves the expiry of $2's lease $1 to $3 microseconds from now. Always one row: the token or null, whether a hand-over was
-- requested, whether there is such a lease, and who has it.
--
-- The lock comes first, and whoever has the row is waited for there; the clock is read after it (S7). A renewal ends nobody's
-- term, so its lock lets a fenced transaction of that term (FOR KEY SHARE) go on. The last two columns are as the statement found
-- them: when they name $2 and the token is null, the row changed during the wait, and only another statement can say how.
-- A renewal that a crash could undo would let somebody else have the lease before its owner's deadline.
WITH locked AS MATERIALIZED (
    SELECT name FROM singleton_leases WHERE name = $1 AND owner = $2 FOR NO KEY UPDATE
), durable AS MATERIALIZED (
    SELECT name,
           CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
    FROM locked
), renewed AS (
    UPDATE singleton_leases AS lease
    SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
    FROM durable
    WHERE lease.name = durable.name
    RETURNING lease.token, lease.hand_over_at IS NOT NULL AS hand_over
)
SELECT renewed.token, renewed.hand_over, seen.name IS NOT NULL, seen.owner
FROM (SELECT) AS answer
LEFT JOIN renewed ON true
LEFT JOIN singleton_leases AS seen ON seen.name = $1;
