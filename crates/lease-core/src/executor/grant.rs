//! A lease that was granted, until somebody runs under it.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use crate::{
    LeaseName, Term,
    clock::LocalInstant,
    executor::{Active, Shared, contend::give_back, heartbeat::Keeping, slot::Turn, term::TermState},
};

/// A lease that was granted and whose job has not started. Dropping it gives the lease back.
#[derive(Debug)]
pub(crate) struct Grant {
    shared: Arc<Shared>,
    held: Option<Held>,
    /// How long after it was expected to be free the lease was granted, if this contender had been told when.
    pub(crate) late_by: Option<Duration>,
}

/// What a supervisor needs of a grant.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) state: Arc<TermState>,
    /// Kept until the job has ended (E11).
    pub(crate) turn: Option<Turn>,
    /// Keeps the lease alive.
    _keeping: Keeping,
    /// Lets a shutdown wait for the term. It is dropped last.
    _active: Active,
}

impl Grant {
    /// A term that was granted by a call sent after `anchor`. It is renewed from here on (E4).
    pub(crate) fn new(shared: &Arc<Shared>, term: Term, anchor: LocalInstant) -> Self {
        let state = TermState::granted(term, shared.surroundings(), anchor);
        Self::held(shared, state, anchor)
    }

    /// What stands for a grant while the executor is disabled (E1).
    pub(crate) fn unleased(shared: &Arc<Shared>, name: &LeaseName) -> Self {
        let state = TermState::unleased(name.clone(), shared.owners.mint(), shared.surroundings());
        Self::held(shared, state, LocalInstant::now())
    }

    fn held(shared: &Arc<Shared>, state: Arc<TermState>, anchor: LocalInstant) -> Self {
        let (active, keeping) = (shared.register(&state), shared.heartbeat.keep(&state, anchor));
        let held = Held { state, turn: None, _keeping: keeping, _active: active };
        Self { shared: Arc::clone(shared), held: Some(held), late_by: None }
    }

    pub(crate) fn keep_turn(&mut self, turn: Turn) {
        if let Some(held) = &mut self.held {
            turn.announce(&held.state);
            held.turn = Some(turn);
        }
    }

    /// The term, for the job's hands.
    pub(crate) fn state(&self) -> Arc<TermState> {
        let held = self.held.as_ref().expect("a grant is taken apart only when it is consumed");
        Arc::clone(&held.state)
    }

    /// Hands the grant to its supervisor, who releases it from here on.
    pub(crate) fn start(mut self) -> Held {
        self.held.take().expect("a grant is taken apart only when it is consumed")
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        held.state.end();
        let (shared, runtime) = (Arc::clone(&self.shared), Handle::try_current());
        if let (Some(_), Ok(runtime)) = (held.state.term(), runtime) {
            let tasks = shared.tasks.clone();
            let give_back = async move {
                if let Some(term) = held.state.term() {
                    give_back(&shared, term).await;
                }
            };
            tasks.spawn_on(give_back, &runtime);
        }
    }
}
