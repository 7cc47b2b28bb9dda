//! Fenced transactions: which commit, and what the others learn.

use std::time::UNIX_EPOCH;

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{
        ErrorKind, FenceError, FenceReason, FencingToken, ForceRelease, HeldLease, LeaseAdmin, LeaseStore, LossReason,
        SingletonExecutor, SingletonOptions, Term, TryRun,
    },
    rusqlite::{Connection, DropBehavior, MAIN_DB, Transaction, TransactionBehavior, TransactionState},
};
use tokio::task::spawn_blocking;

use crate::support::{Database, Foreign, granted, migrated, millis, name, owner, seconds};

pub(crate) const BEHAVIORS: [TransactionBehavior; 2] = [TransactionBehavior::Immediate, TransactionBehavior::Deferred];

pub(crate) async fn term(store: &SqliteLeaseStore, to: &str, millis_long: u64) -> Term {
    let token = granted(store, "job", to, millis(millis_long)).await;
    Term::new(name("job"), owner(to), token)
}

pub(crate) fn begin(connection: &mut Foreign, behavior: TransactionBehavior) -> Transaction<'_> {
    connection.0.transaction_with_behavior(behavior).unwrap()
}

/// A client with a table of its own.
pub(crate) fn ledger(database: &Database) -> Foreign {
    let client = database.foreign();
    client.execute("CREATE TABLE IF NOT EXISTS ledger (entry TEXT)");
    client
}

pub(crate) fn entries(client: &Foreign) -> i64 {
    client.one("SELECT count(*) FROM ledger", [])
}

pub(crate) fn insert(transaction: &Transaction<'_>, entry: &str) {
    transaction.execute("INSERT INTO ledger VALUES (?1)", [entry]).unwrap();
}

pub(crate) fn fenced(result: Result<(), FenceError>) -> FenceReason {
    match result {
        Err(FenceError::Fenced(reason)) => reason,
        other => panic!("it should be fenced off: {other:?}"),
    }
}

pub(crate) fn refusal(result: Result<(), FenceError>) -> ErrorKind {
    match result {
        Err(FenceError::Store(error)) => error.kind(),
        other => panic!("it should be an error: {other:?}"),
    }
}

/// S1, S6: a term that stands is verified and committed; one that is over is fenced off for the reason that the row gives.
#[tokio::test]
async fn a_term_commits_and_a_stale_one_learns_why_not() {
    let database = Database::new();
    let (store, mut client, other) = (database.store().await, ledger(&database), database.foreign());
    let term = term(&store, "a", 600_000).await;
    for behavior in BEHAVIORS {
        let transaction = begin(&mut client, behavior);
        store.verify(&transaction, &term).unwrap();
        insert(&transaction, "verified");
        store.commit(transaction, &term).unwrap();
    }

    let former = Term::new(name("job"), owner("a"), FencingToken::new(term.token.value() - 1));
    let lost = FenceReason::Lost;
    for (term, change, reason) in [
        (&former, "SELECT 1", lost(LossReason::Superseded(term.token))),
        (&term, "UPDATE singleton_leases SET owner = 'b'", lost(LossReason::TakenOver(owner("b")))),
        (&term, "UPDATE singleton_leases SET owner = NULL", lost(LossReason::ForcedOut)),
        (&term, "UPDATE singleton_leases SET owner = 'a', expires_at = 1", FenceReason::Expired),
        (&term, "UPDATE singleton_leases SET expires_at = -9223372036854775808", FenceReason::Expired),
        (&term, "DELETE FROM singleton_leases", lost(LossReason::Deleted)),
    ] {
        other.execute(change);
        for behavior in BEHAVIORS {
            let transaction = begin(&mut client, behavior);
            insert(&transaction, "stale");
            assert_eq!(fenced(store.commit(transaction, term)), reason, "{change}");
        }
    }
    assert_eq!(entries(&client), 2);
}

