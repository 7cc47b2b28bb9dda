//! When a process group is told to end and when it is made to: the stop chain as a pure function of the clock.

use std::time::Duration;

use lease_core::clock::LocalInstant;

/// How long to wait before a group that must have ended is killed once more.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// What is due to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before this instant.
    Nothing(LocalInstant),
    /// SIGTERM, once.
    Terminate,
    /// SIGKILL, and again until nothing is left.
    Kill,
}

/// The stop chain of one group: SIGTERM at the stop point or when asked to, SIGKILL after the grace, and never later than at the
/// deadline.
#[derive(Clone, Debug)]
pub(crate) struct StopChain {
    deadline: LocalInstant,
    grace: Duration,
    stage: Stage,
    lapsed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Running,
    /// SIGTERM is due or was sent; SIGKILL follows at this instant.
    Stopping {
        kill_at: LocalInstant,
        terminated: bool,
    },
    Killing {
        again_at: LocalInstant,
    },
}

impl StopChain {
    /// The chain of a group that runs.
    pub(crate) fn new(deadline: LocalInstant, grace: Duration) -> Self {
        Self { deadline, grace, stage: Stage::Running, lapsed: false }
    }

    /// The chain of a group whose watchdog has died: it is ended, with its grace. Whether the watchdog had begun with that, because the
    /// lease was about to end, only the clock can tell.
    pub(crate) fn without_watchdog(deadline: LocalInstant, grace: Duration, now: LocalInstant) -> Self {
        let mut chain = Self::new(deadline, grace);
        if now >= chain.stop_point() {
            chain.lapse(now);
        } else {
            chain.stop(now);
        }
        chain
    }

    /// Takes a new deadline. A chain that has begun to end the group goes on.
    pub(crate) fn set_deadline(&mut self, deadline: LocalInstant) {
        self.deadline = deadline;
    }

