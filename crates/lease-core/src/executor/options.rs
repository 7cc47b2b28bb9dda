//! What a service chooses about its singleton jobs, and the rules that the choices must keep (E8).

use std::{error, fmt, time::Duration};

use crate::{DurationError, LeaseDuration, NameError, executor::schedule::Schedule};

/// The least margin, whatever the duration.
const MIN_MARGIN: Duration = Duration::from_millis(20);

/// How a [`SingletonExecutor`](crate::SingletonExecutor) behaves. The default is disabled, and a disabled executor never touches
/// its store (E1).
///
/// Only the duration needs a choice; the rest scales with it unless it is set.
///
/// | field | unset | meaning |
/// |---|---|---|
/// | `duration` D | 30 s | how long a grant or a renewal lasts; a crashed holder is replaced within it |
/// | `renew_interval` | D / 4 | how often the holder renews |
/// | `grace` | D / 6 | how long a job has between being told to stop and being dropped |
/// | `margin` | D / 100, at least 50 ms | how long before the expiry the job must have stopped, for clocks that differ in speed |
/// | `poll_interval` | D / 6, at most 2 s | how often a standby looks |
/// | `operation_timeout` | 5 s | how long one call of the store may take |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_core::{MemoryLeaseStore, SingletonExecutor, SingletonOptions};
///
/// let options = SingletonOptions::enabled().duration(Duration::from_secs(10)).label("web-1");
/// assert!(SingletonExecutor::new(MemoryLeaseStore::new(), options).is_ok());
///
/// let hasty = SingletonOptions::enabled().duration(Duration::from_secs(10)).renew_interval(Duration::from_secs(9));
/// let error = SingletonExecutor::new(MemoryLeaseStore::new(), hasty).unwrap_err();
/// assert!(error.to_string().contains("renew_interval 9s"), "{error}");
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SingletonOptions {
    enabled: bool,
    duration: Option<Duration>,
    renew_interval: Option<Duration>,
    grace: Option<Duration>,
    margin: Option<Duration>,
    poll_interval: Option<Duration>,
    operation_timeout: Option<Duration>,
    tight_schedule: bool,
    label: Option<String>,
    on_overrun: OnOverrun,
}

/// What to do about a job that has not ended when its lease has lapsed (E3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOverrun {
    /// Log an error, and do not start the name again in this process until the job has ended.
    #[default]
    Report,
    /// Abort the process: for jobs that must never overlap, whatever it costs.
    Abort,
}

impl SingletonOptions {
    /// Options under which jobs run on one instance.
    pub fn enabled() -> Self {
        Self { enabled: true, ..Self::default() }
    }

    /// Options under which jobs run at once and the store is never called; the same as the default.
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Sets how long a grant or a renewal lasts: 1 ms to 365 days, rounded up to whole milliseconds.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Sets how often the holder renews.
    #[must_use]
    pub fn renew_interval(mut self, renew_interval: Duration) -> Self {
        self.renew_interval = Some(renew_interval);
        self
    }

    /// Sets how long a job has between being told to stop and being dropped.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets how long before the expiry a job must have stopped: at least 20 ms and a thousandth of the duration, which tolerates
    /// clocks that differ in speed by 0.1 %.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets how often a standby looks whether the lease is free.
    #[must_use]
    pub fn poll_interval(mut self, poll_interval: Duration) -> Self {
        self.poll_interval = Some(poll_interval);
        self
    }

    /// Sets how long one call of the store may take before its outcome counts as unknown.
    #[must_use]
    pub fn operation_timeout(mut self, operation_timeout: Duration) -> Self {
        self.operation_timeout = Some(operation_timeout);
        self
    }

    /// Accepts fewer than three chances to renew before a job is stopped: one slow answer of the database may then stop it.
    #[must_use]
    pub fn tight_schedule(mut self, tight_schedule: bool) -> Self {
        self.tight_schedule = tight_schedule;
        self
    }

    /// Sets the part of the owner ids that people read, by default the host's name and the process id. It is shortened to fit.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets what happens when a job has not ended although its lease has lapsed.
    #[must_use]
    pub fn on_overrun(mut self, on_overrun: OnOverrun) -> Self {
        self.on_overrun = on_overrun;
        self
    }

    /// Whether the store is used at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn overrun_policy(&self) -> OnOverrun {
        self.on_overrun
    }

    pub(crate) fn chosen_label(&self) -> Option<&str> {
        self.label.as_deref()
    }

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
        assert!(refusal(&enabled().duration(Duration::from_secs(400 * 86_400))).contains("365 days"));
    }
}
