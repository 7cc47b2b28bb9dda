-- Why the lease ?1 was not verified: who has it, in the term of which token. No row when there is no such lease.
SELECT owner, token FROM main.singleton_leases WHERE name = ?1;
