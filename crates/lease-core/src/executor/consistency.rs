//! The rules that a choice of options must keep (E8).

use std::{error, fmt, time::Duration};

use crate::{
    DurationError, LeaseDuration, NameError,
    executor::{options::SingletonOptions, schedule::Schedule},
};

/// The least margin, whatever the duration.
const MIN_MARGIN: Duration = Duration::from_millis(20);

impl SingletonOptions {
    /// Fills in what was not set, and checks the whole (E8).
    pub(crate) fn schedule(&self) -> Result<Schedule, OptionsError> {
        let duration = LeaseDuration::new(self.duration.unwrap_or(Duration::from_secs(30)))?;
        let whole = duration.as_duration();
        let schedule = Schedule {
            duration,
            renew_interval: self.renew_interval.unwrap_or(whole / 4),
            grace: self.grace.unwrap_or(whole / 6),
            margin: self.margin.unwrap_or((whole / 100).max(Duration::from_millis(50))),
            poll_interval: self.poll_interval.unwrap_or((whole / 6).min(Duration::from_secs(2))),
            operation_timeout: self.operation_timeout.unwrap_or(Duration::from_secs(5)),
            report_wait_after: self.report_wait_after.unwrap_or(whole.saturating_mul(10)),
        };
        check_non_zero(&schedule)?;
        check_margin(&schedule)?;
        check_room(&schedule, self.tight_schedule)?;
        Ok(schedule)
    }
}

fn check_non_zero(schedule: &Schedule) -> Result<(), OptionsError> {
    let fields = [
        ("renew_interval", schedule.renew_interval),
        ("grace", schedule.grace),
        ("poll_interval", schedule.poll_interval),
        ("operation_timeout", schedule.operation_timeout),
        ("report_wait_after", schedule.report_wait_after),
    ];
    match fields.into_iter().find(|(_, value)| value.is_zero()) {
        Some((field, _)) => Err(OptionsError::inconsistent(format!("{field} 0ns must not be zero"))),
        None => Ok(()),
    }
}

fn check_margin(schedule: &Schedule) -> Result<(), OptionsError> {
    let (duration, margin) = (schedule.duration.as_duration(), schedule.margin);
    let least = MIN_MARGIN.max(duration / 1000);
    if margin < least {
        return Err(OptionsError::inconsistent(format!(
            "margin {margin:?} must be at least {least:?}: 20 ms and a thousandth of duration {duration:?}"
        )));
    }
    Ok(())
}

/// Three chances to renew must fit before the stop point; by name the user may do with one.
fn check_room(schedule: &Schedule, tight: bool) -> Result<(), OptionsError> {
    let (chances, rule) = if tight { (1, "renew_interval") } else { (3, "3 x renew_interval") };
    let Schedule { renew_interval, grace, margin, .. } = *schedule;
    let duration = schedule.duration.as_duration();
    let needed = renew_interval.saturating_mul(chances).saturating_add(grace).saturating_add(margin);
    if needed > duration {
        return Err(OptionsError::inconsistent(format!(
            "{rule} + grace + margin must not exceed duration: renew_interval {renew_interval:?}, grace {grace:?} and margin \
             {margin:?} need {needed:?} of duration {duration:?}"
        )));
    }
    Ok(())
}

/// Options that contradict each other or break a rule; the message names the fields and their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    Duration(DurationError),
    Label(NameError),
    Inconsistent(String),
}

impl OptionsError {
    fn inconsistent(message: String) -> Self {
        Self(Repr::Inconsistent(message))
    }
}

impl From<DurationError> for OptionsError {
    fn from(error: DurationError) -> Self {
        Self(Repr::Duration(error))
    }
}

/// Only a label can be refused by the rules for ids.
impl From<NameError> for OptionsError {
    fn from(error: NameError) -> Self {
        Self(Repr::Label(error))
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Duration(error) => write!(f, "duration: {error}"),
            Repr::Label(error) => write!(f, "label: {error}"),
            Repr::Inconsistent(message) => f.write_str(message),
        }
    }
}

impl error::Error for OptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refusal(options: &SingletonOptions) -> String {
        options.schedule().unwrap_err().to_string()
    }

    /// E8: only the duration is chosen, and the rest scales.
    #[test]
    fn the_defaults_scale_with_the_duration() {
        let schedule = SingletonOptions::enabled().schedule().unwrap();
        assert_eq!(schedule.duration.as_duration(), seconds(30));
        assert_eq!(schedule.renew_interval, Duration::from_millis(7500));
        assert_eq!((schedule.grace, schedule.poll_interval), (seconds(5), seconds(2)));
        assert_eq!(schedule.margin, Duration::from_millis(300));

        let short = SingletonOptions::enabled().duration(seconds(3)).schedule().unwrap();
        assert_eq!(short.margin, Duration::from_millis(50));
        assert_eq!(short.poll_interval, Duration::from_millis(500));
    }

    /// E8, CF-01, CF-02: each inequality holds at its edge and fails one step past it, and the error names the fields and values.
    #[test]
    fn three_renewals_must_fit() {
        let options = |renew_millis| {
            SingletonOptions::enabled()
                .duration(seconds(10))
                .grace(seconds(3))
                .margin(seconds(1))
                .renew_interval(Duration::from_millis(renew_millis))
        };
        assert!(options(2000).schedule().is_ok());
        let message = refusal(&options(2001));
        for part in ["3 x renew_interval", "2.001s", "grace 3s", "margin 1s", "duration 10s"] {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(options(6000).tight_schedule(true).schedule().is_ok());
        assert!(refusal(&options(6001).tight_schedule(true)).contains("renew_interval 6.001s"));
        assert!(options(u64::MAX).schedule().is_err());
    }

    /// E8, OV-03
    #[test]
    fn the_margin_covers_clocks_that_differ() {
        let options = |margin| SingletonOptions::enabled().duration(seconds(60)).margin(Duration::from_micros(margin));
        assert!(options(60_000).schedule().is_ok());
        assert!(refusal(&options(59_999)).contains("margin 59.999ms"));
        let short = |margin| SingletonOptions::enabled().duration(seconds(3)).margin(Duration::from_millis(margin));
        assert!(short(20).schedule().is_ok());
        assert!(refusal(&short(19)).contains("margin 19ms"));
    }

    /// E8, CF-01, CF-03
    #[test]
    fn nothing_may_be_zero() {
        let enabled = SingletonOptions::enabled;
        assert!(refusal(&enabled().duration(Duration::ZERO)).contains("duration"));
        assert!(refusal(&enabled().renew_interval(Duration::ZERO)).contains("renew_interval 0ns"));
        assert!(refusal(&enabled().grace(Duration::ZERO)).contains("grace 0ns"));
        assert!(refusal(&enabled().margin(Duration::ZERO)).contains("margin 0ns"));
        assert!(refusal(&enabled().poll_interval(Duration::ZERO)).contains("poll_interval 0ns"));
        assert!(refusal(&enabled().operation_timeout(Duration::ZERO)).contains("operation_timeout 0ns"));
        assert!(refusal(&enabled().report_wait_after(Duration::ZERO)).contains("report_wait_after 0ns"));
        assert!(refusal(&enabled().duration(Duration::from_secs(400 * 86_400))).contains("365 days"));
    }
}
