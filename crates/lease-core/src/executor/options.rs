//! What a service chooses about its singleton jobs.

use std::time::Duration;

use crate::{OptionsError, executor::owner::OwnerMint};

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
/// | `report_wait_after` | 10 D | how long a standby waits before the log says, once, who holds the lease |
/// | `tight_schedule` | no | accepts fewer than three chances to renew |
/// | `label` | host and process | the part of the owner ids that people read |
/// | `on_overrun` | report | what to do about a job that has not ended when its lease has lapsed |
///
/// With the feature `serde` the options are read from a file: `enabled = true`, `duration = "30s"`, `on_overrun = "abort"`; an unknown
/// field is refused, and what is inconsistent is refused when the executor is made.
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
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct SingletonOptions {
    pub(crate) enabled: bool,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) duration: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) renew_interval: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) grace: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) margin: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) poll_interval: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) operation_timeout: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub(crate) report_wait_after: Option<Duration>,
    pub(crate) tight_schedule: bool,
    pub(crate) label: Option<String>,
    pub(crate) on_overrun: OnOverrun,
}

/// What to do about a job that has not ended when its lease has lapsed (E3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
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

    /// Sets how long a standby waits before the log says, once, who holds the lease.
    #[must_use]
    pub fn report_wait_after(mut self, report_wait_after: Duration) -> Self {
        self.report_wait_after = Some(report_wait_after);
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

    /// Checks the options without making an executor, for example before anything else is touched.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] names the fields that break rule E8, and the label that breaks S9.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.schedule()?;
        OwnerMint::new(self)?;
        Ok(())
    }

    /// Whether the store is used at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SingletonOptions, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// E1, E8: options come from a file as they come from code; what is left out is unset, and an unknown field is refused.
    #[test]
    fn options_are_read_from_a_file() {
        assert!(!read("{}").unwrap().is_enabled());
        let text =
            r#"{"enabled": true, "duration": "10s", "grace": "1s 500ms", "label": "web-1", "on_overrun": "abort"}"#;
        let options = read(text).unwrap();
        assert!(options.is_enabled());
        assert_eq!(
            (options.duration, options.grace),
            (Some(Duration::from_secs(10)), Some(Duration::from_millis(1500)))
        );
        assert_eq!((options.label.as_deref(), options.on_overrun), (Some("web-1"), OnOverrun::Abort));
        assert_eq!(options.margin, None);
        assert!(read(r#"{"durations": "10s"}"#).unwrap_err().contains("durations"));
        assert!(read(r#"{"duration": "10 parsecs"}"#).is_err());
        assert!(read(r#"{"enabled": true, "duration": "1ns"}"#).unwrap().schedule().is_err());
    }
}
