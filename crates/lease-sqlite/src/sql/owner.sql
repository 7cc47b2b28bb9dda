-- Who has the lease ?1 after a renewal found that its caller has not. No row when there is no such lease.
SELECT owner FROM main.singleton_leases WHERE name = ?1;
