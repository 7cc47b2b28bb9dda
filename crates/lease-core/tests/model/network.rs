//! The way to the store and back: requests arrive, are late, repeated or lost; and the observer's eye on the row.

use crate::{
    protocol::Protocol,
    state::{Answer, Breach, Call, Phase, Stage, State, Ticks, Verb, Why, process_of},
};

impl Protocol {
    /// A request that somebody waits for reaches the store.
    pub(crate) fn arrive(&self, state: &mut State, task: usize) {
        let Some(request) = state.tasks[task].request() else { return };
        let answer = self.apply(&mut state.row, request);
        if let Some(call) = &mut state.tasks[task].call {
            call.stage = Stage::Answered(answer);
        }
        let process = process_of(task);
        let observer = &mut state.observer;
        match (answer, observer.offered) {
            (Answer::Acquired(_), Some((resigned, _))) => {
                if resigned == process {
                    observer.breach = Some(Breach::NotStoodBack);
                }
                observer.offered = None;
            }
            // A request that was delayed by more than a duration is not covered (E12).
            (Answer::Released, _)
                if state.tasks[task].phase == Phase::Releasing(Why::Resigned)
                    && state.tasks[task].call.is_some_and(|call| call.promise > 0)
                    && state.row.owner.is_none() =>
            {
                observer.offered = Some((process, self.duration));
            }
            _ => {}
        }
    }

    /// A late request reaches the store, which cannot know that it is late.
    pub(crate) fn deliver(&self, state: &mut State, late: usize) {
        let Some(request) = state.late[late] else { return };
        let before = state.row;
        let answer = self.apply(&mut state.row, request);
        let of_another_term = before.owner.is_some_and(|owner| owner.life != request.claim.life);
        if before != state.row && before.left > 0 && of_another_term {
            state.observer.breach = Some(Breach::LateTouch);
        }
        if matches!(answer, Answer::Acquired(_)) {
            state.observer.offered = None;
        }
    }

    /// Sends a request and waits for it; a call that was waited for is late from now on.
    pub(crate) fn send(&self, state: &mut State, task: usize, verb: Verb, duration: Ticks) {
        self.leave_late(state, task);
        let resigned = state.tasks[task].phase == Phase::Releasing(Why::Resigned);
        let promise = match verb {
            Verb::Acquire | Verb::Renew => self.promise(duration),
            Verb::Release if resigned => self.duration,
            Verb::Release | Verb::ReleaseAfter => 0,
        };
        state.tasks[task].call = Some(Call { verb, duration, promise, stage: Stage::Sent });
    }

    /// What is on its way becomes late, if it is new to the late ones and they have room; else it is lost.
    pub(crate) fn leave_late(&self, state: &mut State, task: usize) {
        let now = &state.tasks[task];
        let (true, Some(request)) = (now.is_sending(), now.request()) else { return };
        let has_room = state.late.iter().flatten().count() < self.late;
        if let (true, false) = (has_room, state.late.contains(&Some(request))) {
            // They are a set; which place is free does not matter.
            state.late.iter_mut().find(|slot| slot.is_none()).map(|slot| slot.insert(request));
        }
    }
}
