-- Has the server read the longest statement, and run nothing of it. Babelfish learns its grammar anew in each session, which takes it a second
-- or two; a call that had to wait for that would run out of time, give its connection up, and begin with the next one again. So it is done
-- while the connection is opened, which may outlast a call. To SQL Server it is one short batch more.
IF 1 = 0
BEGIN
    DECLARE @P1 nvarchar(4000);
    DECLARE @P2 nvarchar(4000);
    DECLARE @P3 int;
    DECLARE @P4 int;
    DECLARE @P5 nvarchar(4000);
    longest_statement
END;
