//! `every`: one run a period across the cluster.

use std::time::Duration;

use super::script::{Act, DURATION, Journal, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    ErrorKind, HeldLease, LeaseDuration, Misfire, Operation, RunError, SingletonExecutor, SingletonOptions,
    clock::LocalInstant,
};

const PERIOD: Duration = Duration::from_secs(100);

fn period() -> LeaseDuration {
    LeaseDuration::new(PERIOD).unwrap()
}

/// Starts a replica that notes each run.
fn replica(
    executor: &SingletonExecutor,
    journal: &Journal,
    misfire: Misfire,
) -> tokio::task::JoinHandle<Result<std::convert::Infallible, RunError>> {
    let journal = journal.clone();
    let run = move |_: HeldLease| {
        let journal = journal.clone();
        async move {
            journal.note("run");
            tokio::time::sleep(seconds(10)).await;
        }
    };
    tokio::spawn(executor.job("job").unwrap().misfire(misfire).every(period(), run))
}

fn pauses(journal: &Journal) -> Vec<Duration> {
    let runs = journal.times("run");
    runs.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

/// E10: three replicas make one run a period between them.
#[tokio::test(start_paused = true)]
async fn replicas_make_one_run_a_period() {
    let store = ScriptedStore::deaf();
    let journal = Journal::start();
    let replicas: Vec<_> = (0..3).map(|_| executor(&store)).collect();
    let runs: Vec<_> = replicas.iter().map(|executor| replica(executor, &journal, Misfire::RunOnce)).collect();
    until(|| journal.names().len() == 20).await;
    for pause in pauses(&journal) {
        assert!(pause >= PERIOD && pause <= PERIOD + millis(20), "{pause:?}");
    }
    for executor in &replicas {
        executor.shutdown().await;
    }
    for run in runs {
        assert!(matches!(run.await.unwrap(), Err(RunError::ShutDown)));
    }
}

/// E10, E12: a hand-over neither repeats nor skips a run, not even one that it cuts short.
#[tokio::test(start_paused = true)]
async fn a_hand_over_neither_repeats_nor_skips_a_run() {
    let store = ScriptedStore::deaf();
    let journal = Journal::start();
    let replicas: Vec<_> = (0..2).map(|_| executor(&store)).collect();
    let _runs: Vec<_> = replicas.iter().map(|executor| replica(executor, &journal, Misfire::RunOnce)).collect();
    for round in 1..6 {
        until(|| journal.names().len() == round).await;
        for executor in &replicas {
            executor.eligible(false);
            executor.eligible(true);
        }
    }
    for pause in pauses(&journal) {
        assert!(pause >= PERIOD && pause <= PERIOD + DURATION + millis(20), "{pause:?}");
    }
}

/// After an outage over several periods one run makes up for all, or the late run is skipped, as is chosen.
#[tokio::test(start_paused = true)]
async fn a_misfire_runs_once_or_is_skipped() {
    for misfire in [Misfire::RunOnce, Misfire::Skip] {
        let store = ScriptedStore::deaf();
        let journal = Journal::start();
        let executor = executor(&store);
        let _run = replica(&executor, &journal, misfire);
        until(|| store.count(Operation::ReleaseAfter) == 1).await;
        tokio::time::sleep(seconds(10)).await;
        store.always(Operation::Acquire, Act::Fail(ErrorKind::Unavailable));
        tokio::time::sleep(3 * PERIOD).await;
        store.heal();
        let healed = LocalInstant::now();
        until(|| journal.names().len() == 2).await;
        let waited = LocalInstant::now().saturating_duration_since(healed);
        match misfire {
            Misfire::RunOnce => assert!(waited <= seconds(2), "{waited:?}"),
            Misfire::Skip => assert!(waited >= PERIOD && waited <= PERIOD + seconds(2) + millis(20), "{waited:?}"),
        }
        until(|| journal.names().len() == 4).await;
        for pause in &pauses(&journal)[1..] {
            assert!(*pause >= PERIOD && *pause <= PERIOD + millis(20), "{pause:?}");
        }
    }
}

/// E1, E9: while disabled each process makes its own runs, once a period; a panic ends them.
#[tokio::test(start_paused = true)]
async fn every_works_while_disabled_and_ends_with_a_panic() {
    let store = ScriptedStore::default();
    let executor = SingletonExecutor::new(store.clone(), SingletonOptions::disabled()).unwrap();
    let journal = Journal::start();
    let run = replica(&executor, &journal, Misfire::RunOnce);
    until(|| journal.names().len() == 5).await;
    for pause in pauses(&journal) {
        assert_about(pause, PERIOD);
    }
    executor.shutdown().await;
    assert!(matches!(run.await.unwrap(), Err(RunError::ShutDown)));
    assert!(store.calls().is_empty());

    let executor = super::script::executor(&store);
    let end = executor.job("job").unwrap().every(period(), |_| async { panic!("out of paper") }).await;
    assert!(matches!(end, Err(RunError::Panicked(message)) if message == "out of paper"));
    assert_eq!(store.count(Operation::ReleaseAfter), 1);
}

/// E3: a blocking job is told through its lease, cannot be dropped, and is waited for; its thread is real, so the time is too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_job_is_told_and_waited_for() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let options = SingletonOptions::enabled().duration(millis(900)).grace(millis(100)).margin(millis(50));
    let executor = SingletonExecutor::new(store.clone(), options).unwrap();
    let mut runs = 0;
    let ran = executor.job("job").unwrap().run_blocking(move |lease| {
        runs += 1;
        while runs == 1 && lease.is_held() {
            std::thread::sleep(millis(1));
        }
        runs
    });
    assert_eq!(ran.await.unwrap(), 2, "the first run was stopped, and came again");
    let end: Result<(), _> = executor.job("job").unwrap().run_blocking(|_| panic!("out of paper")).await;
    assert!(matches!(end, Err(RunError::Panicked(message)) if message == "out of paper"));
}
