-- Gives up @P2's lease @P1, which rests until @P3 seconds and @P4 milliseconds after its grant. One row: 1 when it was @P2's, else 0.
-- A rest that a crash could undo would be no rest for the next owner, so its commit waits for the disk.
DECLARE @released TABLE (name nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
UPDATE singleton_leases WITH (ROWLOCK)
SET owner = NULL, expires_at = DATEADD(millisecond, @P4, DATEADD(second, @P3, acquired_at)), hand_over_at = NULL
OUTPUT inserted.name INTO @released (name)
WHERE name = @P1 AND owner = @P2;
SELECT COUNT(*) AS outcome FROM @released;
