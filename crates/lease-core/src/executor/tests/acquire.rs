//! The guard in the caller's own hands.

use super::script::{DROP_AFTER, DURATION, ScriptedStore, assert_about, executor, seconds, until};
use crate::{LeaseName, Operation, StopReason};

/// E3, RC-16: a guard is renewed until it is released, and a released lease can be acquired at once.
#[tokio::test(start_paused = true)]
async fn a_guard_is_renewed_until_it_is_released() {
    let store = ScriptedStore::default();
    let job = executor(&store).job("job").unwrap();
    let guard = job.acquire(None).await.unwrap();
    let mut deadlines = guard.deadlines();
    let first = guard.deadline().unwrap();
    deadlines.changed().await.unwrap();
    assert!(deadlines.borrow_and_update().unwrap() > first);
    tokio::time::sleep(4 * DURATION).await;
    assert!(guard.is_held() && !store.rival("job").await.is_acquired());
    let lease = (*guard).clone();
    assert!(guard.release().await.unwrap());
    assert!(!lease.is_held(), "no clone outlives the release");
    assert!(lease.cancelled().is_cancelled());
    assert!(matches!(lease.stop_reason(), Some(StopReason::Ended)));
    assert!(store.rival("job").await.is_acquired());
}

/// SL-08: dropping a guard releases its lease in the background.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_releases_its_lease() {
    let store = ScriptedStore::default();
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    assert_about(guard.remaining().unwrap(), DROP_AFTER);
    drop(guard);
    until(|| store.count(Operation::Release) == 1).await;
    assert!(store.rival("job").await.is_acquired());
}

/// RC-14, SD-04: releasing a lease that was lost is no error, says so, and leaves the new owner alone.
#[tokio::test(start_paused = true)]
async fn releasing_a_lost_lease_changes_nothing() {
    let store = ScriptedStore::default();
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    store.rows.expire(&LeaseName::new("job").unwrap());
    assert!(store.rival("job").await.is_acquired());
    assert!(!guard.release().await.unwrap());
    let guard = executor(&store).job("job").unwrap();
    assert!(guard.acquire(Some(seconds(1))).await.is_err(), "the rival still has it");
}

/// CX-09: dropping a guard where there is no runtime neither blocks nor panics.
#[test]
fn a_guard_can_be_dropped_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let store = ScriptedStore::default();
    let guard = runtime.block_on(async {
        let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
        until(|| store.count(Operation::Renew) == 1).await;
        guard
    });
    assert!(guard.is_held());
    drop(runtime);
    assert!(!guard.is_held(), "nobody renews it any more");
    drop(guard);
    assert_eq!(store.count(Operation::Release), 0, "the lease lapses by itself");
}
