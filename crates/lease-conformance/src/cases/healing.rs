//! Stores that remember nothing about rows, so that what happens behind their backs heals by itself.

use lease_core::{LeaseStore, LossReason};

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
    harness.recreate_table().await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::Deleted);
    let second = grant(&replica, &job, &b, long()).await;
    assert!(first.value < second.value, "{} then {}", first.value, second.value);
    refusal(&store, &job, &a).await;
    extend(&store, &job, &b, long()).await;
    let answer = store.release_after(&job, &b, long()).await;
    assert!(matches!(answer, Ok(true)), "expected true, got {answer:?}");
    refusal(&replica, &job, &b).await;
}

/// S14: a lease whose owner was forced out is acquired as soon as the row says that it has run out.
pub async fn forced_out_lease_is_acquired(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.force_out(&job).await;
    release(&store, &job, &a, false).await;
    harness.expire(&job).await;
    grant(&replica, &job, &b, long()).await;
    refusal(&store, &job, &a).await;
}
