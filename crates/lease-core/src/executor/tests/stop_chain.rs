//! E2, E3, E9: told to stop, dropped at the deadline, joined, and only then released.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use super::script::{
    Act, DROP_AFTER, GRACE, Journal, MARGIN, STOP_AFTER, ScriptedStore, assert_about, executor, millis, seconds, until,
};
use crate::{
    ErrorKind, ForceRelease, Job, LeaseAdmin, LeaseName, LossReason, OnOverrun, Operation, OwnerId, RunError,
    SingletonExecutor, SingletonOptions, StopReason, TryRun,
};

/// Starts a job that notes what happens to it and never ends by itself.
fn start(job: &Job, journal: &Journal) -> tokio::task::JoinHandle<Result<TryRun<()>, RunError>> {
    let journal = journal.clone();
    tokio::spawn(job.try_run(move |lease| async move {
        let _dropped = journal.on_drop("dropped");
        journal.note("started");
        lease.cancelled().cancelled().await;
        assert!(!lease.is_held() && lease.check().is_err());
        journal.note("told");
        std::future::pending::<()>().await;
    }))
}

/// E2, E3, RN-03, SD-08: without renewals the token fires at the stop point and the future is dropped at the deadline, both counted from
/// the anchor; the release follows the drop.
#[tokio::test(start_paused = true)]
async fn a_job_is_told_dropped_and_then_released() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let journal = Journal::start();
    let end = start(&executor(&store).job("job").unwrap(), &journal).await.unwrap();
    assert_about(journal.when("told"), STOP_AFTER);
    assert_about(journal.when("dropped"), DROP_AFTER);
    assert_eq!(store.count(Operation::Release), 1);
    let Err(RunError::Stopped(StopReason::DeadlinePassed { last_error: Some(error), .. })) = end else {
        panic!("{end:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(store.rival("job").await.is_acquired());
}

/// E2, CT-10: a slow answer counts from the instant before its request.
#[tokio::test(start_paused = true)]
async fn a_slow_grant_and_a_slow_renewal_count_from_their_requests() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(4)));
    store.next(Operation::Renew, Act::DelayAnswer(seconds(4)));
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let journal = Journal::start();
    drop(start(&executor(&store).job("job").unwrap(), &journal).await.unwrap());
    assert_about(journal.when("started"), seconds(4));
    let sent = store.calls().iter().find(|call| call.operation == Operation::Renew).unwrap().at;
    let sent = sent.saturating_duration_since(store.calls()[0].at);
    assert!(sent <= millis(7500), "the first renewal is counted from the request too: {sent:?}");
    assert_about(journal.when("dropped"), sent + DROP_AFTER);
}

/// E2: a grant whose stop point has passed on arrival is renewed once before the first poll.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_late_is_renewed_before_the_first_poll() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(26)));
    let patient = SingletonOptions::enabled().operation_timeout(seconds(60));
    let executor = SingletonExecutor::new(store.clone(), patient).unwrap();
    let job = executor.job("job").unwrap();
    let seen = store.clone();
    let ran = job.try_run(move |lease| async move { (seen.count(Operation::Renew), lease.remaining().unwrap()) });
    let TryRun::Ran((renewals, remaining)) = ran.await.unwrap() else { panic!("the lease was free") };
    assert_eq!(renewals, 1);
    assert_about(remaining, DROP_AFTER);
}

/// E2, E7: failing that it is released, and its job is never polled.
#[tokio::test(start_paused = true)]
async fn a_late_grant_that_cannot_be_renewed_is_released() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(26)));
    store.next(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let patient = SingletonOptions::enabled().operation_timeout(seconds(60));
    let executor = SingletonExecutor::new(store.clone(), patient).unwrap();
    let end = executor.job("job").unwrap().try_run(|_| async { panic!("it must not be polled") }).await;
    assert!(matches!(end, Err(RunError::Store(_))), "{end:?}");
    until(|| store.count(Operation::Release) == 1).await;
    assert!(store.rival("job").await.is_acquired());
}

