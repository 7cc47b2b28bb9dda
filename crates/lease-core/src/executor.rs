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
//! - **E4 heartbeat.** One task renews all held leases of the executor in one round trip, with jitter, before a job's first poll too.
//!   An error is retried with backoff until the stop point; each attempt is bounded by the operation timeout and by half of the time to
//!   the stop point, so that a lost answer leaves time for another. A row that somebody has locked is renewed alone.
//! - **E5 standby.** It takes its `watch` before it tries; then it sleeps until the earlier of poll interval and the holder's remaining
//!   time, jittered, never less than a floor that doubles from 10 ms to the poll interval. Before the store's first answer, permanent
//!   kinds of error end `run`; after it, everything is retried for ever.
//! - **E6 reasons.** A loss says why: taken over (by whom), forced out, deleted, deadline passed (with the last error), suspended, shut
//!   down. There is one terminal event each time.
//! - **E7 owner.** `<label>:<uuid>:<n>`. An id is used up the moment a release for it is sent, its term ends, a try with it ends without
//!   a definite answer, or its caller stops contending. After a try of unknown outcome the executor sends one release for that id,
//!   then tries with the next. A renewal that answers another token is a loss.
//! - **E8 validation.** `3 x renew_interval + grace + margin <= duration` unless overridden by name; margin at least
//!   max(20 ms, duration / 1000); all non-zero; the error names the fields and values.
//! - **E9 containment.** A panic in the job ends renewals (with a minimum hold: when `release_after` is answered), lets the lease go or
//!   rest, and makes `run` return the error, never loop; a panic in the heartbeat cancels the job.
//! - **E10 at-least.** With a minimum hold the lease rests until `acquired_at + hold`, however the job ended once it had started. Until
//!   `release_after` is answered it is repeated and the heartbeat goes on renewing; a shutdown waits for it as for a job. A crash, a
//!   pause or an outage that outlasts the lease before the rest is written repeats the run.
//! - **E11 one contender.** Within an executor one caller at a time contends for a name; others get `HeldElsewhere` (`try_run`) or wait
//!   (`run`). Of all names together it tries for three at once, so that renewals need not queue behind a thousand standbys; who waits
//!   for that has not read the anchor yet. `try_run` waits an operation timeout for it, then the error is `PoolTimeout`.
//! - **E12 stand back.** On a request to hand over (and on shutdown, and when not eligible) the token fires and the deadline becomes
//!   min(deadline, now + grace), not moved by later renewals; the lease is still renewed until the job has ended. The release is
//!   repeated until answered. Then no task of this executor tries for the name until one duration after the answer, or after the end
//!   of the rest; if no answer came, until two durations after the last request was sent. Afterwards it contends like anyone.
//!   Restarts, and requests delayed by more than a duration, are not covered.

mod board;
mod consistency;
mod contend;
mod gate;
mod grant;
mod heartbeat;
mod held;
mod job;
mod leadership;
mod options;
mod outcome;
mod owner;
mod reason;
mod release;
mod running;
mod schedule;
mod slot;
mod stop;
mod term;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    board::Board,
    gate::Gate,
    heartbeat::Heartbeat,
    owner::OwnerMint,
    schedule::Schedule,
    slot::Slots,
    term::{Surroundings, TermState},
};
pub use self::{
    board::{Role, Status},
    consistency::OptionsError,
    heartbeat::Health,
    held::{HeldLease, LeaseGuard, NotHeld},
    job::{Job, Misfire},
    leadership::{Leadership, Step},
    options::{OnOverrun, SingletonOptions},
    outcome::{AcquireError, RunError, TryRun},
    reason::StopReason,
};
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
    gate: Gate,
    heartbeat: Arc<Heartbeat>,
    board: Arc<Board>,
    /// Whether this instance may contend (E12).
    eligible: watch::Sender<bool>,
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
        let (store, schedule): (Arc<dyn LeaseStore>, _) = (Arc::new(store), options.schedule()?);
        Ok(Self(Arc::new(Shared {
            heartbeat: Heartbeat::new(Arc::clone(&store), schedule),
            store,
            enabled: options.is_enabled(),
            schedule,
            on_overrun: options.on_overrun,
            owners: OwnerMint::new(&options)?,
            slots: Arc::default(),
            gate: Gate::default(),
            board: Arc::default(),
            eligible: watch::Sender::new(true),
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

    /// How this executor is doing, for a readiness probe. It asks nobody.
    pub fn health(&self) -> Health {
        self.0.heartbeat.health()
    }

    /// Makes this instance eligible or not, for example before a deployment. By default it is.
    ///
    /// An instance that is not eligible hands its leases over: every job is told to stop and has its grace time, its lease is released,
    /// and nothing is tried for until the instance is eligible again, and not within one duration after the release. Forms that wait
    /// for a lease go on waiting; [`Job::try_run`] is told that the lease is held elsewhere. A disabled executor is always eligible.
    pub fn eligible(&self, eligible: bool) {
        self.0.eligible.send_replace(eligible);
        if self.0.enabled && !eligible {
            for state in self.0.active().iter() {
                state.request_stop(StopReason::NotEligible);
            }
        }
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
    /// What a term needs of its executor.
    fn surroundings(&self) -> Surroundings {
        Surroundings { schedule: self.schedule, bell: self.heartbeat.bell(), board: Arc::clone(&self.board) }
    }

    /// Lets a shutdown know of a term, until the answer is dropped.
    fn register(self: &Arc<Self>, state: &Arc<TermState>) -> Active {
        self.active().push(Arc::clone(state));
        if self.shutdown.is_cancelled() {
            state.request_stop(StopReason::ShutDown);
        } else if self.enabled && !*self.eligible.borrow() {
            state.request_stop(StopReason::NotEligible);
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
