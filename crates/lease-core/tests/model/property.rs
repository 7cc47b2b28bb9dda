//! What must be true always, what must come true from everywhere, and what must be possible at all.

use stateright::Property;

use crate::{
    action::Action,
    protocol::Protocol,
    state::{Breach, LATE, PROCESSES, Phase, Stage, State, TASKS, Task},
};

/// E2, E3: of jobs that stop in grace no two run at once, in whichever processes.
pub(crate) const EXCLUSION: &str = "no two jobs run at once";
/// E3, E11: an executor never runs a name twice, not even when a job overruns its lease.
pub(crate) const ONE_EACH: &str = "no executor runs a name twice";
/// S6
pub(crate) const TOKENS_RISE: &str = "tokens only rise";
/// E7
pub(crate) const LATE_IS_HARMLESS: &str = "a late request touches no later term";
/// E10
pub(crate) const HOLD: &str = "a minimum hold is respected";
/// E12
pub(crate) const STAND_BACK: &str = "who resigned stands back";
/// S3, E5, E7: from every state, however many faults led to it, somebody runs soon once there are no more.
pub(crate) const LIVENESS: &str = "somebody runs in the end";

/// What must hold in every state, and what must come true in some.
pub(crate) fn of(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(EXCLUSION, |_, state: &State| (0..TASKS).filter(|task| state.is_running(*task)).count() < 2),
        Property::always(ONE_EACH, |_, state: &State| {
            (0..PROCESSES).all(|process| state.tasks_of(process).filter(|task| task.has_job()).count() < 2)
        }),
        Property::always(TOKENS_RISE, |_, state: &State| state.observer.breach != Some(Breach::TokenFell)),
        Property::always(LATE_IS_HARMLESS, |_, state: &State| state.observer.breach != Some(Breach::LateTouch)),
        Property::always(HOLD, |_, state: &State| state.observer.breach != Some(Breach::HoldCut)),
        Property::always(STAND_BACK, |_, state: &State| state.observer.breach != Some(Breach::NotStoodBack)),
        Property::always(LIVENESS, Protocol::somebody_runs),
    ];
    properties.extend(possible(protocol));
    properties
}

/// What must be possible: a model in which nothing happens keeps every promise.
fn possible(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut possible = vec![
        Property::sometimes("a grant is confirmed after its stop point", |_, state: &State| {
            let confirmed = |task: &Task| {
                task.phase == Phase::Confirming && task.call.is_some_and(|call| call.promise > 0 && !task.is_sending())
            };
            state.tasks.iter().any(confirmed)
        }),
        Property::sometimes("a dead id blocks the name", |_, state: &State| {
            let dead = |owner| !state.tasks.iter().any(|task| task.claim == Some(owner));
            state.row.left > 0 && state.row.owner.is_some_and(dead)
        }),
        Property::sometimes("as many requests are late as may be", |protocol: &Protocol, state: &State| {
            state.late.iter().flatten().count() == protocol.late
        }),
    ];
    if protocol.pauses[0] {
        possible.push(Property::sometimes("a frozen holder is replaced", |_, state: &State| {
            state.is_running(2) && state.tasks[0].has_job() && !state.is_awake(0)
        }));
    }
    if protocol.hold.is_some() {
        possible.push(Property::sometimes("a standby waits for a rest", |_, state: &State| {
            let waits = |task: &Task| task.phase == Phase::Contending;
            state.row.left > 0 && state.row.owner.is_none() && state.tasks.iter().any(waits)
        }));
    }
    if protocol.resigns {
        possible.push(Property::sometimes("a standby succeeds who resigned", |_, state: &State| {
            state.processes[0].back > 0 && state.is_running(2)
        }));
    }
    if protocol.stubborn[0] {
        possible.push(Property::sometimes("a job overruns its lease and another one runs", |_, state: &State| {
            state.tasks[0].phase == Phase::Overrun && state.is_running(2)
        }));
    }
    possible
}

/// Enough for every task to finish what it does and to try: a store that refuses what it could grant must not keep us here.
const STEPS_A_TICK: usize = 20;

impl Protocol {
    /// Whether somebody runs soon when, from here on, nothing goes wrong any more: late requests are lost, the paused go on, jobs end
    /// at once, answers come at once, and standbys look at the expiry.
    ///
    /// The checker's own `eventually` does not see endless loops, and the network of this model may be unfair for ever. This asks
    /// more, of each state by itself: the longest that the row, a rest and a standing back may last, and then one try.
    fn somebody_runs(&self, state: &State) -> bool {
        let mut state = *state;
        state.late = [None; LATE];
        for process in (0..PROCESSES).filter(|process| state.processes[*process].paused).collect::<Vec<_>>() {
            self.perform(&mut state, Action::Resume(process));
        }
        for task in (0..TASKS).filter(|task| state.tasks[*task].has_job()).collect::<Vec<_>>() {
            self.perform(&mut state, Action::End(task));
        }
        let mut patience = 3 * self.duration + self.hold.unwrap_or_default();
        let mut steps = 0;
        while patience > 0 {
            if (0..TASKS).any(|task| state.is_running(task)) {
                return true;
            }
            steps += 1;
            match (0..TASKS).find_map(|task| self.next_calm_step(&state, task)) {
                Some(step) if steps < STEPS_A_TICK => self.perform(&mut state, step),
                _ => {
                    (patience, steps) = (patience - 1, 0);
                    self.perform(&mut state, Action::Tick { lags: [false; PROCESSES] });
                }
            }
        }
        false
    }

    /// What `task` does at once when nothing goes wrong.
    fn next_calm_step(&self, state: &State, task: usize) -> Option<Action> {
        let now = &state.tasks[task];
        let waits_for = now.call.map(|call| call.stage);
        match (now.phase, waits_for) {
            (Phase::Granted, _) if now.left > self.grace => Some(Action::Start { task, stubborn: false }),
            (Phase::Granted, _) => Some(Action::GiveBack(task)),
            (_, Some(Stage::Sent)) => Some(Action::Arrive(task)),
            (_, Some(Stage::Answered(_))) => Some(Action::Answer(task)),
            (Phase::Resting, None) => Some(Action::Rest(task)),
            (Phase::Contending, None) if state.row.left == 0 => Some(Action::TryAgain(task)),
            (Phase::Idle, None) if state.row.left == 0 && self.may_contend(state, task) => Some(Action::Contend(task)),
            _ => None,
        }
    }
}
