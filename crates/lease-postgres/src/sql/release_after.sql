-- Gives up $2's lease $1, which rests until $3 microseconds after its grant. No row when the lease is not $2's.
-- A rest that a crash could undo would be no rest for the next owner, so its commit waits for the disk.
WITH durable AS MATERIALIZED (
    SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)
UPDATE singleton_leases AS lease
SET owner = NULL, expires_at = lease.acquired_at + $3 * interval '1 microsecond', hand_over_at = NULL
FROM durable
WHERE lease.name = $1 AND lease.owner = $2
RETURNING true;
