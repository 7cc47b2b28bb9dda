//! Giving a lease up when its job has ended: at once, or by letting it rest (E10, E12).

use std::time::Duration;

use crate::{
    ErrorKind, LeaseDuration, LeaseStore, Operation, StoreError, Term,
    clock::LocalInstant,
    executor::{schedule::Floor, term::TermState},
    telemetry,
};

/// The release of one term whose job has ended.
pub(crate) struct Release<'a> {
    pub(crate) store: &'a dyn LeaseStore,
    pub(crate) state: &'a TermState,
    pub(crate) term: &'a Term,
    /// How long the lease rests from its grant on.
    pub(crate) hold: Option<LeaseDuration>,
}

/// What came of a release.
pub(crate) struct Released {
    /// The store's answer; none when the lease was lost, so that there was nothing to release.
    pub(crate) answer: Option<Result<bool, StoreError>>,
    /// When the answer arrived, or else when the last request was sent.
    at: LocalInstant,
}

impl Release<'_> {
    /// Releases the lease. A failure is tried again: within the operation timeout after a plain end, and until the lease has lapsed
    /// when it has to rest or when this executor stands back.
    pub(crate) async fn until_answered(&self) -> Released {
        let mut at = LocalInstant::now();
        let patient = self.hold.is_some() || self.stands_back();
        if patient {
            self.state.set_resting();
        }
        let give_up = at + self.state.schedule().operation_timeout;
        let mut floor = Floor::new(self.state.schedule().poll_interval);
        loop {
            if self.state.is_lost() {
                return Released { answer: None, at };
            }
            at = LocalInstant::now();
            let error = match self.once(if patient { None } else { Some(give_up) }).await {
                Ok(answer) => return Released { answer: Some(Ok(answer)), at: LocalInstant::now() },
                Err(error) => error,
            };
            let limit = if patient { self.state.lapses_at() } else { give_up };
            if limit.remaining() <= floor.current() || !(patient || error.is_retryable()) {
                telemetry::release_failed(&self.term.name, &error);
                return Released { answer: Some(Err(error)), at };
            }
            tokio::select! {
                () = tokio::time::sleep(floor.next()) => {}
                () = self.state.lost().cancelled() => {}
            }
        }
    }

    /// Until when this executor may not try for the name (E12): one duration after the answer, or after the end of the rest; without an
    /// answer, two durations after the last request. None when it need not stand back.
    pub(crate) fn stand_back(&self, released: &Released) -> Option<LocalInstant> {
        let duration = self.state.schedule().duration.as_duration();
        let rest_ends = self.hold.map(|hold| self.state.granted_by() + hold.as_duration());
        let until = match &released.answer {
            Some(Err(_)) => released.at + 2 * duration,
            _ => rest_ends.map_or(released.at, |end| end.max(released.at)) + duration,
        };
        self.stands_back().then_some(until)
    }

    fn stands_back(&self) -> bool {
        self.state.reason().is_some_and(crate::StopReason::stands_back)
    }

    async fn once(&self, give_up: Option<LocalInstant>) -> Result<bool, StoreError> {
        let give_up = give_up.unwrap_or_else(|| LocalInstant::now() + self.state.schedule().operation_timeout);
        let Some(hold) = self.hold else { return release_once(self.store, self.term, give_up).await };
        let release = self.store.release_after(&self.term.name, &self.term.owner, hold);
        within(Operation::ReleaseAfter, give_up.remaining(), release).await
    }
}

/// Sends one plain release, and waits for its answer until `give_up`.
pub(crate) async fn release_once(
    store: &dyn LeaseStore,
    term: &Term,
    give_up: LocalInstant,
) -> Result<bool, StoreError> {
    within(Operation::Release, give_up.remaining(), store.release(&term.name, &term.owner)).await
}

async fn within(
    operation: Operation,
    limit: Duration,
    release: impl Future<Output = Result<bool, StoreError>>,
) -> Result<bool, StoreError> {
    let unanswered =
        || StoreError::new(operation, ErrorKind::Indeterminate).with_detail(format!("no answer within {limit:?}"));
    let sent = LocalInstant::now();
    let answer = tokio::time::timeout(limit, release).await.unwrap_or_else(|_| Err(unanswered()));
    let took = LocalInstant::now().saturating_duration_since(sent);
    telemetry::operated(operation, took, answer.as_ref().err().map(StoreError::kind));
    answer
}
