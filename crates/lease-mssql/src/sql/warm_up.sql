-- Has Babelfish read the two longest statements, and run nothing of them. It learns its grammar anew in each session, which takes it a second
-- or two; a call that had to wait for that would run out of time, give its connection up, and begin with the next one again. So it is done
-- while the connection is opened, which may outlast a call. To SQL Server these are two strings in a branch that is not taken.
IF SERVERPROPERTY(N'babelfish') = 1
BEGIN
    EXEC (N'IF 1 = 0 BEGIN DECLARE @P1 nvarchar(4000); DECLARE @P2 nvarchar(4000); DECLARE @P3 int; DECLARE @P4 int; DECLARE @P5 nvarchar(4000); '
        + acquire_statement + N' END;');
    EXEC (N'IF 1 = 0 BEGIN DECLARE @P1 nvarchar(4000); DECLARE @P2 int; DECLARE @P3 int; ' + renew_many_statement + N' END;');
END;
