//! The reference store: the contract in plain Rust, on tokio's clock, for doctests and tests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{
    Acquisition, FencingToken, ForceRelease, ForcedRelease, Holder, LeaseAdmin, LeaseDuration, LeaseName, LeaseStore,
    LossReason, OwnerId, Renewal, StoreError, Wakeup, clock::LocalInstant,
};

/// A lease store in this process's memory.
///
/// It obeys the whole contract and tokio's paused clock, and coordinates nothing beyond the process: use it for tests, and a
/// provider crate for real. Clones share their rows.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::{LeaseDuration, LeaseName, LeaseStore, MemoryLeaseStore, OwnerId};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryLeaseStore::new();
/// let (name, duration) = (LeaseName::new("probe")?, LeaseDuration::new(Duration::from_secs(30))?);
/// let (a, b) = (OwnerId::new("a")?, OwnerId::new("b")?);
/// assert!(store.try_acquire(&name, &a, duration).await?.is_acquired());
///
/// tokio::time::advance(Duration::from_secs(30)).await; // the lease has expired
/// assert!(store.try_acquire(&name, &b, duration).await?.is_acquired());
/// assert!(!store.renew(&name, &a, duration).await?.is_renewed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryLeaseStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rows: Mutex<HashMap<LeaseName, Row>>,
    freed: Arc<Notify>,
    /// The wall clock was read once, at `origin`; from there on the store's clock is monotonic.
    epoch_micros: i64,
    origin: LocalInstant,
}

/// The columns of `singleton_leases`; times are microseconds of the store's clock.
#[derive(Debug)]
struct Row {
    owner: Option<OwnerId>,
    token: i64,
    acquired_at: i64,
    expires_at: i64,
    hand_over_at: Option<i64>,
}

impl MemoryLeaseStore {
    /// A store without leases.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            rows: Mutex::default(),
            freed: Arc::default(),
            epoch_micros: unix_micros(),
            origin: LocalInstant::now(),
        }))
    }

    /// Asks the holder of `name` to hand over: its next renewal says so.
    pub fn request_release(&self, name: &LeaseName) {
        let now = self.now();
        if let Some(row) = self.rows().get_mut(name) {
            row.hand_over_at = Some(now);
        }
    }

    /// Deletes the row of `name`, as an operator might.
    pub fn delete(&self, name: &LeaseName) {
        self.rows().remove(name);
    }

    /// Makes the lease on `name` run out now.
    pub fn expire(&self, name: &LeaseName) {
        let now = self.now();
        if let Some(row) = self.rows().get_mut(name) {
            row.expires_at = row.expires_at.min(now);
        }
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<LeaseName, Row>> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's clock, in Unix microseconds.
    fn now(&self) -> i64 {
        let elapsed = LocalInstant::now().saturating_duration_since(self.0.origin);
        self.0.epoch_micros.saturating_add(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }

    fn release_until(&self, name: &LeaseName, owner: &OwnerId, expires_at: impl FnOnce(&Row) -> i64) -> bool {
        let released = match self.rows().get_mut(name) {
            Some(row) if row.owner.as_ref() == Some(owner) => {
                row.expires_at = expires_at(row);
                row.owner = None;
                row.hand_over_at = None;
                true
            }
            _ => false,
        };
        if released {
            self.0.freed.notify_waiters();
        }
        released
    }
}

impl Default for MemoryLeaseStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl LeaseStore for MemoryLeaseStore {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        let mut rows = self.rows();
        let now = self.now();
        let mut token = now;
        if let Some(row) = rows.get(name) {
            if row.owner.as_ref() != Some(owner) && row.expires_at > now {
                let remaining = Duration::from_micros((row.expires_at - now).unsigned_abs());
                return Ok(Acquisition::Held(Holder::new(row.owner.clone(), remaining)));
            }
            token = token.max(row.token + 1);
        }
        let expires_at = now + duration.as_micros();
        let row = Row { owner: Some(owner.clone()), token, acquired_at: now, expires_at, hand_over_at: None };
        rows.insert(name.clone(), row);
        Ok(Acquisition::Acquired(FencingToken::new(token)))
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        let mut rows = self.rows();
        let now = self.now();
        let Some(row) = rows.get_mut(name) else {
            return Ok(Renewal::Lost(LossReason::Deleted));
        };
        match &row.owner {
            Some(current) if current == owner => {
                row.expires_at = now + duration.as_micros();
                Ok(Renewal::renewed(FencingToken::new(row.token), row.hand_over_at.is_some()))
            }
            Some(other) => Ok(Renewal::Lost(LossReason::TakenOver(other.clone()))),
            None => Ok(Renewal::Lost(LossReason::ForcedOut)),
        }
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        Ok(self.release_until(name, owner, |_| 0))
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        Ok(self.release_until(name, owner, |row| row.acquired_at + hold.as_micros()))
    }

    fn watch(&self, _name: &LeaseName) -> Wakeup {
        // `notified_owned` receives `notify_waiters` from its creation on, which is what S3's caller needs.
        Wakeup::new(Arc::clone(&self.0.freed).notified_owned())
    }
}

#[async_trait]
impl LeaseAdmin for MemoryLeaseStore {
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        let forced = {
            let mut rows = self.rows();
            let now = self.now();
            let row = rows.get_mut(name).filter(|row| match mode {
                ForceRelease::Rest => row.owner.is_some(),
                ForceRelease::Now => row.owner.is_some() || row.expires_at > now,
            });
            row.map(|row| {
                if mode == ForceRelease::Now {
                    row.expires_at = 0;
                }
                row.token = now.max(row.token + 1);
                row.hand_over_at = None;
                ForcedRelease::new(
                    row.owner.take(),
                    Duration::from_micros((row.expires_at - now).max(0).unsigned_abs()),
                )
            })
        };
        if forced.is_some() {
            self.0.freed.notify_waiters();
        }
        Ok(forced)
    }
}

#[expect(clippy::disallowed_methods, reason = "the store's own clock starts at the wall clock, as a database's would")]
fn unix_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
