//! When things happen: the deadline, the stop point, renewals, retries and a standby's looks. Pure arithmetic.

use std::time::Duration;

use crate::{LeaseDuration, clock::LocalInstant};

/// The longest time between two readings of the clock while a job runs (E2).
const MAX_CLOCK_STEP: Duration = Duration::from_millis(250);

/// The shortest pause between two attempts.
const FIRST_FLOOR: Duration = Duration::from_millis(10);

/// A standby looks at most this long after the holder's expiry, so that many standbys do not look in the same instant.
const EXPIRY_SPREAD: Duration = Duration::from_millis(8);

/// The checked times of one executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) duration: LeaseDuration,
    pub(crate) renew_interval: Duration,
    pub(crate) grace: Duration,
    pub(crate) margin: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) report_wait_after: Duration,
}

impl Schedule {
    /// The instant at which a job must have stopped, when the call that granted or renewed its lease was sent after `anchor` (E2).
    pub(crate) fn deadline(&self, anchor: LocalInstant) -> LocalInstant {
        anchor + self.duration.as_duration().saturating_sub(self.margin)
    }

    /// The instant at which a job is told to stop (E3).
    pub(crate) fn stop_point(&self, deadline: LocalInstant) -> LocalInstant {
        deadline.checked_sub(self.grace).unwrap_or(deadline)
    }

    /// The instant at which the lease has lapsed at the latest, when the deadline was counted from its last renewal.
    pub(crate) fn lapse(&self, deadline: LocalInstant) -> LocalInstant {
        deadline + self.margin
    }

    /// The longest time between two readings of the clock: no timer is trusted over it (E2).
    pub(crate) fn clock_step(&self) -> Duration {
        (self.grace / 4).clamp(Duration::from_millis(1), MAX_CLOCK_STEP)
    }

    /// The instant of the next renewal after one that was sent at `anchor`: up to a tenth early.
    pub(crate) fn next_renewal(&self, anchor: LocalInstant) -> LocalInstant {
        anchor + early(self.renew_interval, 10)
    }

    /// The pause before a failed renewal is tried again, after `failures` failures in a row. Renewals that failed together have one
    /// `haste`, from 0 to 1, so that they are tried again together.
    pub(crate) fn retry_pause(&self, failures: u32, haste: f64) -> Duration {
        let longest = self.renew_interval / 2;
        sooner(doubled(FIRST_FLOOR, failures.saturating_sub(1)).min(longest), 2, haste)
    }

    /// The time that one renewal may take when its answer is of no use after `renew_by`: half of what is left, so that a renewal whose
    /// answer is lost is tried again in time.
    pub(crate) fn renewal_limit(&self, renew_by: Option<LocalInstant>) -> Duration {
        let half = renew_by.map_or(Duration::MAX, |renew_by| renew_by.remaining() / 2);
        self.operation_timeout.min(half).max(Duration::from_millis(1))
    }

    /// The pause before a standby looks again, the floor excepted: until the holder's expiry or for the poll interval.
    pub(crate) fn standby_pause(&self, remaining: Duration) -> Duration {
        if remaining <= self.poll_interval {
            remaining + EXPIRY_SPREAD.mul_f64(fastrand::f64())
        } else {
            early(self.poll_interval, 10)
        }
    }
}

/// The least pause between two attempts: it doubles from 10 ms to a limit while attempts come faster than it allows, and starts
/// again once one did not (E5).
#[derive(Debug)]
pub(crate) struct Floor {
    current: Duration,
    limit: Duration,
}

impl Floor {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { current: FIRST_FLOOR.min(limit), limit }
    }

    /// The pause until the next attempt, when `natural` would be wanted.
    pub(crate) fn lift(&mut self, natural: Duration) -> Duration {
        if natural >= self.current {
            self.reset();
            return natural;
        }
        self.next()
    }

    /// The least pause, which is doubled for the next time.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.current;
        self.current = pause.saturating_mul(2).min(self.limit);
        pause
    }

    /// The least pause at this moment.
    pub(crate) fn current(&self) -> Duration {
        self.current
    }

    pub(crate) fn reset(&mut self) {
        self.current = FIRST_FLOOR.min(self.limit);
    }
}

/// `duration`, or up to its `part`th part less.
fn early(duration: Duration, part: u32) -> Duration {
    sooner(duration, part, fastrand::f64())
}

