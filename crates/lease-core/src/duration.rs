//! How long a grant or a renewal lasts.

use std::{error, fmt, time::Duration};

/// How long a grant or a renewal lasts from the moment it is made: whole milliseconds, from 1 ms to 365 days (S10).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::LeaseDuration;
///
/// let duration = LeaseDuration::new(Duration::from_secs(30))?;
/// assert_eq!(duration.as_millis(), 30_000);
/// assert_eq!(LeaseDuration::new(Duration::from_micros(1))?.as_millis(), 1); // rounded up
/// assert!(LeaseDuration::new(Duration::ZERO).is_err());
/// # Ok::<(), lease_core::DurationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseDuration {
    millis: i64,
}

impl LeaseDuration {
    /// The shortest duration, one millisecond.
    pub const MIN: Self = Self { millis: 1 };

    /// The longest duration, 365 days.
    pub const MAX: Self = Self { millis: 365 * 24 * 60 * 60 * 1000 };

    /// Takes a duration, rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`DurationError`] when the duration is zero or longer than 365 days.
    pub fn new(duration: Duration) -> Result<Self, DurationError> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        match i64::try_from(millis) {
            Ok(millis) if (Self::MIN.millis..=Self::MAX.millis).contains(&millis) => Ok(Self { millis }),
            _ => Err(DurationError { duration }),
        }
    }

    /// The duration in milliseconds.
    pub fn as_millis(self) -> i64 {
        self.millis
    }

    /// The duration in microseconds, the unit of the integer columns.
    pub fn as_micros(self) -> i64 {
        self.millis * 1000
    }

    /// The duration.
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.millis.unsigned_abs())
    }
}

impl TryFrom<Duration> for LeaseDuration {
    type Error = DurationError;

    fn try_from(duration: Duration) -> Result<Self, DurationError> {
        Self::new(duration)
    }
}

impl From<LeaseDuration> for Duration {
    fn from(duration: LeaseDuration) -> Self {
        duration.as_duration()
    }
}

impl fmt::Display for LeaseDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_duration(), f)
    }
}

/// A duration that is zero or longer than 365 days (S10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationError {
    duration: Duration,
}

impl DurationError {
    /// The refused duration.
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease duration {:?} is out of range: it must be from 1 ms to 365 days", self.duration)
    }
}

impl error::Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// S10, CF-03, OV-02
    #[test]
    fn the_edges_are_exact() {
        let day = Duration::from_hours(24);
        assert!(LeaseDuration::new(Duration::ZERO).is_err());
        assert_eq!(LeaseDuration::new(Duration::from_nanos(1)), Ok(LeaseDuration::MIN));
        assert_eq!(LeaseDuration::new(365 * day), Ok(LeaseDuration::MAX));
        for duration in [365 * day + Duration::from_nanos(1), 400 * day, Duration::MAX, Duration::from_micros(u64::MAX)]
        {
            assert_eq!(LeaseDuration::new(duration).unwrap_err().duration(), duration);
        }
    }

    /// S10
    #[test]
    fn parts_of_a_millisecond_are_rounded_up() {
        assert_eq!(LeaseDuration::new(Duration::from_micros(1001)).unwrap().as_millis(), 2);
        assert_eq!(LeaseDuration::new(Duration::from_millis(2)).unwrap().as_millis(), 2);
    }
}
