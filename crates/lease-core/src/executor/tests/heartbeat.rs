//! E4: one heartbeat for all leases of an executor.

use super::script::{Act, DURATION, ScriptedStore, executor, millis, seconds, until};
use crate::{ErrorKind, LeaseGuard, LeaseName, Operation, SingletonExecutor, SingletonOptions};

async fn acquire_many(executor: &SingletonExecutor, count: usize) -> Vec<LeaseGuard> {
    let mut guards = Vec::new();
    for index in 0..count {
        guards.push(executor.job(format!("job {index}")).unwrap().acquire(None).await.unwrap());
    }
    guards
}

/// E4: all leases are renewed in one round trip a beat, also those that were acquired between two beats.
#[tokio::test(start_paused = true)]
async fn one_round_trip_renews_all_leases() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let mut guards = acquire_many(&executor, 50).await;
    tokio::time::sleep(seconds(3)).await;
    guards.push(executor.job("late").unwrap().acquire(None).await.unwrap());
    tokio::time::sleep(10 * DURATION).await;
    let batches = store.batches();
    assert!((40..=48).contains(&batches.len()), "{} batches in ten durations", batches.len());
    assert!(batches[5..].iter().all(|count| *count == 51), "{batches:?}");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    until(|| store.count(Operation::Release) == 51).await;
    tokio::time::sleep(DURATION).await;
    assert_eq!(store.batches().len(), batches.len(), "without leases there is no heartbeat");
}

/// E4, PE-04: nothing lapses while the store takes its time: an answer that is under way holds no other renewal up.
#[tokio::test(start_paused = true)]
async fn a_slow_store_lets_nothing_lapse() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::DelayAnswer(seconds(4)));
    let executor = executor(&store);
    let guards = acquire_many(&executor, 20).await;
    tokio::time::sleep(seconds(5)).await;
    let late = executor.job("late").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(10 * DURATION).await;
    assert!(guards.iter().all(|guard| guard.is_held()) && late.is_held());
}

/// E4: a row that a stranger has locked is renewed alone, and delays no other.
#[tokio::test(start_paused = true)]
async fn a_locked_row_is_renewed_alone() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guards = acquire_many(&executor, 5).await;
    store.lock("job 2", true);
    until(|| store.batches().len() == 1).await;
    tokio::time::sleep(seconds(3)).await;
    store.lock("job 2", false);
    tokio::time::sleep(3 * DURATION).await;
    assert!(guards.iter().all(|guard| guard.is_held()));

    store.lock("job 3", true);
    guards[3].cancelled().cancelled().await;
    tokio::time::sleep(2 * DURATION).await;
    for (index, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_held(), index != 3, "job {index}");
    }
}

/// E4: one lease that fails has no part in the others' renewals, and one that is lost ends alone.
#[tokio::test(start_paused = true)]
async fn one_bad_lease_ends_alone() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guards = acquire_many(&executor, 5).await;
    store.next(Operation::Renew, Act::Fail(ErrorKind::Busy));
    store.rows.delete(&LeaseName::new("job 4").unwrap());
    tokio::time::sleep(2 * DURATION).await;
    for (index, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_held(), index != 4, "job {index}");
    }
}

/// E4, RC-15: a lease that is released while its renewal is in flight stays released.
#[tokio::test(start_paused = true)]
async fn a_release_during_a_renewal_stays() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::DelayRequest(seconds(2)));
    let executor = executor(&store);
    let mut guards = acquire_many(&executor, 3).await;
    until(|| store.batches().len() == 1).await;
    assert!(guards.remove(1).release().await.unwrap());
    assert!(store.rival("job 1").await.is_acquired());
    tokio::time::sleep(2 * DURATION).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// E4: a renewal whose answer is lost is tried again before the stop point, even when the operation timeout is longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_time_for_another_renewal() {
    let store = ScriptedStore::default();
    let options = SingletonOptions::enabled().duration(seconds(3)).operation_timeout(seconds(60));
    let executor = SingletonExecutor::new(store.clone(), options).unwrap();
    store.next(Operation::Renew, Act::Hang);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(seconds(30)).await;
    assert!(guard.is_held());
}

/// E9, RN-07: a heartbeat that panics leaves nothing held, and the next lease has a heartbeat again.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_comes_back_after_a_panic() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guards = acquire_many(&executor, 2).await;
    store.next(Operation::Renew, Act::Panic);
    until(|| store.batches().len() == 1).await;
    tokio::time::sleep(millis(1)).await;
    assert!(guards.iter().all(|guard| !guard.is_held()));
    drop(guards);
    let guard = executor.job("job 0").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(3 * DURATION).await;
    assert!(guard.is_held());
}
