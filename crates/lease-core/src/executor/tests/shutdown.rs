//! Shutdown, and what dropping a running form does.

use super::script::{Act, GRACE, Journal, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{AcquireError, HeldLease, LeaseStore, Operation, OwnerId, RunError, SingletonExecutor, TryRun};

/// Starts a job that takes `drain` seconds to stop once it was told.
fn start(
    executor: &SingletonExecutor,
    name: &str,
    journal: &Journal,
    drain: u64,
) -> tokio::task::JoinHandle<Result<u64, RunError>> {
    let (journal, told) = (journal.clone(), format!("{name} told"));
    let (started, ended) = (format!("{name} started"), format!("{name} ended"));
    tokio::spawn(executor.job(name).unwrap().run(move |lease: HeldLease| {
        let (journal, started, told, ended) = (journal.clone(), started.clone(), told.clone(), ended.clone());
        async move {
            journal.note(started);
            lease.cancelled().cancelled().await;
            assert!(!lease.is_held());
            journal.note(told);
            tokio::time::sleep(seconds(drain)).await;
            journal.note(ended);
            drain
        }
    }))
}

/// SD-01, SD-03: a shutdown stops all jobs, waits for their ends, and releases each lease only then; a job that returns in time gives its
/// value.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_jobs_and_then_releases() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let journal = Journal::start();
    let (slow, fast) = (start(&executor, "slow", &journal, 3), start(&executor, "fast", &journal, 0));
    until(|| journal.has("slow started") && journal.has("fast started")).await;
    let (stopping, noted) = (executor.clone(), journal.clone());
    let shutdown = tokio::spawn(async move {
        let report = stopping.shutdown().await;
        noted.note("shut down");
        report
    });
    until(|| journal.has("slow told")).await;
    while !journal.has("slow ended") {
        assert!(!store.rival("slow").await.is_acquired(), "released while the job drains");
        tokio::time::sleep(millis(50)).await;
    }
    assert!(shutdown.await.unwrap().unfinished.is_empty());
    assert_about(journal.when("shut down"), journal.when("slow ended"));
    assert_eq!((slow.await.unwrap().unwrap(), fast.await.unwrap().unwrap()), (3, 0));
    assert!(store.rival("slow").await.is_acquired() && store.rival("fast").await.is_acquired());
}

/// E3, SD-08: a job that ignores its token is dropped when its grace time is over.
#[tokio::test(start_paused = true)]
async fn a_job_that_ignores_its_token_is_dropped_after_its_grace() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let journal = Journal::start();
    let run = start(&executor, "job", &journal, 3600);
    until(|| journal.has("job started")).await;
    assert!(executor.shutdown().await.unfinished.is_empty());
    journal.note("shut down");
    assert!(matches!(run.await.unwrap(), Err(RunError::ShutDown)));
    assert_about(journal.between("job told", "shut down"), GRACE);
    assert!(store.rival("job").await.is_acquired());
}

/// E3, SD-08: a guard that is kept through a shutdown overruns it: its renewals end, and its lease lapses although the store answers.
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_kept_through_a_shutdown_lapses() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(executor.shutdown().await.unfinished, [guard.name().clone()]);
    assert!(!guard.is_held() && !store.rival("job").await.is_acquired());
    tokio::time::sleep(super::script::DURATION).await;
    assert!(store.rival("job").await.is_acquired());
    assert!(!guard.release().await.unwrap());
}

/// A shutdown is idempotent, ends every standby, and lets nothing start afterwards.
#[tokio::test(start_paused = true)]
async fn a_shutdown_is_idempotent_and_final() {
    let store = ScriptedStore::default();
    assert!(store.rival("job").await.is_acquired());
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    let standbys = [tokio::spawn(job.run(|_| async {})), tokio::spawn(job.run(|_| async {}))];
    until(|| store.count(Operation::Acquire) == 1).await;
    let (first, second) = tokio::join!(executor.shutdown(), executor.shutdown());
    assert_eq!(first, second);
    for standby in standbys {
        assert!(matches!(standby.await.unwrap(), Err(RunError::ShutDown)));
    }
    let calls = store.calls().len();
    let free = executor.job("free").unwrap();
    assert!(matches!(free.run(|_| async {}).await, Err(RunError::ShutDown)));
    assert!(matches!(free.try_run(|_| async {}).await, Err(RunError::ShutDown)));
    assert!(matches!(free.acquire(None).await, Err(AcquireError::ShutDown)));
    assert!(!free.leadership().is_held());
    executor.shutdown().await;
    assert_eq!(store.calls().len(), calls, "nothing was asked of the store");
}

/// A release that fails at shutdown does not skip the others.
#[tokio::test(start_paused = true)]
async fn a_failed_release_does_not_skip_the_others() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let journal = Journal::start();
    let runs = ["a", "b", "c"].map(|name| start(&executor, name, &journal, 0));
    until(|| ["a", "b", "c"].iter().all(|name| journal.has(&format!("{name} started")))).await;
    store.next(Operation::Release, Act::Hang);
    executor.shutdown().await;
    let mut free = 0;
    for name in ["a", "b", "c"] {
        free += usize::from(store.rival(name).await.is_acquired());
    }
    assert_eq!(free, 2);
    for run in runs {
        run.await.unwrap().unwrap();
    }
}

/// A grant that arrives during a shutdown is given back, and the shutdown waits for that.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_during_a_shutdown_is_given_back() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::DelayAnswer(seconds(2)));
    let executor = executor(&store);
    let run = tokio::spawn(executor.job("job").unwrap().run(|_| async { panic!("it must not start") }));
    until(|| store.count(Operation::Acquire) == 1).await;
    executor.shutdown().await;
    assert!(matches!(run.await.unwrap(), Err::<(), _>(RunError::ShutDown)));
    assert!(store.rival("job").await.is_acquired());
}

/// E3, CX-09: dropping `run` tells the job to stop; it has its grace time, and the lease is released when it has ended.
#[tokio::test(start_paused = true)]
async fn dropping_a_run_stops_its_job_in_grace() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let journal = Journal::start();
    let run = start(&executor, "job", &journal, 2);
    until(|| journal.has("job started")).await;
    run.abort();
    until(|| journal.has("job told")).await;
    let owner = OwnerId::new("rival").unwrap();
    while !journal.has("job ended") {
        assert!(!store.rival("job").await.is_acquired());
        tokio::time::sleep(millis(50)).await;
    }
    until(|| store.count(Operation::Release) == 1).await;
    assert!(store.rival("job").await.is_acquired());
    assert!(store.rows.release(&crate::LeaseName::new("job").unwrap(), &owner).await.unwrap());
    // The name is free again within this executor as well.
    assert_eq!(executor.job("job").unwrap().try_run(|_| async {}).await.unwrap(), TryRun::Ran(()));
}

/// SD-07: a runtime that goes down in the middle of anything neither blocks nor panics, and the lease lapses.
#[test]
fn a_runtime_can_go_down_at_any_time() {
    for act in [None, Some(Act::Hang)] {
        let store = ScriptedStore::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        if let Some(act) = act {
            store.next(Operation::Acquire, act);
        }
        runtime.block_on(async {
            let executor = executor(&store);
            let run = tokio::spawn(executor.job("job").unwrap().run(|_| std::future::pending::<()>()));
            let _leadership = executor.job("other").unwrap().leadership();
            until(|| store.count(Operation::Acquire) == 2).await;
            assert!(!run.is_finished());
        });
        drop(runtime);
    }
}
