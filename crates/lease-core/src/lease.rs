//! What a verb answers: grants, refusals, renewals, losses, and the fencing token.

use std::{fmt, time::Duration};

use crate::{LeaseName, OwnerId};

/// A number that is strictly greater for every later acquisition of the same name (S6).
///
/// Hand it to a resource that remembers the greatest token it has seen and refuses a smaller one; that is how a stale holder is
/// kept out. The idea and the word are Martin Kleppmann's, [How to do distributed locking][kleppmann] (2016).
///
/// [kleppmann]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    /// Wraps the value of the `token` column.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The value of the `token` column.
    pub const fn value(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The answer to [`try_acquire`](crate::LeaseStore::try_acquire).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "whether the lease was acquired decides whether the job may run"]
#[non_exhaustive]
pub enum Acquisition {
    /// The caller owns the lease for its whole duration from the moment the grant was made.
    Acquired(FencingToken),
    /// The lease is another owner's, resting, or contended. Nothing was written.
    Held(Holder),
}

impl Acquisition {
    /// The token, when the lease was acquired.
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Acquired(token) => Some(*token),
            Self::Held(_) => None,
        }
    }

    /// Whether the lease was acquired.
    pub fn is_acquired(&self) -> bool {
        self.token().is_some()
    }
}

/// Who has a lease that could not be acquired, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner; none while the lease rests, or when the store could not see who won a race.
    pub owner: Option<OwnerId>,
    /// The time left on the database's clock, zero when the row is contended or the race was lost.
    pub remaining: Duration,
}

impl Holder {
    /// Describes the holder of a lease. Stores and scripted tests call this.
    pub fn new(owner: Option<OwnerId>, remaining: Duration) -> Self {
        Self { owner, remaining }
    }
}

/// The answer to [`renew`](crate::LeaseStore::renew).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease that was lost must stop its job"]
#[non_exhaustive]
pub enum Renewal {
    /// The expiry is now the database's clock plus the duration.
    #[non_exhaustive]
    Renewed {
        /// The token of the term, unchanged since its grant.
        token: FencingToken,
        /// Whether an operator has asked this holder to hand the lease over.
        hand_over: bool,
    },
    /// The row no longer names this owner. The caller MUST drop the job at once: another instance may run it already.
    Lost(LossReason),
}

impl Renewal {
    /// A renewal that was made. Stores and scripted tests call this.
    pub fn renewed(token: FencingToken, hand_over: bool) -> Self {
        Self::Renewed { token, hand_over }
    }

    /// The token of the term, when the lease was renewed.
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Renewed { token, .. } => Some(*token),
            Self::Lost(_) => None,
        }
    }

    /// Whether the lease was renewed.
    pub fn is_renewed(&self) -> bool {
        self.token().is_some()
    }

    /// Whether the lease was renewed, and its holder is asked to hand it over.
    pub fn is_to_hand_over(&self) -> bool {
        matches!(self, Self::Renewed { hand_over: true, .. })
    }
}

/// Why a row no longer names the owner that renews.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Another owner acquired the lease after it had expired or been freed.
    TakenOver(OwnerId),
    /// The row names no owner: it was released or forced out.
    ForcedOut,
    /// There is no row of this name.
    Deleted,
    /// The same owner id acquired the lease anew, so that this term is over. The token is the newer one. A store does not answer this: a
    /// renewal tells the row's token, and whoever renews compares it with the term's, as the executor does.
    Superseded(FencingToken),
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakenOver(owner) => write!(f, "taken over by {owner}"),
            Self::ForcedOut => f.write_str("released or forced out"),
            Self::Deleted => f.write_str("the row was deleted"),
            Self::Superseded(token) => write!(f, "superseded by a later acquisition with token {token}"),
        }
    }
}

/// One owner's uninterrupted tenure of one name, from a grant to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Term {
    /// The protected job.
    pub name: LeaseName,
    /// The instance that owns the lease.
    pub owner: OwnerId,
    /// The token of the grant.
    pub token: FencingToken,
}

impl Term {
    /// The term that began when `owner` was granted `name` with `token`.
    pub fn new(name: LeaseName, owner: OwnerId, token: FencingToken) -> Self {
        Self { name, owner, token }
    }
}
