//! Calls that end in time, and leave nothing open when they do.

use std::time::Duration;

use futures::future::join_all;
use lease_core::{Acquisition, LeaseStore, Operation, StoreError, Term, clock::LocalInstant};

use crate::{
    Harness,
    kit::{Timed, extend, grant, long, loss, millis, name, owner, refusal, release, rest, timed},
};

/// What a scheduler may add to a timeout on a busy machine.
const SCHEDULING: Duration = Duration::from_secs(1);

/// S12, S13: a crowd with more calls at once than any pool has connections is answered in time, and without errors.
pub async fn crowd_is_answered_in_time(harness: &impl Harness) {
    let store = harness.store().await;
    let member = |number: u32| {
        let store = &store;
        async move {
            let (job, me) = (name(&format!("job-{}", number % 4)), owner(&format!("owner-{number}")));
            let acquired = timed(store.try_acquire(&job, &me, long())).await;
            assert_in_time(harness, &acquired);
            let granted = acquired.value.expect("a crowd is no error").is_acquired();
            let renewed = timed(store.renew(&job, &me, long())).await;
            assert_in_time(harness, &renewed);
            let renewed = renewed.value.expect("a crowd is no error").is_renewed();
            assert_eq!(renewed, granted, "{me:?} renews what it was granted and nothing else");
            let released = timed(store.release(&job, &me)).await;
            assert_in_time(harness, &released);
            assert_eq!(released.value.expect("a crowd is no error"), granted, "{me:?} releases what it was granted");
        }
    };
    join_all((0..64).map(member)).await;
}

/// S13: calls that are over have given everything back, whatever they answered.
pub async fn finished_calls_keep_no_connection(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, rested, a, b) = (name("job"), name("rested"), owner("a"), owner("b"));
    for _ in 0..harness.rounds().max(20) {
        grant(&store, &job, &a, long()).await;
        refusal(&store, &job, &b).await;
        extend(&store, &job, &a, long()).await;
        loss(&store, &job, &b).await;
        release(&store, &job, &b, false).await;
        release(&store, &job, &a, true).await;
        grant(&store, &rested, &a, long()).await;
        rest(&store, &rested, &a, millis(1)).await;
        harness.elapse(Duration::from_millis(1) + harness.precision()).await;
    }
}

/// S8, S12, CL-03, CX-04: while the database does not answer, each verb ends within its operation timeout with an error, which does
/// not claim that nothing happened when something did.
pub async fn stalled_calls_end_in_time(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    let names = ["free", "renewed", "released", "rested", "many"].map(name);
    let [free, renewed, released, rested, many] = &names;
    let mut tokens = Vec::new();
    for held in [renewed, released, rested, many] {
        tokens.push(grant(&store, held, &a, long()).await.value);
    }
    let term = Term::new(many.clone(), a.clone(), tokens[3]);

    let stall = harness.stall().await;
    let calls = tokio::join!(
        timed(store.try_acquire(free, &a, long())),
        timed(store.renew(renewed, &a, long())),
        timed(store.release(released, &a)),
        timed(store.release_after(rested, &a, long())),
        timed(store.renew_many(std::slice::from_ref(&term), long())),
    );
    stall.undo().await;

    let acquired = error_in_time(harness, calls.0, Operation::Acquire);
    error_in_time(harness, calls.1, Operation::Renew);
    let freed = error_in_time(harness, calls.2, Operation::Release);
    error_in_time(harness, calls.3, Operation::ReleaseAfter);
    error_in_time(harness, calls.4.map(|mut answers| answers.remove(0)), Operation::Renew);

    heal(harness, &store).await;
    extend(&store, renewed, &a, long()).await;
    extend(&store, many, &a, long()).await;
    if acquired.proves_nothing_happened() {
        grant(&store, free, &b, long()).await;
    }
    if freed.proves_nothing_happened() {
        extend(&store, released, &a, long()).await;
    }
}

/// S12, S14, CL-03: as soon as the database answers again, so does the store, without anybody's help.
pub async fn store_works_again_after_a_stall(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    let stall = harness.stall().await;
    let calls = join_all((0..8).map(|_| store.renew(&job, &a, long()))).await;
    assert!(calls.iter().all(Result::is_err), "a stalled database cannot have answered: {calls:?}");
    stall.undo().await;
    heal(harness, &store).await;
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
    join_all((0..16).map(|_| refusal(&store, &job, &b))).await;
    release(&store, &job, &a, true).await;
}

fn assert_in_time<T>(harness: &impl Harness, call: &Timed<T>) {
    let took = call.returned.saturating_duration_since(call.called);
    let limit = harness.operation_timeout() + harness.precision() + SCHEDULING;
    assert!(took <= limit, "a call took {took:?}, and its operation timeout is {:?}", harness.operation_timeout());
}

fn error_in_time<T: std::fmt::Debug>(
    harness: &impl Harness,
    call: Timed<Result<T, StoreError>>,
    operation: Operation,
) -> StoreError {
    assert_in_time(harness, &call);
    let error = call.value.expect_err("a stalled database cannot have answered");
    assert_eq!(error.operation(), operation);
    assert!(error.is_retryable(), "a stall is not for ever: {error:?}");
    error
}

/// Waits until the store answers again.
async fn heal(harness: &impl Harness, store: &impl LeaseStore) {
    let limit = LocalInstant::now() + harness.operation_timeout() * 2 + SCHEDULING;
    loop {
        match store.try_acquire(&name("probe"), &owner("probe"), long()).await {
            Ok(Acquisition::Acquired(_)) => return,
            answer => assert!(!limit.has_passed(), "the store does not heal: {answer:?}"),
        }
        harness.elapse(Duration::from_millis(10)).await;
    }
}
