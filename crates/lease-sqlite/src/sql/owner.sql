-- Who has the lease ?1: whoever took it over, or is forced out. No row when there is no such lease.
SELECT owner FROM main.singleton_leases WHERE name = ?1;
