//! What Babelfish cannot witness: table hints, isolation by database, collations, real deadlocks, and the server's options. Each test runs on the
//! server that `LEASE_MSSQL_URL` names, in a database of its own.

use std::time::Duration;

use lease_mssql::{
    MssqlLeaseStore,
    lease_core::{
        ErrorKind, FenceError, FenceReason, ForceRelease, LeaseAdmin, LeaseStore, LossReason, Renewal, Term,
        clock::LocalInstant,
    },
};

use crate::{
    server::{Address, Database, PATIENCE},
    support::{Schema, granted, millis, name, owner, refused, renewed, seconds},
};

/// Well below what the store would wait for a lock.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn isolation(schema: &Schema, versioned: &str) {
    let name = &schema.database.address.database;
    for option in ["READ_COMMITTED_SNAPSHOT", "ALLOW_SNAPSHOT_ISOLATION"] {
        let sql = format!("ALTER DATABASE {name} SET {option} {versioned}");
        let sql = if option.starts_with("READ") { format!("{sql} WITH ROLLBACK IMMEDIATE") } else { sql };
        schema.foreign.execute(&sql).await;
    }
}

/// S3, RC-04: whatever lock is on the row, or on the table, nobody queues: not to acquire, to force out, or to renew many.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness READPAST, XLOCK and NOWAIT"]
async fn nobody_queues_for_a_lock() {
    let schema = Schema::new().await;
    for versioned in ["OFF", "ON"] {
        isolation(&schema, versioned).await;
        let (store, blocking) = (schema.store().await, schema.database.address.session().await);
        for lock in [
            "UPDATE singleton_leases SET token = token",
            "DECLARE @n int; SELECT @n = COUNT(*) FROM singleton_leases WITH (REPEATABLEREAD)",
            "DECLARE @n int; SELECT @n = COUNT(*) FROM singleton_leases WITH (UPDLOCK)",
            "DECLARE @n int; SELECT @n = COUNT(*) FROM singleton_leases WITH (PAGLOCK, XLOCK)",
            "DECLARE @n int; SELECT @n = COUNT(*) FROM singleton_leases WITH (TABLOCKX, HOLDLOCK)",
            "DELETE FROM singleton_leases",
        ] {
            store.force_release(&name("job"), ForceRelease::Now).await.unwrap();
            granted(&store, "job", "a", seconds(600)).await;
            schema.expire("job").await;
            blocking.execute(&format!("BEGIN TRANSACTION; {lock}")).await;
            let started = LocalInstant::now();
            for contender in ["a", "b"] {
                assert_eq!(refused(&store, "job", contender).await.remaining, Duration::ZERO, "{lock}");
            }
            let error = store.force_release(&name("job"), ForceRelease::Now).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Contended, "{lock}");
            let took = LocalInstant::now().saturating_duration_since(started);
            assert!(took < AT_ONCE, "{lock}: {took:?}");
            blocking.execute("ROLLBACK TRANSACTION").await;
        }
    }
}

/// S4: a foreign lock on one row does not hold up the renewals of others.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness READPAST"]
async fn a_locked_row_is_passed_by() {
    let schema = Schema::new().await;
    for versioned in ["OFF", "ON"] {
        isolation(&schema, versioned).await;
        let (store, blocking) = (schema.store().await, schema.database.address.session().await);
        let mut terms = Vec::new();
        for job in ["x", "y", "z"] {
            terms.push(Term::new(name(job), owner("a"), granted(&store, job, "a", seconds(600)).await));
        }
        blocking.execute("BEGIN TRANSACTION; UPDATE singleton_leases SET token = token WHERE name = N'y'").await;
        let started = LocalInstant::now();
        let answers = store.renew_many(&terms, seconds(600)).await;
        assert!(LocalInstant::now().saturating_duration_since(started) < AT_ONCE);
        assert!(answers[0].as_ref().unwrap().is_renewed() && answers[2].as_ref().unwrap().is_renewed());
        assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Contended);
        blocking.execute("ROLLBACK TRANSACTION").await;
    }
}

