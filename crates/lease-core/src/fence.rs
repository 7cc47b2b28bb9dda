//! Fenced transactions: what a provider's `verify` and `commit` take and answer.

use std::{error, fmt};

use crate::{HeldLease, LeaseGuard, LossReason, StoreError, Term};

/// What a fenced transaction is bound to: a [`Term`], or a lease of the executor, which has one unless the executor is disabled.
pub trait AsTerm {
    /// The term; none when there is no store to ask (E1), in which case every transaction may commit.
    fn as_term(&self) -> Option<&Term>;
}

impl AsTerm for Term {
    fn as_term(&self) -> Option<&Term> {
        Some(self)
    }
}

impl AsTerm for HeldLease {
    fn as_term(&self) -> Option<&Term> {
        self.term()
    }
}

impl AsTerm for LeaseGuard {
    fn as_term(&self) -> Option<&Term> {
        self.term()
    }
}

/// Why a fenced transaction may not commit. Roll it back.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// The term is over, or has run out. Another instance may have the lease.
    Fenced(FenceReason),
    /// The store could not say, or the commit failed. [`ErrorKind::RestartTransaction`](crate::ErrorKind::RestartTransaction): begin the
    /// transaction again. [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate): the transaction may have been committed, in its
    /// term.
    Store(StoreError),
}

/// Why a term no longer lets its transactions commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceReason {
    /// The row no longer names this owner and token.
    Lost(LossReason),
    /// The lease has run out; nobody has taken it yet, and its owner may still renew it.
    Expired,
}

impl fmt::Display for FenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => reason.fmt(f),
            Self::Expired => f.write_str("the lease has expired"),
        }
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced(reason) => write!(f, "fenced off: {reason}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl error::Error for FenceError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Fenced(_) => None,
            Self::Store(error) => error.source(),
        }
    }
}

impl From<StoreError> for FenceError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::{ErrorKind, OwnerId};

    #[test]
    fn the_display_says_who_has_the_lease() {
        let taken = LossReason::TakenOver(OwnerId::new("b").unwrap());
        assert_eq!(FenceError::Fenced(FenceReason::Lost(taken)).to_string(), "fenced off: taken over by b");
        assert_eq!(FenceError::Fenced(FenceReason::Expired).to_string(), "fenced off: the lease has expired");
    }

    #[test]
    fn a_stores_error_is_shown_as_it_is() {
        let error = StoreError::new(crate::Operation::Verify, ErrorKind::Unavailable).with_source("refused");
        let error = FenceError::from(error);
        assert_eq!(error.to_string(), "verify lease: database unavailable");
        assert_eq!(error.source().unwrap().to_string(), "refused");
    }
}