/// E3, E6, RN-02, OB-02: after a loss there is no grace: the future is dropped in the same turn, and no release is sent.
#[tokio::test(start_paused = true)]
async fn a_loss_drops_the_job_at_once() {
    let rival = OwnerId::new("rival").unwrap();
    for reason in [LossReason::Deleted, LossReason::ForcedOut, LossReason::TakenOver(rival)] {
        let store = ScriptedStore::default();
        let journal = Journal::start();
        let run = start(&executor(&store).job("job").unwrap(), &journal);
        until(|| journal.has("started")).await;
        let name = LeaseName::new("job").unwrap();
        match reason {
            LossReason::Deleted => store.rows.delete(&name),
            LossReason::ForcedOut => drop(store.rows.force_release(&name, ForceRelease::Rest).await.unwrap()),
            _ => {
                store.rows.expire(&name);
                assert!(store.rival("job").await.is_acquired());
            }
        }
        let end = run.await.unwrap();
        assert!(matches!(&end, Err(RunError::Stopped(StopReason::Lost(lost))) if *lost == reason), "{end:?}");
        assert!(!journal.has("told"), "the job had another turn");
        assert!(journal.when("dropped") <= millis(7500), "{:?}", journal.when("dropped"));
        assert_eq!(store.count(Operation::Release), 0);
    }
}

/// E3, SD-01: a job that ends within its grace time is released when it has ended, not when it was told.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_the_end_of_the_job() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let journal = Journal::start();
    let noted = journal.clone();
    let ran = executor(&store).job("job").unwrap().try_run(move |lease| async move {
        lease.cancelled().cancelled().await;
        tokio::time::sleep(seconds(3)).await;
        noted.note("ended");
        7
    });
    assert_eq!(ran.await.unwrap(), TryRun::Ran(7));
    let release = store.calls().into_iter().find(|call| call.operation == Operation::Release).unwrap();
    let released = release.at.saturating_duration_since(store.calls()[0].at);
    assert_about(journal.when("ended"), STOP_AFTER + seconds(3));
    assert!(released >= journal.when("ended"));
}

/// E3, E6: a job that ends at the very instant of its stop point, of its deadline, or of a loss has one end, one reason and at most one
/// release.
#[tokio::test(start_paused = true)]
async fn an_end_at_the_instant_of_a_loss_is_one_end() {
    for (instant, lost) in [(STOP_AFTER, false), (DROP_AFTER, false), (seconds(7), true)] {
        let store = ScriptedStore::default();
        store.always(Operation::Renew, if lost { Act::DelayRequest(millis(1)) } else { Act::Fail(ErrorKind::Busy) });
        let executor = SingletonExecutor::new(
            store.clone(),
            SingletonOptions::enabled().renew_interval(seconds(7)).operation_timeout(seconds(20)),
        )
        .unwrap();
        let held = Arc::new(std::sync::Mutex::new(None));
        let (kept, name) = (Arc::clone(&held), LeaseName::new("job").unwrap());
        let rows = store.rows.clone();
        let ran = executor.job("job").unwrap().try_run(move |lease| async move {
            *kept.lock().unwrap() = Some(lease.clone());
            if lost {
                rows.delete(&name);
                lease.cancelled().cancelled().await;
            } else {
                let left = lease.remaining().unwrap();
                tokio::time::sleep(instant.saturating_sub(DROP_AFTER.saturating_sub(left))).await;
            }
        });
        let end = ran.await;
        let lease = held.lock().unwrap().take().unwrap();
        let reason = lease.stop_reason().unwrap();
        match end {
            Ok(TryRun::Ran(())) => assert!(store.count(Operation::Release) == 1),
            Err(RunError::Stopped(stopped)) => assert_eq!(stopped.to_string(), reason.to_string()),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(seconds(60)).await;
        assert_eq!(lease.stop_reason().unwrap().to_string(), reason.to_string(), "the reason is settled once");
        assert!(store.count(Operation::Release) <= 1);
        assert!(!lease.is_held() && lease.cancelled().is_cancelled());
    }
}

/// E9, SL-08: a panic ends the renewals, releases the lease, and is the answer.
#[tokio::test(start_paused = true)]
async fn a_panic_releases_the_lease_and_is_the_answer() {
    let store = ScriptedStore::default();
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&starts);
    let end = executor(&store).job("job").unwrap().run(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { panic!("out of paper") }
    });
    let end: Result<(), _> = tokio::time::timeout(seconds(100), end).await.unwrap();
    assert!(matches!(&end, Err(RunError::Panicked(message)) if message == "out of paper"), "{end:?}");
    assert_eq!(starts.load(Ordering::Relaxed), 1, "it must not loop");
    assert!(store.rival("job").await.is_acquired());
    let renewals = store.count(Operation::Renew);
    tokio::time::sleep(seconds(100)).await;
    assert_eq!(store.count(Operation::Renew), renewals);
}

