-- Verifies that ?2 has the lease ?1 in the term of the token ?3, inside a transaction of the caller's own. One row when it has; no row
-- when it has not, and then the transaction must be rolled back.
--
-- A write, though it changes nothing: from here until the transaction ends it alone has the database's write lock, so that nobody
-- else is granted the lease. After a read somebody would be.
-- The caller's connection does not know `lease_clock`. SQLite's own 'now' is the same clock, read after the lock was waited for, but in
-- whole milliseconds, of which the running one counts as over: a lease is never verified after it has run out.
UPDATE main.singleton_leases
SET token = token
WHERE name = ?1 AND owner = ?2 AND token = ?3
    AND expires_at >= (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + 1) * 1000
RETURNING token;
