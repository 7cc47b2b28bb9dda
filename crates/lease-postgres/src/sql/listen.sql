-- Wakes this session whenever a lease of the table is released; the payload is its name. A channel has no schema, so a table of the
-- same name in another schema wakes it too, which does no harm.
LISTEN singleton_leases;
