//! Leases that rest after their job, so that it does not run again too soon.

use std::time::Duration;

use lease_core::LeaseStore;

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, grant_at_the_end, long, millis, name, owner, refusal, release, rest},
};

/// S5: nobody is granted the lease before the hold has passed since the grant, and anybody is as soon as it has.
pub async fn lease_rests_until_the_hold_has_passed(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b, hold) = (name("job"), owner("a"), owner("b"), millis(300));
    let granted = grant(&store, &job, &a, long()).await;
    harness.elapse(Duration::from_millis(100)).await;
    rest(&store, &job, &a, hold).await;
    grant_at_the_end(harness, &store, (&job, &b), &granted, hold).await;
}

/// S5: the rest ends exactly at `acquired_at + hold`, whatever renewals came between.
pub async fn hold_counts_from_the_grant(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, hold) = (name("job"), owner("a"), millis(300_000));
    grant(&store, &job, &a, long()).await;
    harness.elapse(Duration::from_millis(50)).await;
    extend(&store, &job, &a, long()).await;
    let before = harness.row(&job).await.expect("a held lease has a row");
    rest(&store, &job, &a, hold).await;
    let resting = harness.row(&job).await.expect("a resting lease has a row");
    assert_eq!(resting.owner, None);
    assert_eq!(resting.expires_at, before.acquired_at + hold.as_micros());
    assert_eq!(resting.token, before.token);
}

/// S5: where there were several grants, a takeover or a repeated one, the hold counts from the last.
pub async fn hold_counts_from_the_last_grant(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, b, hold) = (name("job"), owner("b"), millis(300_000));
    grant(&store, &job, &owner("a"), long()).await;
    harness.elapse(Duration::from_millis(50)).await;
    harness.expire(&job).await;
    for _ in 0..2 {
        grant(&store, &job, &b, long()).await;
        harness.elapse(Duration::from_millis(50)).await;
    }
    let last = grant(&store, &job, &b, long()).await;
    rest(&store, &job, &b, hold).await;
    assert_time_left(harness, &last, hold, &refusal(&store, &job, &b).await);
}

/// S5: when the hold has passed already, the lease is free at once.
pub async fn hold_that_has_passed_frees_at_once(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    harness.elapse(Duration::from_millis(50) + harness.precision()).await;
    rest(&store, &job, &a, millis(20)).await;
    grant(&store, &job, &owner("b"), long()).await;
}

/// S5: while the lease rests, its last owner is refused like anybody.
pub async fn last_owner_is_refused_too(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, long()).await;
    assert_eq!(refusal(&store, &job, &a).await.value.owner, None);
}

/// S5: somebody who has not got the lease cannot lay it to rest.
pub async fn rest_by_a_stranger_changes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    let answer = store.release_after(&job, &b, millis(300_000)).await;
    assert!(matches!(answer, Ok(false)), "expected false, got {answer:?}");
    let refused = refusal(&store, &job, &b).await;
    assert_eq!(refused.value.owner, Some(a));
    assert_time_left(harness, &granted, long(), &refused);
}

/// S5: the owner of a lease that ran out, but that nobody took, lays it to rest all the same.
pub async fn expired_lease_is_laid_to_rest_by_its_owner(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, millis(60_000)).await;
    harness.expire(&job).await;
    rest(&store, &job, &a, long()).await;
    let refused = refusal(&store, &job, &a).await;
    assert_eq!(refused.value.owner, None);
    assert_time_left(harness, &granted, long(), &refused);
}

/// S5: a rest where there is no row is no error, and makes none.
pub async fn rest_of_a_missing_row_is_false(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let answer = store.release_after(&job, &a, long()).await;
    assert!(matches!(answer, Ok(false)), "expected false, got {answer:?}");
    grant(&store, &job, &a, long()).await;
}

/// S5: a lease that rests is nobody's to release, and rests on.
pub async fn resting_lease_cannot_be_released(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, hold) = (name("job"), owner("a"), millis(300_000));
    let granted = grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, hold).await;
    release(&store, &job, &a, false).await;
    let answer = store.release_after(&job, &a, millis(1)).await;
    assert!(matches!(answer, Ok(false)), "expected false, got {answer:?}");
    assert_time_left(harness, &granted, hold, &refusal(&store, &job, &a).await);
}