/// S1, S6: the terms that the verbs end are over: by a takeover, by force, by a release, and by a grant to the same owner.
#[tokio::test]
async fn the_verbs_end_a_term_for_its_transactions_too() {
    let database = Database::new();
    let (store, mut client) = (database.store().await, database.foreign());
    let verify = |client: &mut Foreign, term: &Term| store.verify(&begin(client, TransactionBehavior::Immediate), term);

    let first = term(&store, "a", 600_000).await;
    let second = term(&store, "a", 600_000).await;
    assert_eq!(fenced(verify(&mut client, &first)), FenceReason::Lost(LossReason::Superseded(second.token)));
    verify(&mut client, &second).unwrap();
    assert!(store.renew(&name("job"), &owner("a"), seconds(600)).await.unwrap().is_renewed());
    verify(&mut client, &second).unwrap();
    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    assert_eq!(fenced(verify(&mut client, &second)), FenceReason::Lost(LossReason::ForcedOut));

    let third = term(&store, "b", 600_000).await;
    assert_eq!(fenced(verify(&mut client, &second)), FenceReason::Lost(LossReason::TakenOver(owner("b"))));
    store.force_release(&name("job"), ForceRelease::Rest).await.unwrap();
    assert_eq!(fenced(verify(&mut client, &third)), FenceReason::Lost(LossReason::ForcedOut));
}

