//! Leadership: for services that ask.

use super::script::{Act, DURATION, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{ErrorKind, LeaseName, LossReason, Operation, StopReason, clock::LocalInstant};

/// Leadership is gained in the background, kept, and given up when the handle is dropped.
#[tokio::test(start_paused = true)]
async fn leadership_is_gained_kept_and_given_up() {
    let store = ScriptedStore::default();
    let leadership = executor(&store).job("job").unwrap().leadership();
    assert!(!leadership.is_held() && leadership.enter().is_none());
    leadership.held().await;
    tokio::time::sleep(4 * DURATION).await;
    assert!(leadership.is_held() && leadership.lease().unwrap().token().is_some());
    drop(leadership);
    until(|| store.count(Operation::Release) == 1).await;
    assert!(store.rival("job").await.is_acquired());
}

/// E3: the lease is not released before every step has ended, and no step begins once the leader was told to stop.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_the_steps() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let leadership = executor.job("job").unwrap().leadership();
    leadership.held().await;
    let step = leadership.enter().unwrap();
    step.check().unwrap();
    let stopping = executor.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    step.cancelled().cancelled().await;
    assert!(!leadership.is_held() && leadership.enter().is_none() && step.check().is_err());
    tokio::time::sleep(seconds(3)).await;
    assert_eq!(store.count(Operation::Release), 0, "released under a step");
    let ended = LocalInstant::now();
    drop(step);
    assert!(shutdown.await.unwrap().unfinished.is_empty());
    assert_about(LocalInstant::now().saturating_duration_since(ended), millis(0));
    assert!(store.rival("job").await.is_acquired());
}

/// E3, E6: a loss turns `is_held()` false at once, with its reason; leadership comes back when the lease is won again.
#[tokio::test(start_paused = true)]
async fn leadership_is_lost_and_gained_again() {
    let store = ScriptedStore::default();
    let leadership = executor(&store).job("job").unwrap().leadership();
    leadership.held().await;
    let first = leadership.lease().unwrap();
    store.rows.delete(&LeaseName::new("job").unwrap());
    first.cancelled().cancelled().await;
    assert!(matches!(first.stop_reason(), Some(StopReason::Lost(LossReason::Deleted))));
    assert!(!first.is_held());
    leadership.held().await;
    let second = leadership.lease().unwrap();
    assert!(second.token() > first.token() && second.owner() != first.owner());
}

/// E5: a service that polls is not told of errors; whatever the store answers, it is tried again.
#[tokio::test(start_paused = true)]
async fn leadership_outlasts_every_error() {
    let store = ScriptedStore::default();
    store.outage(ErrorKind::NotMigrated);
    let leadership = executor(&store).job("job").unwrap().leadership();
    tokio::time::sleep(seconds(60)).await;
    let attempts = store.count(Operation::Acquire);
    assert!((20..60).contains(&attempts), "{attempts} attempts in a minute");
    store.next(Operation::Acquire, Act::DelayRequest(seconds(1)));
    store.heal();
    leadership.held().await;
    assert!(leadership.is_held());
}
