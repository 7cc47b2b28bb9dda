//! The cases, one module for each theme.
//!
//! Each begins on an empty table of its own and panics when the store breaks the rule that its documentation names.

pub mod acquire;
pub mod bounded;
pub mod cancel;
pub mod clock;
pub mod durations;
pub mod force_release;
pub mod healing;
pub mod identity;
pub mod race;
pub mod release;
pub mod release_after;
pub mod renew;
pub mod renew_many;
pub mod term;
pub mod tokens;
pub mod truth;
pub mod watch;
