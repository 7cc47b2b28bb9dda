//! The database's clock, which alone decides.

use lease_core::LeaseDuration;

use crate::{
    Harness, Row,
    kit::{assert_time_left, extend, grant, long, millis, name, owner, refusal},
};

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

/// The row, whose expiry was written between `before` and now.
async fn assert_expiry(harness: &impl Harness, before: i64, duration: LeaseDuration) -> Row {
    let row = harness.row(&name("job")).await.expect("a held lease has a row");
    let after = harness.clock().await;
    let written = row.expires_at - duration.as_micros();
    assert!((before..=after).contains(&written), "written at {written}, which is not in {before}..={after}");
    assert!(row.acquired_at <= after, "acquired in the future");
    row
}
