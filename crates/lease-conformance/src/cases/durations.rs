//! The shortest and the longest durations, and those at which integers overflow.

use std::time::Duration;

use futures::future::join_all;
use lease_core::LeaseDuration;

use crate::{
    Harness,
    kit::{assert_time_left, extend, grant, grant_at_the_end, lasting, long, millis, name, owner, refusal, rest},
};

/// Durations around the edges of 32-bit microseconds and milliseconds, and the longest of all.
fn edges() -> Vec<LeaseDuration> {
    let mut edges = vec![lasting(Duration::from_hours(24 * 25)), lasting(Duration::from_hours(24 * 30))];
    for edge in [1_u64 << 31, 1 << 32] {
        edges.extend([edge / 1000, edge / 1000 + 1, edge - 1, edge, edge + 1].map(millis));
    }
    edges.push(LeaseDuration::MAX);
    edges
}

/// S10: a lease of one millisecond is granted, and runs out.
pub async fn millisecond_lease_expires(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, duration) = (name("job"), LeaseDuration::MIN);
    let granted = grant(&store, &job, &owner("a"), duration).await;
    grant_at_the_end(harness, &store, (&job, &owner("b")), &granted, duration).await;
}

/// S10, CT-14: leases of parts of a second end on time, and not at the next whole second.
pub async fn short_lease_expires_on_time(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b, duration) = (owner("a"), owner("b"), millis(300));
    let rounds = (0..harness.rounds()).map(|round| {
        let (store, a, b) = (&store, &a, &b);
        async move {
            // The leases begin at different parts of a second.
            harness.elapse(Duration::from_millis(u64::from(round) * 37)).await;
            let job = name(&format!("job-{round}"));
            let granted = grant(store, &job, a, duration).await;
            grant_at_the_end(harness, store, (&job, b), &granted, duration).await;
        }
    });
    join_all(rounds).await;
}

/// S10, OV-01: no duration up to 365 days overflows when a lease is granted.
pub async fn long_durations_are_granted(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    for duration in edges() {
        let granted = grant(&store, &job, &a, duration).await;
        assert_time_left(harness, &granted, duration, &refusal(&store, &job, &b).await);
    }
}

/// S10, OV-01: nor when it is renewed.
pub async fn long_durations_are_renewed(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    grant(&store, &job, &a, long()).await;
    for duration in edges() {
        let renewed = extend(&store, &job, &a, duration).await;
        assert_time_left(harness, &renewed, duration, &refusal(&store, &job, &b).await);
    }
}

/// S10, OV-01: nor when it is laid to rest.
pub async fn long_holds_rest(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    for (number, hold) in edges().into_iter().enumerate() {
        let job = name(&format!("job-{number}"));
        let granted = grant(&store, &job, &a, long()).await;
        rest(&store, &job, &a, hold).await;
        assert_time_left(harness, &granted, hold, &refusal(&store, &job, &b).await);
    }
}

/// S10, OV-01, OV-07: the expiry in the row is right to the microsecond, but for the time that the grant took.
pub async fn long_durations_are_exact(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    for duration in edges() {
        let before = harness.clock().await;
        grant(&store, &job, &a, duration).await;
        let after = harness.clock().await;
        let row = harness.row(&job).await.expect("a held lease has a row");
        let written = row.expires_at - duration.as_micros();
        assert!((before..=after).contains(&written), "{duration}: {written} is not in {before}..={after}");
    }
}
