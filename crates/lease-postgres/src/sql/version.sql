-- The version of the server, 120000 for PostgreSQL 12.0.
SELECT current_setting('server_version_num')::bigint;
