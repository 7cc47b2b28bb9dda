//! E4: one heartbeat for all leases of an executor.

use super::script::{Act, DURATION, ScriptedStore, executor, millis, seconds, until};
use crate::{
    ErrorKind, LeaseDuration, LeaseGuard, LeaseName, Operation, SingletonExecutor, SingletonOptions, StopReason,
};

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

/// E4: a lease whose renewals fail is tried again by itself, so that its short time is not everybody's; once it is renewed it goes with the
/// others again.
#[tokio::test(start_paused = true)]
async fn a_failing_lease_goes_by_itself_until_it_is_renewed() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guards = acquire_many(&executor, 6).await;
    store.fail("job 2", Some(ErrorKind::Unavailable));
    until(|| store.batches().contains(&5)).await;
    let batches = store.batches();
    assert!(batches[0] == 6 && batches[1..].iter().filter(|count| **count == 1).count() > 5, "{batches:?}");
    assert!(batches[1..].iter().all(|count| [1, 5].contains(count)), "{batches:?}");
    store.fail("job 2", None);
    tokio::time::sleep(2 * DURATION).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    let healed = &store.batches()[batches.len()..];
    assert!(healed[0] == 1 && healed[1..].iter().all(|count| *count == 6), "{healed:?}");
}

/// E4: a lease that is renewed alone and contended even so has failed: it is tried again with backoff, until its stop point.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_contended_alone_too_is_tried_again_with_backoff() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Contended));
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    guard.cancelled().cancelled().await;
    let Some(StopReason::DeadlinePassed { last_error: Some(error), .. }) = guard.stop_reason() else {
        panic!("{:?}", guard.stop_reason());
    };
    assert_eq!(error.kind(), ErrorKind::Contended);
    let renewals = store.count(Operation::Renew);
    assert!((10..80).contains(&renewals), "{renewals} renewals");
    assert!(store.batches().len() * 2 == renewals, "each try is made together first, then alone");
}

/// E4: also a renewal alone leaves time for another when its answer is lost.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_renewal_alone_leaves_time_for_another() {
    let store = ScriptedStore::default();
    let options = SingletonOptions::enabled().duration(seconds(3)).operation_timeout(seconds(60));
    let executor = SingletonExecutor::new(store.clone(), options).unwrap();
    store.next(Operation::Renew, Act::Fail(ErrorKind::Contended));
    store.next(Operation::Renew, Act::Hang);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(seconds(30)).await;
    assert!(guard.is_held());
}

/// Issue 4, E4: a thousand leases that were acquired over four seconds are renewed in one round trip a beat, also after an outage that
/// failed them all, and after one of them was contended.
#[tokio::test(start_paused = true)]
async fn a_thousand_leases_cost_one_round_trip_a_beat() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let mut guards = Vec::new();
    for tens in 0..100 {
        let jobs = (0..10).map(|ones| executor.job(format!("job {}", tens * 10 + ones)).unwrap());
        guards.extend(futures::future::join_all(jobs.map(|job| async move { job.acquire(None).await.unwrap() })).await);
        tokio::time::sleep(millis(40)).await;
    }
    let beats = |from: usize| store.batches().split_off(from);
    tokio::time::sleep(10 * DURATION).await;
    let calm = beats(0);
    assert!((40..=46).contains(&calm.len()), "{calm:?}");
    assert!(calm.iter().all(|count| *count == 1000), "{calm:?}");

    store.outage(ErrorKind::Unavailable);
    until(|| store.batches().len() == calm.len() + 5).await;
    store.heal();
    tokio::time::sleep(DURATION).await;
    let healing = beats(calm.len());
    assert!(healing.len() <= 11 && healing.iter().all(|count| *count == 1000), "{healing:?}");

    store.lock("job 7", true);
    until(|| store.batches().len() == calm.len() + healing.len() + 1).await;
    tokio::time::sleep(seconds(3)).await;
    store.lock("job 7", false);
    tokio::time::sleep(DURATION).await;
    let after = beats(calm.len() + healing.len());
    assert!(after.len() <= 6 && after.iter().all(|count| *count == 1000), "{after:?}");
    assert!(guards.iter().all(|guard| guard.is_held()));
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

/// E4, E10, E12: a lease that is kept although its job was told to stop has until its lapse to be renewed, and leaves the others their
/// time as well: here a renewal takes 100 ms.
#[tokio::test(start_paused = true)]
async fn a_lease_that_rests_or_drains_leaves_time_for_renewals() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::DelayAnswer(millis(100)));
    store.always(Operation::ReleaseAfter, Act::Fail(ErrorKind::Unavailable));
    let executor = executor(&store);
    let guards = acquire_many(&executor, 3).await;
    let hold = LeaseDuration::new(seconds(1000)).unwrap();
    drop(executor.job("rests").unwrap().at_least(hold).acquire(None).await.unwrap());
    tokio::time::sleep(3 * DURATION).await;
    assert!(!store.rival("rests").await.is_acquired());
    let health = executor.health();
    assert_eq!((health.held, health.failures_in_a_row), (3, 0));
    assert!(health.smallest_margin.unwrap() > seconds(15), "{health:?}");
    assert!(store.batches().iter().all(|count| *count == 4), "{:?}", store.batches());

    executor.eligible(false);
    tokio::time::sleep(millis(4900)).await;
    let renewals = store.count(Operation::Renew);
    until(|| store.count(Operation::Renew) > renewals).await;
    assert_eq!(executor.health().failures_in_a_row, 0);
    drop(guards);
}
