//! The local side of one term: its deadline, whether it was told to stop, and the one reason why (E2, E3, E6).

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    LeaseName, LossReason, OwnerId, StoreError, Term,
    clock::{self, LocalInstant},
    executor::schedule::Schedule,
};

/// Why a job was told to stop (E6).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// The store answered that the row no longer names this owner.
    Lost(LossReason),
    /// No renewal landed before the stop point.
    #[non_exhaustive]
    DeadlinePassed {
        /// The error of the last renewal, if one failed.
        last_error: Option<Arc<StoreError>>,
    },
    /// The machine was suspended past the stop point.
    Suspended,
    /// An operator asked this holder to hand the lease over.
    HandedOver,
    /// This instance was made not eligible.
    NotEligible,
    /// The executor was shut down.
    ShutDown,
    /// The future that ran the job was dropped.
    Abandoned,
    /// The task that renewed the lease panicked, or went down with its runtime; the message says how.
    HeartbeatFailed(String),
    /// The job ended by itself, and its lease was given up.
    Ended,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => write!(f, "lease lost: {reason}"),
            Self::DeadlinePassed { last_error: None } => f.write_str("no renewal landed before the stop point"),
            Self::DeadlinePassed { last_error: Some(error) } => {
                write!(f, "no renewal landed before the stop point; the last one failed: {error}")
            }
            Self::Suspended => f.write_str("the machine was suspended past the stop point"),
            Self::HandedOver => f.write_str("an operator asked to hand the lease over"),
            Self::NotEligible => f.write_str("this instance was made not eligible"),
            Self::ShutDown => f.write_str("the executor was shut down"),
            Self::Abandoned => f.write_str("the future that ran the job was dropped"),
            Self::HeartbeatFailed(message) => write!(f, "the heartbeat failed: {message}"),
            Self::Ended => f.write_str("the job ended"),
        }
    }
}

impl StopReason {
    /// Whether the executor gives the lease up of its own accord, so that it is renewed until the job has ended (E12).
    pub(crate) fn is_wish(&self) -> bool {
        matches!(self, Self::HandedOver | Self::NotEligible | Self::ShutDown | Self::Abandoned)
    }

    /// Whether this executor must stand back from the name afterwards (E12).
    pub(crate) fn stands_back(&self) -> bool {
        matches!(self, Self::HandedOver | Self::NotEligible)
    }
}

/// What every part of the stop chain knows of one term. While the executor is disabled there is no term, and no deadline unless one
/// is set by a stop.
#[derive(Debug)]
pub(crate) struct TermState {
    name: LeaseName,
    owner: OwnerId,
    term: Option<Term>,
    schedule: Schedule,
    /// The heartbeat, which has to look again when a stop moves the deadline.
    heartbeat: Arc<Notify>,
    deadline: watch::Sender<Option<LocalInstant>>,
    coverage: Mutex<Coverage>,
    /// The nanoseconds for which the machine had been suspended when the deadline was last moved.
    suspended_before: AtomicU64,
    reason: OnceLock<StopReason>,
    /// When the grant had arrived: not before the database made it.
    granted_by: LocalInstant,
    /// Fires when the row no longer names this owner.
    lost: CancellationToken,
    /// The job was polled, or its lease handed out.
    started: AtomicBool,
    /// The job has ended, and its lease is renewed until it rests (E10).
    resting: AtomicBool,
    /// Fires when the job is told to stop.
    stopping: CancellationToken,
    /// Fires when the job's future must be dropped.
    dropping: CancellationToken,
    /// Fires when the job has not ended although its lease has lapsed.
    overrun: CancellationToken,
    /// Fires when nothing is left to wait for: the lease was released, or the job overran it.
    settled: CancellationToken,
}

/// What the last renewal came to.
#[derive(Debug)]
struct Coverage {
    lapses_at: LocalInstant,
    last_error: Option<Arc<StoreError>>,
}

impl TermState {
    /// A term granted by a call that was sent after `anchor`.
    pub(crate) fn granted(term: Term, schedule: Schedule, anchor: LocalInstant, heartbeat: Arc<Notify>) -> Arc<Self> {
        let state = Self::new(term.name.clone(), term.owner.clone(), schedule, heartbeat);
        state.deadline.send_replace(Some(schedule.deadline(anchor)));
        state.coverage().lapses_at = anchor + schedule.duration.as_duration();
        Arc::new(Self { term: Some(term), ..state })
    }

