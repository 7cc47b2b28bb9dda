//! Leadership for services that ask whether they lead, instead of handing a job over.

use std::{
    ops::Deref,
    sync::{Arc, PoisonError, RwLock},
};

use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    AcquireError, HeldLease, LeaseDuration, LeaseName, StopReason,
    clock::LocalInstant,
    executor::{
        Shared,
        contend::{Patience, contend},
        grant::Grant,
        schedule::Floor,
        stop::supervise,
    },
    telemetry,
};

/// A lease that is contended for in the background, from [`Job::leadership`](crate::Job::leadership).
///
/// Dropping it gives the lease up, once every [`Step`] has ended.
///
/// # Examples
///
/// ```
/// use lease_core::{MemoryLeaseStore, SingletonExecutor, SingletonOptions};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let executor = SingletonExecutor::new(MemoryLeaseStore::new(), SingletonOptions::enabled())?;
/// let leadership = executor.job("probe")?.leadership();
/// leadership.held().await;
/// if let Some(step) = leadership.enter() {
///     println!("probing under token {:?}", step.token());
/// } // a shutdown, or a loss, waits for the step
/// executor.shutdown().await;
/// assert!(!leadership.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Leadership {
    current: Current,
    gained: Arc<tokio::sync::Notify>,
    _stop: DropGuard,
}

/// The term that this instance has, with the steps that are taken under it.
type Current = Arc<RwLock<Option<(HeldLease, TaskTracker)>>>;

impl Leadership {
    pub(crate) fn start(shared: Arc<Shared>, name: LeaseName, at_least: Option<LeaseDuration>) -> Self {
        let (current, gained, stop) = (Current::default(), Arc::default(), CancellationToken::new());
        let leader = Leader {
            shared,
            name,
            at_least,
            current: Arc::clone(&current),
            gained: Arc::clone(&gained),
            stop: stop.clone(),
        };
        leader.start();
        Self { current, gained, _stop: stop.drop_guard() }
    }

    /// Whether this instance leads. It is synchronous, reads the clock, and never asks the store; while the executor is disabled it is
    /// always true.
    pub fn is_held(&self) -> bool {
        self.lease().is_some()
    }

    /// The lease, while this instance leads.
    pub fn lease(&self) -> Option<HeldLease> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|(lease, _)| lease).filter(|lease| lease.is_held()).cloned()
    }

    /// Begins a step that only the leader may take; none when this instance does not lead. The lease is not released before the step
    /// was dropped.
    pub fn enter(&self) -> Option<Step> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let (lease, steps) = current.as_ref()?;
        // The step is counted before the lease is looked at: a supervisor that has seen no step has ended the lease before.
        let step = Step { lease: lease.clone(), _counted: steps.token() };
        step.lease.is_held().then(|| {
            step.lease.set_started();
            step
        })
    }

    /// Waits until this instance leads.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn held(&self) {
        loop {
            let gained = self.gained.notified();
            if self.is_held() {
                return;
            }
            gained.await;
        }
    }
}

/// A step that only the leader may take. The lease is not released before it is dropped.
#[derive(Debug)]
#[must_use = "the step ends when this is dropped"]
pub struct Step {
    lease: HeldLease,
    _counted: TaskTrackerToken,
}

impl Deref for Step {
    type Target = HeldLease;

    fn deref(&self) -> &HeldLease {
        &self.lease
    }
}

/// The task behind a [`Leadership`].
struct Leader {
    shared: Arc<Shared>,
    name: LeaseName,
    at_least: Option<LeaseDuration>,
    current: Current,
    gained: Arc<tokio::sync::Notify>,
    stop: CancellationToken,
}

impl Leader {
    fn start(self) {
        if self.shared.enabled {
            tokio::spawn(async move { self.contend().await });
        } else {
            // While disabled it leads at once, before any task was polled (E1).
            let grant = Grant::unleased(&self.shared, &self.name);
            let steps = self.announce(&grant);
            tokio::spawn(async move { self.lead(grant, steps).await });
        }
    }

    async fn contend(self) {
        let mut floor = Floor::new(self.shared.schedule.poll_interval);
        loop {
            let grant = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                grant = contend(&self.shared, &self.name, Patience::Forever) => grant,
            };
            let started = LocalInstant::now();
            match grant {
                Ok(grant) => {
                    let steps = self.announce(&grant);
                    self.lead(grant, steps).await;
                }
                Err(AcquireError::Store(error)) => telemetry::leadership_waits(&self.name, &error),
                Err(AcquireError::ShutDown) => return,
                Err(AcquireError::HeldElsewhere(_)) => {}
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.shared.recover(&mut floor, started) => {}
            }
        }
    }

    /// Lets the service see that it leads.
    fn announce(&self, grant: &Grant) -> TaskTracker {
        let steps = TaskTracker::new();
        steps.close();
        let lease = HeldLease::new(grant.state());
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some((lease, steps.clone()));
        self.gained.notify_waiters();
        steps
    }

    /// Leads until the term ends and every step taken under it has.
    async fn lead(&self, grant: Grant, steps: TaskTracker) {
        let state = grant.state();
        let work = async {
            tokio::select! {
                () = state.stopping().cancelled() => {}
                () = self.stop.cancelled() => state.request_stop(StopReason::Abandoned),
            }
            steps.wait().await;
        };
        supervise(Arc::clone(&self.shared), grant, self.at_least, work).await;
    }
}
