-- Frees @P2's lease @P1. One row: 1 when it was @P2's, else 0. It ends nobody's term but the caller's, so it takes no application lock.
DECLARE @released TABLE (name nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
UPDATE singleton_leases WITH (ROWLOCK)
SET owner = NULL, expires_at = N'1970-01-01T00:00:00', hand_over_at = NULL
OUTPUT inserted.name INTO @released (name)
WHERE name = @P1 AND owner = @P2;
SELECT COUNT(*) AS outcome FROM @released;
