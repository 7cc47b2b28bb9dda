//! Other sessions' locks: who waits for them, what a wait takes off a term, and what becomes of a wait that is given up.

use std::time::Duration;

use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{ErrorKind, LeaseStore, LossReason, Renewal, clock::LocalInstant},
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    server::PATIENCE,
    support::{Foreign, Schema, granted, millis, name, owner, refused, renewed, seconds},
};

/// How long a blocker keeps its lock: longer than the leases of these tests last.
const BLOCKED: Duration = Duration::from_millis(1500);
const LEASE: u64 = 1000;

const LOCK: &str = "BEGIN; SELECT FROM singleton_leases WHERE name = 'job' FOR UPDATE";
const WRITE: &str = "BEGIN; UPDATE singleton_leases SET token = token WHERE name = 'job'";
const INSERT: &str = "BEGIN; INSERT INTO singleton_leases VALUES ('job', 'foreign', 1, now(), now() + interval '1 h')";

/// Shows that a lease of `LEASE` that was made after `unblocked` has its whole duration.
async fn assert_whole(foreign: &Foreign, unblocked: LocalInstant, case: &str) {
    let left = foreign.row("job").await.unwrap().expires_at - foreign.clock().await;
    let since = LocalInstant::now().saturating_duration_since(unblocked).as_micros();
    let whole = i64::try_from(LEASE * 1000).unwrap();
    // Two milliseconds are the least wait after which a grant is renewed.
    let least = whole - i64::try_from(since).unwrap() - 2000;
    assert!((least..=whole).contains(&left), "{case}: {left} µs are left, {since} µs after the blocker ended");
}

fn renewing(store: &PostgresLeaseStore) -> JoinHandle<Renewal> {
    let store = store.clone();
    tokio::spawn(async move { store.renew(&name("job"), &owner("a"), millis(LEASE)).await.unwrap() })
}

/// S7, CT-04, CT-05: a renewal that waited for any kind of blocker, which committed or rolled back, lasts its whole duration.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_renewal_that_waited_lasts_in_full() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.client().await);
    for (blocker, end) in [(LOCK, "COMMIT"), (LOCK, "ROLLBACK"), (WRITE, "COMMIT"), (WRITE, "ROLLBACK")] {
        granted(&store, "job", "a", millis(LEASE)).await;
        blocking.execute(blocker).await;
        let waiting = renewing(&store);
        schema.foreign.until_blocked_by(blocking.pid().await).await;
        sleep(BLOCKED).await;
        assert!(!waiting.is_finished(), "{blocker}: the renewal did not wait");
        let unblocked = LocalInstant::now();
        blocking.execute(end).await;
        assert!(waiting.await.unwrap().is_renewed());
        assert_whole(&schema.foreign, unblocked, &format!("{blocker}, {end}")).await;
    }
}

/// S4: what became of a row during a renewal's wait for it is told as it is.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_renewal_that_waited_in_vain_learns_the_truth() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.client().await);
    let whose =
        "BEGIN; SELECT FROM singleton_leases WHERE name = 'job' FOR UPDATE; UPDATE singleton_leases SET owner = ";
    for (blocker, reason) in [
        (format!("{whose}'b' WHERE name = 'job'"), LossReason::TakenOver(owner("b"))),
        (format!("{whose}NULL WHERE name = 'job'"), LossReason::ForcedOut),
        ("BEGIN; DELETE FROM singleton_leases WHERE name = 'job'".into(), LossReason::Deleted),
    ] {
        blocking.execute("DELETE FROM singleton_leases").await;
        granted(&store, "job", "a", seconds(600)).await;
        blocking.execute(&blocker).await;
        let waiting = renewing(&store);
        schema.foreign.until_blocked_by(blocking.pid().await).await;
        blocking.execute("COMMIT").await;
        assert_eq!(waiting.await.unwrap(), Renewal::Lost(reason));
    }
}

/// S3: nobody queues for a row, whatever lock is on it, and nobody is told how long that will last.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn an_attempt_on_a_locked_row_is_refused_at_once() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.client().await);
    granted(&store, "job", "a", seconds(600)).await;
    schema.foreign.expire("job").await;
    let share = "BEGIN; SELECT FROM singleton_leases WHERE name = 'job' FOR KEY SHARE";
    for blocker in [LOCK, WRITE, share] {
        blocking.execute(blocker).await;
        for contender in ["a", "b"] {
            let holder = timeout(PATIENCE / 2, refused(&store, "job", contender)).await.expect("it queued");
            assert_eq!((holder.owner, holder.remaining), (None, Duration::ZERO));
        }
        blocking.execute("ROLLBACK").await;
    }
    granted(&store, "job", "b", seconds(600)).await;
}

