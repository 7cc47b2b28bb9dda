//! Wrappers that must forward every method, the provided ones too.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use lease_core::{
    Acquisition, FencingToken, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal, StoreError, Term, Wakeup,
};

use crate::kit::{long, name, owner};

/// Shows that what `wrap` makes of a store calls that store's own methods, once each: a provided method that is not forwarded falls
/// back to the trait's, and the store's batches and wake-ups are lost without a sign.
///
/// # Panics
///
/// When a call did not arrive, or arrived as another.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lease_conformance::forwarding::forwards_every_method;
/// use lease_core::LeaseStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// forwards_every_method(Arc::new).await;
/// forwards_every_method(|store| Arc::new(store) as Arc<dyn LeaseStore>).await;
/// # }
/// ```
pub async fn forwards_every_method<S: LeaseStore>(wrap: impl FnOnce(Counting) -> S) {
    let counts = Arc::new(Counts::default());
    let store = wrap(Counting(Arc::clone(&counts)));
    let (job, a) = (name("job"), owner("a"));
    let terms = [Term::new(job.clone(), a.clone(), TOKEN), Term::new(job.clone(), a.clone(), TOKEN)];

    let answer = store.try_acquire(&job, &a, long()).await;
    assert!(answer.is_ok_and(|answer| answer.token() == Some(TOKEN)), "try_acquire answers something else");
    let answer = store.renew(&job, &a, long()).await;
    assert!(answer.is_ok_and(|answer| answer == Renewal::renewed(TOKEN, true)), "renew answers something else");
    assert!(matches!(store.release(&job, &a).await, Ok(true)), "release answers something else");
    assert!(matches!(store.release_after(&job, &a, long()).await, Ok(false)), "release_after answers something else");
    assert!(store.renew_many(&terms, long()).await.is_empty(), "renew_many answers something else");
    drop(store.watch(&job));

    let counted = [
        ("try_acquire", &counts.try_acquire),
        ("renew", &counts.renew),
        ("release", &counts.release),
        ("release_after", &counts.release_after),
        ("renew_many", &counts.renew_many),
        ("watch", &counts.watch),
    ];
    for (method, count) in counted {
        assert_eq!(count.load(Relaxed), 1, "calls of {method} that were forwarded");
    }
}

const TOKEN: FencingToken = FencingToken::new(7);

/// A store that only counts its calls.
#[derive(Debug)]
pub struct Counting(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    try_acquire: AtomicU32,
    renew: AtomicU32,
    release: AtomicU32,
    release_after: AtomicU32,
    renew_many: AtomicU32,
    watch: AtomicU32,
}

#[async_trait]
impl LeaseStore for Counting {
    async fn try_acquire(&self, _: &LeaseName, _: &OwnerId, _: LeaseDuration) -> Result<Acquisition, StoreError> {
        self.0.try_acquire.fetch_add(1, Relaxed);
        Ok(Acquisition::Acquired(TOKEN))
    }

    async fn renew(&self, _: &LeaseName, _: &OwnerId, _: LeaseDuration) -> Result<Renewal, StoreError> {
        self.0.renew.fetch_add(1, Relaxed);
        Ok(Renewal::renewed(TOKEN, true))
    }

    async fn release(&self, _: &LeaseName, _: &OwnerId) -> Result<bool, StoreError> {
        self.0.release.fetch_add(1, Relaxed);
        Ok(true)
    }

    async fn release_after(&self, _: &LeaseName, _: &OwnerId, _: LeaseDuration) -> Result<bool, StoreError> {
        self.0.release_after.fetch_add(1, Relaxed);
        Ok(false)
    }

    async fn renew_many(&self, _: &[Term], _: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        self.0.renew_many.fetch_add(1, Relaxed);
        Vec::new()
    }

    fn watch(&self, _: &LeaseName) -> Wakeup {
        self.0.watch.fetch_add(1, Relaxed);
        Wakeup::new(pending())
    }
}
