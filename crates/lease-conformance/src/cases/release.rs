//! What a release frees, and what it leaves alone.

use lease_core::LeaseStore;

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, long, name, owner, refusal, release},
};

/// S5: a released lease can be acquired at once, by anybody.
pub async fn released_lease_is_acquired_at_once(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    release(&store, &job, &a, true).await;
    grant(&replica, &job, &b, long()).await;
    release(&replica, &job, &b, true).await;
    grant(&store, &job, &b, long()).await;
}

/// S5, RC-14: a release by somebody who has not got the lease changes nothing.
pub async fn release_by_a_stranger_changes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    release(&store, &job, &b, false).await;
    let refused = refusal(&store, &job, &b).await;
    assert_eq!(refused.value.owner.as_ref(), Some(&a));
    assert_time_left(harness, &granted, long(), &refused);
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
}

/// S5: the owner of a lease that ran out, but that nobody took, frees it all the same.
pub async fn expired_lease_is_released_by_its_owner(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    release(&store, &job, &a, true).await;
    release(&store, &job, &a, false).await;
}

/// S5, RC-14: a release that comes after a takeover does nothing to the new owner's lease.
pub async fn late_release_after_a_takeover_changes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    let taken = grant(&store, &job, &b, long()).await;
    release(&store, &job, &a, false).await;
    let refused = refusal(&store, &job, &a).await;
    assert_eq!(refused.value.owner, Some(b));
    assert_time_left(harness, &taken, long(), &refused);
}

/// S5, RC-14: a release where there is no row is no error.
pub async fn release_of_a_missing_row_is_false(harness: &impl Harness) {
    let store = harness.store().await;
    release(&store, &name("job"), &owner("a"), false).await;
}

/// S5: a release that is repeated says that there was nothing left to free.
pub async fn second_release_is_false(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    release(&store, &job, &a, true).await;
    release(&store, &job, &a, false).await;
    grant(&store, &job, &owner("b"), long()).await;
    release(&store, &job, &a, false).await;
}

/// S5, S6: the row stays, without an owner, and remembers its token.
pub async fn release_keeps_the_row_and_its_token(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, long()).await;
    release(&store, &job, &a, true).await;
    let row = harness.row(&job).await.expect("a released lease keeps its row");
    assert_eq!((row.owner, row.token), (None, granted.value.value()));
    assert!(row.expires_at <= harness.clock().await, "a free lease expires in the future");
}

/// S5, RC-14: a refused release leaves the row the same to the last column.
pub async fn refused_release_writes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b) = (name("job"), owner("b"));
    grant(&store, &job, &owner("a"), long()).await;
    let held = harness.row(&job).await;
    release(&store, &job, &b, false).await;
    let answer = store.release_after(&job, &b, long()).await;
    assert!(matches!(answer, Ok(false)), "expected false, got {answer:?}");
    assert_eq!(harness.row(&job).await, held);
}