    /// What stands for a term while the executor is disabled (E1).
    pub(crate) fn unleased(name: LeaseName, owner: OwnerId, schedule: Schedule, heartbeat: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self::new(name, owner, schedule, heartbeat))
    }

    fn new(name: LeaseName, owner: OwnerId, schedule: Schedule, heartbeat: Arc<Notify>) -> Self {
        Self {
            name,
            owner,
            term: None,
            schedule,
            heartbeat,
            deadline: watch::Sender::new(None),
            coverage: Mutex::new(Coverage { lapses_at: LocalInstant::now(), last_error: None }),
            suspended_before: AtomicU64::new(suspended_nanos()),
            reason: OnceLock::new(),
            granted_by: LocalInstant::now(),
            lost: CancellationToken::new(),
            started: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            dropping: CancellationToken::new(),
            overrun: CancellationToken::new(),
            settled: CancellationToken::new(),
        }
    }

    pub(crate) fn name(&self) -> &LeaseName {
        &self.name
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    pub(crate) fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn deadline(&self) -> Option<LocalInstant> {
        *self.deadline.borrow()
    }

    pub(crate) fn deadlines(&self) -> watch::Receiver<Option<LocalInstant>> {
        self.deadline.subscribe()
    }

    pub(crate) fn stop_point(&self) -> Option<LocalInstant> {
        self.deadline().map(|deadline| self.schedule.stop_point(deadline))
    }

    pub(crate) fn reason(&self) -> Option<&StopReason> {
        self.reason.get()
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub(crate) fn dropping(&self) -> &CancellationToken {
        &self.dropping
    }

    pub(crate) fn overrun(&self) -> &CancellationToken {
        &self.overrun
    }

    pub(crate) fn settled(&self) -> &CancellationToken {
        &self.settled
    }

    /// Whether the job may go on. It reads the clock, so it is true even when the executor's own tasks are starved.
    pub(crate) fn is_held(&self) -> bool {
        match self.term {
            None => true,
            Some(_) => self.reason.get().is_none() && !self.stop_point().is_some_and(LocalInstant::has_passed),
        }
    }

    /// Whether the job's future must not be polled again. It reads the clock (E3).
    pub(crate) fn must_drop(&self) -> bool {
        self.dropping.is_cancelled() || self.deadline().is_some_and(LocalInstant::has_passed)
    }

    /// Whether the row is known not to name this owner any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    pub(crate) fn granted_by(&self) -> LocalInstant {
        self.granted_by
    }

    /// Whether the job has had a turn: a grant that never started keeps no minimum hold (E10).
    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    pub(crate) fn set_started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    /// Keeps the renewals going although the job has ended, until its lease rests (E10).
    pub(crate) fn set_resting(&self) {
        self.resting.store(true, Ordering::Relaxed);
        self.heartbeat.notify_one();
    }

    /// Whether the lease is renewed. After the stop point a renewal could not save the job; while it drains at the executor's own
    /// wish, renewals go on until its deadline (E12).
    pub(crate) fn renews(&self) -> bool {
        let runs = || !self.dropping.is_cancelled() && self.reason.get().is_none_or(StopReason::is_wish);
        self.term.is_some() && !self.is_lost() && (self.resting.load(Ordering::Relaxed) || runs())
    }

    /// When the lease will have lapsed, if no other renewal lands. It may be later than the job's deadline, which a stop freezes.
    pub(crate) fn lapses_at(&self) -> LocalInstant {
        self.coverage().lapses_at
    }

    /// Remembers why the last renewal failed.
    pub(crate) fn note_error(&self, error: StoreError) {
        self.coverage().last_error = Some(Arc::new(error));
    }

    fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the deadline after a renewal that was sent after `anchor`, unless the job has been told to stop (E12), or should have
    /// been by now.
    pub(crate) fn extend(&self, anchor: LocalInstant) {
        *self.coverage() = Coverage { lapses_at: anchor + self.schedule.duration.as_duration(), last_error: None };
        self.deadline.send_if_modified(|deadline| {
            let passed = deadline.is_some_and(|deadline| self.schedule.stop_point(deadline).has_passed());
            let extends = self.reason.get().is_none() && !passed;
            if extends {
                *deadline = Some(self.schedule.deadline(anchor));
                self.suspended_before.store(suspended_nanos(), Ordering::Relaxed);
            }
            extends
        });
    }

    /// Tells the job to stop within its grace time, at the executor's own wish.
    pub(crate) fn request_stop(&self, reason: StopReason) {
        let deadline = LocalInstant::now() + self.schedule.grace;
        if self.reason.set(reason).is_err() {
            return;
        }
        self.deadline.send_modify(|current| *current = Some(current.map_or(deadline, |current| current.min(deadline))));
        self.stopping.cancel();
        self.heartbeat.notify_one();
    }

    /// Reads the clock: tells the job to stop when its stop point has passed, and has it dropped when its deadline has.
    pub(crate) fn watch_the_clock(&self) {
        let Some(deadline) = self.deadline() else { return };
        if deadline.has_passed() {
            self.pass_stop_point();
            self.drop_now();
        } else if self.term.is_some()
            && !self.stopping.is_cancelled()
            && self.schedule.stop_point(deadline).has_passed()
        {
            self.pass_stop_point();
        }
    }

    /// The instant at which [`watch_the_clock`](Self::watch_the_clock) will have something to do; none when it never will.
    pub(crate) fn next_look(&self) -> Option<LocalInstant> {
        match self.deadline() {
            Some(deadline) if !self.dropping.is_cancelled() => {
                let told = self.stopping.is_cancelled() || self.term.is_none();
                Some(if told { deadline } else { self.schedule.stop_point(deadline) })
            }
            _ => None,
        }
    }

    /// Tells the job to stop because its stop point has passed.
    fn pass_stop_point(&self) {
        let last_error = self.coverage().last_error.clone();
        let suspended = suspended_nanos() > self.suspended_before.load(Ordering::Relaxed) && last_error.is_none();
        let reason = if suspended { StopReason::Suspended } else { StopReason::DeadlinePassed { last_error } };
        let _ = self.reason.set(reason);
        self.stopping.cancel();
    }

    /// Has the job dropped at once, for another instance may run already.
    pub(crate) fn lose(&self, reason: StopReason) {
        if matches!(reason, StopReason::Lost(_)) {
            self.lost.cancel();
        }
        let _ = self.reason.set(reason);
        self.drop_now();
    }

    /// Ends the term because its job has ended, unless it ended for another reason before: a job that returned because the clock told
    /// it to was stopped, whether or not the heartbeat has seen that. Nothing is held from here on.
    pub(crate) fn end(&self) {
        self.watch_the_clock();
        let _ = self.reason.set(StopReason::Ended);
        self.drop_now();
    }

    /// Has the job dropped. Whoever sees the job's token fire sees also that it may not go on.
    pub(crate) fn drop_now(&self) {
        self.dropping.cancel();
        self.stopping.cancel();
    }
}

fn suspended_nanos() -> u64 {
    u64::try_from(clock::suspended_time().as_nanos()).unwrap_or(u64::MAX)
}
