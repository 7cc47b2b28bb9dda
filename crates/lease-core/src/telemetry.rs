//! Every event, span and metric of the executor, in one place; contention is never above debug.
//!
//! Metrics are emitted with the feature `metrics`, under the naming rules of OpenTelemetry: no unit and no `_total` in a name, and no
//! owner or token as a label. Durations are in seconds.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `lease.acquired` | counter | `lease.name` |
//! | `lease.refused` | counter | `lease.name` |
//! | `lease.renewed` | counter | `lease.name` |
//! | `lease.renewal.failed` | counter | `lease.name`, `error.type` |
//! | `lease.stopped` | counter | `lease.name`, `lease.reason` |
//! | `lease.held` | gauge | `lease.name` |
//! | `lease.renewal.margin` | histogram | `lease.name`: what was left to the stop point when a renewal landed |
//! | `lease.operation.duration` | histogram | `lease.operation`, `error.type` (empty after an answer) |

use std::time::Duration;

use crate::{
    ErrorKind, FencingToken, Holder, LeaseName, Operation, OwnerId, StopReason, StoreError, Term, executor::Role,
};

/// The span that a job runs in.
pub(crate) fn job_span(name: &LeaseName, token: Option<FencingToken>) -> tracing::Span {
    tracing::info_span!("lease.job", lease.name = %name, lease.token = token.map(FencingToken::value))
}

pub(crate) fn acquired(term: &Term) {
    tracing::info!(lease.name = %term.name, lease.owner = %term.owner, lease.token = term.token.value(), "lease acquired");
    meter::count("lease.acquired", &term.name);
    meter::held(&term.name, true);
}

pub(crate) fn refused(name: &LeaseName, holder: &Holder) {
    let owner = holder.owner.as_ref().map(OwnerId::as_str);
    tracing::debug!(lease.name = %name, lease.holder = owner, remaining = ?holder.remaining, "lease held elsewhere");
    meter::count("lease.refused", name);
}

/// A standby has waited for long; this is said once a contention.
pub(crate) fn waits_long(name: &LeaseName, waited: Duration, holder: &Holder) {
    let owner = holder.owner.as_ref().map(OwnerId::as_str);
    tracing::info!(lease.name = %name, lease.holder = owner, remaining = ?holder.remaining, ?waited, "still waiting for the lease");
}

pub(crate) fn attempt_failed(name: &LeaseName, error: &StoreError) {
    tracing::warn!(lease.name = %name, error.r#type = error.kind().as_str(), %error, "lease could not be tried");
}

pub(crate) fn renewed(term: &Term, margin: Duration) {
    tracing::trace!(lease.name = %term.name, ?margin, "lease renewed");
    meter::count("lease.renewed", &term.name);
    meter::renewal_margin(&term.name, margin);
}

pub(crate) fn renewal_failed(term: &Term, failures: u32, error: &StoreError) {
    tracing::warn!(
        lease.name = %term.name, lease.owner = %term.owner, error.r#type = error.kind().as_str(), %error, failures,
        "lease could not be renewed"
    );
    meter::renewal_failed(&term.name, error.kind());
}

/// The one terminal event of a term.
pub(crate) fn stopped(term: &Term, reason: &StopReason) {
    let (name, owner, token) = (&term.name, &term.owner, term.token.value());
    if reason.is_loss() {
        tracing::warn!(lease.name = %name, lease.owner = %owner, lease.token = token, %reason, "lease lost");
    } else {
        tracing::info!(lease.name = %name, lease.owner = %owner, lease.token = token, %reason, "lease given up");
    }
    meter::stopped(name, reason);
    meter::held(name, false);
}

/// A change of what this executor is to a name.
pub(crate) fn changed(name: &LeaseName, previous: &Role, current: &Role) {
    tracing::debug!(lease.name = %name, previous = previous.as_str(), current = current.as_str(), "lease role changed");
}

pub(crate) fn release_failed(name: &LeaseName, error: &StoreError) {
    tracing::warn!(lease.name = %name, error.r#type = error.kind().as_str(), %error, "lease could not be released and will expire");
}

pub(crate) fn overrun(name: &LeaseName, token: Option<FencingToken>) {
    let token = token.map(FencingToken::value);
    tracing::error!(lease.name = %name, lease.token = token, "the job has not ended although its lease has lapsed");
}

pub(crate) fn leadership_waits(name: &LeaseName, error: &StoreError) {
    tracing::error!(lease.name = %name, error.r#type = error.kind().as_str(), %error, "leadership needs a change of configuration");
}

pub(crate) fn run_skipped(name: &LeaseName) {
    tracing::warn!(lease.name = %name, "a run whose time has passed is skipped");
}

/// A call of the store that took `duration`.
pub(crate) fn operated(operation: Operation, duration: Duration, error: Option<ErrorKind>) {
    meter::operation_duration(operation, duration, error);
}

#[cfg(feature = "metrics")]
mod meter {
    //! The metrics themselves, through the `metrics` facade.

    use std::time::Duration;

    use metrics::{counter, gauge, histogram};

    use crate::{ErrorKind, LeaseName, Operation, StopReason};

    pub(super) fn count(metric: &'static str, name: &LeaseName) {
        counter!(metric, "lease.name" => name.to_string()).increment(1);
    }

    pub(super) fn held(name: &LeaseName, held: bool) {
        gauge!("lease.held", "lease.name" => name.to_string()).set(if held { 1.0 } else { 0.0 });
    }

    pub(super) fn renewal_margin(name: &LeaseName, margin: Duration) {
        histogram!("lease.renewal.margin", "lease.name" => name.to_string()).record(margin.as_secs_f64());
    }

    pub(super) fn renewal_failed(name: &LeaseName, error: ErrorKind) {
        counter!("lease.renewal.failed", "lease.name" => name.to_string(), "error.type" => error.as_str()).increment(1);
    }

    pub(super) fn stopped(name: &LeaseName, reason: &StopReason) {
        counter!("lease.stopped", "lease.name" => name.to_string(), "lease.reason" => reason.as_str()).increment(1);
    }

    pub(super) fn operation_duration(operation: Operation, duration: Duration, error: Option<ErrorKind>) {
        let error = error.map(ErrorKind::as_str).unwrap_or_default();
        histogram!("lease.operation.duration", "lease.operation" => operation.to_string(), "error.type" => error)
            .record(duration.as_secs_f64());
    }
}

#[cfg(not(feature = "metrics"))]
mod meter {
    //! Without the feature nothing is measured.

    use std::time::Duration;

    use crate::{ErrorKind, LeaseName, Operation, StopReason};

    pub(super) fn count(_: &'static str, _: &LeaseName) {}

    pub(super) fn held(_: &LeaseName, _: bool) {}

    pub(super) fn renewal_margin(_: &LeaseName, _: Duration) {}

    pub(super) fn renewal_failed(_: &LeaseName, _: ErrorKind) {}

    pub(super) fn stopped(_: &LeaseName, _: &StopReason) {}

    pub(super) fn operation_duration(_: Operation, _: Duration, _: Option<ErrorKind>) {}
}
