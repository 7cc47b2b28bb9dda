//! Random histories of many tasks and processes, and what must be true of them.
//!
//! [`record`] lets tasks acquire, renew, release and pause at random with short leases, and drop some of their calls; each call is a
//! [`Record`] with the instants at which it was made and answered. [`check`] then shows that no two owners had a lease at once (S1)
//! and that tokens only rose (S6). [`Plan`] does both with several processes, whose histories are merged as JSON lines.
//!
//! What is sound to conclude: an owner *certainly* has the lease from the instant at which the answer to an acquisition or a renewal
//! came until the duration has passed since that call was *made*, or until it makes a call that may end or cut the lease: a release,
//! answered or not. Two such intervals of different owners must not overlap. All instants are of the host's suspend-aware clock; the
//! database's clock may run a little faster than it, which the *tolerance* of [`check`] allows for by ending each interval as much
//! earlier. A database whose clock is stepped meanwhile cannot be checked this way.

mod check;
mod clock;
mod load;
#[cfg(unix)]
mod plan;
mod verdict;

pub use check::check;
pub use load::{Load, record};
#[cfg(unix)]
pub use plan::Plan;
pub use verdict::{Claim, Summary, Violation};

use serde::{Deserialize, Serialize};

/// One call and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The process that made the call.
    pub process: u32,
    /// The task within the process.
    pub task: u32,
    /// The owner that the call was made for. No two tasks share one, and its calls follow one another.
    pub owner: String,
    /// The lease's name.
    pub name: String,
    /// What was called.
    pub verb: Verb,
    /// When it was called, in nanoseconds of the host's clock.
    pub called: u64,
    /// When it was answered or dropped, in nanoseconds of the host's clock.
    pub returned: u64,
    /// The duration that was asked for in milliseconds; zero for a release.
    pub duration_millis: u64,
    /// What was answered.
    pub outcome: Outcome,
    /// The token that was answered.
    pub token: Option<i64>,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// `try_acquire`
    Acquire,
    /// `renew`
    Renew,
    /// `release`
    Release,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The lease was granted, renewed or released.
    Done,
    /// The lease was held, lost, or not the caller's to release.
    Refused,
    /// The call was dropped before it was answered.
    Dropped,
    /// The store answered an error.
    Failed,
}
