-- Grants the lease $1 to $2 for $3 microseconds, or says who has it. The row of a grant: its token, when it was made, and the
-- clock, if it may have moved on since. The row of a refusal: no token, when the lease runs out, the clock, and the owner. No row
-- when the lease is contended.
--
-- Every part sees the table as it was when the statement began; only a row lock sees what others have committed since. So:
-- * A refusal ends with `seen`. It takes no lock, which PostgreSQL would write into the row, and no transaction id.
-- * `locked` skips a row that somebody has locked, and looks at the newest version of a row that has changed since: of two
--   takeovers at once, the second finds the row locked, or finds it taken. Its lock is the strongest, FOR UPDATE, for a grant
--   ends another's term, and a fenced transaction of that term (FOR KEY SHARE) has to keep that from happening.
-- * `chance` reads the clock once for the row that was locked, and after it was locked, so that no wait is taken off the term
--   (S7). From then on nobody else can write the row, and `taken` writes its newest version.
-- * `inserted` is for a name that was absent. A row that somebody has inserted since makes it do nothing: the race is lost, and
--   the winner is not in sight. Behind an insert that is not yet committed it waits, and when that one is rolled back its own
--   clock is out of date. The row of the grant shows it, and the store renews the lease before it answers.
-- * A row that was seen to be free and is gone, locked or taken by now is contended too: nobody says for how long.
-- * A grant that a crash could undo would be a second owner's to have, so its commit waits for the disk whatever the role says.
-- A factor of an interval is a double, which is exact below 2^53 microseconds; and the interval has no days in it, whose length
-- would depend on the session's time zone.
WITH seen AS MATERIALIZED (
    SELECT owner, expires_at, (owner = $2) IS TRUE OR expires_at <= clock_timestamp() AS is_free
    FROM singleton_leases
    WHERE name = $1
), locked AS MATERIALIZED (
    SELECT lease.name
    FROM seen, singleton_leases AS lease
    WHERE seen.is_free AND lease.name = $1 AND (lease.owner = $2 OR lease.expires_at <= clock_timestamp())
    FOR UPDATE OF lease SKIP LOCKED
), chance AS MATERIALIZED (
    SELECT name, clock_timestamp() AS now,
           CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
    FROM (SELECT name FROM locked UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT FROM seen)) AS chance
), taken AS (
    UPDATE singleton_leases AS lease
    SET owner = $2,
        token = greatest(lease.token + 1, (extract(epoch FROM chance.now) * 1000000)::bigint),
        acquired_at = chance.now,
        expires_at = chance.now + $3 * interval '1 microsecond',
        hand_over_at = NULL
    FROM chance
    WHERE lease.name = chance.name
    RETURNING lease.token, lease.acquired_at
), inserted AS (
    INSERT INTO singleton_leases AS lease (name, owner, token, acquired_at, expires_at)
    SELECT $1, $2, (extract(epoch FROM now) * 1000000)::bigint, now, now + $3 * interval '1 microsecond'
    FROM chance
    WHERE name IS NULL
    ON CONFLICT (name) DO NOTHING
    RETURNING lease.token, lease.acquired_at
)
SELECT token, acquired_at AS at, acquired_at AS now, NULL AS owner FROM taken
UNION ALL
SELECT token, acquired_at, clock_timestamp(), NULL FROM inserted
UNION ALL
SELECT NULL, expires_at, clock_timestamp(), owner FROM seen WHERE NOT is_free;
