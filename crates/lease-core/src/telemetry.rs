//! Every event that the executor emits, in one place; contention is never above debug.

use crate::{FencingToken, Holder, LeaseName, OwnerId, StopReason, StoreError, Term};

pub(crate) fn acquired(term: &Term) {
    tracing::info!(lease.name = %term.name, lease.owner = %term.owner, lease.token = term.token.value(), "lease acquired");
}

pub(crate) fn refused(name: &LeaseName, holder: &Holder) {
    let owner = holder.owner.as_ref().map(OwnerId::as_str);
    tracing::debug!(lease.name = %name, lease.holder = owner, remaining = ?holder.remaining, "lease held elsewhere");
}

pub(crate) fn attempt_failed(name: &LeaseName, error: &StoreError) {
    tracing::warn!(lease.name = %name, error.r#type = error.kind().as_str(), %error, "lease could not be tried");
}

pub(crate) fn renewal_failed(term: &Term, failures: u32, error: &StoreError) {
    tracing::warn!(
        lease.name = %term.name, lease.owner = %term.owner, error.r#type = error.kind().as_str(), %error, failures,
        "lease could not be renewed"
    );
}

/// The one terminal event of a term.
pub(crate) fn ended(term: &Term, reason: Option<&StopReason>) {
    let (name, owner, token) = (&term.name, &term.owner, term.token.value());
    match reason {
        None => {}
        Some(reason @ (StopReason::Ended | StopReason::ShutDown | StopReason::Abandoned)) => {
            tracing::info!(lease.name = %name, lease.owner = %owner, lease.token = token, %reason, "lease given up");
        }
        Some(reason) => {
            tracing::warn!(lease.name = %name, lease.owner = %owner, lease.token = token, %reason, "lease lost");
        }
    }
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
