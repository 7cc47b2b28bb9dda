//! What can happen, and when it may.

use crate::{
    protocol::Protocol,
    sabotage::Sabotage,
    state::{LATE, PROCESSES, Phase, State, TASKS, Task, Ticks, Verb, Why, process_of},
};

/// One step of the world. A number is that of a task, of a process, or of a late request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The store's clock goes on by one tick, and so does each local clock that does not lag. Timers fire in the same instant (E3).
    Tick { lags: [bool; PROCESSES] },

    /// A task takes the executor's turn (E11), unless the executor stands back (E12), and tries with a new id (E7).
    Contend(usize),
    /// A standby tries again. The last try was definitely refused, so that the id is the same (E5, E7).
    TryAgain(usize),
    /// A caller stops contending; its id is used up (E7).
    Leave(usize),
    /// The job's first poll: the clock is read before it (E3).
    Start { task: usize, stubborn: bool },
    /// The caller of a grant goes away, or its stop point passes before the first poll: it is released plainly (E7, E10).
    GiveBack(usize),
    /// The heartbeat sends a renewal, at any time (E4); also while a job drains (E12) and until a rest is written (E10).
    Renew { task: usize, duration: Ticks },
    /// The job is told to stop at the executor's own wish: hand-over, shutdown, not eligible (E12).
    Resign(usize),
    /// The job ends by itself, in time or not. Only now is the lease released (E3), or let rest (E10).
    End(usize),
    /// `release_after` is sent, once more if need be (E10).
    Rest(usize),
    /// An unanswered release is abandoned and sent again (E12).
    ReleaseAgain(usize),

    /// A request reaches the store.
    Arrive(usize),
    /// Its answer reaches the task, sooner or later.
    Answer(usize),
    /// The task waits no longer: the request may be late, or its answer lost.
    Abandon(usize),
    /// The store proves that it did not grant: the id may be tried again (E7).
    Refuse(usize),
    /// The network repeats a request: a copy of it is late.
    Repeat(usize),
    /// A late request reaches the store, and may do so again.
    Deliver(usize),
    /// A late request is lost for good.
    Lose(usize),

    /// A process stops taking steps. Its clock counts the time (E2).
    Pause(usize),
    /// It goes on, and reads the clock before anything else (E3).
    Resume(usize),
    /// A process is gone, and so are its jobs. Another one may start in its place, which knows nothing.
    Crash(usize),
}

impl Protocol {
    pub(crate) fn enabled(&self, state: &State, actions: &mut Vec<Action>) {
        self.ticks(state, actions);
        for task in 0..TASKS {
            network(state, task, self.late, actions);
            if state.is_awake(task) {
                self.steps(state, task, actions);
            }
        }
        for late in (0..LATE).filter(|late| state.late[*late].is_some()) {
            actions.extend([Action::Deliver(late), Action::Lose(late)]);
        }
        for (process, paused) in state.processes.iter().map(|process| process.paused).enumerate() {
            if state.tasks_of(process).any(|task| !task.is_idle()) {
                if paused {
                    actions.push(Action::Resume(process));
                } else if self.pauses[process] {
                    actions.push(Action::Pause(process));
                }
                actions.push(Action::Crash(process));
            }
        }
    }

    fn ticks(&self, state: &State, actions: &mut Vec<Action>) {
        let may_lag = |process: usize| self.drifts[process] && state.processes[process].steady == self.steady();
        for lags in [[false, false], [true, false], [false, true], [true, true]] {
            if (0..PROCESSES).all(|process| !lags[process] || may_lag(process)) {
                actions.push(Action::Tick { lags });
            }
        }
    }

