//! Futures that are dropped at every await.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use lease_core::{Acquisition, LeaseName, LeaseStore, OwnerId, Term, clock::LocalInstant};

use crate::{
    Harness,
    kit::{Timed, assert_time_left, extend, grant, long, loss, millis, name, owner, refusal, release, rest, timed},
    poll::drop_after,
};

/// More polls than any call needs.
const POLLS: usize = 1000;

/// S11, CX-02: an acquisition that is dropped leaves a new name and an expired lease as they were, or its own for its duration.
pub async fn dropped_acquire_leaves_the_row_before_or_after(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b, duration) = (owner("a"), owner("b"), millis(100));
    for expired in [false, true] {
        for polls in 0..=POLLS {
            let job = name(&format!("job-{expired}-{polls}"));
            if expired {
                grant(&store, &job, &owner("former"), long()).await;
                harness.expire(&job).await;
            }
            let answer = drop_after(polls, store.try_acquire(&job, &a, duration)).await;
            probe(&store).await;
            eventually_granted(harness, &store, (&job, &b), duration.as_duration()).await;
            loss(&store, &job, &a).await;
            release(&store, &job, &a, false).await;
            match answer {
                None => assert!(polls < POLLS, "the call needs more than {POLLS} polls"),
                Some(Ok(Acquisition::Acquired(_))) => break,
                Some(other) => panic!("expected a grant, got {other:?}"),
            }
        }
    }
}

/// S11, CX-02: a renewal that is dropped leaves the lease its owner's, with its token.
pub async fn dropped_renew_leaves_the_row_before_or_after(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    for polls in 0..=POLLS {
        let job = name(&format!("job-{polls}"));
        let granted = grant(&store, &job, &a, long()).await;
        let answer = timed(drop_after(polls, store.renew(&job, &a, long()))).await;
        let refused = refusal(&store, &job, &b).await;
        assert_eq!(refused.value.owner.as_ref(), Some(&a));
        // The whole duration since the grant at least, and since the dropped call at most.
        let least = (granted.called + long().as_duration()).saturating_duration_since(refused.returned);
        assert!(least <= refused.value.remaining + harness.precision(), "{:?} are left", refused.value.remaining);
        probe(&store).await;
        assert_eq!(extend(&store, &job, &a, long()).await.value.token, granted.value);
        if let Some(answer) = answer.value {
            assert!(answer.is_ok_and(|answer| answer.is_renewed()));
            return;
        }
    }
    panic!("the call needs more than {POLLS} polls");
}

/// S11, CX-02: a release that is dropped leaves the lease whole or free.
pub async fn dropped_release_leaves_the_row_before_or_after(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    for polls in 0..=POLLS {
        let job = name(&format!("job-{polls}"));
        let granted = grant(&store, &job, &a, long()).await;
        let answer = drop_after(polls, store.release(&job, &a)).await;
        let attempt = timed(store.try_acquire(&job, &b, long())).await;
        let (called, returned) = (attempt.called, attempt.returned);
        match attempt.value {
            Ok(Acquisition::Acquired(_)) => {}
            Ok(Acquisition::Held(holder)) => {
                assert!(answer.is_none(), "a released lease is held by {holder:?}");
                assert_eq!(holder.owner.as_ref(), Some(&a));
                assert_time_left(harness, &granted, long(), &Timed { value: holder, called, returned });
                // The dropped call may yet take effect, before this one or after.
                store.release(&job, &a).await.expect("the store is usable");
                eventually_granted(harness, &store, (&job, &b), Duration::ZERO).await;
            }
            other => panic!("neither a grant nor a refusal: {other:?}"),
        }
        probe(&store).await;
        extend(&store, &job, &b, long()).await;
        if let Some(answer) = answer {
            assert!(matches!(answer, Ok(true)), "expected true, got {answer:?}");
            return;
        }
    }
    panic!("the call needs more than {POLLS} polls");
}