/// E9: a panic in the closure that makes the future, and one while the future is dropped, are contained as well.
#[tokio::test(start_paused = true)]
async fn a_panic_outside_the_poll_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "bomb");
        }
    }
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let fuse = |lit: bool| assert!(!lit, "in the closure");
    let end = executor.job("job").unwrap().run(move |_| {
        fuse(true);
        async {}
    });
    assert!(matches!(end.await, Err(RunError::Panicked(message)) if message == "in the closure"));

    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let end = executor.job("job").unwrap().try_run(|_| async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
    });
    assert!(matches!(end.await, Err(RunError::Panicked(message)) if message == "bomb"));
    assert!(store.rival("job").await.is_acquired());
}

/// E9, RN-07: a heartbeat that panics cancels its job, and the cause is the answer.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_heartbeat_cancels_the_job() {
    let store = ScriptedStore::default();
    store.next(Operation::Renew, Act::Panic);
    let journal = Journal::start();
    let end = start(&executor(&store).job("job").unwrap(), &journal).await.unwrap();
    assert!(matches!(&end, Err(RunError::Panicked(message)) if message == "the script says so"), "{end:?}");
    assert!(journal.when("dropped") <= millis(7500));
    assert!(store.rival("job").await.is_acquired());
}

/// E3, SD-08: a job stuck in one poll is reported, its lease lapses so that others go on, and this process does not start the name again
/// until it has ended. Real time: a thread is really blocked.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_stuck_job_keeps_its_name_in_this_process() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let options = SingletonOptions::enabled().duration(millis(900)).grace(millis(100)).margin(millis(50));
    let executor = SingletonExecutor::new(store.clone(), options).unwrap();
    let job = executor.job("job").unwrap();
    let (unblock, blocked) = mpsc::channel::<()>();
    let (running, started) = tokio::sync::oneshot::channel();
    let run = tokio::spawn(job.try_run(move |_| async move {
        running.send(()).unwrap();
        blocked.recv().unwrap();
        tokio::task::yield_now().await;
        panic!("polled after its deadline");
    }));
    started.await.unwrap();
    while !store.rival("job").await.is_acquired() {
        tokio::time::sleep(millis(5)).await;
    }
    assert!(matches!(job.try_run(|_| async {}).await.unwrap(), TryRun::HeldElsewhere(_)), "the name is still taken");
    let report = executor.shutdown().await;
    assert_eq!(report.unfinished, [LeaseName::new("job").unwrap()]);
    let end = tokio::time::timeout(seconds(60), run).await.expect("a shutdown gives a stuck job up").unwrap();
    assert!(matches!(end, Err(RunError::DidNotStop)), "{end:?}");
    unblock.send(()).unwrap();
    while !executor.shutdown().await.unfinished.is_empty() {
        tokio::time::sleep(millis(5)).await;
    }
}

/// E3: the report comes when the lease has lapsed: one margin after the deadline.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_kept_overruns_and_keeps_its_name() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    let journal = Journal::start();
    let guard = job.acquire(None).await.unwrap();
    guard.cancelled().cancelled().await;
    assert_about(guard.remaining().unwrap(), GRACE);
    let (stopping, noted) = (executor.clone(), journal.clone());
    let shutdown = tokio::spawn(async move {
        let report = stopping.shutdown().await;
        noted.note("given up");
        report
    });
    assert_eq!(shutdown.await.unwrap().unfinished, [LeaseName::new("job").unwrap()]);
    assert_about(journal.when("given up"), DROP_AFTER + MARGIN);
    assert!(store.rival("job").await.is_acquired(), "the lease has lapsed");
    assert!(!guard.release().await.unwrap());
}

/// E3: after a loss the report comes one margin later, whatever the deadline was, for another instance may run already.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_kept_after_a_loss_overruns_at_once() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    store.rows.delete(guard.name());
    guard.cancelled().cancelled().await;
    let journal = Journal::start();
    assert_eq!(executor.shutdown().await.unfinished, [guard.name().clone()]);
    journal.note("given up");
    assert_about(journal.when("given up"), MARGIN);
}

/// E3: with `OnOverrun::Abort` a job that has not ended when its lease has lapsed takes its process along. The test runs itself once more
/// as that process.
#[cfg(unix)]
#[test]
fn an_overrun_aborts_the_process_when_asked() {
    const CHILD: &str = "LEASE_TEST_OVERRUN";
    if std::env::var_os(CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let options = SingletonOptions::enabled().on_overrun(OnOverrun::Abort);
            let executor = SingletonExecutor::new(ScriptedStore::default(), options).unwrap();
            let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
            executor.shutdown().await;
            drop(guard);
        });
        return;
    }
    let this = "executor::tests::stop_chain::an_overrun_aborts_the_process_when_asked";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args([this, "--exact"]).env(CHILD, "1").output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "SIGABRT: {output:?}");
}