/// S7, CT-05: a new name behind another session's insert that is rolled back is granted for its whole duration.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_grant_behind_an_insert_that_is_rolled_back_lasts_in_full() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.client().await);
    blocking.execute(INSERT).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { granted(&store, "job", "a", millis(LEASE)).await }
    });
    schema.foreign.until_blocked_by(blocking.pid().await).await;
    sleep(BLOCKED).await;
    assert!(!waiting.is_finished());
    let unblocked = LocalInstant::now();
    blocking.execute("ROLLBACK").await;
    let token = waiting.await.unwrap();
    assert_whole(&schema.foreign, unblocked, "insert").await;
    assert_eq!(schema.foreign.row("job").await.unwrap().token, token.value());
}

/// S3, S8: a new name behind an insert that is committed is a race that was lost, and no error.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_grant_behind_an_insert_that_is_committed_is_refused() {
    let schema = Schema::new().await;
    let (store, blocking) = (schema.store().await, schema.client().await);
    blocking.execute(INSERT).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { refused(&store, "job", "a").await }
    });
    schema.foreign.until_blocked_by(blocking.pid().await).await;
    blocking.execute("COMMIT").await;
    assert_eq!(waiting.await.unwrap().remaining, Duration::ZERO);
    assert_eq!(refused(&store, "job", "a").await.owner, Some(owner("foreign")));
}

/// S8, S12: a lock that outlasts the operation timeout is an error that proves that nothing happened, in time; for an attempt it is a
/// refusal.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_lock_that_outlasts_the_operation_is_answered() {
    let schema = Schema::new().await;
    let limit = Duration::from_millis(500);
    let store = PostgresLeaseStore::connect(schema.config().operation_timeout(limit)).await.unwrap();
    let blocking = schema.client().await;
    granted(&store, "job", "a", seconds(600)).await;
    let before = schema.foreign.row("job").await;
    blocking.execute(LOCK).await;
    for verb in ["renew", "release", "release_after"] {
        let started = LocalInstant::now();
        let error = match verb {
            "renew" => store.renew(&name("job"), &owner("a"), seconds(9)).await.map(drop),
            "release" => store.release(&name("job"), &owner("a")).await.map(drop),
            _ => store.release_after(&name("job"), &owner("a"), seconds(9)).await.map(drop),
        };
        let took = LocalInstant::now().saturating_duration_since(started);
        let error = error.unwrap_err();
        // A machine that stood still for the last tenth of the time leaves only that the answer did not come.
        assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Indeterminate), "{verb}: {error:?}");
        assert!(took >= limit / 2 && took < limit * 4, "{verb} took {took:?}");
    }
    blocking.execute("ROLLBACK").await;
    schema.foreign.until_blocking_nobody(blocking.pid().await).await;
    assert_eq!(schema.foreign.row("job").await, before);

    blocking.execute(&INSERT.replace("'job'", "'new'")).await;
    assert_eq!(refused(&store, "new", "a").await.remaining, Duration::ZERO);
    blocking.execute("ROLLBACK").await;
    granted(&store, "new", "a", seconds(600)).await;
}

/// S11, CX-02, CX-03, CX-08: the statement of a call that was dropped while it waited is cancelled at the server; it changes nothing
/// when the lock goes, its session ends, and the next call has another.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_wait_that_is_dropped_ends_at_the_server() {
    let schema = Schema::new().await;
    let store = PostgresLeaseStore::connect(schema.config().pool_size(1)).await.unwrap();
    let blocking = schema.client().await;
    granted(&store, "job", "a", seconds(600)).await;
    let before = schema.foreign.row("job").await;
    let blocker = blocking.pid().await;
    for verb in ["renew", "release", "release_after"] {
        blocking.execute(LOCK).await;
        let (job, a) = (name("job"), owner("a"));
        let call = async {
            match verb {
                "renew" => store.renew(&job, &a, seconds(9)).await.map(drop),
                "release" => store.release(&job, &a).await.map(drop),
                _ => store.release_after(&job, &a, seconds(9)).await.map(drop),
            }
        };
        tokio::select! {
            answer = call => panic!("{verb} did not wait: {answer:?}"),
            () = schema.foreign.until_blocked_by(blocker) => {}
        }
        // The lock is still there: only a cancel request can have ended the wait.
        schema.foreign.until_blocking_nobody(blocker).await;
        renewed_other(&store).await;
        blocking.execute("ROLLBACK").await;
        assert_eq!(schema.foreign.row("job").await, before, "{verb}");
    }
    let left_over = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'lease' AND state <> 'idle' \
                     AND query LIKE '%' || $1 || '%'";
    schema.foreign.until(left_over, &[&schema.name]).await;
}

async fn renewed_other(store: &PostgresLeaseStore) {
    granted(store, "other", "a", seconds(600)).await;
    renewed(store, "other", "a", seconds(600)).await;
}
