-- Every time is an integer: Unix microseconds of this host's clock. `hand_over_at` is set by a request to resign, and cleared
-- by a grant. STRICT, for SQLite would store an overflow as a REAL. Only the primary key is indexed: a heartbeat writes one
-- row and no index.
CREATE TABLE IF NOT EXISTS singleton_leases (
    name         TEXT    NOT NULL PRIMARY KEY COLLATE BINARY,
    owner        TEXT    COLLATE BINARY,
    token        INTEGER NOT NULL,
    acquired_at  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    hand_over_at INTEGER
) STRICT, WITHOUT ROWID;
