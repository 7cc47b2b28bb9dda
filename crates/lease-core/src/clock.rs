//! The local clock that deadlines are counted on: monotonic, and counting the time during which the machine was suspended.
//!
//! `std::time::Instant` stands still while a Linux or macOS machine sleeps, and a lease does not. [`LocalInstant`] is tokio's `Instant`
//! (so that a paused test clock is obeyed) plus the time spent suspended: on Linux `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC`, see
//! [clock_gettime(2)](https://man7.org/linux/man-pages/man2/clock_gettime.2.html).
//!
//! A `LocalInstant` is never sent to a database, and no database's time ever becomes one.
#![expect(clippy::disallowed_methods, reason = "this is the one file that reads the clock")]

use std::{ops::Add, time::Duration};

use tokio::time::Instant;

/// An instant on this machine's suspend-aware monotonic clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::clock::LocalInstant;
///
/// let before = LocalInstant::now();
/// let deadline = before + Duration::from_secs(30);
/// assert!(deadline.saturating_duration_since(LocalInstant::now()) <= Duration::from_secs(30));
/// assert_eq!(before.saturating_duration_since(deadline), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalInstant(Instant);

impl LocalInstant {
    /// Reads the clock.
    pub fn now() -> Self {
        Self(saturating_add(Instant::now(), suspended::total()))
    }

    /// The time from `earlier` to this instant, zero when it is not earlier.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The time from now to this instant, zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.saturating_duration_since(Self::now())
    }

    /// Whether this instant is not in the future.
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }

    /// This instant moved back, or none when the clock cannot represent it.
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }

    /// This instant on the system's own suspend-counting clock, which all processes of a host share.
    ///
    /// The answer is never later than the instant: the system's clock is read first.
    #[cfg(unix)]
    pub fn to_boot_time(self) -> Duration {
        let boot = suspended::boot_time();
        let now = Self::now();
        if self >= now {
            boot.saturating_add(self.saturating_duration_since(now))
        } else {
            boot.saturating_sub(now.saturating_duration_since(self))
        }
    }

    /// The instant at which the system's suspend-counting clock shows `boot`, as [`to_boot_time`](Self::to_boot_time) gave it.
    ///
    /// The answer is never later than the instant that was converted.
    #[cfg(unix)]
    pub fn from_boot_time(boot: Duration) -> Self {
        let now = Self::now();
        let boot_now = suspended::boot_time();
        if boot >= boot_now {
            now + boot.saturating_sub(boot_now)
        } else {
            now.checked_sub(boot_now.saturating_sub(boot)).unwrap_or(now)
        }
    }
}

/// Saturates about a century ahead instead of overflowing.
impl Add<Duration> for LocalInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(saturating_add(self.0, duration))
    }
}

/// Waits until the clock shows `deadline`. The clock is read again at least every `step`, for no timer is trusted over it (E2).
///
/// # Cancel safety
///
/// Dropping the future has no effect.
pub async fn sleep_until(deadline: LocalInstant, step: Duration) {
    loop {
        let left = deadline.remaining();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(step)).await;
    }
}

/// How long this machine has been suspended since the clock was first read.
pub(crate) fn suspended_time() -> Duration {
    suspended::total()
}

const CENTURY: Duration = Duration::from_hours(24 * 36_525);

