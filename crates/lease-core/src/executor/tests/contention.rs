//! E5, E7, E11: standbys, owner ids, and one contender a name.

use std::time::Duration;

use super::script::{Act, DURATION, Journal, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    AcquireError, ErrorKind, LeaseDuration, LeaseName, LeaseStore, Operation, OwnerId, RunError, TryRun,
    clock::LocalInstant,
};

fn duration() -> LeaseDuration {
    LeaseDuration::new(DURATION).unwrap()
}

fn name() -> LeaseName {
    LeaseName::new("job").unwrap()
}

/// E5: a release between a standby's attempt and its wait wakes it; nothing waits for a poll interval.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_a_standby() {
    let store = ScriptedStore::default();
    assert!(store.rival("job").await.is_acquired());
    let standby = tokio::spawn(executor(&store).job("job").unwrap().acquire(None));
    until(|| store.count(Operation::Acquire) == 3).await;
    let released = LocalInstant::now();
    store.rows.release(&name(), &OwnerId::new("rival").unwrap()).await.unwrap();
    let guard = standby.await.unwrap().unwrap();
    assert!(LocalInstant::now().saturating_duration_since(released) <= millis(15));
    assert!(guard.is_held());
}

/// E5, SL-01, SL-04: without wake-ups a standby looks once a poll interval, and right at the holder's expiry.
#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_at_the_expiry_with_few_attempts() {
    let store = ScriptedStore::deaf();
    assert!(store.rival("job").await.is_acquired());
    let start = LocalInstant::now();
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    let waited = LocalInstant::now().saturating_duration_since(start);
    assert!(waited >= DURATION && waited <= DURATION + millis(15), "{waited:?}");
    let attempts = store.count(Operation::Acquire);
    assert!((15..=20).contains(&attempts), "{attempts} attempts in 30 s");
    assert!(guard.release().await.unwrap());
}

/// E5: while the row is contended (no time left, but refused) the pauses double from 10 ms to the poll interval.
#[tokio::test(start_paused = true)]
async fn a_standby_slows_down_when_the_store_fails() {
    let store = ScriptedStore::deaf();
    store.outage(ErrorKind::Unavailable);
    let standby = tokio::spawn(executor(&store).job("job").unwrap().acquire(None));
    until(|| store.count(Operation::Acquire) == 12).await;
    standby.abort();
    let at: Vec<_> = store.calls().iter().map(|call| call.at).collect();
    let pauses: Vec<_> = at.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).collect();
    for (pause, expected) in pauses.iter().zip([10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000]) {
        assert_about(*pause, millis(expected));
    }
}

/// E5, SM-02, CL-13: a permanent error before the first answer ends `run`; a passing one does not, and after the first answer nothing
/// does. An outage of three durations heals by itself.
#[tokio::test(start_paused = true)]
async fn only_a_permanent_error_before_the_first_answer_ends_a_run() {
    for kind in [ErrorKind::NotMigrated, ErrorKind::Denied, ErrorKind::InvalidConfig, ErrorKind::Unsupported] {
        let store = ScriptedStore::default();
        store.next(Operation::Acquire, Act::Fail(ErrorKind::Unavailable));
        store.outage(kind);
        let end = executor(&store).job("job").unwrap().run(|_| async {}).await;
        assert!(matches!(&end, Err(RunError::Store(error)) if error.kind() == kind), "{end:?}");
        assert_eq!(store.count(Operation::Acquire), 2);

        let store = ScriptedStore::deaf();
        assert!(store.rival("job").await.is_acquired());
        let run = tokio::spawn(executor(&store).job("job").unwrap().run(|_| async { 7 }));
        until(|| store.count(Operation::Acquire) == 1).await;
        store.outage(kind);
        tokio::time::sleep(3 * DURATION).await;
        store.heal();
        assert_eq!(run.await.unwrap().unwrap(), 7);
    }
}

/// E7: after a try of unknown outcome one release is sent for its id, and the next try has another; a definite answer keeps the id.
#[tokio::test(start_paused = true)]
async fn an_id_is_used_up_by_an_unknown_outcome_only() {
    let store = ScriptedStore::deaf();
    assert!(store.rival("job").await.is_acquired());
    for act in [Act::Fail(ErrorKind::Busy), Act::Fail(ErrorKind::Indeterminate), Act::Fail(ErrorKind::Unavailable)] {
        store.next(Operation::Acquire, act);
    }
    store.next(Operation::Acquire, Act::Hang);
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    let ids = store.owners(Operation::Acquire);
    assert_eq!(ids[0], ids[1], "an error that proves that nothing happened keeps the id");
    assert_ne!(ids[1], ids[2], "an unknown outcome does not");
    assert_eq!(ids[2], ids[3]);
    assert_ne!(ids[3], ids[4], "nor does a try without an answer");
    assert!(ids[4..].iter().all(|id| *id == ids[4]), "a refusal keeps the id: {ids:?}");
    assert_eq!(store.owners(Operation::Release), [ids[1].clone(), ids[3].clone()]);
    assert_eq!(guard.owner(), &ids[4]);
}