/// S11, CX-02: a release after a hold that is dropped leaves the lease whole or resting, and never free.
pub async fn dropped_release_after_leaves_the_row_before_or_after(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b, hold) = (owner("a"), owner("b"), millis(300_000));
    for polls in 0..=POLLS {
        let job = name(&format!("job-{polls}"));
        let granted = grant(&store, &job, &a, long()).await;
        let answer = drop_after(polls, store.release_after(&job, &a, hold)).await;
        let refused = refusal(&store, &job, &b).await;
        let lasting = if refused.value.owner.is_some() { long() } else { hold };
        assert!(
            answer.is_none() || refused.value.owner.is_none(),
            "a resting lease is held by {:?}",
            refused.value.owner
        );
        assert_time_left(harness, &granted, lasting, &refused);
        probe(&store).await;
        if let Some(answer) = answer {
            assert!(matches!(answer, Ok(true)), "expected true, got {answer:?}");
            return;
        }
    }
    panic!("the call needs more than {POLLS} polls");
}

/// S11, CX-02: a call that renews many and is dropped leaves each lease its owner's, with its token.
pub async fn dropped_renew_many_leaves_the_rows_before_or_after(harness: &impl Harness) {
    let store = harness.store().await;
    let (a, b) = (owner("a"), owner("b"));
    let mut terms = Vec::new();
    for id in ["first", "second", "third"] {
        let token = grant(&store, &name(id), &a, long()).await.value;
        terms.push(Term::new(name(id), a.clone(), token));
    }
    for polls in 0..=POLLS {
        let answer = drop_after(polls, store.renew_many(&terms, long())).await;
        for term in &terms {
            assert_eq!(refusal(&store, &term.name, &b).await.value.owner.as_ref(), Some(&a));
            assert_eq!(extend(&store, &term.name, &a, long()).await.value.token, term.token);
        }
        probe(&store).await;
        if answer.is_some() {
            return;
        }
    }
    panic!("the call needs more than {POLLS} polls");
}

/// S11, S13, CX-02: calls that are dropped by the dozen use nothing up: no connection, no permit, no transaction.
pub async fn many_dropped_calls_leave_the_store_usable(harness: &impl Harness) {
    let store = Arc::new(harness.store().await);
    let (job, a) = (name("job"), owner("a"));
    for round in 0..64 {
        let polls = 1 + round % 3;
        drop_after(polls, store.try_acquire(&job, &a, millis(1))).await;
        drop_after(polls, store.renew(&job, &a, millis(1))).await;
        drop_after(polls, store.release(&job, &a)).await;
    }
    join_all((0..8).map(|_| probe(&*store))).await;
    eventually_granted(harness, &*store, (&job, &owner("b")), Duration::from_millis(1)).await;
}

/// Every verb once, on a name of its own.
async fn probe(store: &impl LeaseStore) {
    let job = name(&format!("probe-{}", fastrand::u64(..)));
    let (a, b) = (owner("probe-a"), owner("probe-b"));
    let granted = grant(store, &job, &a, long()).await;
    assert_eq!(refusal(store, &job, &b).await.value.owner.as_ref(), Some(&a));
    assert_eq!(extend(store, &job, &a, long()).await.value.token, granted.value);
    release(store, &job, &a, true).await;
    grant(store, &job, &b, long()).await;
    rest(store, &job, &b, long()).await;
}

/// Tries until `owner` is granted the lease, which must happen once `within` has passed and the database has done what was asked.
async fn eventually_granted(
    harness: &impl Harness,
    store: &impl LeaseStore,
    (name, owner): (&LeaseName, &OwnerId),
    within: Duration,
) {
    let limit = LocalInstant::now() + within + harness.operation_timeout() + harness.precision();
    loop {
        match store.try_acquire(name, owner, long()).await {
            Ok(Acquisition::Acquired(_)) => return,
            Ok(Acquisition::Held(holder)) => assert!(!limit.has_passed(), "{name:?} is still held by {holder:?}"),
            other => panic!("acquire {name:?} for {owner:?}: {other:?}"),
        }
        harness.elapse(Duration::from_millis(1)).await;
    }
}
