//! What this executor is to each name: a channel for whoever wants to know, and one event for each change (E6).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{FencingToken, Holder, LeaseName, OwnerId, StopReason, telemetry};

/// What an executor is to a name, from [`Job::status`](crate::Job::status).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// What it is now.
    pub role: Role,
    /// Why its last term ended; none before the first end.
    pub last_stop: Option<StopReason>,
}

/// What an executor is to a name at one time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Role {
    /// Nobody in it contends for the name.
    #[default]
    Idle,
    /// It waits for the lease.
    #[non_exhaustive]
    Standby {
        /// Who holds it, as the store said last; the time left was counted then.
        holder: Holder,
    },
    /// It holds the lease, or runs without one while disabled.
    #[non_exhaustive]
    Holding {
        /// The id under which it owns the lease.
        owner: OwnerId,
        /// The token of the term; none while disabled.
        token: Option<FencingToken>,
    },
    /// Its job has ended or was told to stop.
    Stopping,
}

/// The statuses of all names.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<HashMap<LeaseName, watch::Sender<Status>>>);

impl Board {
    pub(crate) fn subscribe(&self, name: &LeaseName) -> watch::Receiver<Status> {
        let mut statuses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.entry(name.clone()).or_default().subscribe()
    }

    /// Makes a new role known. A standby that only hears of the same holder again has not changed.
    pub(crate) fn enter(&self, name: &LeaseName, role: Role) {
        self.publish(name, |status| status.role = role);
    }

    /// Makes the end of a term known.
    pub(crate) fn stop(&self, name: &LeaseName, reason: StopReason) {
        self.publish(name, |status| *status = Status { role: Role::Stopping, last_stop: Some(reason) });
    }

    fn publish(&self, name: &LeaseName, change: impl FnOnce(&mut Status)) {
        let mut statuses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = statuses.entry(name.clone()).or_default();
        let previous = sender.borrow().role.clone();
        sender.send_if_modified(|status| {
            change(status);
            let changes = !previous.is_same_standby(&status.role);
            if changes {
                telemetry::changed(name, &previous, &status.role);
            }
            changes
        });
        // Names that came to rest and that nobody listens to leave nothing behind.
        let rests = matches!(sender.borrow().role, Role::Idle | Role::Stopping);
        if rests && sender.is_closed() {
            statuses.remove(name);
        }
    }
}

impl Role {
    fn is_same_standby(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Standby { holder: old }, Self::Standby { holder: new }) => old.owner == new.owner,
            _ => false,
        }
    }

    /// The role as a word for logs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Standby { .. } => "standby",
            Self::Holding { .. } => "holding",
            Self::Stopping => "stopping",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn standby(owner: &str, seconds: u64) -> Role {
        Role::Standby { holder: Holder::new(OwnerId::new(owner).ok(), Duration::from_secs(seconds)) }
    }

    /// E6, OB-04: a standby that hears of the same holder again is no change; a name that nobody listens to leaves nothing behind.
    #[test]
    fn only_changes_are_published() {
        let (board, name) = (Board::default(), LeaseName::new("job").unwrap());
        let mut statuses = board.subscribe(&name);
        board.enter(&name, standby("a", 9));
        assert!(statuses.has_changed().unwrap());
        statuses.mark_unchanged();
        board.enter(&name, standby("a", 7));
        assert!(!statuses.has_changed().unwrap());
        board.enter(&name, standby("b", 9));
        assert!(statuses.has_changed().unwrap());
        board.stop(&name, StopReason::Suspended);
        board.enter(&name, standby("b", 9));
        assert!(matches!(statuses.borrow().last_stop, Some(StopReason::Suspended)), "the reason outlasts the role");
        drop(statuses);
        board.stop(&name, StopReason::Ended);
        assert!(board.0.lock().unwrap().is_empty());
    }
}