/// E7, CX-04, SL-02: a grant whose answer was lost is given back by the release, so that the next try wins at once.
#[tokio::test(start_paused = true)]
async fn a_grant_whose_answer_was_lost_blocks_nobody() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::LoseAnswer);
    let start = LocalInstant::now();
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    assert!(LocalInstant::now().saturating_duration_since(start) < millis(50));
    let ids = store.owners(Operation::Acquire);
    assert_eq!(store.owners(Operation::Release), [ids[0].clone()]);
    assert_eq!(guard.owner(), &ids[1]);
}

/// E7: a store that panics leaves the outcome unknown as well: one release is sent, and the next try has another id.
#[tokio::test(start_paused = true)]
async fn an_id_is_used_up_by_a_store_that_panics() {
    let store = ScriptedStore::default();
    store.next(Operation::Acquire, Act::Panic);
    let guard = executor(&store).job("job").unwrap().acquire(None).await.unwrap();
    let ids = store.owners(Operation::Acquire);
    assert_eq!((store.owners(Operation::Release), guard.owner()), (vec![ids[0].clone()], &ids[1]));
    assert_ne!(ids[0], ids[1]);
}

/// E7: no id is ever used in a second contention: not after a release, a loss, or a caller that gave up.
#[tokio::test(start_paused = true)]
async fn no_id_serves_two_terms() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    for _ in 0..3 {
        assert!(job.acquire(None).await.unwrap().release().await.unwrap());
        assert_eq!(job.try_run(|_| async {}).await.unwrap(), TryRun::Ran(()));
    }
    assert!(store.rival("job").await.is_acquired());
    for _ in 0..2 {
        assert!(matches!(job.try_run(|_| async {}).await.unwrap(), TryRun::HeldElsewhere(_)));
    }
    let ids = store.owners(Operation::Acquire);
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (8, 8));
}

/// E7, CX-09, SL-02: a caller that goes away during a try leaves nothing behind: the grant that still arrives is given back.
#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_no_grant() {
    for act in [Act::DelayRequest(seconds(2)), Act::DelayAnswer(seconds(2))] {
        let store = ScriptedStore::default();
        store.next(Operation::Acquire, act);
        let executor = executor(&store);
        let mut acquire = Box::pin(executor.job("job").unwrap().acquire(None));
        assert!(futures::poll!(&mut acquire).is_pending());
        tokio::time::sleep(seconds(1)).await;
        drop(acquire);
        until(|| store.count(Operation::Release) == 1).await;
        until(|| executor.0.tasks.is_empty()).await;
        assert!(store.rival("job").await.is_acquired());
    }
}

/// E11: one caller at a time contends for a name within an executor: another `try_run` is told who has it, another `run` waits.
#[tokio::test(start_paused = true)]
async fn two_tasks_of_one_executor_take_turns() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    let journal = Journal::start();
    let working = |who: &'static str| {
        let journal = journal.clone();
        move |lease: crate::HeldLease| {
            let journal = journal.clone();
            async move {
                journal.note(format!("{who} starts"));
                tokio::time::sleep(seconds(50)).await;
                journal.note(format!("{who} ends"));
                lease.owner().clone()
            }
        }
    };
    let first = tokio::spawn(job.run(working("first")));
    until(|| journal.has("first starts")).await;
    let second = tokio::spawn(job.run(working("second")));
    let TryRun::HeldElsewhere(holder) = job.try_run(working("third")).await.unwrap() else {
        panic!("the name is taken");
    };
    assert!(holder.remaining > seconds(20) && holder.remaining <= DURATION, "{holder:?}");
    assert_eq!(holder.owner, Some(first.await.unwrap().unwrap()));
    second.await.unwrap().unwrap();
    assert_eq!(journal.names(), ["first starts", "first ends", "second starts", "second ends"]);
    assert_eq!(store.count(Operation::Acquire), 2, "who waits for a turn asks nobody");
}

/// E11: other names do not wait.
#[tokio::test(start_paused = true)]
async fn two_names_of_one_executor_run_at_once() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    let other = executor.job("other").unwrap().acquire(Some(Duration::ZERO)).await.unwrap();
    assert!(guard.is_held() && other.is_held());
}

/// E5: a limit ends the wait, after a last look at the limit.
#[tokio::test(start_paused = true)]
async fn a_limit_ends_the_wait() {
    let store = ScriptedStore::deaf();
    assert!(store.rows.try_acquire(&name(), &OwnerId::new("rival").unwrap(), duration()).await.unwrap().is_acquired());
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    for limit in [Duration::ZERO, millis(1), seconds(5)] {
        let start = LocalInstant::now();
        let refused = job.acquire(Some(limit)).await;
        let Err(AcquireError::HeldElsewhere(holder)) = refused else { panic!("{refused:?}") };
        assert_eq!(holder.owner, Some(OwnerId::new("rival").unwrap()));
        let waited = LocalInstant::now().saturating_duration_since(start);
        assert!(waited >= limit && waited <= limit + millis(20), "{waited:?} for {limit:?}");
    }
    let guard = job.acquire(Some(seconds(40))).await.unwrap();
    let waiting = LocalInstant::now();
    let refused = job.acquire(Some(seconds(3))).await;
    assert!(matches!(refused, Err(AcquireError::HeldElsewhere(_))), "by this executor's own guard: {refused:?}");
    assert_about(LocalInstant::now().saturating_duration_since(waiting), seconds(3));
    drop(guard);
}
