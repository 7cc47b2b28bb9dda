//! What the cases share: ids, verbs that must go one way, and time that is measured and not assumed.

use std::{future::Future, panic::Location, time::Duration};

use lease_core::{
    Acquisition, FencingToken, Holder, LeaseDuration, LeaseName, LeaseStore, LossReason, OwnerId, Renewal, StoreError,
    clock::LocalInstant,
};

use crate::Harness;

pub(crate) fn name(value: &str) -> LeaseName {
    LeaseName::new(value).expect("the case's name is valid")
}

pub(crate) fn owner(value: &str) -> OwnerId {
    OwnerId::new(value).expect("the case's owner is valid")
}

pub(crate) fn lasting(duration: Duration) -> LeaseDuration {
    LeaseDuration::new(duration).expect("the case's duration is valid")
}

pub(crate) fn millis(millis: u64) -> LeaseDuration {
    lasting(Duration::from_millis(millis))
}

/// A duration that no case outlives.
pub(crate) fn long() -> LeaseDuration {
    lasting(Duration::from_secs(600))
}

/// An answer and the local instants between which it was found.
#[derive(Clone, Debug)]
pub(crate) struct Timed<T> {
    pub(crate) value: T,
    pub(crate) called: LocalInstant,
    pub(crate) returned: LocalInstant,
}

pub(crate) async fn timed<F: Future>(call: F) -> Timed<F::Output> {
    let called = LocalInstant::now();
    let value = call.await;
    Timed { value, called, returned: LocalInstant::now() }
}

impl<T> Timed<T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Timed<U> {
        Timed { value: map(self.value), called: self.called, returned: self.returned }
    }
}

/// Acquires, and panics unless the lease was granted.
#[track_caller]
pub(crate) fn grant<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
    duration: LeaseDuration,
) -> impl Future<Output = Timed<FencingToken>> + Send + 'a {
    let line = Location::caller();
    async move {
        timed(store.try_acquire(name, owner, duration)).await.map(|answer| match answer {
            Ok(Acquisition::Acquired(token)) => token,
            other => panic!("{line}: acquire {name:?} for {owner:?}: expected a grant, got {other:?}"),
        })
    }
}

/// Tries to acquire, and panics unless the lease was refused.
#[track_caller]
pub(crate) fn refusal<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
) -> impl Future<Output = Timed<Holder>> + Send + 'a {
    let line = Location::caller();
    async move {
        timed(store.try_acquire(name, owner, long())).await.map(|answer| match answer {
            Ok(Acquisition::Held(holder)) => holder,
            other => panic!("{line}: acquire {name:?} for {owner:?}: expected a refusal, got {other:?}"),
        })
    }
}

/// What a renewal that was made says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewed {
    pub(crate) token: FencingToken,
    pub(crate) hand_over: bool,
}

/// Renews, and panics unless the renewal was made.
#[track_caller]
pub(crate) fn extend<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
    duration: LeaseDuration,
) -> impl Future<Output = Timed<Renewed>> + Send + 'a {
    let line = Location::caller();
    async move {
        timed(store.renew(name, owner, duration)).await.map(|answer| match renewed(&answer) {
            Some(renewed) => renewed,
            None => panic!("{line}: renew {name:?} for {owner:?}: expected a renewal, got {answer:?}"),
        })
    }
}

/// Tries to renew, and panics unless the lease was lost.
#[track_caller]
pub(crate) fn loss<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
) -> impl Future<Output = LossReason> + Send + 'a {
    let line = Location::caller();
    async move {
        match store.renew(name, owner, long()).await {
            Ok(Renewal::Lost(reason)) => reason,
            other => panic!("{line}: renew {name:?} for {owner:?}: expected a loss, got {other:?}"),
        }
    }
}

pub(crate) fn renewed(answer: &Result<Renewal, StoreError>) -> Option<Renewed> {
    match answer {
        Ok(Renewal::Renewed { token, hand_over, .. }) => Some(Renewed { token: *token, hand_over: *hand_over }),
        _ => None,
    }
}

/// Releases, and panics unless the answer is `expected`.
#[track_caller]
pub(crate) fn release<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
    expected: bool,
) -> impl Future<Output = ()> + Send + 'a {
    let line = Location::caller();
    async move {
        match store.release(name, owner).await {
            Ok(answer) if answer == expected => {}
            other => panic!("{line}: release {name:?} by {owner:?}: expected {expected}, got {other:?}"),
        }
    }
}

/// Lets a lease rest, and panics unless the owner had it.
#[track_caller]
pub(crate) fn rest<'a>(
    store: &'a impl LeaseStore,
    name: &'a LeaseName,
    owner: &'a OwnerId,
    hold: LeaseDuration,
) -> impl Future<Output = ()> + Send + 'a {
    let line = Location::caller();
    async move {
        match store.release_after(name, owner, hold).await {
            Ok(true) => {}
            other => panic!("{line}: release {name:?} by {owner:?} after a hold: expected true, got {other:?}"),
        }
    }
}

/// Sets the database's clock back by `micros`, for all that the row of `name` can tell: its times, and with them its token, move
/// ahead. A negative number sets the clock forward.
pub(crate) async fn set_clock_back(harness: &impl Harness, name: &LeaseName, micros: i64) {
    let mut row = harness.row(name).await.expect("there is a row to move");
    for column in [&mut row.token, &mut row.acquired_at, &mut row.expires_at] {
        *column += micros;
    }
    harness.set_row(name, row).await;
}

/// Shows that what `since` granted, renewed or let rest lasts `duration`: the time left that a refusal tells is right to within the
/// time that the two calls took.
#[track_caller]
pub(crate) fn assert_time_left<T>(
    harness: &impl Harness,
    since: &Timed<T>,
    duration: LeaseDuration,
    refusal: &Timed<Holder>,
) {
    let (left, slack) = (refusal.value.remaining, harness.precision());
    let least = (since.called + duration.as_duration()).saturating_duration_since(refusal.returned);
    let most = (since.returned + duration.as_duration()).saturating_duration_since(refusal.called);
    assert!(least <= left + slack, "{left:?} are left, which is less than {least:?}");
    assert!(left <= most + slack, "{left:?} are left, which is more than {most:?}");
}

/// Tries until `owner` is granted the lease, and shows that this happens when what `since` began has lasted `duration`: not before,
/// and not after. Only the measured length of the calls blurs it.
#[track_caller]
pub(crate) fn grant_at_the_end<'a, T: Sync>(
    harness: &'a impl Harness,
    store: &'a impl LeaseStore,
    (name, owner): (&'a LeaseName, &'a OwnerId),
    since: &'a Timed<T>,
    duration: LeaseDuration,
) -> impl Future<Output = FencingToken> + Send + 'a {
    let line = Location::caller();
    let slack = harness.precision();
    let (earliest, latest) = (since.called + duration.as_duration(), since.returned + duration.as_duration());
    async move {
        loop {
            let attempt = timed(store.try_acquire(name, owner, long())).await;
            match attempt.value {
                Ok(Acquisition::Acquired(token)) => {
                    let early = earliest.saturating_duration_since(attempt.returned + slack);
                    assert!(early.is_zero(), "{line}: granted {early:?} early");
                    return token;
                }
                Ok(Acquisition::Held(_)) => {
                    let late = attempt.called.saturating_duration_since(latest + slack);
                    assert!(late.is_zero(), "{line}: refused {late:?} after the end");
                }
                other => panic!("{line}: acquire {name:?} for {owner:?}: {other:?}"),
            }
            harness.elapse(Duration::from_millis(1)).await;
        }
    }
}
