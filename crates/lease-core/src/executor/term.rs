//! The local side of one term: its deadline, whether it was told to stop, and the one reason why (E2, E3, E6).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    FencingToken, LeaseName, OwnerId, Role, StopReason, StoreError, Term,
    clock::{self, LocalInstant},
    executor::{board::Board, schedule::Schedule},
    telemetry,
};

/// What every part of the stop chain knows of one term. While the executor is disabled there is no term, and no deadline unless one
/// is set by a stop.
#[derive(Debug)]
pub(crate) struct TermState {
    name: LeaseName,
    owner: OwnerId,
    term: Option<Term>,
    around: Surroundings,
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

/// What a term needs of its executor.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) schedule: Schedule,
    /// The heartbeat's, which has to look again when a stop moves a deadline.
    pub(crate) bell: Arc<Notify>,
    pub(crate) board: Arc<Board>,
}

/// What the last renewal came to.
#[derive(Debug)]
struct Coverage {
    lapses_at: LocalInstant,
    last_error: Option<Arc<StoreError>>,
}

impl TermState {
    /// A term granted by a call that was sent after `anchor`.
    pub(crate) fn granted(term: Term, around: Surroundings, anchor: LocalInstant) -> Arc<Self> {
        telemetry::acquired(&term);
        let schedule = around.schedule;
        let state = Self::new(term.name.clone(), term.owner.clone(), around);
        state.deadline.send_replace(Some(schedule.deadline(anchor)));
        state.coverage().lapses_at = anchor + schedule.duration.as_duration();
        Arc::new(Self { term: Some(term), ..state }).announced()
    }

    /// What stands for a term while the executor is disabled (E1).
    pub(crate) fn unleased(name: LeaseName, owner: OwnerId, around: Surroundings) -> Arc<Self> {
        Arc::new(Self::new(name, owner, around)).announced()
    }

    fn announced(self: Arc<Self>) -> Arc<Self> {
        let token = self.token();
        self.around.board.enter(&self.name, Role::Holding { owner: self.owner.clone(), token });
        self
    }

    fn new(name: LeaseName, owner: OwnerId, around: Surroundings) -> Self {
        Self {
            name,
            owner,
            term: None,
            around,
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

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.term.as_ref().map(|term| term.token)
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.around.schedule
    }

    pub(crate) fn deadline(&self) -> Option<LocalInstant> {
        *self.deadline.borrow()
    }

    pub(crate) fn deadlines(&self) -> watch::Receiver<Option<LocalInstant>> {
        self.deadline.subscribe()
    }

    pub(crate) fn stop_point(&self) -> Option<LocalInstant> {
        self.deadline().map(|deadline| self.around.schedule.stop_point(deadline))
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

    /// Whether the job may have its first turn. A disabled executor's lease is held for ever, but its jobs are told to stop as well.
    pub(crate) fn may_start(&self) -> bool {
        self.reason.get().is_none() && self.is_held()
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
        self.around.bell.notify_one();
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

    /// When a renewal must have landed to be of use: at the stop point, or before the lease lapses when the job has been told to stop.
    /// None when that has passed.
    pub(crate) fn renew_by(&self) -> Option<LocalInstant> {
        let told = self.reason.get().is_some();
        let renew_by = if told { Some(self.lapses_at()) } else { self.stop_point() };
        renew_by.filter(|renew_by| !renew_by.has_passed())
    }

    /// What is left to renew the lease in.
    pub(crate) fn margin(&self) -> Duration {
        self.renew_by().map(LocalInstant::remaining).unwrap_or_default()
    }

    /// Moves the deadline after a renewal that was sent after `anchor`, unless the job has been told to stop (E12). The caller has
    /// just [watched the clock](Self::watch_the_clock).
    pub(crate) fn extend(&self, anchor: LocalInstant) {
        *self.coverage() =
            Coverage { lapses_at: anchor + self.around.schedule.duration.as_duration(), last_error: None };
        self.deadline.send_if_modified(|deadline| {
            let extends = self.reason.get().is_none();
            if extends {
                *deadline = Some(self.around.schedule.deadline(anchor));
                self.suspended_before.store(suspended_nanos(), Ordering::Relaxed);
            }
            extends
        });
    }

    /// Tells the job to stop within its grace time, at the executor's own wish.
    pub(crate) fn request_stop(&self, reason: StopReason) {
        let deadline = LocalInstant::now() + self.around.schedule.grace;
        if !self.settle(reason) {
            return;
        }
        self.deadline.send_modify(|current| *current = Some(current.map_or(deadline, |current| current.min(deadline))));
        self.stopping.cancel();
        self.around.bell.notify_one();
    }

    /// Tells the job to stop when its stop point has passed by `now`, and has it dropped when its deadline has.
    pub(crate) fn watch_the_clock(&self, now: LocalInstant) {
        let Some(deadline) = self.deadline() else { return };
        if deadline <= now {
            self.pass_stop_point();
            self.drop_now();
        } else if self.term.is_some()
            && !self.stopping.is_cancelled()
            && self.around.schedule.stop_point(deadline) <= now
        {
            self.pass_stop_point();
        }
    }

    /// The instant at which [`watch_the_clock`](Self::watch_the_clock) will have something to do; none when it never will.
    pub(crate) fn next_look(&self) -> Option<LocalInstant> {
        match self.deadline() {
            Some(deadline) if !self.dropping.is_cancelled() => {
                let told = self.stopping.is_cancelled() || self.term.is_none();
                Some(if told { deadline } else { self.around.schedule.stop_point(deadline) })
            }
            _ => None,
        }
    }

    /// Tells the job to stop because its stop point has passed.
    fn pass_stop_point(&self) {
        let last_error = self.coverage().last_error.clone();
        let suspended = suspended_nanos() > self.suspended_before.load(Ordering::Relaxed) && last_error.is_none();
        let reason = if suspended { StopReason::Suspended } else { StopReason::DeadlinePassed { last_error } };
        self.settle(reason);
        self.stopping.cancel();
    }

    /// Has the job dropped at once, for another instance may run already.
    pub(crate) fn lose(&self, reason: StopReason) {
        if matches!(reason, StopReason::Lost(_)) {
            self.lost.cancel();
        }
        self.settle(reason);
        self.drop_now();
    }

    /// Ends the term because its job has ended, unless it ended for another reason before: a job that returned because the clock told
    /// it to was stopped, whether or not the heartbeat has seen that. Nothing is held from here on.
    pub(crate) fn end(&self) {
        self.watch_the_clock(LocalInstant::now());
        self.settle(StopReason::Ended);
        self.drop_now();
    }

    /// Sets the one reason why the term ends, and makes it known; false when it has one already.
    fn settle(&self, reason: StopReason) -> bool {
        let is_first = self.reason.set(reason.clone()).is_ok();
        if is_first {
            if let Some(term) = &self.term {
                telemetry::stopped(term, &reason);
            }
            self.around.board.stop(&self.name, reason);
        }
        is_first
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
