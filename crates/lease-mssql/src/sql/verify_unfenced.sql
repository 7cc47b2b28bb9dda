-- What `verify.sql` answers where there is no lease to verify.
SELECT 1 AS outcome;
