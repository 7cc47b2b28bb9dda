//! Who comes first: the caller that gives up, or the thread that begins to write.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use lease_core::ErrorKind;

use crate::error::Failure;

const OPEN: u8 = 0;
const WRITING: u8 = 1;
const GIVEN_UP: u8 = 2;

/// One call's claim, shared by its caller and its thread. Whoever moves it first decides, so that a caller which gives up knows
/// whether anything can still happen (S8), and a dropped call that waits for the write lock never writes (S11).
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicU8>);

impl Claim {
    /// Goes past the point from which the write can no longer be prevented. An error when the caller has given up before.
    pub(crate) fn begin_write(&self) -> Result<(), Failure> {
        if self.moves_to(WRITING) { Ok(()) } else { Err(busy()) }
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == GIVEN_UP
    }

    /// The caller's end of the claim.
    pub(crate) fn caller(&self) -> Caller {
        Caller(self.clone())
    }

    fn moves_to(&self, state: u8) -> bool {
        self.0.compare_exchange(OPEN, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The caller's end of a claim: giving up is dropping it, which a dropped future does.
#[derive(Debug)]
pub(crate) struct Caller(Claim);

impl Caller {
    /// Gives up at the operation timeout, and says what is known.
    pub(crate) fn time_out(self) -> Failure {
        if self.0.moves_to(GIVEN_UP) {
            busy()
        } else {
            Failure::new(ErrorKind::Indeterminate, "the write had begun when the operation timeout passed")
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.moves_to(GIVEN_UP);
    }
}

fn busy() -> Failure {
    Failure::new(ErrorKind::Busy, "the operation timeout passed before the database was free")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8, S11: a caller that gave up first is told that nothing happened, and nothing does.
    #[test]
    fn giving_up_first_prevents_the_write() {
        let claim = Claim::default();
        assert_eq!(claim.caller().time_out().kind(), ErrorKind::Busy);
        assert!(claim.is_given_up());
        assert!(claim.begin_write().is_err());

        let claim = Claim::default();
        drop(claim.caller());
        assert!(claim.begin_write().is_err());
    }

    /// S8, CX-03: once the write has begun, giving up proves nothing.
    #[test]
    fn giving_up_after_the_write_began_leaves_the_outcome_unknown() {
        let claim = Claim::default();
        let caller = claim.caller();
        assert!(claim.begin_write().is_ok());
        assert_eq!(caller.time_out().kind(), ErrorKind::Indeterminate);
        assert!(!claim.is_given_up());
    }
}
