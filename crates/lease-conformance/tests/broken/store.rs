//! A store over the database in memory: its pool, its timeout, and what it keeps to itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::join_all;
use lease_conformance::Row;
use lease_core::{
    Acquisition, ErrorKind, ForceRelease, ForcedRelease, Holder, LeaseAdmin, LeaseDuration, LeaseName, LeaseStore,
    Operation, OwnerId, Renewal, StoreError, Term, Wakeup, async_trait,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::yield_now,
    time::timeout,
};

use crate::{database::Database, fault::Fault};

pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(1);

/// One replica's store, with a pool of its own.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) database: Arc<Database>,
    pub(crate) fault: Option<Fault>,
    pub(crate) replica: i64,
    pool: Arc<Semaphore>,
    /// What was seen last, for the fault of answering from it.
    seen: Mutex<HashMap<LeaseName, Row>>,
    generation: u32,
    has_failed: AtomicBool,
}

impl Store {
    pub(crate) fn new(database: Arc<Database>, fault: Option<Fault>, replica: i64) -> Self {
        let connections = if fault == Some(Fault::HasNoRoom) { 1 } else { 8 };
        let generation = database.state().generation;
        let pool = Arc::new(Semaphore::new(connections));
        Self { database, fault, replica, pool, seen: Mutex::default(), generation, has_failed: AtomicBool::new(false) }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// One call: a connection, the way there, the statement, the way back; all of it within the operation timeout.
    async fn call<T>(
        &self,
        operation: Operation,
        statement: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let stale = self.has(Fault::ClingsToTheTable) && self.database.state().generation != self.generation;
        if stale || (self.has(Fault::StaysBroken) && self.has_failed.load(Relaxed)) {
            return Err(StoreError::new(operation, ErrorKind::Unexpected));
        }
        let patience = if self.has(Fault::HasNoRoom) { Duration::ZERO } else { OPERATION_TIMEOUT };
        let call = async {
            let connection = timeout(patience, Arc::clone(&self.pool).acquire_owned()).await;
            let Ok(Ok(connection)) = connection else {
                return Err(StoreError::new(operation, ErrorKind::PoolTimeout));
            };
            let connection =
                Connection { permit: Some(connection), is_kept: self.has(Fault::LosesTheDroppedConnection) };
            yield_now().await;
            let answer = if self.has(Fault::LiesAboutErrors) {
                let answer = statement.await;
                self.database.until_not(|state| state.stalled).await;
                answer
            } else {
                self.database.until_not(|state| state.stalled).await;
                statement.await
            };
            let answer = if self.database.state().is_missing && !self.has(Fault::TakesAMissingTableForEmpty) {
                Err(StoreError::new(operation, ErrorKind::NotMigrated))
            } else {
                answer
            };
            yield_now().await;
            connection.give_back();
            answer
        };
        if self.has(Fault::WaitsForEver) {
            return call.await;
        }
        let unanswered = |_| Err(StoreError::new(operation, ErrorKind::Unavailable));
        let answer = timeout(OPERATION_TIMEOUT, call).await.unwrap_or_else(unanswered);
        self.has_failed.fetch_or(answer.is_err(), Relaxed);
        answer
    }

    /// What this store saw last of a lease that it believes to be another's.
    fn remembered(&self, name: &LeaseName, owner: &OwnerId) -> Option<Holder> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let row = seen.get(name).filter(|row| row.owner.as_ref() != Some(owner) && row.expires_at > self.now())?;
        let left = Duration::from_micros((row.expires_at - self.now()).unsigned_abs());
        Some(Holder::new(row.owner.clone(), left))
    }

    fn remember(&self, name: &LeaseName) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match self.row(name.as_str()) {
            Some(row) => seen.insert(name.clone(), row),
            None => seen.remove(name),
        };
    }
}

/// A permit of the pool, which a broken store forgets when the call is dropped.
struct Connection {
    permit: Option<OwnedSemaphorePermit>,
    is_kept: bool,
}

impl Connection {
    fn give_back(mut self) {
        self.permit = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take().filter(|_| self.is_kept) {
            permit.forget();
        }
    }
}

#[async_trait]
impl LeaseAdmin for Store {
    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.call(Operation::ForceRelease, async { self.force_out(name, mode) }).await
    }
}

#[async_trait]
impl LeaseStore for Store {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        if self.has(Fault::AnswersFromMemory)
            && let Some(holder) = self.remembered(name, owner)
        {
            return Ok(Acquisition::Held(holder));
        }
        if self.has(Fault::GrantsNever) {
            return Ok(Acquisition::Held(Holder::new(None, Duration::ZERO)));
        }
        let statement = async { Ok(self.acquire(name, owner, duration).await) };
        let answer = self.call(Operation::Acquire, statement).await?;
        self.remember(name);
        if !answer.is_acquired() {
            if self.has(Fault::FailsOnContention) {
                return Err(StoreError::new(Operation::Acquire, ErrorKind::Contended));
            }
            if self.has(Fault::KeepsTheConnection) {
                self.pool.forget_permits(1);
            }
        }
        Ok(answer)
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        self.call(Operation::Renew, async { Ok(self.extend(name, owner, duration).await) }).await
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        let remembered = self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let answer = self.call(Operation::Release, self.give_up(name, owner, None, Operation::Release)).await?;
        let was_own = remembered.is_some_and(|row| row.owner.as_ref() == Some(owner));
        Ok(answer || (was_own && self.has(Fault::AnswersFromMemory)))
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        let statement = self.give_up(name, owner, Some(hold), Operation::ReleaseAfter);
        self.call(Operation::ReleaseAfter, statement).await
    }

    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        let contended = || StoreError::new(Operation::Renew, ErrorKind::Contended);
        if terms.is_empty() && self.has(Fault::RefusesAnEmptyBatch) {
            return vec![Err(contended())];
        }
        let mut terms = terms.to_vec();
        match self.fault {
            Some(Fault::SortsABatch) => terms.sort_by(|one, other| one.name.cmp(&other.name)),
            Some(Fault::MergesABatch) => terms.dedup(),
            _ => {}
        }
        let renewals = terms.iter().enumerate().map(|(number, term)| async move {
            let locked = self.database.state().locked.contains(term.name.as_str());
            let skipped = locked && !self.has(Fault::QueuesInABatch);
            if skipped || (number >= 100 && self.has(Fault::CutsABatch)) {
                return Err(contended());
            }
            if self.has(Fault::RenewsNothingInABatch) {
                return Ok(Renewal::renewed(term.token, false));
            }
            self.renew(&term.name, &term.owner, duration).await
        });
        join_all(renewals).await
    }

    fn watch(&self, _name: &LeaseName) -> Wakeup {
        let freed = Arc::clone(&self.database.freed);
        match self.fault {
            Some(Fault::SubscribesWhenPolled) => Wakeup::new(async move { freed.notified().await }),
            Some(Fault::KeepsAConnectionForAWatcher) => {
                self.pool.forget_permits(1);
                Wakeup::never()
            }
            _ => Wakeup::new(freed.notified_owned()),
        }
    }
}
