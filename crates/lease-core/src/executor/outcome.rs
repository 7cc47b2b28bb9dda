//! What running a job, or acquiring a lease, came to.

use std::{error, fmt};

use crate::{Holder, StopReason, StoreError};

/// The answer of [`Job::try_run`](crate::Job::try_run).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the job may not have run"]
pub enum TryRun<T> {
    /// The job ran here, with this value.
    Ran(T),
    /// The job did not run, for its lease is held.
    HeldElsewhere(Holder),
}

/// Why a job did not run to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The executor was shut down.
    ShutDown,
    /// The store could not answer.
    Store(StoreError),
    /// The job, or the heartbeat, panicked with this message.
    Panicked(String),
    /// The job was told to stop, and dropped.
    Stopped(StopReason),
    /// The job had not ended when the shutdown gave it up; its lease lapses.
    DidNotStop,
    /// The lease is held elsewhere.
    HeldElsewhere(Holder),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShutDown => f.write_str("the executor was shut down"),
            Self::Store(_) => f.write_str("the lease store could not answer"),
            Self::Panicked(message) => write!(f, "the job panicked: {message}"),
            Self::Stopped(reason) => write!(f, "the job was stopped: {reason}"),
            Self::DidNotStop => f.write_str("the job did not stop within its grace time"),
            Self::HeldElsewhere(holder) => write_held(f, holder),
        }
    }
}

impl error::Error for RunError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// A job does not run where its lease was not acquired.
impl From<AcquireError> for RunError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::HeldElsewhere(holder) => Self::HeldElsewhere(holder),
            AcquireError::Store(error) => Self::Store(error),
            AcquireError::ShutDown => Self::ShutDown,
        }
    }
}

/// Why a lease was not acquired.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lease is held elsewhere, and the limit has passed.
    HeldElsewhere(Holder),
    /// The store could not answer.
    Store(StoreError),
    /// The executor was shut down.
    ShutDown,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldElsewhere(holder) => write_held(f, holder),
            Self::Store(_) => f.write_str("the lease store could not answer"),
            Self::ShutDown => f.write_str("the executor was shut down"),
        }
    }
}

impl error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

fn write_held(f: &mut fmt::Formatter<'_>, holder: &Holder) -> fmt::Result {
    match &holder.owner {
        Some(owner) => write!(f, "the lease is held by {owner} for another {:?}", holder.remaining),
        None => write!(f, "the lease is held for another {:?}", holder.remaining),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{ErrorKind, Operation};

    /// E6: whoever is told that the store could not answer can ask why; what is held elsewhere says by whom.
    #[test]
    fn an_outcome_names_its_cause() {
        let unavailable = || StoreError::new(Operation::Acquire, ErrorKind::Unavailable);
        let errors: [Box<dyn Error>; 2] =
            [Box::new(RunError::Store(unavailable())), Box::new(AcquireError::Store(unavailable()))];
        for error in errors {
            assert_eq!(error.to_string(), "the lease store could not answer");
            assert_eq!(error.source().unwrap().to_string(), unavailable().to_string());
        }
        let holder = Holder::new(crate::OwnerId::new("rival").ok(), std::time::Duration::from_secs(7));
        let held = AcquireError::HeldElsewhere(holder);
        assert_eq!(held.to_string(), "the lease is held by rival for another 7s");
        assert!(held.source().is_none());
        assert_eq!(RunError::from(held).to_string(), "the lease is held by rival for another 7s");
        assert!(matches!(RunError::from(AcquireError::ShutDown), RunError::ShutDown));
    }
}
