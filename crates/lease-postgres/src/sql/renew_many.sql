-- Moves the expiries of many leases to $3 microseconds from now: the names $1, each with the owner at the same place of $2. One row
-- for each: the columns of `renew.sql`, and its place, which counts from one.
--
-- Nobody is waited for. A row that somebody has locked is skipped, or it would hold the others up until they run out; it then
-- shows no token though it names its owner, as does one that has changed meanwhile.
WITH asked AS MATERIALIZED (
    SELECT name, owner, place FROM unnest($1, $2) WITH ORDINALITY AS asked (name, owner, place)
), locked AS MATERIALIZED (
    SELECT lease.name
    FROM singleton_leases AS lease
    WHERE lease.name = ANY ($1) AND lease.owner = ANY ($2)
      AND EXISTS (SELECT FROM asked WHERE asked.name = lease.name AND asked.owner = lease.owner)
    FOR NO KEY UPDATE OF lease SKIP LOCKED
), durable AS MATERIALIZED (
    SELECT name,
           CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
    FROM locked
), renewed AS (
    UPDATE singleton_leases AS lease
    SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'
    FROM durable
    WHERE lease.name = durable.name
    RETURNING lease.name, lease.owner, lease.token, lease.hand_over_at IS NOT NULL AS hand_over
)
SELECT renewed.token, renewed.hand_over, seen.name IS NOT NULL, seen.owner, asked.place
FROM asked
LEFT JOIN renewed ON renewed.name = asked.name AND renewed.owner = asked.owner
LEFT JOIN singleton_leases AS seen ON seen.name = asked.name;
