//! Grants and renewals that last their whole duration, also after a wait.

use std::{future::Future, time::Duration};

use lease_core::{
    Acquisition, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal, StoreError, clock::LocalInstant,
};

use crate::{
    Harness, Undo,
    kit::{Timed, assert_time_left, extend, grant, grant_at_the_end, long, millis, name, owner, refusal, timed},
};

/// How long a foreign transaction keeps its lock: longer than the leases of these cases last.
const LOCKED: Duration = Duration::from_millis(400);

/// S7: a grant lasts its whole duration, and no longer.
pub async fn grant_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b, duration) = (name("job"), owner("b"), millis(250));
    let granted = grant(&store, &job, &owner("a"), duration).await;
    assert_time_left(harness, &granted, duration, &refusal(&store, &job, &b).await);
    grant_at_the_end(harness, &store, (&job, &b), &granted, duration).await;
}

/// S7: a grant to the owner that has the lease already lasts its whole duration anew.
pub async fn repeated_grant_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, millis(60_000)).await;
    let again = grant(&store, &job, &a, long()).await;
    assert_time_left(harness, &again, long(), &refusal(&store, &job, &b).await);
    let shorter = grant(&store, &job, &a, millis(60_000)).await;
    assert_time_left(harness, &shorter, millis(60_000), &refusal(&store, &job, &b).await);
}

/// S7: a takeover lasts its whole duration, however long ago the old lease ran out.
pub async fn takeover_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b) = (name("job"), owner("b"));
    grant(&store, &job, &owner("a"), long()).await;
    harness.expire(&job).await;
    harness.elapse(Duration::from_millis(50)).await;
    let taken = grant(&store, &job, &b, long()).await;
    assert_time_left(harness, &taken, long(), &refusal(&store, &job, &owner("c")).await);
}

/// S3, S7, CT-04, CT-05: a free row that was locked for longer than the lease lasts is granted for its whole duration.
pub async fn grant_after_a_foreign_lock_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b, duration) = (name("job"), owner("b"), millis(250));
    grant(&store, &job, &owner("a"), long()).await;
    harness.expire(&job).await;
    let lock = harness.lock_row(&job).await;
    let first = across(harness, store.try_acquire(&job, &b, duration), lock).await;
    let granted = first_or_second(first, &store, (&job, &b), duration).await;
    grant_at_the_end(harness, &store, (&job, &owner("c")), &granted, duration).await;
}

/// S7, CT-05: a new name behind another session's insert that rolls back is granted for its whole duration.
pub async fn grant_after_a_foreign_insert_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, duration) = (name("job"), owner("a"), millis(250));
    let insert = harness.lock_row(&job).await;
    let first = across(harness, store.try_acquire(&job, &a, duration), insert).await;
    let granted = first_or_second(first, &store, (&job, &a), duration).await;
    grant_at_the_end(harness, &store, (&job, &owner("b")), &granted, duration).await;
}

/// S7, CT-04, CT-05: a renewal that waited for a foreign lock lasts its whole duration from when it is made.
pub async fn renewal_after_a_foreign_lock_lasts_its_whole_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b, duration) = (name("job"), owner("a"), owner("b"), millis(250));
    grant(&store, &job, &a, duration).await;
    let lock = harness.lock_row(&job).await;
    let first = across(harness, store.renew(&job, &a, duration), lock).await;
    let made = match &first.value {
        Ok(Renewal::Renewed { .. }) => first.map(drop),
        Err(_) => extend(&store, &job, &a, duration).await.map(drop),
        other => panic!("a locked row was taken for a lost one: {other:?}"),
    };
    grant_at_the_end(harness, &store, (&job, &b), &made, duration).await;
}

/// Lifts `lock` while `call` is under way, after longer than the leases last.
async fn across<F: Future>(harness: &impl Harness, call: F, lock: Undo) -> Timed<F::Output> {
    let unlocking = async {
        harness.elapse(LOCKED).await;
        let unlocked = LocalInstant::now();
        lock.undo().await;
        unlocked
    };
    let (mut call, unlocked) = tokio::join!(timed(call), unlocking);
    if call.returned >= unlocked {
        // It had waited for the lock, so what it wrote was written after.
        call.called = call.called.max(unlocked);
    }
    call
}

/// The grant that waited for the lock, or, when it was refused as S3 allows, another one.
async fn first_or_second(
    first: Timed<Result<Acquisition, StoreError>>,
    store: &impl LeaseStore,
    (name, owner): (&LeaseName, &OwnerId),
    duration: LeaseDuration,
) -> Timed<()> {
    match &first.value {
        Ok(Acquisition::Acquired(_)) => first.map(drop),
        Ok(_) => grant(store, name, owner, duration).await.map(drop),
        Err(error) => panic!("contention is no error: {error:?}"),
    }
}
