//! Holders that an operator forces out.

use lease_core::{ErrorKind, ForceRelease, ForcedRelease, Holder, LeaseName, LossReason};

use crate::{
    Harness,
    kit::{
        Timed, assert_time_left, extend, grant, grant_at_the_end, long, loss, millis, name, owner, refusal, release,
        rest, timed,
    },
};

/// S1, S4: until its lease would have expired the former holder may still run, so nobody is granted it; then anybody is.
pub async fn forced_out_lease_rests_until_it_would_have_expired(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b, duration) = (name("job"), owner("a"), owner("b"), millis(250));
    let granted = grant(&store, &job, &a, duration).await;
    let forced = force(harness, &job, ForceRelease::Rest).await;
    assert_eq!(forced.value.owner.as_ref(), Some(&a));
    let left = Holder::new(None, forced.value.rests_for);
    assert_time_left(
        harness,
        &granted,
        duration,
        &Timed { value: left, called: forced.called, returned: forced.returned },
    );

    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    release(&store, &job, &a, false).await;
    grant_at_the_end(harness, &store, (&job, &b), &granted, duration).await;
}

/// S4, S5: with `Now` the lease is free at once, and the former holder's renewals are lost all the same.
pub async fn forced_out_lease_is_free_at_once_when_asked(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    let forced = force(harness, &job, ForceRelease::Now).await.value;
    assert_eq!((forced.owner.as_ref(), forced.rests_for.is_zero()), (Some(&a), true));
    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    let next = grant(&store, &job, &b, long()).await;
    assert!(granted.value < next.value, "{} then {}", granted.value, next.value);
    assert_eq!(loss(&store, &job, &a).await, LossReason::TakenOver(b));
}

/// S4: an owner whose lease had run out before it was forced out does not renew it any more.
pub async fn forced_out_owner_cannot_revive_its_expired_lease(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    harness.expire(&job).await;
    let forced = force(harness, &job, ForceRelease::Rest).await.value;
    assert_eq!((forced.owner.as_ref(), forced.rests_for.is_zero()), (Some(&a), true));
    assert_eq!(loss(&store, &job, &a).await, LossReason::ForcedOut);
    grant(&store, &job, &owner("b"), long()).await;
}

/// S6: the token rises with the force, so that a resource which compares tokens refuses the former holder.
pub async fn token_rises_when_the_owner_is_forced_out(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for mode in [ForceRelease::Rest, ForceRelease::Now] {
        let granted = grant(&store, &job, &a, long()).await.value.value();
        force(harness, &job, mode).await;
        let forced = harness.row(&job).await.expect("a forced lease keeps its row");
        assert!(forced.token > granted, "{granted} then {}", forced.token);
        harness.expire(&job).await;
        let next = grant(&store, &job, &b, long()).await.value.value();
        assert!(next > forced.token, "{} then {next}", forced.token);
        release(&store, &job, &b, true).await;
    }
}

/// S5: a rest is not cut short by `Rest`, and ended by `Now`.
pub async fn resting_lease_is_freed_by_force_alone(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, long()).await;
    assert_eq!(forced(harness, &job, ForceRelease::Rest).await, None);
    refusal(&store, &job, &a).await;
    let forced = force(harness, &job, ForceRelease::Now).await.value;
    assert_eq!((forced.owner.as_ref(), forced.rests_for.is_zero()), (None, true));
    grant(&store, &job, &a, long()).await;
}

/// S5, S8: where there is nothing to end, the answer is none, and the next grant is like any.
pub async fn nothing_to_force_out_is_no_error(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    for mode in [ForceRelease::Rest, ForceRelease::Now] {
        assert_eq!(forced(harness, &name("missing"), mode).await, None);
        grant(&store, &job, &a, long()).await;
        release(&store, &job, &a, true).await;
        assert_eq!(forced(harness, &job, mode).await, None);
    }
    grant(&store, &job, &a, long()).await;
}

/// S3, S8: a row that somebody's transaction has locked is not waited for, and its holder keeps it.
pub async fn locked_row_is_contended(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let granted = grant(&store, &job, &a, long()).await;
    let lock = harness.lock_row(&job).await;
    for mode in [ForceRelease::Rest, ForceRelease::Now] {
        let error = harness.force_release(&job, mode).await.expect_err("the row is locked");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    }
    lock.undo().await;
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
}

async fn force(harness: &impl Harness, name: &LeaseName, mode: ForceRelease) -> Timed<ForcedRelease> {
    timed(forced(harness, name, mode)).await.map(|forced| forced.expect("there is something to end"))
}

async fn forced(harness: &impl Harness, name: &LeaseName, mode: ForceRelease) -> Option<ForcedRelease> {
    harness.force_release(name, mode).await.expect("an operator is answered")
}
