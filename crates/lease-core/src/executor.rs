//! Runs a job on exactly one instance, and stops it before another instance can start it.
//!
//! The executor obeys these rules; a test names the rule that it shows.
//!
//! - **E1 off by default.** While `enabled` is false the store is never called, `is_held()` is always true, and jobs run at once.
//! - **E2 deadline.** It is counted from the local instant *before* the call whose own `Ok` is used, on a clock that counts suspended
//!   time, minus the margin. A grant whose stop point has passed on arrival is renewed once before the job's first poll, and failing
//!   that released. No timer is trusted over the clock: it is read again at least every min(grace / 4, 250 ms).
//! - **E3 stop chain.** At `deadline - grace` the job's token fires and `is_held()` turns false. At the deadline the job's future is
//!   dropped; the clock is read before each poll of that future, which is dropped instead once the deadline has passed. Only when the
//!   job has really ended is the lease released. A job that will not end is reported, its lease lapses, and this process does not
//!   start that name again until it has ended. After a loss there is no grace: the token fires and the future is dropped in the same
//!   turn.
//! - **E5 standby.** It takes its `watch` before it tries; then it sleeps until the earlier of poll interval and the holder's remaining
//!   time, jittered, never less than a floor that doubles from 10 ms to the poll interval. Before the store's first answer, permanent
//!   kinds of error end `run`; after it, everything is retried for ever.
//! - **E7 owner.** `<label>:<uuid>:<n>`. An id is used up the moment a release for it is sent, its term ends, a try with it ends without
//!   a definite answer, or its caller stops contending. After a try of unknown outcome the executor sends one release for that id,
//!   then tries with the next. A renewal that answers another token is a loss.
//! - **E8 validation.** `3 x renew_interval + grace + margin <= duration` unless overridden by name; margin at least
//!   max(20 ms, duration / 1000); all non-zero; the error names the fields and values.
//! - **E11 one contender.** Within an executor one caller at a time contends for a name; others get `HeldElsewhere` (`try_run`) or wait
//!   (`run`).

mod contend;
mod heartbeat;
mod held;
mod job;
mod leadership;
mod options;
mod outcome;
mod owner;
mod schedule;
mod slot;
mod stop;
mod term;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    held::{HeldLease, LeaseGuard, NotHeld},
    job::Job,
    leadership::{Leadership, Step},
    options::{OnOverrun, OptionsError, SingletonOptions},
    outcome::{AcquireError, RunError, TryRun},
    term::StopReason,
};
use self::{owner::OwnerMint, schedule::Schedule, slot::Slots, term::TermState};
use crate::{LeaseName, LeaseStore, NameError};

/// Elects the one instance that runs a job, keeps its lease alive, and stops the job before another instance can start it.
///
/// A clone is cheap and shares everything. Make one executor for a process and store; its owner ids are its own. Dropping it neither
/// blocks nor stops what runs; [`shutdown`](Self::shutdown) does.
///
/// # Examples
///
/// ```
/// use lease_core::{MemoryLeaseStore, SingletonExecutor, SingletonOptions, TryRun};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let executor = SingletonExecutor::new(MemoryLeaseStore::new(), SingletonOptions::enabled())?;
/// let report = executor.job("nightly-report")?;
/// let ran = report.try_run(|lease| async move { lease.token().is_some() }).await?;
/// assert_eq!(ran, TryRun::Ran(true));
/// executor.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SingletonExecutor(Arc<Shared>);

/// What all jobs of an executor share.
#[derive(Debug)]
pub(crate) struct Shared {
    store: Arc<dyn LeaseStore>,
    enabled: bool,
    schedule: Schedule,
    on_overrun: OnOverrun,
    owners: OwnerMint,
    slots: Arc<Slots>,
    /// The terms whose jobs have not ended.
    active: Mutex<Vec<Arc<TermState>>>,
    /// Attempts, and releases of grants that nobody took.
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl SingletonExecutor {
    /// An executor over `store`, which may be an `Arc<dyn LeaseStore>` too.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] names the fields that break rule E8, also while the options are disabled.
    #[expect(clippy::needless_pass_by_value, reason = "options are made for one executor, as the examples show")]
    pub fn new(store: impl LeaseStore, options: SingletonOptions) -> Result<Self, OptionsError> {
        Ok(Self(Arc::new(Shared {
            store: Arc::new(store),
            enabled: options.is_enabled(),
            schedule: options.schedule()?,
            on_overrun: options.overrun_policy(),
            owners: OwnerMint::new(&options)?,
            slots: Arc::default(),
            active: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })))
    }

    /// The job called `name`.
    ///
    /// # Errors
    ///
    /// [`NameError`] names the broken rule (S9).
    pub fn job(&self, name: impl AsRef<str>) -> Result<Job, NameError> {
        Ok(Job::new(Arc::clone(&self.0), LeaseName::new(name)?))
    }

    /// Tells every job to stop, waits for their ends, and releases their leases.
    ///
    /// A job has its grace time; one that has not ended when its lease has lapsed is given up and named in the report. Nothing can be
    /// started afterwards. A second call waits for the same.
    ///
    /// # Cancel safety
    ///
    /// The shutdown goes on; only the wait ends.
    pub async fn shutdown(&self) -> ShutdownReport {
        let shared = &self.0;
        shared.shutdown.cancel();
        shared.tasks.close();
        loop {
            let unsettled = shared.unsettled();
            if unsettled.is_empty() {
                break;
            }
            for state in &unsettled {
                state.request_stop(StopReason::ShutDown);
            }
            join_all(unsettled.iter().map(|state| state.settled().cancelled())).await;
        }
        // An attempt and the release that follows it are bounded by the operation timeout each.
        let limit = shared.schedule.operation_timeout.saturating_mul(3);
        let _ = tokio::time::timeout(limit, shared.tasks.wait()).await;
        ShutdownReport { unfinished: shared.active().iter().map(|state| state.name().clone()).collect() }
    }
}

/// What a shutdown could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The jobs that had not ended when their leases lapsed.
    pub unfinished: Vec<LeaseName>,
}

impl Shared {
    /// Lets a shutdown know of a term, until the answer is dropped.
    fn register(self: &Arc<Self>, state: &Arc<TermState>) -> Active {
        self.active().push(Arc::clone(state));
        if self.shutdown.is_cancelled() {
            state.request_stop(StopReason::ShutDown);
        }
        Active { shared: Arc::clone(self), state: Arc::clone(state) }
    }

    fn unsettled(&self) -> Vec<Arc<TermState>> {
        self.active().iter().filter(|state| !state.settled().is_cancelled()).cloned().collect()
    }

    fn active(&self) -> std::sync::MutexGuard<'_, Vec<Arc<TermState>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A term that a shutdown has to wait for, from its grant on. A supervisor that goes down with its runtime leaves nothing held.
#[derive(Debug)]
pub(crate) struct Active {
    shared: Arc<Shared>,
    state: Arc<TermState>,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.state.end();
        self.shared.active().retain(|state| !Arc::ptr_eq(state, &self.state));
        self.state.settled().cancel();
    }
}
