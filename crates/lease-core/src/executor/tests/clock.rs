//! E2, E3: no timer and no task is trusted over the clock. Here it jumps while nobody but the job, or the store, has a turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use super::script::{Act, GRACE, STOP_AFTER, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{Operation, Role, RunError, StopReason, clock};

/// E2, E6, CT-16: a machine that slept past the deadline drops its job before another step.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_drops_its_job_before_another_step() {
    let store = ScriptedStore::default();
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let ran = executor(&store).job("job").unwrap().try_run(move |lease| async move {
        loop {
            assert!(lease.is_held(), "a step after the suspension");
            counted.fetch_add(1, Ordering::Relaxed);
            if counted.load(Ordering::Relaxed) == 3 {
                clock::simulate(seconds(60));
                assert!(!lease.is_held(), "the clock is read, not the executor's mind");
                assert!(lease.check().is_err());
            }
            tokio::time::sleep(seconds(1)).await;
        }
    });
    let end = ran.await;
    assert!(matches!(end, Err(RunError::Stopped(StopReason::Suspended))), "{end:?}");
    assert_eq!(steps.load(Ordering::Relaxed), 3);
}

/// E3, E6: a renewal whose answer is seen after the stop point does not take the stop back, although it was in time at the database.
#[tokio::test(start_paused = true)]
async fn an_answer_after_the_stop_point_does_not_take_the_stop_back() {
    let store = ScriptedStore::default();
    store.next(Operation::Renew, Act::Suspend(STOP_AFTER));
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    let deadline = guard.deadline();
    until(|| store.count(Operation::Renew) == 1).await;
    tokio::time::sleep(millis(1)).await;
    assert!(!guard.is_held() && guard.cancelled().is_cancelled());
    assert_eq!(guard.deadline(), deadline);
    assert!(matches!(guard.stop_reason(), Some(StopReason::Suspended)), "{:?}", guard.stop_reason());
}

/// E2, E12: a stop never moves the deadline to later, not even when the stop point has passed and nobody has seen that yet.
#[tokio::test(start_paused = true)]
async fn a_stop_after_the_stop_point_does_not_move_the_deadline() {
    let executor = executor(&ScriptedStore::default());
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    clock::simulate(STOP_AFTER + seconds(1));
    executor.eligible(false);
    assert_about(guard.remaining().unwrap(), seconds(4));
}

/// E3: a job that returns because the clock told it to was stopped, although nobody else has seen that: it runs again.
#[tokio::test(start_paused = true)]
async fn a_job_that_follows_the_clock_was_stopped() {
    let store = ScriptedStore::default();
    let mut runs = 0;
    let ran = executor(&store).job("job").unwrap().run(move |lease| {
        runs += 1;
        async move {
            if runs == 1 {
                clock::simulate(STOP_AFTER);
                assert!(!lease.is_held() && lease.stop_reason().is_none());
            }
            runs
        }
    });
    assert_eq!(ran.await.unwrap(), 2);
}

/// E2, E3: a job whose stop point passes before its first turn is not started.
#[tokio::test(start_paused = true)]
async fn a_job_is_not_started_after_its_stop_point() {
    let store = ScriptedStore::default();
    let job = executor(&store).job("job").unwrap();
    let mut statuses = job.status();
    let mut starts = 0;
    let mut run = Box::pin(job.run(move |lease| {
        starts += 1;
        std::future::ready((starts, lease.owner().clone()))
    }));
    assert!(futures::poll!(&mut run).is_pending());
    statuses.wait_for(|status| matches!(status.role, Role::Holding { .. })).await.unwrap();
    clock::simulate(STOP_AFTER);
    let (starts, owner) = run.await.unwrap();
    assert_eq!((starts, &owner), (1, &store.owners(Operation::Acquire)[1]), "the first term's job never started");
    assert_eq!(store.count(Operation::Release), 2);
}

/// E3, RN-05: the clock is read before each poll, also when the executor's own tasks had no turn.
#[tokio::test(start_paused = true)]
async fn a_job_that_starves_the_executor_is_not_polled_past_its_deadline() {
    let store = ScriptedStore::default();
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let ran = executor(&store).job("job").unwrap().try_run(move |lease| async move {
        let cancelled = lease.cancelled();
        std::future::poll_fn(move |context| {
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => clock::simulate(STOP_AFTER), // one poll that takes until the stop point
                1 => {
                    assert!(cancelled.is_cancelled(), "the token fires before the poll, heartbeat or not");
                    clock::simulate(GRACE);
                }
                _ => panic!("polled after its deadline"),
            }
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    });
    assert!(matches!(ran.await, Err(RunError::Stopped(_))));
    assert_eq!(polls.load(Ordering::Relaxed), 2);
}
