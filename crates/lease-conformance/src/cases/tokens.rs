//! Fencing tokens that rise with every acquisition.

use std::time::Duration;

use lease_core::FencingToken;

use crate::{
    Harness,
    kit::{extend, grant, grant_at_the_end, long, millis, name, owner, release, rest, set_clock_back},
};

/// An hour in microseconds.
const HOUR: i64 = 3_600_000_000;

/// S6: a lease that was released is acquired with a greater token.
pub async fn token_rises_after_a_release(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let first = grant(&store, &job, &a, long()).await.value;
    release(&store, &job, &a, true).await;
    let second = grant(&store, &job, &b, long()).await.value;
    assert!(first < second, "{first} then {second}");
}

/// S6: a lease that has rested is acquired with a greater token.
pub async fn token_rises_after_a_rest(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b, hold) = (name("job"), owner("a"), owner("b"), millis(50));
    let first = grant(&store, &job, &a, long()).await;
    rest(&store, &job, &a, hold).await;
    let second = grant_at_the_end(harness, &store, (&job, &b), &first, hold).await;
    assert!(first.value < second, "{} then {second}", first.value);
}

/// S6: a lease that ran out is taken over with a greater token.
pub async fn token_rises_on_a_takeover(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let first = grant(&store, &job, &a, long()).await.value;
    harness.expire(&job).await;
    let second = grant(&store, &job, &b, long()).await.value;
    assert!(first < second, "{first} then {second}");
}

/// S6: the owner that has the lease acquires it again with a greater token, which its renewals then answer.
pub async fn token_rises_when_the_same_owner_acquires_again(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let first = grant(&store, &job, &a, long()).await.value;
    let second = grant(&store, &job, &a, long()).await.value;
    assert!(first < second, "{first} then {second}");
    assert_eq!(extend(&store, &job, &a, long()).await.value.token, second);
}

/// S6: acquisitions that come faster than the clock ticks have greater tokens each, over whichever store.
pub async fn token_rises_through_churn(harness: &impl Harness) {
    let stores = [harness.store().await, harness.store().await];
    let (job, a) = (name("job"), owner("a"));
    let mut last = FencingToken::new(0);
    for _ in 0..harness.rounds() {
        for store in &stores {
            let token = grant(store, &job, &a, long()).await.value;
            assert!(last < token, "{last} then {token}");
            last = token;
            release(store, &job, &a, true).await;
        }
    }
}

/// S6: a token is at least the database's clock in Unix microseconds, however small the old one was.
pub async fn token_is_not_below_the_clock(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    for _ in 0..2 {
        let before = harness.clock().await;
        let token = grant(&store, &job, &a, long()).await.value.value();
        assert!(token >= before, "token {token} is below the clock, {before}");
    }
}

/// S6, CT-17: the token rises from the old one where the clock is behind that.
pub async fn token_rises_though_the_clock_was_set_back(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a, b) = (name("job"), owner("a"), owner("b"));
    let first = grant(&store, &job, &a, long()).await.value.value();
    set_clock_back(harness, &job, HOUR).await;
    let mut last = first + HOUR;
    assert_eq!(extend(&store, &job, &a, long()).await.value.token.value(), last);
    for owner in [&a, &b] {
        let token = grant(&store, &job, owner, long()).await.value.value();
        assert!(last < token, "{last} then {token}");
        last = token;
        release(&store, &job, owner, true).await;
    }
}

/// S6, S14: after its row was deleted a name still gets a greater token than before.
pub async fn token_rises_after_the_row_was_deleted(harness: &impl Harness) {
    let store = harness.store().await;
    let (job, a) = (name("job"), owner("a"));
    let first = grant(&store, &job, &a, long()).await.value;
    harness.delete_row(&job).await;
    // The rule asks for no more than that the clock has passed the last token.
    harness.elapse(Duration::from_millis(2) + harness.precision()).await;
    let second = grant(&store, &job, &a, long()).await.value;
    assert!(first < second, "{first} then {second}");
}