    /// Begins to end the group, with its grace. Asking twice does not lengthen the grace.
    pub(crate) fn stop(&mut self, now: LocalInstant) {
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Stopping { kill_at: now + self.grace, terminated: false };
        }
    }

    /// The lease is about to end: begins to end the group, with its grace.
    pub(crate) fn lapse(&mut self, now: LocalInstant) {
        self.lapsed = true;
        self.stop(now);
    }

    /// The lease is lost: there is no grace, for another may run already.
    pub(crate) fn kill(&mut self, now: LocalInstant) {
        self.lapsed = true;
        self.begin_to_kill(now);
    }

    /// Whether the lease ended, or was about to, before the group had.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.lapsed
    }

    /// Whether the group has been told to end.
    pub(crate) fn is_stopping(&self) -> bool {
        !matches!(self.stage, Stage::Running)
    }

    /// The instant at which a group that runs is told to end.
    pub(crate) fn stop_point(&self) -> LocalInstant {
        self.deadline.checked_sub(self.grace).unwrap_or(self.deadline)
    }

    /// What is due at `now`. The caller does it, and asks again.
    pub(crate) fn due(&mut self, now: LocalInstant) -> Due {
        if matches!(self.stage, Stage::Running) && now >= self.stop_point() {
            self.lapse(now);
        }
        if let Stage::Stopping { kill_at, .. } = self.stage {
            self.lapsed |= now >= self.deadline;
            if now >= kill_at.min(self.deadline) {
                self.begin_to_kill(now);
            }
        }
        match &mut self.stage {
            Stage::Running => Due::Nothing(self.stop_point()),
            Stage::Stopping { terminated: terminated @ false, .. } => {
                *terminated = true;
                Due::Terminate
            }
            Stage::Stopping { kill_at, .. } => Due::Nothing((*kill_at).min(self.deadline)),
            Stage::Killing { again_at } if now >= *again_at => {
                *again_at = now + KILL_AGAIN;
                Due::Kill
            }
            Stage::Killing { again_at } => Due::Nothing(*again_at),
        }
    }

    fn begin_to_kill(&mut self, now: LocalInstant) {
        if !matches!(self.stage, Stage::Killing { .. }) {
            self.stage = Stage::Killing { again_at: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(500);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn chain() -> (LocalInstant, StopChain) {
        let start = LocalInstant::now();
        (start, StopChain::new(start + seconds(3), GRACE))
    }

    /// E3: SIGTERM at the stop point, SIGKILL at the deadline, neither before.
    #[test]
    fn a_lease_that_is_not_renewed_ends_its_group() {
        let (start, mut chain) = chain();
        let stop_point = start + Duration::from_millis(2500);
        assert_eq!(chain.due(start), Due::Nothing(stop_point));
        assert_eq!(chain.due(stop_point), Due::Terminate);
        assert_eq!(chain.due(stop_point), Due::Nothing(start + seconds(3)));
        assert!(chain.has_lapsed());
        assert_eq!(chain.due(start + seconds(3)), Due::Kill);
        assert_eq!(chain.due(start + seconds(3)), Due::Nothing(start + seconds(3) + KILL_AGAIN));
        assert_eq!(chain.due(start + seconds(3) + KILL_AGAIN), Due::Kill);
    }

    /// E3: a watcher that slept past the deadline kills without a grace.
    #[test]
    fn a_deadline_that_was_slept_through_leaves_no_grace() {
        let (start, mut chain) = chain();
        assert_eq!(chain.due(start + seconds(9)), Due::Kill);
        assert!(chain.has_lapsed());
    }

    /// E3: a watchdog that killed the group at the deadline, and died before it could say so, is believed.
    #[test]
    fn a_watchdog_that_dies_at_the_end_of_a_lease_leaves_a_lapse() {
        let (start, _) = chain();
        let after = |time| StopChain::without_watchdog(start + seconds(3), GRACE, start + time);
        for (time, lapsed) in [(seconds(2), false), (Duration::from_millis(2500), true), (seconds(3), true)] {
            assert_eq!(after(time).has_lapsed(), lapsed, "{time:?}");
        }
        assert_eq!(after(seconds(2)).due(start + seconds(2)), Due::Terminate);
        assert_eq!(after(seconds(3)).due(start + seconds(3)), Due::Kill);
    }

    #[test]
    fn renewals_move_the_stop_point() {
        let (start, mut chain) = chain();
        chain.set_deadline(start + seconds(4));
        assert_eq!(chain.due(start + seconds(3)), Due::Nothing(start + Duration::from_millis(3500)));
        assert!(!chain.has_lapsed());
        assert!(!chain.is_stopping());
    }

    #[test]
    fn a_request_to_stop_gives_the_grace_once() {
        let (start, mut chain) = chain();
        chain.stop(start);
        assert_eq!(chain.due(start), Due::Terminate);
        chain.stop(start + Duration::from_millis(400));
        chain.set_deadline(start + seconds(60));
        assert_eq!(chain.due(start + Duration::from_millis(400)), Due::Nothing(start + GRACE));
        assert_eq!(chain.due(start + GRACE), Due::Kill);
        assert!(!chain.has_lapsed());
    }

    #[test]
    fn a_request_to_stop_never_outlasts_the_deadline() {
        let (start, mut chain) = chain();
        let late = start + Duration::from_millis(2400);
        chain.stop(late);
        chain.set_deadline(start + Duration::from_millis(2600));
        assert_eq!(chain.due(late), Due::Terminate);
        assert_eq!(chain.due(late), Due::Nothing(start + Duration::from_millis(2600)));
        assert_eq!(chain.due(start + Duration::from_millis(2600)), Due::Kill);
        assert!(chain.has_lapsed());
    }

    /// E3: after a loss there is no grace.
    #[test]
    fn a_loss_kills_at_once() {
        let (start, mut chain) = chain();
        chain.stop(start);
        assert_eq!(chain.due(start), Due::Terminate);
        chain.kill(start);
        assert_eq!(chain.due(start), Due::Kill);
        assert!(chain.has_lapsed());
    }
}
