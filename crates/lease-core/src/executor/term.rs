//! The local side of one term: its deadline, whether it was told to stop, and the one reason why (E2, E3, E6).

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;
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
    /// The executor was shut down.
    ShutDown,
    /// The future that ran the job was dropped.
    Abandoned,
    /// The task that renewed the lease panicked, with this message.
    HeartbeatPanicked(String),
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
            Self::ShutDown => f.write_str("the executor was shut down"),
            Self::Abandoned => f.write_str("the future that ran the job was dropped"),
            Self::HeartbeatPanicked(message) => write!(f, "the heartbeat panicked: {message}"),
            Self::Ended => f.write_str("the job ended"),
        }
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
    deadline: watch::Sender<Option<LocalInstant>>,
    /// The nanoseconds for which the machine had been suspended when the deadline was last moved.
    suspended_before: AtomicU64,
    reason: OnceLock<StopReason>,
    /// Fires when the job is told to stop.
    stopping: CancellationToken,
    /// Fires when the job's future must be dropped.
    dropping: CancellationToken,
    /// Fires when the job has not ended although its lease has lapsed.
    overrun: CancellationToken,
    /// Fires when nothing is left to wait for: the lease was released, or the job overran it.
    settled: CancellationToken,
}

impl TermState {
    /// A term granted by a call that was sent after `anchor`.
    pub(crate) fn granted(term: Term, schedule: Schedule, anchor: LocalInstant) -> Arc<Self> {
        let deadline = Some(schedule.deadline(anchor));
        Arc::new(Self::new(term.name.clone(), term.owner.clone(), Some(term), schedule, deadline))
    }

    /// What stands for a term while the executor is disabled (E1).
    pub(crate) fn unleased(name: LeaseName, owner: OwnerId, schedule: Schedule) -> Arc<Self> {
        Arc::new(Self::new(name, owner, None, schedule, None))
    }

    fn new(
        name: LeaseName,
        owner: OwnerId,
        term: Option<Term>,
        schedule: Schedule,
        deadline: Option<LocalInstant>,
    ) -> Self {
        Self {
            name,
            owner,
            term,
            schedule,
            deadline: watch::Sender::new(deadline),
            suspended_before: AtomicU64::new(suspended_nanos()),
            reason: OnceLock::new(),
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

    /// Moves the deadline after a renewal that was sent after `anchor`, unless the job has been told to stop (E12).
    pub(crate) fn extend(&self, anchor: LocalInstant) {
        self.deadline.send_if_modified(|deadline| {
            let extends = self.reason.get().is_none();
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
    }

    /// Tells the job to stop because its stop point has passed.
    pub(crate) fn pass_stop_point(&self, last_error: Option<&Arc<StoreError>>) {
        let suspended = suspended_nanos() > self.suspended_before.load(Ordering::Relaxed) && last_error.is_none();
        let reason = if suspended {
            StopReason::Suspended
        } else {
            StopReason::DeadlinePassed { last_error: last_error.cloned() }
        };
        let _ = self.reason.set(reason);
        self.stopping.cancel();
    }

    /// Fires the job's token when the stop point has passed and nobody has said so yet: the heartbeat may be starved.
    pub(crate) fn notice_the_clock(&self) {
        if self.term.is_some()
            && !self.stopping.is_cancelled()
            && self.stop_point().is_some_and(LocalInstant::has_passed)
        {
            self.pass_stop_point(None);
        }
    }

    /// Has the job dropped at once, for another instance may run already.
    pub(crate) fn lose(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.drop_now();
    }

    /// Ends the term because its job has ended, unless it ended for another reason before. Nothing is held from here on.
    pub(crate) fn end(&self) {
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
