//! The database's clock, which alone decides.

use std::time::Duration;

use lease_core::{LeaseDuration, LossReason};

use crate::{
    Harness, Row,
    kit::{assert_time_left, extend, grant, lasting, long, loss, millis, name, owner, refusal, set_clock_back},
};

/// An hour in microseconds.
const HOUR: i64 = 3_600_000_000;

/// S2, OV-07: the expiry in the row is the database's clock plus the duration, as an independent reader sees both.
pub async fn expiry_is_the_databases_clock_plus_the_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    for duration in [millis(60_000), long()] {
        let before = harness.clock().await;
        grant(&store, &job, &a, duration).await;
        let row = assert_expiry(harness, before, duration).await;
        assert!(row.acquired_at >= before, "acquired at {}, which is before {before}", row.acquired_at);
    }
}

/// S2, S4, OV-07: so is the expiry that a renewal writes.
pub async fn renewed_expiry_is_the_databases_clock_plus_the_duration(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    grant(&store, &job, &a, long()).await;
    for duration in [millis(60_000), long()] {
        let before = harness.clock().await;
        extend(&store, &job, &a, duration).await;
        let row = assert_expiry(harness, before, duration).await;
        assert!(row.acquired_at <= before, "a renewal is no acquisition, and this one moved `acquired_at`");
    }
}

/// S2, S14: a lease whose row says that it has run out is run out for every store, whatever that store saw before.
pub async fn expiry_is_judged_by_the_database(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    refusal(&store, &job, &b).await;
    harness.expire(&job).await;
    grant(&store, &job, &b, long()).await;
    refusal(&replica, &job, &a).await;
    harness.expire(&job).await;
    grant(&replica, &job, &a, long()).await;
}

/// S2, CT-18: two replicas judge one lease by the same clock.
pub async fn replicas_see_the_same_time_left(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    assert_time_left(harness, &granted, long(), &refusal(&store, &job, &b).await);
    assert_time_left(harness, &granted, long(), &refusal(&replica, &job, &b).await);
    let renewed = extend(&replica, &job, &a, millis(60_000)).await;
    assert_time_left(harness, &renewed, millis(60_000), &refusal(&store, &job, &b).await);
}

/// S1, S2, CT-17: after the clock was set back a lease lasts longer, and nobody else is granted it; a renewal counts from now.
pub async fn clock_set_back_grants_nothing_twice(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let granted = grant(&store, &job, &a, long()).await;
    set_clock_back(harness, &job, HOUR).await;
    for store in [&store, &replica] {
        let refused = refusal(store, &job, &b).await;
        assert_eq!(refused.value.owner.as_ref(), Some(&a));
        let longer = lasting(long().as_duration() + Duration::from_micros(HOUR.unsigned_abs()));
        assert_time_left(harness, &granted, longer, &refused);
    }
    let renewed = extend(&store, &job, &a, long()).await;
    assert_time_left(harness, &renewed, long(), &refusal(&replica, &job, &b).await);
}

/// S2, S4, CT-17: after the clock was set forward a lease has run out, for every store, and whoever takes it has it for as long as ever.
pub async fn clock_set_forward_ends_the_lease(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    set_clock_back(harness, &job, -HOUR).await;
    let taken = grant(&replica, &job, &b, long()).await;
    assert_eq!(loss(&store, &job, &a).await, LossReason::TakenOver(b));
    assert_time_left(harness, &taken, long(), &refusal(&store, &job, &a).await);
}

/// The row, whose expiry was written between `before` and now.
async fn assert_expiry(harness: &impl Harness, before: i64, duration: LeaseDuration) -> Row {
    let row = harness.row(&name("job")).await.expect("a held lease has a row");
    let after = harness.clock().await;
    let written = row.expires_at - duration.as_micros();
    assert!((before..=after).contains(&written), "written at {written}, which is not in {before}..={after}");
    assert!(row.acquired_at <= after, "acquired in the future");
    row
}
