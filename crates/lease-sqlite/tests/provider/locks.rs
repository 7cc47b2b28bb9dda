//! Other processes' write transactions: who waits for them, for how long, and what comes of a wait that is called off.

use std::{future::Future, pin::Pin, sync::Arc, thread, time::Duration};

use lease_sqlite::{
    SqliteLeaseStore,
    lease_core::{ErrorKind, FencingToken, LeaseStore, Renewal, StoreError, Term, clock::LocalInstant},
};
use tokio::time::timeout;

use crate::support::{Database, PATIENCE, granted, migrated, name, owner, refused, seconds};

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Every call that has to write, on the lease `job` of owner `a`.
fn writes(store: &SqliteLeaseStore) -> Vec<(&'static str, Call<'_>)> {
    vec![
        ("try_acquire", Box::pin(async { store.try_acquire(&name("job"), &owner("a"), seconds(9)).await.map(drop) })),
        ("renew", Box::pin(async { store.renew(&name("job"), &owner("a"), seconds(9)).await.map(drop) })),
        ("release", Box::pin(async { store.release(&name("job"), &owner("a")).await.map(drop) })),
        (
            "release_after",
            Box::pin(async { store.release_after(&name("job"), &owner("a"), seconds(9)).await.map(drop) }),
        ),
        (
            "renew_many",
            Box::pin(async {
                let terms = [Term::new(name("job"), owner("a"), FencingToken::new(0))];
                store.renew_many(&terms, seconds(9)).await.remove(0).map(drop)
            }),
        ),
    ]
}

/// S3, S12: a refusal is answered while somebody else writes, and while a writer of this very store waits for him.
#[tokio::test]
async fn a_refusal_waits_for_no_writer() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    granted(&store, "job", "a", seconds(30)).await;
    foreign.lock();

    let waiting = tokio::spawn({
        let store = store.clone();
        async move { granted(&store, "other", "b", seconds(30)).await }
    });
    for _ in 0..1000 {
        let holder = timeout(PATIENCE, refused(&store, "job", "b")).await.expect("the refusal waited for a writer");
        assert_eq!(holder.owner, Some(owner("a")));
    }
    assert!(!waiting.is_finished());
    foreign.unlock();
    waiting.await.unwrap();
}

/// S7, RC-18: a grant that had to wait for the lock lasts its whole duration from the moment it is made.
#[tokio::test]
async fn a_write_waits_for_the_lock_and_then_lasts_in_full() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    foreign.lock();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { granted(&store, "job", "a", seconds(30)).await }
    });
    let started = foreign.one::<i64>("SELECT unixepoch('now')", []) * 1_000_000;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!waiting.is_finished());
    foreign.unlock();

    let token = waiting.await.unwrap();
    let row = foreign.row(&name("job")).unwrap();
    assert!(row.acquired_at >= started + 1_500_000, "the clock was read before the lock was held");
    assert_eq!(row.expires_at, row.acquired_at + 30_000_000);
    assert_eq!(row.token, token.value());
}

/// S8, S12, SM-11: a lock that is held for longer than the operation timeout is `Busy`, in time, and nothing was written.
#[tokio::test]
async fn a_wait_that_lasts_too_long_is_busy() {
    let database = Database::new();
    let limit = Duration::from_millis(200);
    let (store, foreign) = (migrated(database.config().operation_timeout(limit)).await, database.foreign());
    granted(&store, "job", "a", seconds(30)).await;
    let before = foreign.row(&name("job"));

    foreign.lock();
    for (verb, call) in writes(&store) {
        let started = LocalInstant::now();
        let error = timeout(PATIENCE, call).await.expect("bounded by the operation timeout").unwrap_err();
        let took = LocalInstant::now().saturating_duration_since(started);
        assert_eq!(error.kind(), ErrorKind::Busy, "{verb}: {error}");
        assert!(error.proves_nothing_happened());
        assert!(took >= limit && took < 10 * limit, "{verb} took {took:?}");
    }
    foreign.unlock();
    assert_eq!(foreign.row(&name("job")), before);
    assert!(store.renew(&name("job"), &owner("a"), seconds(30)).await.unwrap().is_renewed());
}

