-- Why the lease @P1 was not verified: who has it, in the term of which token. No row when there is no such lease.
SELECT token AS outcome, owner AS owner FROM singleton_leases WITH (READCOMMITTEDLOCK) WHERE name = @P1;