/// S3, CT-05: behind somebody's insert of the same name an attempt is refused at once, and does not wait for what becomes of it.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness NOLOCK and NOWAIT"]
async fn an_attempt_behind_an_insert_is_refused_at_once() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.database.address.session().await);
    granted(&store, "other", "a", seconds(600)).await;
    let insert = "BEGIN TRANSACTION; INSERT INTO singleton_leases (name, owner, token, acquired_at, expires_at) \
                  VALUES (N'job', N'foreign', 1, SYSUTCDATETIME(), DATEADD(hour, 1, SYSUTCDATETIME()))";
    blocking.execute(insert).await;
    let started = LocalInstant::now();
    assert_eq!(refused(&store, "job", "a").await.remaining, Duration::ZERO);
    assert!(LocalInstant::now().saturating_duration_since(started) < AT_ONCE);
    blocking.execute("ROLLBACK TRANSACTION").await;
    granted(&store, "job", "a", seconds(600)).await;
}

/// RC-04: a transaction under any isolation level is fenced off by what is committed, and not by what its snapshot shows.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness READCOMMITTEDLOCK under SNAPSHOT"]
async fn a_snapshot_does_not_verify_a_term_that_is_over() {
    let schema = Schema::new().await;
    isolation(&schema, "ON").await;
    schema.foreign.execute("CREATE TABLE ledger (token bigint NOT NULL)").await;
    let (store, session) = (schema.store().await, schema.database.address.session().await);
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT"] {
        let term = Term::new(name("job"), owner("a"), granted(&store, "job", "a", seconds(600)).await);
        session.execute(&format!("SET TRANSACTION ISOLATION LEVEL {level}")).await;
        session.execute("BEGIN TRANSACTION; INSERT INTO ledger VALUES (1)").await;
        schema.expire("job").await;
        granted(&store, "job", "b", seconds(600)).await;
        let refused = store.commit(&mut *session.0.lock().await, &term).await;
        let taken = FenceReason::Lost(LossReason::TakenOver(owner("b")));
        assert!(matches!(refused, Err(FenceError::Fenced(reason)) if reason == taken), "{level}");
        store.force_release(&name("job"), ForceRelease::Now).await.unwrap();

        let term = Term::new(name("job"), owner("a"), granted(&store, "job", "a", seconds(600)).await);
        session.execute("BEGIN TRANSACTION; INSERT INTO ledger VALUES (1)").await;
        store.commit(&mut *session.0.lock().await, &term).await.unwrap();
        store.force_release(&name("job"), ForceRelease::Now).await.unwrap();
    }
    assert_eq!(schema.foreign.one::<i32>("SELECT COUNT(*) FROM ledger", &[]).await, 4);
}

/// Rolling back to a savepoint from before `verify` gives the lease up, as the documentation says.
#[tokio::test]
#[ignore = "needs SQL Server: its application locks are the ones that are documented"]
async fn a_savepoint_before_verify_gives_the_lease_up() {
    let schema = Schema::new().await;
    let (store, session) = (schema.store().await, schema.database.address.session().await);
    let term = Term::new(name("job"), owner("a"), granted(&store, "job", "a", seconds(600)).await);
    session.execute("BEGIN TRANSACTION; SAVE TRANSACTION early").await;
    store.verify(&mut *session.0.lock().await, &term).await.unwrap();
    schema.expire("job").await;
    refused(&store, "job", "b").await;
    session.execute("ROLLBACK TRANSACTION early").await;
    granted(&store, "job", "b", seconds(600)).await;
    session.execute("ROLLBACK TRANSACTION").await;
}

