-- Verifies that $2 has the lease $1 in the term of the token $3, inside a transaction of the caller's own. One row when it has; no row
-- when it has not, and then the transaction must be rolled back.
--
-- From then until the transaction ends nobody else is granted the lease, for whatever ends a term locks the row FOR UPDATE first.
-- Under REPEATABLE READ and SERIALIZABLE a term that has ended since the transaction's snapshot is an error 40001: that lock makes
-- the change one of the key. Renewals are not, so the row may be an old one there, and its expiry says nothing.
-- The row is the time, in milliseconds, after which the server ends the transaction if its client has gone silent: what is left of
-- the term, or less if the session had less. Under the stricter levels it is what was left when the transaction began.
WITH locked AS MATERIALIZED (
    SELECT least(expires_at, clock_timestamp() + interval '20 days') AS expires_at
    FROM singleton_leases
    WHERE name = $1 AND owner = $2 AND token = $3
    FOR KEY SHARE
), held AS MATERIALIZED (
    SELECT CASE current_setting('transaction_isolation')
               WHEN 'read committed' THEN expires_at - clock_timestamp()
               ELSE greatest(expires_at - transaction_timestamp(), interval '1 millisecond')
           END AS remaining,
           nullif(current_setting('idle_in_transaction_session_timeout')::interval, interval '0') AS patience
    FROM locked
)
SELECT set_config(
    'idle_in_transaction_session_timeout',
    ceil(extract(epoch FROM least(remaining, patience)) * 1000)::bigint::text,
    true
)
FROM held
WHERE remaining > interval '0';
