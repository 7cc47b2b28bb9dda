//! Stores that remember nothing about rows, so that what happens behind their backs heals by itself.

use std::fmt::Debug;

use lease_core::{ErrorKind, LeaseStore, LossReason, StoreError, Term};

use crate::{
    Harness,
    kit::{extend, grant, long, loss, name, owner, refusal, release},
};

/// S14: a store sees at once what another store did to a lease that it knows.
pub async fn changes_by_other_replicas_are_seen(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for _ in 0..2 {
        grant(&store, &job, &a, long()).await;
        refusal(&store, &job, &b).await;
        release(&replica, &job, &a, true).await;
        assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
        grant(&store, &job, &b, long()).await;
        assert_eq!(refusal(&replica, &job, &a).await.value.owner.as_ref(), Some(&b));
        release(&store, &job, &b, true).await;
        grant(&replica, &job, &a, long()).await;
        assert_eq!(refusal(&store, &job, &b).await.value.owner.as_ref(), Some(&a));
        assert_eq!(loss(&store, &job, &b).await, LossReason::TakenOver(a.clone()));
        release(&store, &job, &a, true).await;
    }
}

/// S14: a lease whose row was deleted is acquired anew, by the store that had it and by others.
pub async fn deleted_row_is_acquired_anew(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.delete_row(&job).await;
    release(&store, &job, &a, false).await;
    grant(&replica, &job, &b, long()).await;
    refusal(&store, &job, &a).await;
    harness.delete_row(&job).await;
    grant(&store, &job, &a, long()).await;
}

/// S14: after the table was dropped and made anew, every verb works over the stores that were connected before.
pub async fn recreated_table_is_used_at_once(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let first = grant(&store, &job, &a, long()).await;
    extend(&store, &job, &a, long()).await;
    refusal(&replica, &job, &b).await;
    harness.drop_table().await.undo().await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::Deleted);
    let second = grant(&replica, &job, &b, long()).await;
    assert!(first.value < second.value, "{} then {}", first.value, second.value);
    refusal(&store, &job, &a).await;
    extend(&store, &job, &b, long()).await;
    let answer = store.release_after(&job, &b, long()).await;
    assert!(matches!(answer, Ok(true)), "expected true, got {answer:?}");
    refusal(&replica, &job, &b).await;
}

/// S8, S14, SM-02: without the table every verb says so, and once it is there the same stores work.
pub async fn missing_table_is_an_error_until_it_is_there(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a) = (name("job"), owner("a"));
    let token = grant(&store, &job, &a, long()).await.value;
    let missing = harness.drop_table().await;
    for store in [&store, &replica] {
        not_migrated(store.try_acquire(&job, &a, long()).await);
        not_migrated(store.renew(&job, &a, long()).await);
        not_migrated(store.release(&job, &a).await);
        not_migrated(store.release_after(&job, &a, long()).await);
        for answer in store.renew_many(&[Term::new(job.clone(), a.clone(), token)], long()).await {
            not_migrated(answer);
        }
    }
    missing.undo().await;
    grant(&store, &job, &a, long()).await;
    extend(&replica, &job, &a, long()).await;
}

#[track_caller]
fn not_migrated<T: Debug>(answer: Result<T, StoreError>) {
    let error = answer.expect_err("there is no table to answer from");
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error:?}");
}
