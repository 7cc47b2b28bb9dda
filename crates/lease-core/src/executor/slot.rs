//! One contender a name within an executor (E11).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{Holder, LeaseName, clock::LocalInstant, executor::term::TermState};

/// The names that somebody in this executor contends for or holds.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashMap<LeaseName, Arc<Slot>>>);

#[derive(Debug, Default)]
struct Slot {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The term that this executor has on the name, for the answer to others.
    current: Mutex<Weak<TermState>>,
}

impl Slots {
    /// The place in line for `name`.
    pub(crate) fn place(self: &Arc<Self>, name: &LeaseName) -> Place {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots.entry(name.clone()).or_default());
        Place { slots: Arc::clone(self), name: name.clone(), slot }
    }
}

/// A place in line; the last one to leave removes the name.
#[derive(Debug)]
pub(crate) struct Place {
    slots: Arc<Slots>,
    name: LeaseName,
    slot: Arc<Slot>,
}

impl Place {
    /// Waits for the turn.
    pub(crate) async fn turn(self) -> Turn {
        let permit = Arc::clone(&self.slot.turn).lock_owned().await;
        Turn { _permit: permit, place: self }
    }

    /// Takes the turn, or says who in this executor has it.
    pub(crate) fn try_turn(self) -> Result<Turn, Holder> {
        match Arc::clone(&self.slot.turn).try_lock_owned() {
            Ok(permit) => Ok(Turn { _permit: permit, place: self }),
            Err(_) => Err(self.holder()),
        }
    }

    /// Who has the turn, as far as is known: nobody has a term while he still contends.
    pub(crate) fn holder(&self) -> Holder {
        let current = self.slot.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let owner = current.as_ref().map(|state| state.owner().clone());
        let lapse = current.and_then(|state| state.deadline().map(|deadline| state.schedule().lapse(deadline)));
        Holder::new(owner, lapse.map(LocalInstant::remaining).unwrap_or_default())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's own reference and this one: nobody else is in line, and nobody can join while the map is locked.
        if Arc::strong_count(&self.slot) == 2 {
            slots.remove(&self.name);
        }
    }
}

/// The right to contend for a name within this executor. It is kept until the job has really ended.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: tokio::sync::OwnedMutexGuard<()>,
    place: Place,
}

impl Turn {
    /// Lets others see the term that was won.
    pub(crate) fn announce(&self, state: &Arc<TermState>) {
        *self.place.slot.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E11: one turn a name; a name that nobody contends for any more leaves nothing behind.
    #[tokio::test]
    async fn a_name_has_one_turn_and_leaves_nothing_behind() {
        let slots = Arc::new(Slots::default());
        let name = LeaseName::new("job").unwrap();
        let turn = slots.place(&name).try_turn().unwrap();
        assert_eq!(slots.place(&name).try_turn().unwrap_err(), Holder::new(None, std::time::Duration::ZERO));
        let mut waiting = Box::pin(slots.place(&name).turn());
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(turn);
        let turn = waiting.await;
        assert_eq!(slots.0.lock().unwrap().len(), 1);
        drop(turn);
        assert_eq!(slots.0.lock().unwrap().len(), 0);
    }
}
