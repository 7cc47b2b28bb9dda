//! What operators do to leases: so far, forcing a holder out.

use std::time::Duration;

use async_trait::async_trait;

use crate::{LeaseName, LeaseStore, OwnerId, StoreError};

/// What an operator does to leases, beside the verbs of [`LeaseStore`]. Every change waits for the disk.
#[async_trait]
pub trait LeaseAdmin: LeaseStore {
    /// Forces the holder of `name` out.
    ///
    /// # Behaviour
    ///
    /// The owner is cleared and the token raised (S6), so that the former holder's renewals are lost and its fenced transactions
    /// refused. With [`ForceRelease::Rest`] `expires_at` stays: the name rests until the former holder must have stopped. With
    /// [`ForceRelease::Now`] the name is free at once, a resting one too, although the former holder may still run.
    ///
    /// The answer is what was ended: none when there was nothing to end, in which case nothing changed. A lease whose row is locked by
    /// somebody's fenced transaction is not waited for: that is [`ErrorKind::Contended`](crate::ErrorKind::Contended).
    ///
    /// # Errors
    ///
    /// As for [`LeaseStore::release`]; repeating it is safe.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future the row is before or after, never between (S11).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_core::{ForceRelease, LeaseAdmin, LeaseDuration, LeaseName, LeaseStore, MemoryLeaseStore, OwnerId};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryLeaseStore::new();
    /// let (name, duration) = (LeaseName::new("probe")?, LeaseDuration::new(Duration::from_secs(30))?);
    /// let (a, b) = (OwnerId::new("a")?, OwnerId::new("b")?);
    /// assert!(store.try_acquire(&name, &a, duration).await?.is_acquired());
    ///
    /// let forced = store.force_release(&name, ForceRelease::Rest).await?.expect("a has it");
    /// assert_eq!(forced.owner, Some(a));
    /// assert!(!store.try_acquire(&name, &b, duration).await?.is_acquired()); // a may not have stopped yet
    /// tokio::time::advance(forced.rests_for).await;
    /// assert!(store.try_acquire(&name, &b, duration).await?.is_acquired());
    /// # Ok(())
    /// # }
    /// ```
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError>;
}

/// When a lease that was forced out may be acquired again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForceRelease {
    /// When it would have expired: the former holder must have stopped by then.
    #[default]
    Rest,
    /// At once. **Two instances may run until the former holder's next renewal or deadline**: only for a holder that is known to be dead.
    Now,
}

/// What [`LeaseAdmin::force_release`] has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// The former owner; none when the lease only rested.
    pub owner: Option<OwnerId>,
    /// How long the name rests from now on, on the database's clock; zero when it is free.
    pub rests_for: Duration,
}

impl ForcedRelease {
    /// Describes what was ended. Stores call this.
    pub fn new(owner: Option<OwnerId>, rests_for: Duration) -> Self {
        Self { owner, rests_for }
    }
}
