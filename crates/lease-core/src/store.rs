//! The contract: what every lease store does, rule by rule. Start here.

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use futures::future::join_all;

use crate::{Acquisition, LeaseDuration, LeaseName, OwnerId, Renewal, StoreError, Term};

/// A table of singleton leases in a SQL database.
///
/// A *lease* is the right to run one named job until a time judged by the database's clock. It is *held* while its row names an
/// owner and `expires_at` is in the future, *expired* when it names an owner and `expires_at` is not in the future, *resting* when
/// it names no owner and `expires_at` is in the future, and *free* otherwise. A *term* is one owner's uninterrupted tenure, from a
/// grant to its end.
///
/// Handles are cheap to clone and share one pool. Whoever writes a store of their own proves these rules with the suite in
/// `lease-conformance`.
///
/// # The rules
///
/// - **S1 exclusion.** At most one owner MUST have an unexpired lease on a name.
/// - **S2 clock.** The database's clock alone MUST decide expiry. No client timestamp is ever a query parameter.
/// - **S3 acquire.** A lease MUST be granted when its row is absent, when `expires_at` is not in the future, or when the caller
///   already owns it (so that a retry after a lost answer is safe). Otherwise the answer MUST be `Held`, with the owner (none while
///   it rests) and the time left (zero when the row is contended or the race was lost), and nothing is written or locked. A row that
///   somebody's transaction has locked counts as held; nobody queues for it.
/// - **S4 renew.** A renewal MUST set the expiry to now plus the duration, also when that is sooner, and MUST keep the token. It
///   MUST answer `Lost` when the row no longer names this owner: the caller MUST then drop the job. A lease that ran out but that
///   nobody took is still its owner's to renew. Every acquisition and renewal of one term MUST carry the same duration, for a late
///   and shorter one would cut the lease under a live deadline.
/// - **S5 release.** A release MUST free the lease when the caller owns it, expired or not (`true`), and MUST do nothing otherwise
///   (`false`). The row stays. `release_after` MUST let it rest until `acquired_at + hold`.
/// - **S6 token.** Each acquisition's token MUST be the greater of the old token plus one and the database's clock in Unix
///   microseconds. While the row lives it rises without condition; after the row was deleted, the table truncated or a backup
///   restored it still rises once the database's clock has passed the last token.
/// - **S7 full term.** A grant MUST last its whole duration from the moment it is made: time spent waiting is not taken off.
/// - **S8 truth.** `Ok` MUST be proof, read from the returned row. `Err` means that it is unknown or that nothing happened, and
///   [`StoreError::kind`] MUST say which. Contention is never an error, nor a line in the server's log, on connections that the
///   store opened.
/// - **S9 identity.** Names and owners MUST be compared by code point: `Job`, `job` and `jo\u{301}b` never meet. Ids that a database
///   could confuse are refused before any SQL, by [`LeaseName::new`] and [`OwnerId::new`].
/// - **S10 duration.** Durations are whole milliseconds, rounded up, from 1 ms to 365 days, by [`LeaseDuration::new`]. A store MUST
///   NOT overflow on any of them.
/// - **S11 cancel safety.** A future dropped at any await MUST leave the store usable, no transaction open, no connection poisoned,
///   and the row before or after, never between. A grant that nobody received expires by itself.
/// - **S12 bounded.** Each call MUST end within its operation timeout (5 s by default), a wait for a pooled connection and a network
///   that swallows packets included.
/// - **S13 own connection.** A verb MUST NOT join its caller's transaction, and MUST NOT keep a pooled connection when it is done.
/// - **S14 no memory.** A store MUST cache nothing about rows: a row deleted, a table recreated or a primary replaced heals by
///   itself.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::{Acquisition, LeaseDuration, LeaseName, LeaseStore, MemoryLeaseStore, OwnerId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryLeaseStore::new();
/// let (name, duration) = (LeaseName::new("nightly-report")?, LeaseDuration::new(Duration::from_secs(30))?);
/// let (a, b) = (OwnerId::new("a")?, OwnerId::new("b")?);
///
/// assert!(store.try_acquire(&name, &a, duration).await?.is_acquired());
/// match store.try_acquire(&name, &b, duration).await? {
///     Acquisition::Held(holder) => assert_eq!(holder.owner, Some(a.clone())),
///     other => panic!("b must wait: {other:?}"),
/// }
/// assert!(store.release(&name, &a).await?);
/// assert!(store.try_acquire(&name, &b, duration).await?.is_acquired());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait LeaseStore: Debug + Send + Sync + 'static {
    /// Tries once to acquire the lease `name` for `owner`.
    ///
    /// # Behaviour
    ///
    /// By S3 the answer is [`Acquisition::Acquired`] with the token of a new term (S6) that lasts the whole `duration` (S7), or
    /// [`Acquisition::Held`], without queueing for anybody. An owner that already has the lease gets a new, greater token and a
    /// whole new duration.
    ///
    /// # Errors
    ///
    /// Never for a lost race (S8). [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) means that the lease may have been
    /// granted: it then expires by itself, unless the same owner tries again or releases it.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future the store is usable and the row is before or after, never between (S11). Treat the outcome as
    /// unknown.
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError>;

    /// Extends the lease `name` of `owner` to now plus `duration`.
    ///
    /// # Behaviour
    ///
    /// By S4 the answer is [`Renewal::Renewed`] with the unchanged token while the row names `owner`, and [`Renewal::Lost`] with the
    /// reason otherwise.
    ///
    /// # Errors
    ///
    /// An error is not a loss: the old expiry stands at least, and the caller tries again until its own deadline.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError>;

    /// Frees the lease `name` when `owner` has it.
    ///
    /// # Behaviour
    ///
    /// By S5 the answer is `true` when the row named `owner`, expired or not, and `false` when it did not, in which case nothing
    /// changed. Anybody can acquire a released lease at once.
    ///
    /// # Errors
    ///
    /// After an error the lease expires by itself at the latest.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire); repeating a release is safe as long as its owner id is used for nothing else.
    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError>;

    /// Gives up the lease `name` of `owner`, but lets it rest until `acquired_at + hold`.
    ///
    /// # Behaviour
    ///
    /// As [`release`](Self::release), except that until `hold` has passed since the grant nobody may acquire the lease, its last
    /// owner included.
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// As for [`release`](Self::release).
    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError>;

    /// Renews many leases in as few round trips as the database allows.
    ///
    /// # Behaviour
    ///
    /// The answers are those of [`renew`](Self::renew), one for each term and in the same order. A term's token is not compared: the
    /// answer tells the row's. The provided method renews them one by one, all at the same time.
    ///
    /// # Errors
    ///
    /// Each term has its own. [`ErrorKind::Contended`](crate::ErrorKind::Contended) means that somebody's transaction has that row:
    /// renew it alone.
    ///
    /// # Cancel safety
    ///
    /// As for [`renew`](Self::renew), for each term by itself.
    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        join_all(terms.iter().map(|term| self.renew(&term.name, &term.owner, duration))).await
    }

    /// Subscribes to the next sign that `name` may have become free.
    ///
    /// # Behaviour
    ///
    /// The subscription begins when this is called, not when the answer is polled, so that a release between a refused attempt and
    /// the wait is not missed. A wake-up promises nothing, and none may ever come: by default a [`Wakeup`] never completes.
    ///
    /// # Errors
    ///
    /// None; a subscription that breaks only stops waking.
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Wakeup`] ends the subscription.
    fn watch(&self, name: &LeaseName) -> Wakeup {
        let _ = name;
        Wakeup::never()
    }
}

/// A subscription made by [`LeaseStore::watch`]: a future that completes when the lease may have become free.
pub struct Wakeup(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Wakeup {
    /// Wakes when `future` completes.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Never wakes.
    pub fn never() -> Self {
        Self::new(std::future::pending())
    }
}

impl Future for Wakeup {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup").finish_non_exhaustive()
    }
}

/// Forwards every method, the provided ones too, so that a provider's own `renew_many` and `watch` are not lost behind an `Arc`.
#[async_trait]
impl<T: LeaseStore + ?Sized> LeaseStore for Arc<T> {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        (**self).try_acquire(name, owner, duration).await
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        (**self).renew(name, owner, duration).await
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        (**self).release(name, owner).await
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        (**self).release_after(name, owner, hold).await
    }

    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        (**self).renew_many(terms, duration).await
    }

    fn watch(&self, name: &LeaseName) -> Wakeup {
        (**self).watch(name)
    }
}
