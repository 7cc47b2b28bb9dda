//! E10: a minimum hold.

use super::script::{Act, DURATION, Journal, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    ErrorKind, Job, LeaseDuration, LeaseStore, Operation, RunError, SingletonExecutor, TryRun, clock::LocalInstant,
};

fn hold() -> LeaseDuration {
    LeaseDuration::new(seconds(100)).unwrap()
}

fn job(executor: &SingletonExecutor) -> Job {
    executor.job("job").unwrap().at_least(hold())
}

/// How long after `start` another replica is granted the lease.
async fn free_after(store: &ScriptedStore, start: LocalInstant) -> std::time::Duration {
    while let crate::Acquisition::Held(holder) = store.rival("job").await {
        tokio::time::sleep(holder.remaining.max(millis(1))).await;
    }
    LocalInstant::now().saturating_duration_since(start)
}

/// E10, RC-16: the lease rests until `acquired_at + hold`, whether the job returned or panicked.
#[tokio::test(start_paused = true)]
async fn a_lease_rests_after_a_short_job() {
    let (store, start) = (ScriptedStore::default(), LocalInstant::now());
    let ran = job(&executor(&store)).try_run(|_| tokio::time::sleep(seconds(30))).await;
    assert_eq!(ran.unwrap(), TryRun::Ran(()));
    assert_about(free_after(&store, start).await, seconds(100));

    let (store, start) = (ScriptedStore::default(), LocalInstant::now());
    let end: Result<(), _> = job(&executor(&store)).run(|_| async { panic!("out of paper") }).await;
    assert!(matches!(end, Err(RunError::Panicked(_))));
    assert_about(free_after(&store, start).await, seconds(100));
}

/// E10: a job that outlasts its hold frees the lease at once.
#[tokio::test(start_paused = true)]
async fn a_long_job_leaves_nothing_to_rest() {
    let store = ScriptedStore::default();
    let ran = job(&executor(&store)).try_run(|_| tokio::time::sleep(seconds(150))).await;
    assert_eq!(ran.unwrap(), TryRun::Ran(()));
    assert!(store.rival("job").await.is_acquired());
}

/// E10: until `release_after` is answered it is repeated and the lease is renewed, far beyond one duration.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_until_its_rest_is_written() {
    let (store, start) = (ScriptedStore::default(), LocalInstant::now());
    store.always(Operation::ReleaseAfter, Act::Fail(ErrorKind::Unavailable));
    let journal = Journal::start();
    let noted = journal.clone();
    let executor = executor(&store);
    let run = tokio::spawn(job(&executor).try_run(|_| async move { noted.note("ended") }));
    until(|| journal.has("ended")).await;
    let healed = LocalInstant::now() + 2 * DURATION;
    while !healed.has_passed() {
        assert!(!store.rival("job").await.is_acquired());
        assert!(!run.is_finished());
        tokio::time::sleep(millis(100)).await;
    }
    assert!(store.count(Operation::ReleaseAfter) > 10);
    store.heal();
    assert_eq!(run.await.unwrap().unwrap(), TryRun::Ran(()));
    assert_about(free_after(&store, start).await, seconds(100));
}

/// E10: shutdown waits for the rest to be written, as for a job.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_rest() {
    let (store, start) = (ScriptedStore::default(), LocalInstant::now());
    store.next(Operation::ReleaseAfter, Act::Fail(ErrorKind::Unavailable));
    store.next(Operation::ReleaseAfter, Act::DelayAnswer(seconds(4)));
    let executor = executor(&store);
    let guard = job(&executor).acquire(None).await.unwrap();
    drop(guard);
    executor.shutdown().await;
    assert_eq!(store.count(Operation::ReleaseAfter), 2);
    assert_about(free_after(&store, start).await, seconds(100));
}

/// E10: an outage that outlasts the lease before the rest is written ends the attempts; the run may then be repeated.
#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_lease_gives_the_rest_up() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let start = LocalInstant::now();
    store.always(Operation::ReleaseAfter, Act::Hang);
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    assert_eq!(job(&executor).try_run(|_| async {}).await.unwrap(), TryRun::Ran(()));
    let lasted = LocalInstant::now().saturating_duration_since(start);
    assert!(lasted >= DURATION && lasted <= DURATION + seconds(6), "{lasted:?}");
    assert!(store.rival("job").await.is_acquired());
}

/// E10: a grant that never started is released plainly.
#[tokio::test(start_paused = true)]
async fn a_grant_that_never_started_does_not_rest() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(1)));
    let mut acquire = Box::pin(job(&executor).acquire(None));
    assert!(futures::poll!(&mut acquire).is_pending());
    drop(acquire);
    until(|| store.count(Operation::Release) == 1).await;
    assert_eq!(store.count(Operation::ReleaseAfter), 0);

    // Leadership that took no step has not started either.
    let leadership = job(&executor).leadership();
    leadership.held().await;
    drop(leadership);
    until(|| store.count(Operation::Release) == 2).await;
    assert_eq!(store.count(Operation::ReleaseAfter), 0);
    let leadership = job(&executor).leadership();
    leadership.held().await;
    drop(leadership.enter());
    drop(leadership);
    until(|| store.count(Operation::ReleaseAfter) == 1).await;
}

/// E10: a lease that was lost while its rest was to be written is not written over.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_made_to_rest() {
    let store = ScriptedStore::default();
    store.always(Operation::ReleaseAfter, Act::Fail(ErrorKind::Unavailable));
    let executor = executor(&store);
    let run = tokio::spawn(job(&executor).try_run(|_| async {}));
    until(|| store.count(Operation::ReleaseAfter) == 2).await;
    let name = crate::LeaseName::new("job").unwrap();
    store.rows.expire(&name);
    assert!(store.rival("job").await.is_acquired());
    assert_eq!(run.await.unwrap().unwrap(), TryRun::Ran(()));
    let rival = crate::OwnerId::new("rival").unwrap();
    assert!(store.rows.renew(&name, &rival, hold()).await.unwrap().is_renewed());
}

/// E10: a lease that was lost is not renewed any more, although the answer to its `release_after` is still waited for.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_renewed_while_its_rest_is_written() {
    let store = ScriptedStore::default();
    store.always(Operation::ReleaseAfter, Act::Hang);
    let executor = executor(&store);
    drop(job(&executor).acquire(None).await.unwrap());
    until(|| store.count(Operation::ReleaseAfter) == 1).await;
    store.rows.delete(&crate::LeaseName::new("job").unwrap());
    until(|| store.count(Operation::Renew) == 1).await;
    tokio::time::sleep(seconds(1)).await;
    assert_eq!((store.count(Operation::Renew), store.count(Operation::ReleaseAfter)), (1, 2));
}