    /// What an awake task can do of itself.
    fn steps(&self, state: &State, task: usize, actions: &mut Vec<Action>) {
        let Some(now) = state.tasks.get(task) else { return };
        let waits = now.call.is_some();
        match now.phase {
            Phase::Idle if self.may_contend(state, task) => actions.push(Action::Contend(task)),
            Phase::Contending if !waits => actions.extend([Action::TryAgain(task), Action::Leave(task)]),
            Phase::Granted => {
                if now.left > self.grace {
                    actions.push(Action::Start { task, stubborn: false });
                    if self.stubborn[process_of(task)] {
                        actions.push(Action::Start { task, stubborn: true });
                    }
                }
                actions.push(Action::GiveBack(task));
            }
            Phase::Running { resigning, .. } => {
                actions.push(Action::End(task));
                if self.resigns && !resigning && now.left > self.grace {
                    actions.push(Action::Resign(task));
                }
            }
            Phase::Overrun => actions.push(Action::End(task)),
            Phase::Resting if !waits => actions.push(Action::Rest(task)),
            Phase::Releasing(_) => actions.push(Action::ReleaseAgain(task)),
            _ => {}
        }
        if !waits && self.may_renew(state, task) {
            actions.push(Action::Renew { task, duration: self.duration });
            if self.suffers(Sabotage::ShorterRenewal) {
                actions.push(Action::Renew { task, duration: self.duration - 2 });
            }
        }
    }

    pub(crate) fn may_contend(&self, state: &State, task: usize) -> bool {
        let process = process_of(task);
        let turn_is_free = state.tasks_of(process).all(Task::is_idle);
        state.processes[process].back == 0 && (turn_is_free || self.suffers(Sabotage::NoTurn))
    }

    /// After the stop point a renewal could not save the job (`renews` in `heartbeat.rs`).
    fn may_renew(&self, state: &State, task: usize) -> bool {
        let now = &state.tasks[task];
        match now.phase {
            Phase::Granted => now.left > self.grace,
            Phase::Running { resigning, .. } => resigning || now.left > self.grace,
            Phase::Resting => true,
            _ => false,
        }
    }
}

/// What can become of the call that a task waits for. The store and the network go on while its process is paused.
fn network(state: &State, task: usize, room: usize, actions: &mut Vec<Action>) {
    let now = &state.tasks[task];
    let Some(call) = now.call else { return };
    if now.is_sending() {
        actions.push(Action::Arrive(task));
        if state.late.iter().flatten().count() < room {
            actions.push(Action::Repeat(task));
        }
    }
    if !state.is_awake(task) {
        return;
    }
    actions.push(Action::Abandon(task));
    if !now.is_sending() {
        actions.push(Action::Answer(task));
    } else if call.verb == Verb::Acquire && state.row.owner != now.claim && !state.late.contains(&now.request()) {
        // A copy of the request that was carried out, or may be, would be no proof that nothing happened.
        actions.push(Action::Refuse(task));
    }
}

impl Protocol {
    /// Carries out an enabled action.
    pub(crate) fn perform(&self, state: &mut State, action: Action) {
        state.observer.breach = None;
        match action {
            Action::Tick { lags } => self.tick(state, lags),
            Action::Contend(task) => {
                state.tasks[task].claim = Some(state.mint());
                state.tasks[task].phase = Phase::Contending;
                self.send(state, task, Verb::Acquire, self.duration);
            }
            Action::TryAgain(task) => self.send(state, task, Verb::Acquire, self.duration),
            Action::Leave(task) => state.tasks[task] = Task::IDLE,
            Action::Start { task, stubborn } => self.start(state, task, stubborn),
            Action::GiveBack(task) => self.release(state, task, Why::UnusedGrant),
            Action::Renew { task, duration } => self.send(state, task, Verb::Renew, duration),
            Action::Resign(task) => self.resign(state, task),
            Action::End(task) => self.end(state, task),
            Action::Rest(task) => self.send(state, task, Verb::ReleaseAfter, 0),
            Action::ReleaseAgain(task) => self.send(state, task, Verb::Release, 0),
            Action::Arrive(task) => self.arrive(state, task),
            Action::Answer(task) => self.answer(state, task),
            Action::Abandon(task) => self.abandon(state, task),
            Action::Refuse(task) => state.tasks[task].call = None,
            Action::Repeat(task) => self.leave_late(state, task),
            Action::Deliver(late) => self.deliver(state, late),
            Action::Lose(late) => state.late[late] = None,
            Action::Pause(process) => state.processes[process].paused = true,
            Action::Resume(process) => self.resume(state, process),
            Action::Crash(process) => self.crash(state, process),
        }
    }
}
