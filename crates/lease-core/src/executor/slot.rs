//! One contender a name within an executor (E11).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{Holder, LeaseName, clock::LocalInstant, executor::term::TermState};

/// The names that somebody in this executor contends for or holds, or has to stand back from.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashMap<LeaseName, Arc<Slot>>>);

#[derive(Debug, Default)]
struct Slot {
    turn: Arc<tokio::sync::Mutex<()>>,
    view: Mutex<View>,
}

/// What others see of a name.
#[derive(Debug, Default)]
struct View {
    /// The term that this executor has on it.
    current: Weak<TermState>,
    /// When this executor may try for it again (E12).
    not_before: Option<LocalInstant>,
}

impl Slots {
    /// The place in line for `name`.
    pub(crate) fn place(self: &Arc<Self>, name: &LeaseName) -> Place {
        let mut slots = self.lock();
        let slot = Arc::clone(slots.entry(name.clone()).or_default());
        Place { slots: Arc::clone(self), name: name.clone(), slot }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseName, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stands_back(&self) -> bool {
        self.view().not_before.is_some_and(|until| !until.has_passed())
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
        let current = self.slot.view().current.upgrade();
        let owner = current.as_ref().map(|state| state.owner().clone());
        Holder::new(owner, current.map(|state| state.lapses_at().remaining()).unwrap_or_default())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.slots.lock();
        // The map's own reference and this one: nobody else is in line, and nobody can join while the map is locked.
        if Arc::strong_count(&self.slot) == 2 && !self.slot.stands_back() {
            slots.remove(&self.name);
        }
        // Names that were left standing back are seen to when the next one is left.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.stands_back());
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
        self.place.slot.view().current = Arc::downgrade(state);
    }

    /// Keeps this executor from trying for the name until then.
    pub(crate) fn stand_back(&self, until: Option<LocalInstant>) {
        let mut view = self.place.slot.view();
        view.not_before = view.not_before.max(until);
    }

    /// When this executor may try for the name; none when it may at once.
    pub(crate) fn not_before(&self) -> Option<LocalInstant> {
        self.place.slot.view().not_before.filter(|until| !until.has_passed())
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
        assert_eq!(slots.lock().len(), 1);
        drop(turn);
        assert_eq!(slots.lock().len(), 0);
    }

    /// E12: a name that this executor stands back from is remembered until then, and no longer.
    #[tokio::test(start_paused = true)]
    async fn standing_back_outlives_the_turn() {
        let second = std::time::Duration::from_secs(1);
        let slots = Arc::new(Slots::default());
        let name = LeaseName::new("job").unwrap();
        slots.place(&name).try_turn().unwrap().stand_back(Some(LocalInstant::now() + second));
        slots.place(&name).try_turn().unwrap().stand_back(None);
        assert!(slots.place(&name).try_turn().unwrap().not_before().is_some());
        let other = LeaseName::new("other").unwrap();
        drop(slots.place(&other));
        assert_eq!(slots.lock().len(), 1, "only the name that is stood back from");
        slots.place(&other).try_turn().unwrap().stand_back(Some(LocalInstant::now() + second));
        tokio::time::advance(second).await;
        assert!(slots.place(&name).try_turn().unwrap().not_before().is_none());
        assert_eq!(slots.lock().len(), 0);
    }
}