/// `duration`, less `haste` times its `part`th part.
fn sooner(duration: Duration, part: u32, haste: f64) -> Duration {
    duration.saturating_sub((duration / part).mul_f64(haste))
}

fn doubled(duration: Duration, times: u32) -> Duration {
    duration.saturating_mul(2_u32.saturating_pow(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule() -> Schedule {
        Schedule {
            duration: LeaseDuration::new(30 * SECOND).unwrap(),
            renew_interval: 7 * SECOND,
            grace: 5 * SECOND,
            margin: SECOND,
            poll_interval: 2 * SECOND,
            operation_timeout: 4 * SECOND,
            report_wait_after: 300 * SECOND,
        }
    }

    /// E2, E3: the margin comes off the duration, the grace off the deadline, and the lapse is one margin after it.
    #[tokio::test(start_paused = true)]
    async fn the_deadline_and_the_stop_point_are_counted_from_the_anchor() {
        let anchor = LocalInstant::now();
        let deadline = schedule().deadline(anchor);
        assert_eq!(deadline, anchor + 29 * SECOND);
        assert_eq!(schedule().stop_point(deadline), anchor + 24 * SECOND);
        assert_eq!(schedule().lapse(deadline), anchor + 30 * SECOND);
    }

    /// E2: the clock is read again at least every min(grace / 4, 250 ms).
    #[test]
    fn the_clock_step_is_bounded() {
        assert_eq!(schedule().clock_step(), Duration::from_millis(250));
        let hasty = Schedule { grace: Duration::from_millis(100), ..schedule() };
        assert_eq!(hasty.clock_step(), Duration::from_millis(25));
    }

    /// E4: a renewal is up to a tenth early and never late; retries double up to half an interval; no renewal takes more than half of what is left.
    #[tokio::test(start_paused = true)]
    async fn renewals_come_early_and_retries_slow_down() {
        let anchor = LocalInstant::now();
        for _ in 0..200 {
            let next = schedule().next_renewal(anchor);
            assert!(next <= anchor + 7 * SECOND && next >= anchor + Duration::from_millis(6300));
        }
        let pauses = [(1, 0.0), (1, 1.0), (2, 0.0), (1000, 0.0), (1000, 0.5), (1000, 1.0)];
        let pauses = pauses.map(|(failures, haste)| schedule().retry_pause(failures, haste).as_millis());
        assert_eq!(pauses, [10, 5, 20, 3500, 2625, 1750]);
        assert_eq!(schedule().renewal_limit(Some(anchor + 3 * SECOND)), 1500 * SECOND / 1000);
        assert_eq!(schedule().renewal_limit(Some(anchor + 9 * SECOND)), 4 * SECOND);
        assert_eq!(schedule().renewal_limit(Some(anchor)), Duration::from_millis(1));
        assert_eq!(schedule().renewal_limit(None), 4 * SECOND);
    }

    /// E5: a standby looks at the holder's expiry when that comes within its poll interval, and never before.
    #[test]
    fn a_standby_looks_at_the_expiry_or_at_its_interval() {
        for _ in 0..200 {
            for remaining in [Duration::ZERO, SECOND, 2 * SECOND] {
                let pause = schedule().standby_pause(remaining);
                assert!(pause >= remaining && pause <= remaining + EXPIRY_SPREAD);
            }
            let pause = schedule().standby_pause(20 * SECOND);
            assert!(pause <= 2 * SECOND && pause >= Duration::from_millis(1800));
        }
    }

    /// E5: the floor doubles from 10 ms to its limit while it is needed, and starts again once it is not.
    #[test]
    fn the_floor_doubles_while_it_is_needed() {
        let mut floor = Floor::new(Duration::from_millis(50));
        let pauses: Vec<_> = (0..5).map(|_| floor.lift(Duration::ZERO).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 50, 50]);
        assert_eq!(floor.current().as_millis(), 50);
        assert_eq!(floor.lift(SECOND), SECOND);
        assert_eq!((floor.current().as_millis(), floor.lift(Duration::ZERO).as_millis()), (10, 10));
        assert_eq!(Floor::new(Duration::from_millis(3)).current().as_millis(), 3);
        assert_eq!(floor.lift(Duration::from_millis(20)).as_millis(), 20, "a pause as long as the floor needs none");
        assert_eq!(floor.current().as_millis(), 10);
    }
}