/// S2, CT-14: a lease is verified until its last millisecond, and never after it has run out.
#[tokio::test]
async fn expiry_is_judged_to_the_millisecond() {
    let database = Database::new();
    let (store, mut client) = (database.store().await, database.foreign());
    for _ in 0..50 {
        let term = term(&store, "a", 20).await;
        let expires_at: i64 = client.one("SELECT expires_at FROM singleton_leases", []);
        let transaction = begin(&mut client, TransactionBehavior::Immediate);
        loop {
            let before = unix_micros();
            match store.verify(&transaction, &term) {
                Ok(()) => assert!(before < expires_at),
                Err(error) => {
                    assert_eq!(fenced(Err(error)), FenceReason::Expired);
                    assert!(unix_micros() > expires_at - 1000);
                    break;
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this host's clock is the database's")]
pub(crate) fn unix_micros() -> i64 {
    i64::try_from(std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A transaction on another file is refused before anything is executed, a faithful copy and a hard link included; a symbolic link is
/// another way to the same file. So is one that is over, for whatever was executed after it is committed already.
#[tokio::test]
async fn a_transaction_of_another_place_is_refused() {
    let database = Database::new();
    let (store, mut client) = (database.store().await, database.foreign());
    let term = term(&store, "a", 600_000).await;
    let beside = |file: &str| database.path().with_file_name(file);
    client.0.execute("VACUUM INTO ?1", [beside("copy.db").to_str()]).unwrap();
    client.empty_log();
    std::fs::hard_link(database.path(), beside("hard.db")).unwrap();
    for file in [Some("copy.db"), Some("hard.db"), None] {
        let mut other = file.map_or_else(Connection::open_in_memory, |file| Connection::open(beside(file))).unwrap();
        let transaction = other.transaction().unwrap();
        let error = store.verify(&transaction, &term).unwrap_err();
        assert!(error.to_string().contains("must be on the store's file"), "{error}");
        assert_eq!(refusal(Err(error)), ErrorKind::InvalidConfig);
        assert_eq!(transaction.transaction_state(Some(MAIN_DB)).unwrap(), TransactionState::None);
    }
    let memory = migrated(SqliteConfig::in_memory()).await;
    let transaction = begin(&mut client, TransactionBehavior::Immediate);
    assert_eq!(refusal(memory.verify(&transaction, &term)), ErrorKind::InvalidConfig);
    store.verify(&transaction, &term).unwrap();
    transaction.execute_batch("COMMIT").unwrap();
    assert_eq!(refusal(store.verify(&transaction, &term)), ErrorKind::RestartTransaction);
    drop(transaction);

    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(database.path(), beside("soft.db")).unwrap();
        let mut same = Connection::open(beside("soft.db")).unwrap();
        store.commit(same.transaction().unwrap(), &term).unwrap();
    }
}

/// A refused commit is rolled back even where dropping the transaction would commit it, and so is one that breaks a constraint.
#[tokio::test]
async fn a_refused_commit_is_rolled_back() {
    let database = Database::new();
    let (store, mut client) = (database.store().await, ledger(&database));
    let standing = term(&store, "a", 600_000).await;
    let stale = Term::new(name("job"), owner("b"), standing.token);
    for behavior in [DropBehavior::Commit, DropBehavior::Ignore, DropBehavior::Panic] {
        let mut transaction = begin(&mut client, TransactionBehavior::Immediate);
        transaction.set_drop_behavior(behavior);
        insert(&transaction, "stale");
        assert_eq!(fenced(store.commit(transaction, &stale)), FenceReason::Lost(LossReason::TakenOver(owner("a"))));
        assert!(client.0.is_autocommit());
    }
    client.execute(
        "PRAGMA foreign_keys = ON;
         CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);",
    );
    let transaction = begin(&mut client, TransactionBehavior::Immediate);
    insert(&transaction, "orphan");
    transaction.execute_batch("INSERT INTO child VALUES (1)").unwrap();
    assert_eq!(refusal(store.commit(transaction, &standing)), ErrorKind::Unsupported);
    assert!(client.0.is_autocommit());
    assert_eq!(entries(&client), 0);
}

/// S8: a table that is not there, and a connection that may not write, are said to be so.
#[tokio::test]
async fn what_keeps_a_term_from_being_verified_is_named() {
    let database = Database::new();
    let (store, mut client) = (database.store().await, database.foreign());
    let term = term(&store, "a", 600_000).await;
    client.execute("PRAGMA query_only = ON");
    assert_eq!(refusal(store.commit(begin(&mut client, BEHAVIORS[1]), &term)), ErrorKind::ReadOnly);
    client.execute("PRAGMA query_only = OFF; DROP TABLE singleton_leases");
    assert_eq!(refusal(store.commit(begin(&mut client, BEHAVIORS[1]), &term)), ErrorKind::NotMigrated);
}

/// The statement needs nothing but its parameters: one row while the term stands, none afterwards, also on a table of another name.
#[tokio::test]
async fn the_statement_stands_on_its_own() {
    let database = Database::new();
    for (table, store) in [
        ("singleton_leases", database.store().await),
        ("job_leases", migrated(database.config().table("job_leases")).await),
    ] {
        let (term, client) = (term(&store, "a", 600_000).await, database.foreign());
        let rows = || {
            let mut statement = client.0.prepare(store.verify_sql()).unwrap();
            let mut rows = statement.query((term.name.as_str(), term.owner.as_str(), term.token.value())).unwrap();
            let found = rows.next().unwrap().is_some();
            assert!(!found || rows.next().unwrap().is_none());
            found
        };
        client.lock();
        assert!(rows());
        client.execute("COMMIT");
        assert_eq!(client.0.execute(&format!("UPDATE {table} SET token = token + 1"), []).unwrap(), 1);
        assert!(!rows());
    }
}

/// E1: what a job holds fences its transactions; while the executor is disabled every transaction commits, wherever it is.
#[tokio::test]
async fn a_jobs_lease_fences_and_a_disabled_executor_does_not() {
    let database = Database::new();
    let store = database.store().await;
    let mut elsewhere = Connection::open_in_memory().unwrap();
    for options in [SingletonOptions::enabled(), SingletonOptions::default()] {
        let is_enabled = options.is_enabled();
        let executor = SingletonExecutor::new(store.clone(), options).unwrap();
        let (fence, mut client) = (store.clone(), ledger(&database));
        let pay = |lease: HeldLease| async move {
            let committed = spawn_blocking(move || {
                let transaction = begin(&mut client, TransactionBehavior::Immediate);
                insert(&transaction, "paid");
                fence.commit(transaction, &lease).map(|()| lease)
            });
            committed.await.unwrap().unwrap()
        };
        let TryRun::Ran(lease) = executor.job("job").unwrap().try_run(pay).await.unwrap() else {
            panic!("the lease should be free");
        };
        executor.shutdown().await;
        assert_eq!(store.commit(elsewhere.transaction().unwrap(), &lease).is_err(), is_enabled);
    }
    assert_eq!(entries(&ledger(&database)), 2);
}