/// NE-03, NE-08: in a database of any collation, names and owners that differ in case, accents, width or script are different, and come back as
/// they were; so do the words of every statement.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness the collation of a database"]
async fn any_collation_of_the_database_will_do() {
    let names = [
        "Job",
        "job",
        "JOB",
        "jo\u{301}b",
        "j\u{f3}b",
        "Iı",
        "İi",
        "ｊｏｂ",
        "ss",
        "ß",
        "カ",
        "か",
        "😀",
        "it's",
        "[x]",
        "a\"b\\",
    ];
    for collation in [
        "Turkish_CI_AI",
        "Turkish_100_CS_AS",
        "Latin1_General_BIN2",
        "SQL_Latin1_General_CP1_CS_AS",
        "Japanese_CI_AI",
        "Latin1_General_100_CI_AS_SC_UTF8",
        "Japanese_XJIS_140_CI_AS_UTF8",
    ] {
        let database = Database::create(Address::shared(), &format!("COLLATE {collation}")).await;
        let store = MssqlLeaseStore::connect(database.address.config().operation_timeout(PATIENCE)).await.unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        let mut terms = Vec::new();
        for name_and_owner in names {
            let token = granted(&store, name_and_owner, name_and_owner, seconds(600)).await;
            terms.push(Term::new(name(name_and_owner), owner(name_and_owner), token));
        }
        for (index, renewal) in store.renew_many(&terms, seconds(600)).await.into_iter().enumerate() {
            assert_eq!(renewal.unwrap().token(), Some(terms[index].token), "{collation}: {:?}", terms[index]);
        }
        for name_and_owner in names {
            assert_eq!(
                refused(&store, name_and_owner, "other").await.owner,
                Some(owner(name_and_owner)),
                "{collation}"
            );
            assert!(store.force_release(&name(name_and_owner), ForceRelease::Now).await.unwrap().is_some());
            granted(&store, name_and_owner, "b", seconds(600)).await;
            assert!(store.release_after(&name(name_and_owner), &owner("b"), millis(1)).await.unwrap());
        }
    }
}

/// SM-06: a trigger that answers rows of its own does not pass for our answer.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness a trigger's sets of rows"]
async fn a_trigger_that_answers_rows_is_passed_by() {
    let schema = Schema::new().await;
    let trigger =
        "CREATE TRIGGER talkative ON singleton_leases AFTER INSERT, UPDATE AS SELECT N'not the answer' AS note";
    schema.foreign.execute(trigger).await;
    let store = schema.store().await;
    let token = granted(&store, "job", "a", seconds(600)).await;
    assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
    let terms = [Term::new(name("job"), owner("a"), token)];
    assert!(store.renew_many(&terms, seconds(600)).await[0].as_ref().unwrap().is_renewed());
    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    assert_eq!(store.renew(&name("job"), &owner("a"), seconds(9)).await.unwrap(), Renewal::Lost(LossReason::ForcedOut));
}

/// RC-03, CX-05: as the victim of a real deadlock a renewal is repeated, and its connection is of use afterwards.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness a real 1205"]
async fn the_victim_of_a_deadlock_tries_again() {
    let schema = Schema::new().await;
    // A trigger makes of a renewal a transaction that wants another row as well, in the order that a circle needs.
    schema.foreign.execute("CREATE TABLE other (number int NOT NULL PRIMARY KEY); INSERT INTO other VALUES (1)").await;
    let trigger = "CREATE TRIGGER wants_more ON singleton_leases AFTER UPDATE AS \
                   IF EXISTS (SELECT 1 FROM inserted WHERE owner = N'a') UPDATE other SET number = number";
    schema.foreign.execute(trigger).await;
    let (store, blocking) = (schema.store().await, schema.database.address.session().await);
    granted(&store, "job", "a", seconds(600)).await;
    blocking.execute("SET DEADLOCK_PRIORITY HIGH; BEGIN TRANSACTION; UPDATE other SET number = number").await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.renew(&name("job"), &owner("a"), seconds(600)).await }
    });
    let blocked = "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0";
    while schema.foreign.one::<i32>(blocked, &[]).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    blocking.execute("UPDATE singleton_leases SET token = token; COMMIT TRANSACTION").await;
    assert!(waiting.await.unwrap().unwrap().is_renewed());
    renewed(&store, "job", "a", seconds(600)).await;
}

/// SM-05: with NOCOUNT as the server's default, which others' sessions have from their first moment, every answer is right.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness the server's default of NOCOUNT, which this test sets for the whole server"]
async fn nocount_by_default_changes_no_answer() {
    let schema = Schema::new().await;
    schema.foreign.execute("EXEC sp_configure 'user options', 512; RECONFIGURE").await;
    let store = schema.store().await;
    let token = granted(&store, "job", "a", seconds(600)).await;
    assert_eq!(refused(&store, "job", "b").await.owner, Some(owner("a")));
    assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    assert!(!store.release(&name("job"), &owner("a")).await.unwrap());
    schema.foreign.execute("EXEC sp_configure 'user options', 0; RECONFIGURE").await;
}

