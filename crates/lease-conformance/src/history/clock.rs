//! The host's clock, which the histories of several processes share.

use std::time::Duration;

use lease_core::clock::LocalInstant;

/// Readings of one clock for all processes of this host, in nanoseconds.
///
/// It is calibrated once: a conversion of each reading by itself could place an answer before the instant at which it came, when the
/// process is held up in the middle of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostClock {
    origin: LocalInstant,
    at_origin: Duration,
}

impl HostClock {
    #[cfg(unix)]
    pub(super) fn new() -> Self {
        let origin = LocalInstant::now();
        // A conversion is never later than the instant, and late by as long as it was held up: the latest of many is the best.
        let at_origin = (0..1000).map(|_| origin.to_boot_time()).max().unwrap_or_default();
        Self { origin, at_origin }
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Self {
        Self { origin: LocalInstant::now(), at_origin: Duration::ZERO }
    }

    pub(super) fn now(self) -> u64 {
        let now = self.at_origin + LocalInstant::now().saturating_duration_since(self.origin);
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// S1: two processes' readings are in the order in which they were made, to within a few microseconds.
    #[test]
    fn calibrations_agree() {
        let clocks = [HostClock::new(), HostClock::new(), HostClock::new()];
        let best = |one: HostClock, other: HostClock| {
            (0..1000).map(|_| other.now().saturating_sub(one.now())).min().unwrap_or_default()
        };
        for (one, other) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
            let ahead = best(clocks[one], clocks[other]);
            assert!(ahead < 50_000, "{ahead} ns apart");
        }
    }
}
