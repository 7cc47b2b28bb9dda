//! E12: handing over on request, and not being eligible.

use super::script::{Act, DURATION, GRACE, Journal, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    ErrorKind, HeldLease, LeaseDuration, LeaseName, LeaseStore, Operation, OwnerId, StopReason, TryRun,
    clock::LocalInstant,
};

fn name() -> LeaseName {
    LeaseName::new("job").unwrap()
}

/// A job that notes its start and stop, and takes `drain` seconds to stop.
fn draining(
    journal: &Journal,
    drain: u64,
) -> impl FnMut(HeldLease) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + use<> {
    let journal = journal.clone();
    move |lease| {
        let journal = journal.clone();
        Box::pin(async move {
            journal.note("started");
            lease.cancelled().cancelled().await;
            journal.note("told");
            tokio::time::sleep(seconds(drain)).await;
            journal.note("ended");
        })
    }
}

/// E12: the holder hears of the request at its next heartbeat, stops in grace under a renewed lease, and stands back for one duration,
/// so that a standby gets the lease; afterwards it contends like anyone.
#[tokio::test(start_paused = true)]
async fn a_holder_hands_over_on_request() {
    let store = ScriptedStore::deaf();
    let executor = executor(&store);
    let journal = Journal::start();
    let run = tokio::spawn(executor.job("job").unwrap().run(draining(&journal, 3)));
    until(|| journal.has("started")).await;
    store.rows.request_release(&name());
    until(|| journal.has("told")).await;
    assert!(journal.when("told") <= millis(7501));
    while !journal.has("ended") {
        assert!(!store.rival("job").await.is_acquired(), "released while the job drains");
        tokio::time::sleep(millis(50)).await;
    }
    until(|| store.count(Operation::Release) == 1).await;
    let released = store.calls().into_iter().rfind(|call| call.operation == Operation::Release).unwrap().at;
    let attempts = store.count(Operation::Acquire);
    let refused = executor.job("job").unwrap().acquire(Some(std::time::Duration::ZERO)).await;
    assert!(refused.is_err(), "this executor stands back");
    until(|| store.count(Operation::Acquire) > attempts).await;
    assert_about(LocalInstant::now().saturating_duration_since(released), DURATION);
    until(|| journal.names().iter().filter(|name| *name == "started").count() == 2).await;
    run.abort();
}

/// E12: the deadline of a job that hands over is its grace, and is not moved by the renewals that go on.
#[tokio::test(start_paused = true)]
async fn renewals_do_not_move_the_deadline_of_a_hand_over() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    store.rows.request_release(&name());
    guard.cancelled().cancelled().await;
    assert!(matches!(guard.stop_reason(), Some(StopReason::HandedOver)));
    assert_about(guard.remaining().unwrap(), GRACE);
    let deadline = guard.deadline();
    tokio::time::sleep(seconds(4)).await;
    assert_eq!(guard.deadline(), deadline);
    assert!(guard.release().await.unwrap());
}

/// E12: the release of a hand-over is repeated until it is answered, under a lease that is renewed.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_hand_over_is_repeated() {
    let store = ScriptedStore::default();
    store.always(Operation::Release, Act::Fail(ErrorKind::Unavailable));
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    executor.eligible(false);
    let release = tokio::spawn(guard.release());
    tokio::time::sleep(2 * DURATION).await;
    assert!(!release.is_finished() && !store.rival("job").await.is_acquired());
    store.heal();
    assert!(release.await.unwrap().unwrap());
    assert!(store.rival("job").await.is_acquired());
}

/// E12: when no release is ever answered, this executor stands back until two durations after the last request.
#[tokio::test(start_paused = true)]
async fn without_an_answer_it_stands_back_for_two_durations() {
    let store = ScriptedStore::deaf();
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    store.always(Operation::Release, Act::Hang);
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    executor.eligible(false);
    guard.release().await.unwrap_err();
    let sent = store.calls().into_iter().rfind(|call| call.operation == Operation::Release).unwrap().at;
    executor.eligible(true);
    let attempts = store.count(Operation::Acquire);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    assert_eq!(store.count(Operation::Acquire), attempts + 1);
    assert_about(LocalInstant::now().saturating_duration_since(sent), 2 * DURATION);
    drop(guard);
}

/// E12: an instance that is not eligible hands over what it has, tries for nothing, and comes back when it is eligible again.
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_eligible_tries_for_nothing() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let journal = Journal::start();
    let run = tokio::spawn(executor.job("job").unwrap().run(draining(&journal, 1)));
    let standby = tokio::spawn(executor.job("other").unwrap().run(|_| async {}));
    until(|| journal.has("started")).await;
    standby.await.unwrap().unwrap();
    executor.eligible(false);
    until(|| journal.has("ended")).await;
    until(|| store.count(Operation::Release) == 2).await;
    let attempts = store.count(Operation::Acquire);
    let refused = executor.job("third").unwrap().try_run(|_| async {}).await.unwrap();
    assert!(matches!(refused, TryRun::HeldElsewhere(_)));
    tokio::time::sleep(10 * DURATION).await;
    assert_eq!(store.count(Operation::Acquire), attempts);
    executor.eligible(true);
    until(|| store.count(Operation::Acquire) > attempts).await;
    executor.shutdown().await;
    run.await.unwrap().unwrap();
}

/// E12: a standby that becomes not eligible stops trying at once, and a grant that arrives then is given back.
#[tokio::test(start_paused = true)]
async fn a_standby_stops_when_it_is_not_eligible() {
    let store = ScriptedStore::deaf();
    let executor = executor(&store);
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(3)));
    let acquire = tokio::spawn(executor.job("job").unwrap().acquire(None));
    until(|| store.count(Operation::Acquire) == 1).await;
    executor.eligible(false);
    until(|| store.count(Operation::Release) == 1).await;
    assert!(store.rival("job").await.is_acquired());
    let rival = OwnerId::new("rival").unwrap();
    assert!(store.rows.release(&name(), &rival).await.unwrap());
    tokio::time::sleep(DURATION).await;
    assert_eq!(store.count(Operation::Acquire), 1);
    executor.eligible(true);
    assert!(acquire.await.unwrap().unwrap().is_held());
}

/// E10, E12: with a minimum hold the standing back begins at the end of the rest.
#[tokio::test(start_paused = true)]
async fn standing_back_begins_at_the_end_of_the_rest() {
    let store = ScriptedStore::deaf();
    let executor = executor(&store);
    let job = executor.job("job").unwrap().at_least(LeaseDuration::new(seconds(100)).unwrap());
    let start = LocalInstant::now();
    let guard = job.acquire(None).await.unwrap();
    executor.eligible(false);
    assert!(guard.release().await.unwrap());
    executor.eligible(true);
    let guard = job.acquire(None).await.unwrap();
    assert_about(LocalInstant::now().saturating_duration_since(start), seconds(100) + DURATION);
    drop(guard);
}
