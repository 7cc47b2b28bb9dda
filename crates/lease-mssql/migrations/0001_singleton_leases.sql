-- `hand_over_at` is set by a request to resign, and cleared by a grant. The binary collation compares names and owners by code point in
-- whatever database this is; times are UTC. Only the primary key is indexed, so that a heartbeat touches no other index.
IF OBJECT_ID(N'singleton_leases', N'U') IS NULL
CREATE TABLE singleton_leases (
    name         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY CLUSTERED,
    owner        nvarchar(255) COLLATE Latin1_General_100_BIN2 NULL,
    token        bigint       NOT NULL,
    acquired_at  datetime2(6) NOT NULL,
    expires_at   datetime2(6) NOT NULL,
    hand_over_at datetime2(6) NULL
);
