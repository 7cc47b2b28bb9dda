//! What a process does: contends, runs, renews, stops, releases; and its clock (`contend.rs`, `heartbeat.rs`, `stop.rs`, `term.rs`).

use crate::{
    protocol::Protocol,
    sabotage::Sabotage,
    state::{Answer, Breach, PROCESSES, Phase, Stage, State, TASKS, Task, Ticks, Token, Verb, Why, process_of},
};

impl Protocol {
    /// How far away a deadline is when its call was sent just now (E2, `schedule.rs`).
    pub(crate) fn promise(&self, duration: Ticks) -> Ticks {
        if self.suffers(Sabotage::NoMargin) { duration } else { duration.saturating_sub(self.margin) }
    }

    /// Time passes. Nobody's job is polled at or after its deadline, for the clock is read before each poll (E3).
    pub(crate) fn tick(&self, state: &mut State, lags: [bool; PROCESSES]) {
        let lapses = state.row.owner.is_some() && state.row.left == 1;
        state.row.left = state.row.left.saturating_sub(1);
        state.row.age = self.hold.map_or(0, |hold| hold.min(state.row.age + 1));
        let observer = &mut state.observer;
        // A crash, a pause or an outage that outlasts the lease before the rest is written repeats the run (E10).
        observer.hold = if lapses { 0 } else { observer.hold.saturating_sub(1) };
        observer.offered = observer.offered.and_then(|(process, left)| (left > 1).then(|| (process, left - 1)));
        for (process, now) in state.processes.iter_mut().enumerate() {
            if lags[process] {
                now.steady = 0;
            } else {
                now.steady = self.steady().min(now.steady + 1);
                now.back = now.back.saturating_sub(1);
            }
        }
        for task in (0..TASKS).filter(|task| !lags[process_of(*task)]) {
            let now = &mut state.tasks[task];
            now.left = now.left.saturating_sub(1);
            if let Some(call) = &mut now.call {
                call.promise = call.promise.saturating_sub(1);
            }
            if state.is_awake(task) {
                self.notice_the_clock(state, task);
            }
        }
    }

    /// The job whose deadline has passed is dropped (E3).
    fn notice_the_clock(&self, state: &mut State, task: usize) {
        let now = &state.tasks[task];
        if matches!(now.phase, Phase::Running { .. }) && now.left == 0 {
            self.drop_job(state, task);
        }
    }

    /// Drops the job, which ends it unless it is stubborn (E3).
    fn drop_job(&self, state: &mut State, task: usize) {
        if let Phase::Running { stubborn: true, .. } = state.tasks[task].phase {
            self.leave_late(state, task);
            let now = &mut state.tasks[task];
            *now = Task { phase: Phase::Overrun, claim: now.claim, ..Task::IDLE };
        } else {
            self.end(state, task);
        }
    }

    /// The job has really ended: only now is the lease given back, if it was not lost (E3).
    pub(crate) fn end(&self, state: &mut State, task: usize) {
        let now = &mut state.tasks[task];
        (now.token, now.left) = (None, 0);
        let resigned = matches!(now.phase, Phase::Running { resigning: true, .. });
        if now.claim.is_none() {
            *now = Task::IDLE;
        } else if self.hold.is_some() && !self.suffers(Sabotage::NoRest) {
            now.phase = Phase::Resting;
            self.send(state, task, Verb::ReleaseAfter, 0);
        } else {
            self.release(state, task, if resigned { Why::Resigned } else { Why::JobEnded });
        }
    }

    /// Sends the release of a term that has ended, or of a try of which nobody knows the outcome.
    pub(crate) fn release(&self, state: &mut State, task: usize, why: Why) {
        self.leave_late(state, task);
        let now = &mut state.tasks[task];
        *now = Task { phase: Phase::Releasing(why), claim: now.claim, ..Task::IDLE };
        self.send(state, task, Verb::Release, 0);
    }

    /// The job's first poll.
    pub(crate) fn start(&self, state: &mut State, task: usize, stubborn: bool) {
        let State { tasks, observer, row, .. } = state;
        let now = &mut tasks[task];
        now.phase = Phase::Running { resigning: false, stubborn };
        let token = now.token.unwrap_or_default();
        if observer.hold > 0 {
            observer.breach = Some(Breach::HoldCut);
        } else if token <= observer.started {
            observer.breach = Some(Breach::TokenFell);
        }
        observer.started = token;
        observer.hold = self.hold.filter(|_| row.owner == now.claim).map_or(0, |hold| hold - row.age);
    }

    /// E12: the token fires, and the deadline is one grace away at most.
    pub(crate) fn resign(&self, state: &mut State, task: usize) {
        let now = &mut state.tasks[task];
        if let Phase::Running { resigning, .. } = &mut now.phase {
            *resigning = true;
        }
        now.left = now.left.min(self.grace);
        if self.suffers(Sabotage::ReleaseBeforeEnd) {
            self.send(state, task, Verb::Release, 0);
        }
    }

