//! Why a job was told to stop.

use std::{fmt, sync::Arc};

use crate::{LossReason, StoreError};

/// Why a job was told to stop (E6).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// The store answered that the row no longer names this owner.
    Lost(LossReason),
    /// No renewal landed before the stop point.
    #[non_exhaustive]
    DeadlinePassed {
        /// The error of the last renewal, if one failed.
        last_error: Option<Arc<StoreError>>,
    },
    /// The machine was suspended past the stop point.
    Suspended,
    /// An operator asked this holder to hand the lease over.
    HandedOver,
    /// This instance was made not eligible.
    NotEligible,
    /// The executor was shut down.
    ShutDown,
    /// The future that ran the job was dropped.
    Abandoned,
    /// The task that renewed the lease panicked, or went down with its runtime; the message says how.
    HeartbeatFailed(String),
    /// The job ended by itself, and its lease was given up.
    Ended,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => write!(f, "lease lost: {reason}"),
            Self::DeadlinePassed { last_error: None } => f.write_str("no renewal landed before the stop point"),
            Self::DeadlinePassed { last_error: Some(error) } => {
                write!(f, "no renewal landed before the stop point; the last one failed: {error}")
            }
            Self::Suspended => f.write_str("the machine was suspended past the stop point"),
            Self::HandedOver => f.write_str("an operator asked to hand the lease over"),
            Self::NotEligible => f.write_str("this instance was made not eligible"),
            Self::ShutDown => f.write_str("the executor was shut down"),
            Self::Abandoned => f.write_str("the future that ran the job was dropped"),
            Self::HeartbeatFailed(message) => write!(f, "the heartbeat failed: {message}"),
            Self::Ended => f.write_str("the job ended"),
        }
    }
}

impl StopReason {
    /// Whether the executor gives the lease up of its own accord, so that it is renewed until the job has ended (E12).
    pub(crate) fn is_wish(&self) -> bool {
        matches!(self, Self::HandedOver | Self::NotEligible | Self::ShutDown | Self::Abandoned)
    }

    /// Whether the lease was lost against the executor's will.
    pub(crate) fn is_loss(&self) -> bool {
        !self.is_wish() && !matches!(self, Self::Ended)
    }

    /// The reason as a word for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Lost(LossReason::TakenOver(_)) => "taken_over",
            Self::Lost(LossReason::ForcedOut) => "forced_out",
            Self::Lost(LossReason::Deleted) => "deleted",
            Self::Lost(LossReason::Superseded(_)) => "superseded",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Suspended => "suspended",
            Self::HandedOver => "handed_over",
            Self::NotEligible => "not_eligible",
            Self::ShutDown => "shut_down",
            Self::Abandoned => "abandoned",
            Self::HeartbeatFailed(_) => "heartbeat_failed",
            Self::Ended => "ended",
        }
    }

    /// Whether this executor must stand back from the name afterwards (E12).
    pub(crate) fn stands_back(&self) -> bool {
        matches!(self, Self::HandedOver | Self::NotEligible)
    }
}
