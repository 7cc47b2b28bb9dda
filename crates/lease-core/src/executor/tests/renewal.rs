//! E4, E7, RN rows: what keeps a lease, and what loses it.

use std::time::Duration;

use super::script::{
    Act, DURATION, Journal, STOP_AFTER, ScriptedStore, assert_about, executor, millis, seconds, until,
};
use crate::{
    ErrorKind, LeaseDuration, LeaseName, LeaseStore, LossReason, Operation, RunError, StopReason, TryRun,
    clock::LocalInstant,
};

/// E4, SL-07, RN-10, RN-08: a job of many durations is kept by renewals, while a rival is refused all the time; the renewals carry the
/// grant's own duration and come no later than their interval.
#[tokio::test(start_paused = true)]
async fn a_long_job_is_kept() {
    let store = ScriptedStore::default();
    let job = executor(&store).job("job").unwrap();
    let run = tokio::spawn(job.try_run(|lease| async move {
        tokio::time::sleep(10 * DURATION).await;
        assert!(lease.is_held());
    }));
    until(|| store.count(Operation::Acquire) == 1).await;
    while !run.is_finished() {
        assert!(!store.rival("job").await.is_acquired());
        tokio::time::sleep(seconds(1)).await;
    }
    assert_eq!(run.await.unwrap().unwrap(), TryRun::Ran(()));
    let calls = store.calls();
    assert!(store.count(Operation::Renew) >= 40);
    for pair in calls.windows(2) {
        assert!(pair[1].at.saturating_duration_since(pair[0].at) <= millis(7505), "{pair:?}");
    }
}

/// RN-02: three failed renewals and a good one inside the lease cost nothing; errors for ever end at the stop point, not before.
#[tokio::test(start_paused = true)]
async fn errors_are_tried_again_until_the_stop_point() {
    let store = ScriptedStore::default();
    for _ in 0..3 {
        store.next(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    }
    let ran = executor(&store).job("job").unwrap().try_run(|lease| async move {
        tokio::time::sleep(2 * DURATION).await;
        lease.is_held()
    });
    assert_eq!(ran.await.unwrap(), TryRun::Ran(true));

    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let ran = executor(&store).job("job").unwrap().try_run(|lease| async move {
        let start = LocalInstant::now();
        lease.cancelled().cancelled().await;
        LocalInstant::now().saturating_duration_since(start)
    });
    let TryRun::Ran(lasted) = ran.await.unwrap() else { panic!("the lease was free") };
    assert_about(lasted, STOP_AFTER);
    assert!(store.count(Operation::Renew) < 40, "retries slow down: {}", store.count(Operation::Renew));
}

/// E4, RN-03: a renewal that is never answered is given up after the operation timeout, and tried again.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_given_up_and_tried_again() {
    let store = ScriptedStore::default();
    store.next(Operation::Renew, Act::Hang);
    let ran = executor(&store).job("job").unwrap().try_run(|lease| async move {
        tokio::time::sleep(2 * DURATION).await;
        lease.is_held()
    });
    assert_eq!(ran.await.unwrap(), TryRun::Ran(true));
    let renewals: Vec<_> = store.calls().into_iter().filter(|call| call.operation == Operation::Renew).collect();
    assert_about(renewals[1].at.saturating_duration_since(renewals[0].at), seconds(5) + millis(8));
}