/// S11, CX-03, CX-07: a call that is dropped while it waits for the lock writes nothing later, and the store goes on.
#[tokio::test]
async fn a_dropped_wait_never_writes() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    granted(&store, "job", "a", seconds(30)).await;
    let before = foreign.row(&name("job"));

    for index in 0..writes(&store).len() {
        foreign.lock();
        let (verb, mut call) = writes(&store).swap_remove(index);
        let waited = timeout(Duration::from_millis(50), &mut call).await;
        assert!(waited.is_err(), "{verb} did not wait");
        drop(call);
        foreign.unlock();
        // The thread serves in order: when this has been answered, the dropped call is over.
        let renewal = store.renew(&name("absent"), &owner("a"), seconds(30)).await.unwrap();
        assert!(!renewal.is_renewed());
        assert_eq!(foreign.row(&name("job")), before, "{verb}");
    }
}

/// CX-07: giving up cuts the thread's own wait short, so that the next call does not find it waiting for nobody.
#[tokio::test]
async fn a_dropped_wait_frees_its_thread() {
    let database = Database::new();
    let store = migrated(database.config().operation_timeout(PATIENCE)).await;
    let foreign = database.foreign();
    foreign.lock();
    assert!(timeout(Duration::from_millis(50), granted(&store, "job", "a", seconds(30))).await.is_err());
    // `migrate` has nothing to write, but is served by the thread that writes.
    timeout(PATIENCE / 2, store.migrate()).await.expect("the thread still waits for the lock").unwrap();
    foreign.unlock();
}

/// CX-07, SD-07: a runtime that ends in the middle of each call neither panics nor hangs, and the store outlives it.
#[test]
fn a_runtime_may_end_in_the_middle_of_a_call() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let database = Database::new();
    let first = runtime();
    let store = Arc::new(first.block_on(database.store()));
    let foreign = database.foreign();
    foreign.lock();
    for index in 0..writes(&store).len() {
        let ending = runtime();
        let task = {
            let store = Arc::clone(&store);
            ending.spawn(async move { writes(&store).swap_remove(index).1.await })
        };
        thread::sleep(Duration::from_millis(20));
        assert!(!task.is_finished());
        let started = LocalInstant::now();
        drop(ending);
        assert!(LocalInstant::now().saturating_duration_since(started) < PATIENCE / 2);
        drop(task);
    }
    foreign.unlock();
    let after = runtime();
    after.block_on(granted(&store, "job", "b", seconds(30)));
    drop(store);
}

/// S4, E4: many leases are renewed in one transaction, in order, each with an answer of its own.
#[tokio::test]
async fn many_leases_are_renewed_in_one_transaction() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let mut terms = Vec::new();
    for index in 0..1000 {
        let lease = format!("job-{index}");
        let holder = if index % 10 == 0 { "b" } else { "a" };
        let token = granted(&store, &lease, holder, seconds(30)).await;
        terms.push(Term::new(name(&lease), owner("a"), token));
    }
    foreign.empty_log();
    let renewals = store.renew_many(&terms, seconds(60)).await;
    assert_eq!(database.logged_commits(), 1);
    assert_eq!(renewals.len(), terms.len());
    for (index, (term, renewal)) in terms.iter().zip(renewals).enumerate() {
        match renewal.unwrap() {
            Renewal::Renewed { token, .. } => assert_eq!((index % 10 != 0, token), (true, term.token)),
            other => assert!(index % 10 == 0, "{index}: {other:?}"),
        }
    }
    let renewed = "SELECT count(*) FROM singleton_leases WHERE owner = 'a' AND expires_at >= acquired_at + 60000000";
    assert_eq!(foreign.one::<i64>(renewed, []), 900);
    assert!(store.renew_many(&[], seconds(30)).await.is_empty());
}

/// S3, S4, S5: what changes nothing writes nothing, and so waits for no disk.
#[tokio::test]
async fn what_changes_nothing_writes_nothing() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    granted(&store, "job", "a", seconds(30)).await;
    foreign.empty_log();
    refused(&store, "job", "b").await;
    assert!(!store.renew(&name("job"), &owner("b"), seconds(30)).await.unwrap().is_renewed());
    assert!(!store.release(&name("job"), &owner("b")).await.unwrap());
    assert!(!store.release_after(&name("job"), &owner("b"), seconds(30)).await.unwrap());
    store.migrate().await.unwrap();
    assert_eq!(database.logged_commits(), 0);
    assert!(store.release(&name("job"), &owner("a")).await.unwrap());
    assert_eq!(database.logged_commits(), 1);
}