/// S5, S1: releases where the database allows them not to wait for the disk; and a database that forces it is refused.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness DELAYED_DURABILITY"]
async fn delayed_durability_is_used_when_allowed_and_refused_when_forced() {
    let schema = Schema::new().await;
    let database = &schema.database.address.database;
    for allowed in ["DISABLED", "ALLOWED"] {
        schema.foreign.execute(&format!("ALTER DATABASE {database} SET DELAYED_DURABILITY = {allowed}")).await;
        let store = schema.store().await;
        granted(&store, "job", "a", seconds(600)).await;
        assert!(store.release(&name("job"), &owner("a")).await.unwrap(), "{allowed}");
        assert!(!store.release(&name("job"), &owner("a")).await.unwrap(), "{allowed}");
    }
    schema.foreign.execute(&format!("ALTER DATABASE {database} SET DELAYED_DURABILITY = FORCED")).await;
    let error = MssqlLeaseStore::connect(schema.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("FORCED"), "{error}");
}

/// OV-08, S4: below compatibility level 130 many are renewed one by one; below 110 the database is refused.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness compatibility levels"]
async fn an_old_compatibility_level_is_coped_with_or_refused() {
    let schema = Schema::new().await;
    let database = &schema.database.address.database;
    schema.foreign.execute(&format!("ALTER DATABASE {database} SET COMPATIBILITY_LEVEL = 120")).await;
    let store = schema.store().await;
    let token = granted(&store, "job", "a", seconds(600)).await;
    let terms = [Term::new(name("job"), owner("a"), token), Term::new(name("job"), owner("b"), token)];
    let answers = store.renew_many(&terms, seconds(600)).await;
    assert!(answers[0].as_ref().unwrap().is_renewed());
    assert_eq!(answers[1].as_ref().unwrap(), &Renewal::Lost(LossReason::TakenOver(owner("a"))));
    schema.foreign.execute(&format!("ALTER DATABASE {database} SET COMPATIBILITY_LEVEL = 100")).await;
    let error = MssqlLeaseStore::connect(schema.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// The rights that the documentation lists are enough: proven by a user that has no other.
#[tokio::test]
#[ignore = "needs SQL Server: Babelfish cannot witness its rights"]
async fn the_listed_rights_are_enough() {
    let schema = Schema::new().await;
    let login = format!("worker_{}", std::process::id());
    let password = "Lease-tests-2";
    schema
        .foreign
        .execute(&format!("CREATE LOGIN {login} WITH PASSWORD = '{password}'; CREATE USER worker FOR LOGIN {login}"))
        .await;
    let mut worker = schema.database.address.clone();
    (worker.user, worker.password) = (login.clone(), password.into());
    let store = MssqlLeaseStore::connect(worker.config().schema("dbo").operation_timeout(PATIENCE)).await.unwrap();
    let error = store.try_acquire(&name("job"), &owner("a"), seconds(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    schema.foreign.execute("GRANT SELECT, INSERT, UPDATE ON dbo.singleton_leases TO worker").await;
    store.migrate().await.unwrap();
    let token = granted(&store, "job", "a", seconds(600)).await;
    assert_eq!(renewed(&store, "job", "a", seconds(600)).await, token);
    let term = Term::new(name("job"), owner("a"), token);
    assert!(store.renew_many(std::slice::from_ref(&term), seconds(600)).await[0].as_ref().unwrap().is_renewed());
    let session = worker.session().await;
    session.execute("BEGIN TRANSACTION").await;
    store.commit(&mut *session.0.lock().await, &term).await.unwrap();
    assert!(store.force_release(&name("job"), ForceRelease::Now).await.unwrap().is_some());
    granted(&store, "job", "a", seconds(600)).await;
    assert!(store.release_after(&name("job"), &owner("a"), millis(1)).await.unwrap());
    drop((store, session));
    schema.foreign.execute("DROP USER worker").await;
    drop(schema.foreign.try_execute(&format!("DROP LOGIN {login}")).await);
}