fn saturating_add(instant: Instant, duration: Duration) -> Instant {
    instant.checked_add(duration.min(CENTURY)).unwrap_or(instant)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
mod suspended {
    //! Time spent suspended, as the difference of a clock that counts it and one that does not.

    use std::{
        sync::{Mutex, OnceLock, PoisonError},
        time::Duration,
    };

    use rustix::time::{ClockId, clock_gettime};

    /// Differences below this are the cost of reading two clocks, not a suspension.
    const TOLERANCE: Duration = Duration::from_millis(1);

    /// The greatest lower bound of the two clocks' difference that was seen at the first reading.
    static BASE: OnceLock<Duration> = OnceLock::new();
    static KNOWN: Mutex<Duration> = Mutex::new(Duration::ZERO);

    /// The time spent suspended since the first reading.
    pub(super) fn total() -> Duration {
        let base = *BASE.get_or_init(|| (0..8).map(|_| lower_bound()).max().unwrap_or_default());
        let measured = lower_bound().saturating_sub(base);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if measured > *known + TOLERANCE {
            *known = measured;
        }
        *known + simulated()
    }

    /// At most the true difference: the clock that counts suspensions is read first, so a pause between the two only lowers it.
    fn lower_bound() -> Duration {
        let counting = boot_time();
        counting.saturating_sub(running_time())
    }

    /// The system-wide clock that counts suspended time.
    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn boot_time() -> Duration {
        read(ClockId::Boottime)
    }

    /// The system-wide clock that counts suspended time: on macOS that is `CLOCK_MONOTONIC`.
    #[cfg(target_vendor = "apple")]
    pub(super) fn boot_time() -> Duration {
        read(ClockId::Monotonic)
    }

    #[cfg(not(target_vendor = "apple"))]
    fn running_time() -> Duration {
        read(ClockId::Monotonic)
    }

    #[cfg(target_vendor = "apple")]
    fn running_time() -> Duration {
        static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
        ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }

    fn read(clock: ClockId) -> Duration {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }

    #[cfg(not(test))]
    fn simulated() -> Duration {
        Duration::ZERO
    }

    #[cfg(test)]
    pub(crate) use simulation::{simulate, simulated};

    #[cfg(test)]
    mod simulation {
        use std::{cell::Cell, time::Duration};

        thread_local! {
            static SIMULATED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        }

        /// Makes the clock of this thread behave as if the machine had now slept for `duration`.
        pub(crate) fn simulate(duration: Duration) {
            SIMULATED.set(SIMULATED.get() + duration);
        }

        pub(crate) fn simulated() -> Duration {
            SIMULATED.get()
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod suspended {
    //! Elsewhere the monotonic clock is taken as it is: on Windows it counts suspended time.

    use std::time::Duration;

    pub(super) fn total() -> Duration {
        Duration::ZERO
    }

    #[cfg(unix)]
    pub(super) fn boot_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(crate) use suspended::simulate;

#[cfg(test)]
mod tests {
    use super::*;

    /// E2: the paused clock of a test is obeyed to the nanosecond.
    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_moves_only_when_told() {
        let before = LocalInstant::now();
        for _ in 0..1000 {
            assert_eq!(LocalInstant::now(), before);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(LocalInstant::now().saturating_duration_since(before), Duration::from_secs(5));
    }

    /// E2, CT-16: time spent suspended counts, although no timer saw it.
    #[tokio::test(start_paused = true)]
    async fn suspended_time_is_counted() {
        let before = LocalInstant::now();
        let deadline = before + Duration::from_secs(30);
        simulate(Duration::from_secs(60));
        assert!(deadline.has_passed());
        assert_eq!(LocalInstant::now().saturating_duration_since(before), Duration::from_secs(60));
    }

    /// E2: a sleeper reads the clock again and does not oversleep a suspension by more than one step.
    #[tokio::test(start_paused = true)]
    async fn a_sleeper_notices_a_suspension_within_a_step() {
        let step = Duration::from_millis(250);
        let deadline = LocalInstant::now() + Duration::from_secs(30);
        let sleeper = tokio::spawn(sleep_until(deadline, step));
        tokio::task::yield_now().await;
        simulate(Duration::from_secs(60));
        let resumed = LocalInstant::now();
        sleeper.await.unwrap();
        assert!(LocalInstant::now().saturating_duration_since(resumed) <= step);
    }

    #[test]
    fn far_instants_saturate() {
        let now = LocalInstant::now();
        assert!(now + Duration::MAX > now);
        assert!(now.checked_sub(Duration::MAX).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn boot_time_goes_to_and_fro_without_getting_later() {
        let instant = LocalInstant::now() + Duration::from_secs(10);
        let back = LocalInstant::from_boot_time(instant.to_boot_time());
        assert!(back <= instant);
        assert!(instant.saturating_duration_since(back) < Duration::from_secs(5));
    }
}
