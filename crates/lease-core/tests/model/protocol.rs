//! The model itself: its constants, and how the checker drives it.

use stateright::{Model, Property};

use crate::{
    action::Action,
    property,
    sabotage::Sabotage,
    state::{PROCESSES, State, Ticks},
};

/// The constants of one model. All times are in ticks; an array has one value for each process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    /// How long a grant or a renewal lasts, on the store's clock.
    pub(crate) duration: Ticks,
    /// By how much a deadline comes before that (E2). It tolerates a clock that misses one tick in a duration (E8).
    pub(crate) margin: Ticks,
    /// From the stop point to the deadline (E3).
    pub(crate) grace: Ticks,
    /// The minimum hold of every job, if they have one (E10).
    pub(crate) hold: Option<Ticks>,
    /// How many requests may be late at once.
    pub(crate) late: usize,
    /// Whose clock may lag: of any `duration` ticks of the store's clock it may miss one.
    pub(crate) drifts: [bool; PROCESSES],
    /// Who may be paused.
    pub(crate) pauses: [bool; PROCESSES],
    /// Whose jobs may be stubborn (E3).
    pub(crate) stubborn: [bool; PROCESSES],
    /// Whether jobs are told to resign (E12). A model has either this or a minimum hold.
    pub(crate) resigns: bool,
    pub(crate) sabotage: Option<Sabotage>,
}

impl Protocol {
    /// The smallest model of use: processes crash, requests and answers are lost, and nothing worse happens.
    pub(crate) const SMALL: Self = Self {
        duration: 3,
        margin: 1,
        grace: 1,
        hold: None,
        late: 0,
        drifts: [false, false],
        pauses: [false, false],
        stubborn: [false, false],
        resigns: false,
        sabotage: None,
    };

    pub(crate) fn suffers(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// The ticks that a clock must have counted since it last lagged before it may lag again.
    pub(crate) fn steady(&self) -> Ticks {
        self.duration - 1
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(self.steady())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.enabled(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = *last;
        self.perform(&mut next, action);
        next.canonicalise(self.steady(), self.grace);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::of(self)
    }
}
