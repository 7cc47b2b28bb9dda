//! What a check of a history answers.

use std::{error, fmt};

use super::Record;

/// What a sound history consisted of, so that a test can tell that enough has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// All calls.
    pub operations: u64,
    /// Acquisitions that were granted.
    pub grants: u64,
    /// Acquisitions that were refused.
    pub refusals: u64,
    /// Renewals that were made.
    pub renewals: u64,
    /// Renewals that were refused.
    pub losses: u64,
    /// Releases by the owner.
    pub releases: u64,
    /// Grants of a lease that its former owner had let run out.
    pub takeovers: u64,
    /// Calls that were dropped before they were answered.
    pub dropped: u64,
    /// Calls that were answered by an error.
    pub failed: u64,
}

/// An interval during which an owner certainly had a lease, in nanoseconds of the host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The owner.
    pub owner: String,
    /// When the answer to its acquisition or renewal came.
    pub from: u64,
    /// When that may have run out, or when the owner made a call that may have ended it.
    pub until: u64,
}

/// How a history broke the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Two owners certainly had one lease at the same time (S1).
    TwoOwners {
        /// The lease.
        name: String,
        /// The one that had it first.
        first: Claim,
        /// The one that had it as well.
        second: Claim,
    },
    /// A lease was granted while another owner certainly had it (S1).
    GrantedWhileHeld {
        /// The lease.
        name: String,
        /// The one that had it.
        holder: Claim,
        /// The call that was granted it.
        grant: Box<Record>,
    },
    /// An acquisition that was made after another had been answered got no greater token, or two got the same (S6).
    TokenDidNotRise {
        /// The acquisition that was answered first.
        earlier: Box<Record>,
        /// The one with the token that should be greater.
        later: Box<Record>,
    },
    /// A renewal answered another token than the grant of its term (S4).
    TokenChanged {
        /// The grant's token.
        granted: i64,
        /// The renewal.
        renewal: Box<Record>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoOwners { name, first, second } => {
                write!(f, "S1: two owners had {name:?} at once: {first:?} and {second:?}")
            }
            Self::GrantedWhileHeld { name, holder, grant } => {
                write!(f, "S1: {name:?} was granted while {holder:?} had it: {grant:?}")
            }
            Self::TokenDidNotRise { earlier, later } => {
                write!(f, "S6: the token did not rise from {earlier:?} to {later:?}")
            }
            Self::TokenChanged { granted, renewal } => {
                write!(f, "S4: the term of token {granted} was renewed with another: {renewal:?}")
            }
        }
    }
}

impl error::Error for Violation {}
