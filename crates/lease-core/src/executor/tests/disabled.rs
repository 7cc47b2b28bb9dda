//! E1: off by default, and then the store is never touched.

use std::time::Duration;

use tokio::time::timeout;

use super::script::{GRACE, Journal, ScriptedStore, assert_about, seconds};
use crate::{RunError, SingletonExecutor, SingletonOptions, TryRun};

fn disabled(store: &ScriptedStore) -> SingletonExecutor {
    SingletonExecutor::new(store.clone(), SingletonOptions::default()).unwrap()
}

/// E1: every form runs at once, several at a time, without one call of the store.
#[tokio::test(start_paused = true)]
async fn a_disabled_executor_never_calls_its_store() {
    let store = ScriptedStore::default();
    let executor = disabled(&store);
    let job = executor.job("job").unwrap();

    let leadership = job.leadership();
    assert!(leadership.is_held(), "it leads before any task was polled");
    let step = leadership.enter().unwrap();
    assert!(step.token().is_none());

    let guard = job.acquire(None).await.unwrap();
    assert!(guard.is_held() && guard.deadline().is_none() && guard.remaining().is_none());
    let nested = job.clone();
    let ran = job.run(move |lease| {
        let nested = nested.clone();
        async move {
            lease.check().unwrap();
            let inner = nested.try_run(|lease| async move { lease.is_held() }).await.unwrap();
            tokio::time::sleep(seconds(600)).await;
            assert!(lease.is_held());
            inner
        }
    });
    assert_eq!(ran.await.unwrap(), TryRun::Ran(true));
    assert!(guard.release().await.unwrap());
    drop(step);
    executor.shutdown().await;
    assert!(leadership.is_held());
    assert!(store.calls().is_empty(), "{:?}", store.calls());
}

/// E1, E3: a shutdown stops a disabled executor's jobs too, after their grace time.
#[tokio::test(start_paused = true)]
async fn a_shutdown_stops_the_jobs_of_a_disabled_executor() {
    let store = ScriptedStore::default();
    let executor = disabled(&store);
    let journal = Journal::start();
    let noted = journal.clone();
    let run = tokio::spawn(executor.job("job").unwrap().run(move |lease| {
        let journal = noted.clone();
        async move {
            let _dropped = journal.on_drop("dropped");
            journal.note("started");
            lease.cancelled().cancelled().await;
            journal.note("told");
            std::future::pending::<()>().await;
        }
    }));
    super::script::until(|| journal.has("started")).await;
    let report = timeout(Duration::from_secs(60), executor.shutdown()).await.unwrap();
    assert!(report.unfinished.is_empty());
    assert!(matches!(run.await.unwrap(), Err(RunError::ShutDown)));
    assert_about(journal.between("told", "dropped"), GRACE);
    assert!(store.calls().is_empty());
}

/// E1, E3: a job that was told to stop before its first turn is not started, although a disabled executor's lease is always held.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_told_before_its_first_turn_is_not_started() {
    let executor = disabled(&ScriptedStore::default());
    let job = executor.job("job").unwrap();
    let mut run = Box::pin(job.run(|_| async { panic!("it must not start") }));
    let mut blocking = Box::pin(job.run_blocking(|_| panic!("it must not start")));
    assert!(futures::poll!(&mut run).is_pending() && futures::poll!(&mut blocking).is_pending());
    assert!(executor.shutdown().await.unfinished.is_empty());
    assert!(matches!(run.await, Err::<(), _>(RunError::ShutDown)));
    assert!(matches!(blocking.await, Err::<(), _>(RunError::ShutDown)));
}
