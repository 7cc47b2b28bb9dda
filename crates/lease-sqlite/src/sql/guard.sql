-- Why ?2 may not have the lease ?1 now: its holder and the microseconds left. No row when it may.
-- MATERIALIZED, so that the clock is read once.
WITH clock(now) AS MATERIALIZED (SELECT lease_clock())
SELECT owner, expires_at - now
FROM clock, main.singleton_leases
WHERE name = ?1 AND owner IS NOT ?2 AND expires_at > now;
