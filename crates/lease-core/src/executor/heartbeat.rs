//! Keeps one term alive: renewals, retries, the stop point and the deadline (E2 to E4).

use std::{pin::pin, sync::Arc, time::Duration};

use crate::{
    ErrorKind, LeaseStore, LossReason, Operation, Renewal, StopReason, StoreError, Term,
    clock::{self, LocalInstant},
    executor::{schedule::Schedule, term::TermState},
    telemetry,
};

/// How a term ended that was not ended by its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TermEnd {
    /// The row no longer names this owner.
    Lost,
    /// The deadline passed; nobody else need have the lease.
    DeadlinePassed,
}

/// Renews the lease until it is lost or its deadline passes, and tells the job in time.
///
/// # Cancel safety
///
/// Dropping the future abandons a renewal in flight; it names its owner, so it can do nothing after a release.
pub(crate) async fn keep(store: &dyn LeaseStore, state: &TermState, anchor: LocalInstant) -> TermEnd {
    match state.term() {
        Some(term) => keep_term(store, state, term, anchor).await,
        None => keep_unleased(state).await,
    }
}

/// Without a term only a request to stop sets a deadline.
async fn keep_unleased(state: &TermState) -> TermEnd {
    state.stopping().cancelled().await;
    if let Some(deadline) = state.deadline() {
        clock::sleep_until(deadline, state.schedule().clock_step()).await;
    }
    state.drop_now();
    TermEnd::DeadlinePassed
}

async fn keep_term(store: &dyn LeaseStore, state: &TermState, term: &Term, anchor: LocalInstant) -> TermEnd {
    let schedule = state.schedule();
    let step = schedule.clock_step();
    let mut deadlines = state.deadlines();
    let mut failures = 0;
    let mut last_error = None;
    let mut renewal = pin!(renew_at(store, state, term, schedule.next_renewal(anchor)));
    loop {
        let Some(deadline) = *deadlines.borrow_and_update() else { return keep_unleased(state).await };
        let stopping = state.stopping().is_cancelled();
        let stop_point = schedule.stop_point(deadline);
        tokio::select! {
            biased;
            () = clock::sleep_until(deadline, step) => {
                state.pass_stop_point(last_error.as_ref());
                state.drop_now();
                return TermEnd::DeadlinePassed;
            }
            () = clock::sleep_until(stop_point, step), if !stopping => state.pass_stop_point(last_error.as_ref()),
            _ = deadlines.changed() => {}
            (sent, answer) = &mut renewal, if renews(state) => {
                let next = match judge(term, answer) {
                    Ok(()) => {
                        (failures, last_error) = (0, None);
                        state.extend(sent);
                        schedule.next_renewal(sent)
                    }
                    Err(Failure::Lost(reason)) => {
                        state.lose(StopReason::Lost(reason));
                        return TermEnd::Lost;
                    }
                    Err(Failure::Unanswered(error)) => {
                        failures += 1;
                        telemetry::renewal_failed(term, failures, &error);
                        last_error = Some(Arc::new(error));
                        LocalInstant::now() + schedule.retry_pause(failures)
                    }
                };
                renewal.set(renew_at(store, state, term, next));
            }
        }
    }
}

/// After the stop point a renewal could not save the job; while it drains at the executor's own wish, renewals go on (E12).
fn renews(state: &TermState) -> bool {
    matches!(state.reason(), None | Some(StopReason::ShutDown | StopReason::Abandoned))
}

async fn renew_at(
    store: &dyn LeaseStore,
    state: &TermState,
    term: &Term,
    at: LocalInstant,
) -> (LocalInstant, Result<Renewal, StoreError>) {
    let schedule = state.schedule();
    clock::sleep_until(at, schedule.clock_step()).await;
    let sent = LocalInstant::now();
    let limit = attempt_limit(schedule, state.deadline(), state.stopping().is_cancelled());
    (sent, renew_within(store, term, schedule, limit).await)
}

/// An answer that comes after the stop point is of no use; while the job drains the deadline itself counts.
fn attempt_limit(schedule: &Schedule, deadline: Option<LocalInstant>, stopping: bool) -> Duration {
    let Some(deadline) = deadline else { return schedule.operation_timeout };
    schedule.call_limit(if stopping { deadline } else { schedule.stop_point(deadline) })
}

/// Renews once, for at most `limit`.
pub(crate) async fn renew_within(
    store: &dyn LeaseStore,
    term: &Term,
    schedule: &Schedule,
    limit: Duration,
) -> Result<Renewal, StoreError> {
    match tokio::time::timeout(limit, store.renew(&term.name, &term.owner, schedule.duration)).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(Operation::Renew, ErrorKind::Indeterminate)
            .with_detail(format!("no answer within {limit:?}"))),
    }
}

/// Why an answer does not extend the term.
pub(crate) enum Failure {
    Lost(LossReason),
    Unanswered(StoreError),
}

/// An answer extends the term only when it carries the term's own token (E7).
pub(crate) fn judge(term: &Term, answer: Result<Renewal, StoreError>) -> Result<(), Failure> {
    match answer {
        Ok(Renewal::Renewed { token, .. }) if token == term.token => Ok(()),
        Ok(Renewal::Renewed { token, .. }) => Err(Failure::Lost(LossReason::Superseded(token))),
        Ok(Renewal::Lost(reason)) => Err(Failure::Lost(reason)),
        Err(error) => Err(Failure::Unanswered(error)),
    }
}