/// E2, RC-10: the late answer of an earlier term extends nothing: a renewal that hangs over the end of its term is dropped with it.
#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_earlier_term_extends_nothing() {
    let store = ScriptedStore::default();
    let journal = Journal::start();
    let (rows, noted) = (store.clone(), journal.clone());
    let run = tokio::spawn(executor(&store).job("job").unwrap().run(move |lease| {
        let (rows, journal) = (rows.clone(), noted.clone());
        async move {
            journal.note(format!("token {}", lease.token().unwrap()));
            if journal.names().len() == 1 {
                // The first term's last renewal is applied at once, and its answer arrives in the second term.
                rows.always(Operation::Renew, Act::DelayAnswer(seconds(40)));
                lease.cancelled().cancelled().await;
                rows.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
                return Duration::ZERO;
            }
            let start = LocalInstant::now();
            lease.cancelled().cancelled().await;
            let lasted = LocalInstant::now().saturating_duration_since(start);
            rows.heal();
            journal.note(format!("lasted {lasted:?}"));
            lasted
        }
    }));
    until(|| journal.names().iter().any(|name| name.starts_with("lasted"))).await;
    let names = journal.names();
    let lasted = names.iter().find_map(|name| name.strip_prefix("lasted ")).unwrap();
    let lasted: f64 = lasted.trim_end_matches('s').parse().unwrap();
    assert_about(Duration::from_secs_f64(lasted), STOP_AFTER);
    run.abort();
}

/// E7: a renewal that answers another token is a loss, for the id serves another acquisition.
#[tokio::test(start_paused = true)]
async fn a_renewal_with_another_token_is_a_loss() {
    let store = ScriptedStore::default();
    let rows = store.rows.clone();
    let end = executor(&store).job("job").unwrap().try_run(move |lease| async move {
        let again = rows.try_acquire(lease.name(), lease.owner(), LeaseDuration::new(DURATION).unwrap()).await;
        assert!(again.unwrap().is_acquired());
        tokio::time::sleep(DURATION).await;
    });
    let end = end.await;
    assert!(matches!(&end, Err(RunError::Stopped(StopReason::Lost(LossReason::Superseded(_))))), "{end:?}");
}

/// RC-15: a renewal in flight at the end of the job does not bring the lease back.
#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_does_not_survive_the_release() {
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::DelayRequest(seconds(2)));
    let seen = store.clone();
    let ran = executor(&store).job("job").unwrap().try_run(|_| async move {
        until(|| seen.count(Operation::Renew) == 1).await;
    });
    assert_eq!(ran.await.unwrap(), TryRun::Ran(()));
    let renewals = store.count(Operation::Renew);
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(store.count(Operation::Renew), renewals, "no renewal after the release");
    assert!(store.rival("job").await.is_acquired());
}

/// SD-02: a release that fails is tried again, on its own, within the operation timeout.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_again() {
    let store = ScriptedStore::default();
    store.next(Operation::Release, Act::Fail(ErrorKind::Unavailable));
    store.next(Operation::Release, Act::LoseAnswer);
    let ran = executor(&store).job("job").unwrap().try_run(|_| async {}).await;
    assert_eq!(ran.unwrap(), TryRun::Ran(()));
    assert_eq!(store.count(Operation::Release), 3);
    assert!(store.rival("job").await.is_acquired());

    store.always(Operation::Release, Act::Hang);
    let other = executor(&store).job("other").unwrap();
    let start = LocalInstant::now();
    assert_eq!(other.try_run(|_| async {}).await.unwrap(), TryRun::Ran(()), "the job did run");
    assert_about(LocalInstant::now().saturating_duration_since(start), seconds(5));
}

/// CL-13, RC-11: after a loss the instance contends again, with a new owner id and a greater token.
#[tokio::test(start_paused = true)]
async fn a_loss_is_followed_by_another_contention() {
    let store = ScriptedStore::default();
    let tokens = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (rows, seen) = (store.rows.clone(), std::sync::Arc::clone(&tokens));
    let run = executor(&store).job("job").unwrap().run(move |lease| {
        let (rows, tokens) = (rows.clone(), std::sync::Arc::clone(&seen));
        async move {
            let first = {
                let mut tokens = tokens.lock().unwrap();
                tokens.push((lease.token().unwrap(), lease.owner().clone()));
                tokens.len() == 1
            };
            if first {
                rows.delete(&LeaseName::new("job").unwrap());
                std::future::pending::<()>().await;
            }
        }
    });
    run.await.unwrap();
    let tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 2);
    assert!(tokens[0].0 < tokens[1].0 && tokens[0].1 != tokens[1].1, "{tokens:?}");
}
