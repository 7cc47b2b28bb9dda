//! Who may renew, for how long, and what those who may not are told.

use lease_core::{LeaseStore, LossReason};

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, long, loss, millis, name, owner, refusal, release, rest},
};

/// S4: the owner renews, and the lease lasts the whole duration from then.
pub async fn owner_renews(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, millis(60_000)).await;
    let renewed = extend(&store, &job, &a, long()).await;
    assert!(!renewed.value.hand_over, "nobody asked for the lease");
    assert_time_left(harness, &renewed, long(), &refusal(&store, &job, &owner("b")).await);
}

/// S4, RN-10: every renewal of a term answers the token of its grant, over whichever store and however many there are.
pub async fn renewal_keeps_the_token(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, long()).await;
    for _ in 0..harness.rounds() * 2 {
        assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
        assert_eq!(extend(&replica, &job, &a, long()).await.value.token, granted.value);
    }
}

/// S4, RC-11: a renewal is refused once the lease has passed to somebody else, and names who that is.
pub async fn renewal_is_refused_once_another_has_taken_over(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    let taken = grant(&store, &job, &b, long()).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::TakenOver(b.clone()));
    assert_eq!(extend(&store, &job, &b, long()).await.value.token, taken.value);

    // It is no different when the newer lease has run out in its turn.
    harness.expire(&job).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::TakenOver(b));
}

/// S4: a renewal is refused to an owner that never had the lease, whether somebody has it or nobody does.
pub async fn renewal_is_refused_to_an_owner_that_never_had_the_lease(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    assert_eq!(loss(&store, &job, &b).await, LossReason::Deleted);
    let granted = grant(&store, &job, &a, long()).await;
    assert_eq!(loss(&store, &job, &b).await, LossReason::TakenOver(a.clone()));
    assert_time_left(harness, &granted, long(), &refusal(&store, &job, &b).await);
}

/// S4: the expiry becomes now plus the duration, also when that is sooner.
pub async fn shorter_renewal_cuts_the_lease(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    let renewed = extend(&store, &job, &a, millis(60_000)).await;
    assert_time_left(harness, &renewed, millis(60_000), &refusal(&store, &job, &owner("b")).await);
}

/// S4, RC-12: a lease that ran out, but that nobody took, is still its owner's to renew, with the same token.
pub async fn expired_lease_is_renewed_with_the_same_token(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    let renewed = extend(&store, &job, &a, long()).await;
    assert_eq!(renewed.value.token, granted.value);
    let refused = refusal(&store, &job, &owner("b")).await;
    assert_eq!(refused.value.owner, Some(a));
    assert_time_left(harness, &renewed, long(), &refused);
}

/// S4, RC-12: a lease that another owner had and released in the meantime is not renewed, and stays free.
pub async fn renewal_is_refused_after_another_came_and_went(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    grant(&store, &job, &b, long()).await;
    release(&store, &job, &b, true).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    grant(&store, &job, &owner("c"), long()).await;
}

/// S4: a lease that was released is not renewed, and stays free.
pub async fn renewal_is_refused_after_a_release(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    release(&store, &job, &a, true).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    grant(&store, &job, &owner("b"), long()).await;
}

/// S4, S5: a lease that rests is not renewed, and rests on.
pub async fn renewal_is_refused_while_the_lease_rests(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, hold) = (name("job"), owner("a"), millis(300_000));
    let granted = grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, hold).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    let refused = refusal(&store, &job, &a).await;
    assert_eq!(refused.value.owner, None);
    assert_time_left(harness, &granted, hold, &refused);
}

/// S4, S14: a renewal says so when the row is gone, and does not bring it back.
pub async fn renewal_is_refused_when_the_row_is_deleted(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    harness.delete_row(&job).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::Deleted);
    grant(&store, &job, &owner("b"), long()).await;
}

/// S4, S5, RC-15: a release that meets a renewal on its way leaves the lease free, whichever of them comes first.
pub async fn renewal_racing_a_release_leaves_the_lease_free(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for _ in 0..harness.rounds() {
        grant(&store, &job, &a, long()).await;
        let ((), renewal) = tokio::join!(release(&store, &job, &a, true), replica.renew(&job, &a, long()));
        assert!(renewal.is_ok(), "a lost race is no error: {renewal:?}");
        grant(&store, &job, &b, long()).await;
        let (renewal, ()) = tokio::join!(replica.renew(&job, &b, long()), release(&store, &job, &b, true));
        assert!(renewal.is_ok(), "a lost race is no error: {renewal:?}");
    }
}

/// S4, RC-11: a refused renewal leaves the row the same to the last column, whoever has it.
pub async fn refused_renewal_writes_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    let held = harness.row(&job).await;
    loss(&store, &job, &b).await;
    assert_eq!(harness.row(&job).await, held);

    release(&store, &job, &a, true).await;
    let free = harness.row(&job).await;
    loss(&store, &job, &a).await;
    assert_eq!(harness.row(&job).await, free);
}

/// S4: each renewal tells that a hand-over was asked for; the next grant begins without it.
pub async fn hand_over_is_told_until_the_next_grant(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    assert!(!extend(&store, &job, &a, long()).await.value.hand_over, "nobody has asked yet");
    harness.request_hand_over(&job).await;
    for _ in 0..2 {
        assert!(extend(&store, &job, &a, long()).await.value.hand_over, "the request was not told");
    }
    grant(&store, &job, &a, long()).await;
    assert!(!extend(&store, &job, &a, long()).await.value.hand_over, "the request outlived its term");

    harness.request_hand_over(&job).await;
    release(&store, &job, &a, true).await;
    grant(&store, &job, &b, long()).await;
    assert!(!extend(&store, &job, &b, long()).await.value.hand_over, "another owner inherited the request");
}
