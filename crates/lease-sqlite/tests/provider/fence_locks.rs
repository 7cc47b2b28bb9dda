//! Fenced transactions and the write lock: who waits for whom, and until when.

use std::{path::Path, time::Duration};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{ErrorKind, FenceReason, ForceRelease, LeaseAdmin, LeaseStore, clock::LocalInstant},
    rusqlite::{Connection, Transaction, TransactionBehavior},
};
use tokio::task::spawn_blocking;

use crate::{
    children::{Process, hear, say},
    fence::{BEHAVIORS, begin, entries, fenced, insert, ledger, refusal, term, unix_micros},
    support::{Database, PATIENCE, granted, migrated, name, owner, seconds},
};

/// S1: from verify until the transaction ends, nobody else is granted the lease, run out as it is, nor is its holder forced out; whoever
/// waits gets it right after. Rolling back to a savepoint changes nothing.
#[tokio::test]
async fn a_verified_transaction_keeps_everybody_else_out() {
    let database = Database::new();
    let (store, mut client, job) = (database.store().await, ledger(&database), name("job"));
    let hasty = migrated(database.config().operation_timeout(Duration::from_millis(100))).await;
    for (round, behavior) in (1..).zip(BEHAVIORS) {
        let term = term(&store, "a", 2000).await;
        let transaction = begin(&mut client, behavior);
        transaction.execute_batch("SAVEPOINT before").unwrap();
        store.verify(&transaction, &term).unwrap();
        transaction.execute_batch("ROLLBACK TO before").unwrap();

        let error = loop {
            match hasty.try_acquire(&job, &owner("b"), seconds(600)).await {
                Ok(answer) => assert!(!answer.is_acquired(), "granted while a transaction was verified"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Busy);
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { granted(&store, "job", "b", seconds(600)).await }
        });
        for mode in [ForceRelease::Rest, ForceRelease::Now] {
            assert_eq!(hasty.force_release(&job, mode).await.unwrap_err().kind(), ErrorKind::Busy);
        }
        assert!(!waiting.is_finished());
        insert(&transaction, "verified");
        transaction.commit().unwrap();
        assert!(waiting.await.unwrap() > term.token);
        assert_eq!(entries(&client), round);
        assert!(store.release(&job, &owner("b")).await.unwrap());
    }
}

/// S2, CT-05: whether the lease has run out is judged once the write lock is held, however long that took.
#[tokio::test]
async fn expiry_is_judged_after_the_wait_for_the_lock() {
    let database = Database::new();
    let (store, mut client, foreign) = (database.store().await, database.foreign(), database.foreign());
    let term = term(&store, "a", 1000).await;
    foreign.lock();
    let verified = spawn_blocking(move || {
        let transaction = begin(&mut client, TransactionBehavior::Deferred);
        store.verify(&transaction, &term)
    });
    while foreign.one::<i64>("SELECT expires_at FROM singleton_leases", []) > unix_micros() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!verified.is_finished());
    foreign.unlock();
    assert_eq!(fenced(verified.await.unwrap()), FenceReason::Expired);
}

/// RC-18: a transaction that has read cannot wait for the write lock, nor write once another has written. It has to begin again, and is
/// told so at once, whatever its busy timeout; without a rival it goes on.
#[tokio::test]
async fn a_transaction_that_has_read_is_told_to_begin_again() {
    let database = Database::new();
    let (store, mut client, foreign) = (database.store().await, ledger(&database), database.foreign());
    let term = term(&store, "a", 600_000).await;
    let read = |transaction: &Transaction<'_>| transaction.execute_batch("SELECT * FROM ledger").unwrap();

    let transaction = begin(&mut client, TransactionBehavior::Deferred);
    read(&transaction);
    store.commit(transaction, &term).unwrap();

    let transaction = begin(&mut client, TransactionBehavior::Deferred);
    read(&transaction);
    assert!(store.renew(&name("job"), &owner("a"), seconds(600)).await.unwrap().is_renewed());
    assert_eq!(refusal(store.verify(&transaction, &term)), ErrorKind::RestartTransaction, "an old snapshot");
    drop(transaction);

    let transaction = begin(&mut client, TransactionBehavior::Deferred);
    read(&transaction);
    foreign.lock();
    let started = LocalInstant::now();
    assert_eq!(refusal(store.verify(&transaction, &term)), ErrorKind::RestartTransaction, "a writer in the way");
    assert!(LocalInstant::now().saturating_duration_since(started) < PATIENCE / 2);
    foreign.unlock();
    drop(transaction);

    let transaction = begin(&mut client, TransactionBehavior::Deferred);
    store.verify(&transaction, &term).unwrap();
    read(&transaction);
    transaction.commit().unwrap();
}

/// S12: a wait for the lock is bounded by the connection's own busy timeout, and may be tried again in the same transaction.
#[tokio::test]
async fn a_wait_lasts_as_long_as_the_connections_busy_timeout() {
    let database = Database::new();
    let (store, mut client, foreign) = (database.store().await, database.foreign(), database.foreign());
    let term = term(&store, "a", 600_000).await;
    client.0.busy_timeout(Duration::from_millis(200)).unwrap();
    foreign.lock();
    let transaction = begin(&mut client, TransactionBehavior::Deferred);
    let started = LocalInstant::now();
    assert_eq!(refusal(store.verify(&transaction, &term)), ErrorKind::Busy);
    let took = LocalInstant::now().saturating_duration_since(started);
    assert!(took >= Duration::from_millis(150) && took < PATIENCE / 2, "{took:?}");
    foreign.unlock();
    store.verify(&transaction, &term).unwrap();
}

/// S1, SL-01: a client that freezes in a verified transaction holds its name beyond the lease, and every writer up, until it is ended;
/// then nothing of it was committed.
#[tokio::test]
async fn a_frozen_transaction_lasts_until_its_client_is_ended() {
    let database = Database::new();
    let (store, client) = (database.store().await, ledger(&database));
    let hasty = migrated(database.config().operation_timeout(Duration::from_millis(100))).await;
    let mut frozen = Process::start("freeze in a transaction", &database.path());
    let token: i64 = frozen.hear().parse().unwrap();
    let job = name("job");
    while hasty.try_acquire(&job, &owner("b"), seconds(600)).await.is_ok_and(|answer| !answer.is_acquired()) {}
    assert_eq!(hasty.try_acquire(&job, &owner("b"), seconds(600)).await.unwrap_err().kind(), ErrorKind::Busy);
    frozen.kill();
    assert!(granted(&store, "job", "b", seconds(600)).await.value() > token);
    assert_eq!(entries(&client), 0);
}

/// The part of the client in the test above.
pub(crate) async fn freeze_in_a_transaction(place: &Path) {
    let store = SqliteLeaseStore::connect(SqliteConfig::new(place)).await.unwrap();
    let term = term(&store, "a", 1500).await;
    let mut connection = Connection::open(place).unwrap();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    insert(&transaction, "frozen");
    store.verify(&transaction, &term).unwrap();
    say(&term.token.to_string());
    hear();
}