    /// An answer arrives, and is judged (E2, E7).
    pub(crate) fn answer(&self, state: &mut State, task: usize) {
        let now = &mut state.tasks[task];
        let Some(call) = now.call.take() else { return };
        let Stage::Answered(answer) = call.stage else { return };
        let promise = if self.suffers(Sabotage::AnchorAtAnswer) { self.promise(call.duration) } else { call.promise };
        match answer {
            Answer::Acquired(token) => self.granted(state, task, token, promise),
            // A definite refusal: the next try may have the same id (E7).
            Answer::Held => {}
            Answer::Renewed(token) if now.token.is_none_or(|own| own == token) => self.renewed(state, task, promise),
            // Another token is a loss (E7).
            Answer::Renewed(_) | Answer::Lost => self.lost(state, task),
            Answer::Released if matches!(now.phase, Phase::Running { .. }) => {}
            Answer::Released => self.finish(state, task, true, 0),
        }
    }

    fn granted(&self, state: &mut State, task: usize, token: Token, promise: Ticks) {
        let now = &mut state.tasks[task];
        (now.token, now.left, now.phase) = (Some(token), promise, Phase::Granted);
        if promise <= self.grace {
            // Its stop point has passed on arrival (E2).
            now.phase = Phase::Confirming;
            self.send(state, task, Verb::Renew, self.duration);
        }
    }

    fn renewed(&self, state: &mut State, task: usize, promise: Ticks) {
        let now = &mut state.tasks[task];
        match now.phase {
            Phase::Confirming => {
                (now.left, now.phase) = (promise, Phase::Granted);
                if promise <= self.grace {
                    self.release(state, task, Why::UnusedGrant);
                }
            }
            // A deadline is not moved once the job was told to stop (E3, E12; `extend` in `term.rs`).
            Phase::Granted | Phase::Running { resigning: false, .. } if now.left > self.grace => now.left = promise,
            _ => {}
        }
    }

    /// No grace, for another may run already (E3). There is nothing to release.
    fn lost(&self, state: &mut State, task: usize) {
        match state.tasks[task].phase {
            Phase::Confirming => self.release(state, task, Why::UnusedGrant),
            Phase::Running { .. } => {
                state.tasks[task].claim = None;
                self.drop_job(state, task);
            }
            _ => state.tasks[task] = Task::IDLE,
        }
    }

    /// The task waits no longer for its call.
    pub(crate) fn abandon(&self, state: &mut State, task: usize) {
        self.leave_late(state, task);
        let Some(call) = state.tasks[task].call.take() else { return };
        match state.tasks[task].phase {
            Phase::Contending => self.release(state, task, Why::JobEnded),
            Phase::Confirming => self.release(state, task, Why::UnusedGrant),
            Phase::Releasing(_) => {
                // Two durations after the last request of the term was sent (E12); what is left of the first one is in the promise.
                self.finish(state, task, false, call.promise);
            }
            _ => {}
        }
    }

    /// The release was answered, or is waited for no longer. The id was used up when it was sent (E7).
    fn finish(&self, state: &mut State, task: usize, answered: bool, promise: Ticks) {
        let now = &mut state.tasks[task];
        let (phase, old) = (now.phase, now.claim);
        *now = Task::IDLE;
        if phase == Phase::Releasing(Why::Resigned) && !self.suffers(Sabotage::NoStandBack) {
            // One duration after the answer (E12).
            state.processes[process_of(task)].back = self.duration + promise;
        }
        let reused = match phase {
            Phase::Releasing(Why::UnusedGrant) => answered && self.suffers(Sabotage::ReuseAfterUnusedGrant),
            Phase::Releasing(_) => !answered && self.suffers(Sabotage::ReuseAfterUnansweredRelease),
            _ => false,
        };
        if let (true, Some(old)) = (reused, old) {
            let mut claim = state.mint();
            claim.owner = old.owner;
            state.tasks[task] = Task { phase: Phase::Contending, claim: Some(claim), ..Task::IDLE };
        }
    }

    /// A paused process goes on: what was due is noticed before anything else (E3).
    pub(crate) fn resume(&self, state: &mut State, process: usize) {
        state.processes[process].paused = false;
        if self.suffers(Sabotage::NoClockAtResume) {
            return;
        }
        for task in (0..TASKS).filter(|task| process_of(*task) == process) {
            self.notice_the_clock(state, task);
        }
    }

    /// A process is gone: its requests may be late, its answers are lost, its ids are never used again.
    pub(crate) fn crash(&self, state: &mut State, process: usize) {
        for task in (0..TASKS).filter(|task| process_of(*task) == process) {
            self.leave_late(state, task);
            state.tasks[task] = Task::IDLE;
        }
        (state.processes[process].paused, state.processes[process].back) = (false, 0);
        // A restart is not covered (E12).
        state.observer.offered = state.observer.offered.filter(|(resigned, _)| *resigned != process);
    }
}
