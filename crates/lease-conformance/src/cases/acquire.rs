//! Who is granted a lease, and what those who are not are told.

use std::time::Duration;

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, long, millis, name, owner, refusal, rest, timed},
};

/// S3: an empty lease can be acquired.
pub async fn empty_lease_is_acquired(harness: &impl Harness) {
    let token = grant(&harness.store().await, &name("job"), &owner("a"), long()).await.value;
    assert!(token.value() > 0, "{token} is no token");
}

/// S1, S3: a second owner cannot acquire a lease while it is held, over whichever store; it is told by whom.
pub async fn held_name_is_refused(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    assert_eq!(refusal(&store, &job, &b).await.value.owner, Some(a.clone()));
    assert_eq!(refusal(&replica, &job, &b).await.value.owner, Some(a));
}

/// S3: the owner that has the lease acquires it again, so that a retry after a lost answer is safe.
pub async fn same_owner_acquires_again(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    grant(&store, &job, &a, long()).await;
    grant(&replica, &job, &a, long()).await;
    assert_eq!(refusal(&store, &job, &owner("b")).await.value.owner, Some(a));
}

/// S2, S3: somebody else acquires a lease once it has run out by the database's clock.
pub async fn expired_lease_is_acquired_by_another(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    grant(&store, &job, &b, long()).await;
    assert_eq!(refusal(&store, &job, &a).await.value.owner, Some(b));
}

/// S1, S9: what happens to one name does not touch another.
pub async fn each_name_is_a_lease_of_its_own(harness: &impl Harness) {
    let store = harness.store().await;
    let (first, second, a, b) = (name("first"), name("second"), owner("a"), owner("b"));
    grant(&store, &first, &a, long()).await;
    grant(&store, &second, &b, long()).await;
    harness.expire(&first).await;
    grant(&store, &first, &b, long()).await;
    assert_eq!(refusal(&store, &second, &a).await.value.owner, Some(b.clone()));
    assert_eq!(refusal(&store, &first, &a).await.value.owner, Some(b));
}

/// S3: a refusal tells the time that is left, and it shrinks as time goes by.
pub async fn refusal_tells_the_time_left(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b) = (name("job"), owner("b"));
    let granted = grant(&store, &job, &owner("a"), long()).await;
    for _ in 0..3 {
        harness.elapse(Duration::from_millis(50)).await;
        let refused = refusal(&store, &job, &b).await;
        assert_time_left(harness, &granted, long(), &refused);
    }
}

/// S3, S8: however often others are refused, the holder's lease is what it was.
pub async fn refusal_changes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, long()).await;
    for round in 0..harness.rounds() {
        let refused = refusal(&store, &job, &owner(&format!("b{round}"))).await;
        assert_eq!(refused.value.owner.as_ref(), Some(&a));
        assert_time_left(harness, &granted, long(), &refused);
    }
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
}

/// S3: a refusal writes nothing: the row is the same to the last column.
pub async fn refusal_writes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    let held = harness.row(&job).await;
    refusal(&store, &job, &b).await;
    assert_eq!(harness.row(&job).await, held);

    rest(&store, &job, &a, long()).await;
    let resting = harness.row(&job).await;
    refusal(&store, &job, &b).await;
    assert_eq!(harness.row(&job).await, resting);
}

/// S3, S5: while a lease rests, a refusal names no owner and tells when the rest ends.
pub async fn resting_lease_is_refused_without_an_owner(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, hold) = (name("job"), owner("a"), millis(300_000));
    let granted = grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, hold).await;
    let refused = refusal(&store, &job, &owner("b")).await;
    assert_eq!(refused.value.owner, None);
    assert_time_left(harness, &granted, hold, &refused);
}

/// S3: a free row that somebody's transaction has locked counts as held, with nothing known about when it ends; nobody queues.
pub async fn locked_row_counts_as_held(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b) = (name("job"), owner("b"));
    grant(&store, &job, &owner("a"), long()).await;
    harness.expire(&job).await;

    let lock = harness.lock_row(&job).await;
    let refused = refusal(&store, &job, &b).await;
    assert_eq!(refused.value.remaining, Duration::ZERO);
    let took = refused.returned.saturating_duration_since(refused.called);
    assert!(took < harness.operation_timeout() / 2, "the refusal took {took:?}: it queued for the lock");
    lock.undo().await;
    grant(&store, &job, &b, long()).await;
}

/// S3: a foreign lock on a held row changes nothing for its holder and grants nothing to others, who do not queue either.
pub async fn locked_row_keeps_its_holder(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    let lock = harness.lock_row(&job).await;
    let refused = timed(refusal(&store, &job, &b)).await;
    let took = refused.returned.saturating_duration_since(refused.called);
    assert!(took < harness.operation_timeout() / 2, "the refusal took {took:?}: it queued for the lock");
    lock.undo().await;
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
}
