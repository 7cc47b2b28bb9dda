-- `hand_over_at` is set by a request to resign, and cleared by a grant. COLLATE "C" compares names and owners by code point in
-- whatever database this is. Only the primary key is indexed, and half of each page stays free, so that a heartbeat writes one
-- new version of one row beside the old one and touches no index.
CREATE TABLE IF NOT EXISTS singleton_leases (
    name         text        COLLATE "C" NOT NULL PRIMARY KEY,
    owner        text        COLLATE "C",
    token        bigint      NOT NULL,
    acquired_at  timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    hand_over_at timestamptz
) WITH (fillfactor = 50);
