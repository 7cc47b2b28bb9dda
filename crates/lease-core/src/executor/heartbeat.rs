//! The one task that renews all held leases of an executor in one round trip, and watches their clocks (E2 to E4).

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::Notify;

use crate::{
    ErrorKind, LeaseStore, LossReason, Operation, Renewal, StopReason, StoreError, Term,
    clock::LocalInstant,
    executor::{schedule::Schedule, stop::panic_message, term::TermState},
    telemetry,
};

/// A heartbeat that has not looked at the clocks for so long gets no turns: it would have had several.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// Renews every lease that it was told to keep, and tells every job in time.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    store: Arc<dyn LeaseStore>,
    schedule: Schedule,
    pulse: Mutex<Pulse>,
    /// Something changed that may have to be looked at before the next beat.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Pulse {
    terms: BTreeMap<u64, Kept>,
    next_id: u64,
    /// Whether a task is beating.
    beats: bool,
    /// When it looked at the clocks last.
    last_look: Option<LocalInstant>,
    /// The least that was left when a renewal landed.
    smallest_margin: Option<Duration>,
}

/// A term under the heartbeat.
#[derive(Debug)]
struct Kept {
    state: Arc<TermState>,
    /// When it is to be renewed next.
    due: LocalInstant,
    in_flight: bool,
    failures: u32,
}

/// How an executor is doing, for a readiness probe: from [`SingletonExecutor::health`](crate::SingletonExecutor::health).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How many leases are held.
    pub held: usize,
    /// The least time that was left when a renewal landed, since the executor was made; none before the first renewal. It is counted to
    /// the stop point, or to the end of the lease when the job has been told to stop. Near zero means that the database answers almost too late.
    pub smallest_margin: Option<Duration>,
    /// The most renewals in a row that failed for a lease that is held now.
    pub failures_in_a_row: u32,
    /// Whether the task that renews the leases is there, if there is anything to renew, and gets its turns.
    pub heartbeat_lives: bool,
}

/// Some renewals, all sent after `sent`.
struct Flight {
    sent: LocalInstant,
    /// The one term's row is waited for.
    alone: bool,
    answers: Vec<(u64, Result<Renewal, StoreError>)>,
}

impl Heartbeat {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, schedule: Schedule) -> Arc<Self> {
        Arc::new(Self { store, schedule, pulse: Mutex::default(), changed: Arc::default() })
    }

    /// What a term rings when its deadline was moved from outside.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Keeps a term that was granted by a call sent after `anchor`, until the answer is dropped.
    ///
    /// A renewal in flight is abandoned then; it names its owner, so it can do nothing after a release.
    pub(crate) fn keep(self: &Arc<Self>, state: &Arc<TermState>, anchor: LocalInstant) -> Keeping {
        let mut pulse = self.pulse();
        let id = pulse.next_id;
        pulse.next_id += 1;
        let due = self.schedule.next_renewal(anchor);
        let kept = Kept { state: Arc::clone(state), due, in_flight: false, failures: 0 };
        pulse.terms.insert(id, kept);
        if pulse.beats {
            self.changed.notify_one();
        } else {
            (pulse.beats, pulse.last_look) = (true, Some(LocalInstant::now()));
            tokio::spawn(Arc::clone(self).beat_guarded());
        }
        Keeping { heartbeat: Arc::clone(self), id }
    }

    /// A heartbeat that panics, or goes down with its runtime, leaves nothing held that nobody renews (E9).
    async fn beat_guarded(self: Arc<Self>) {
        let mut fall = Fall(Some(Arc::clone(&self)));
        let end = AssertUnwindSafe(self.beat()).catch_unwind().await;
        fall.0 = None;
        if let Err(panic) = end {
            self.stop_all(&panic_message(&*panic));
        }
    }

    fn stop_all(&self, cause: &str) {
        let mut pulse = self.pulse();
        pulse.beats = false;
        for kept in pulse.terms.values() {
            kept.state.lose(StopReason::HeartbeatFailed(cause.to_owned()));
        }
    }

    async fn beat(&self) {
        let mut flights = FuturesUnordered::<BoxFuture<'_, Flight>>::new();
        loop {
            let Some(wake) = self.send_what_is_due(&mut flights) else { return };
            tokio::select! {
                biased;
                Some(flight) = flights.next() => self.land(flight, &mut flights),
                () = self.changed.notified() => {}
                () = tokio::time::sleep(wake.remaining()) => {}
            }
        }
    }

    /// Looks at every term's clock, sends the renewals that are due, and answers when to look again; none when nothing is kept.
    fn send_what_is_due<'a>(&'a self, flights: &mut FuturesUnordered<BoxFuture<'a, Flight>>) -> Option<LocalInstant> {
        let mut pulse = self.pulse();
        if pulse.terms.is_empty() {
            pulse.beats = false;
            return None;
        }
        let now = LocalInstant::now();
        for kept in pulse.terms.values() {
            kept.state.watch_the_clock(now);
        }
        pulse.last_look = Some(now);
        for batch in take_due(&mut pulse, now) {
            if !batch.terms.is_empty() {
                flights.push(self.renew_many(batch).boxed());
            }
        }
        let next = pulse.terms.values().flat_map(|kept| {
            let due = (kept.state.renews() && !kept.in_flight).then_some(kept.due);
            [due, kept.state.next_look()]
        });
        Some(next.flatten().min().unwrap_or(now + self.schedule.clock_step()).min(now + self.schedule.clock_step()))
    }

    async fn renew_many(&self, batch: Batch) -> Flight {
        let limit = self.schedule.renewal_limit(batch.renew_by);
        let (ids, terms): (Vec<_>, Vec<_>) = batch.terms.into_iter().unzip();
        let sent = LocalInstant::now();
        let renewals = self.store.renew_many(&terms, self.schedule.duration);
        let answers = tokio::time::timeout(limit, renewals).await.unwrap_or_default();
        let error = if answers.is_empty() { Some(ErrorKind::Indeterminate) } else { None };
        telemetry::operated(Operation::Renew, LocalInstant::now().saturating_duration_since(sent), error);
        let missing = std::iter::repeat_with(|| Err(unanswered(limit)));
        Flight { sent, alone: false, answers: ids.into_iter().zip(answers.into_iter().chain(missing)).collect() }
    }

    /// Renews one term whose row somebody has locked, so that it delays no other.
    async fn renew_alone(&self, id: u64, term: Term, renew_by: Option<LocalInstant>) -> Flight {
        let (sent, limit) = (LocalInstant::now(), self.schedule.renewal_limit(renew_by));
        let answer = renew_within(&*self.store, &term, &self.schedule, limit).await;
        Flight { sent, alone: true, answers: vec![(id, answer)] }
    }

    fn land<'a>(&'a self, flight: Flight, flights: &mut FuturesUnordered<BoxFuture<'a, Flight>>) {
        let mut pulse = self.pulse();
        let Pulse { terms, smallest_margin, .. } = &mut *pulse;
        // What was sent together stays together, whether it landed or has to be tried again.
        let (next, haste) = (self.schedule.next_renewal(flight.sent), fastrand::f64());
        let landed = LocalInstant::now();
        for (id, answer) in flight.answers {
            // A term that has ended meanwhile has nothing to hear.
            let Some(kept) = terms.get_mut(&id) else { continue };
            let Some(term) = kept.state.term() else { continue };
            if !flight.alone && matches!(&answer, Err(error) if error.kind() == ErrorKind::Contended) {
                flights.push(self.renew_alone(id, term.clone(), kept.state.renew_by()).boxed());
                continue;
            }
            kept.in_flight = false;
            kept.state.watch_the_clock(LocalInstant::now());
            match judge(term, answer) {
                Ok(hand_over) => {
                    let margin = kept.state.margin();
                    *smallest_margin = Some(smallest_margin.map_or(margin, |smallest| smallest.min(margin)));
                    telemetry::renewed(term, margin);
                    (kept.failures, kept.due) = (0, next);
                    kept.state.extend(flight.sent);
                    if hand_over {
                        kept.state.request_stop(StopReason::HandedOver);
                    }
                }
                Err(Failure::Lost(reason)) => kept.state.lose(StopReason::Lost(reason)),
                Err(Failure::Unanswered(error)) => {
                    kept.failures += 1;
                    kept.due = landed + self.schedule.retry_pause(kept.failures, haste);
                    telemetry::renewal_failed(term, kept.failures, &error);
                    kept.state.note_error(error);
                }
            }
        }
    }

    /// How the heartbeat is doing.
    pub(crate) fn health(&self) -> Health {
        let pulse = self.pulse();
        let looks = pulse.last_look.is_some_and(|look| !(look + LONGEST_SILENCE).has_passed());
        Health {
            held: pulse.terms.values().filter(|kept| kept.state.term().is_some() && kept.state.is_held()).count(),
            smallest_margin: pulse.smallest_margin,
            failures_in_a_row: pulse.terms.values().map(|kept| kept.failures).max().unwrap_or_default(),
            heartbeat_lives: pulse.terms.is_empty() || (pulse.beats && looks),
        }
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some renewals to send together.
#[derive(Default)]
struct Batch {
    terms: Vec<(u64, Term)>,
    /// When the first of them has to be renewed.
    renew_by: Option<LocalInstant>,
}

/// Takes the terms to renew now. Once one is due all go along, so that a beat is one round trip, whenever its leases were acquired.
/// Terms whose last renewal failed go by themselves when they are due: their time is short, and would be everybody's.
fn take_due(pulse: &mut Pulse, now: LocalInstant) -> [Batch; 2] {
    let mut batches = <[Batch; 2]>::default();
    for (failing, batch) in [false, true].into_iter().zip(&mut batches) {
        let ready = |kept: &Kept| (kept.failures > 0) == failing && kept.state.renews() && !kept.in_flight;
        if !pulse.terms.values().any(|kept| ready(kept) && kept.due <= now) {
            continue;
        }
        for (id, kept) in pulse.terms.iter_mut().filter(|(_, kept)| ready(kept) && (!failing || kept.due <= now)) {
            let Some(term) = kept.state.term() else { continue };
            kept.in_flight = true;
            batch.terms.push((*id, term.clone()));
            batch.renew_by = batch.renew_by.into_iter().chain(kept.state.renew_by()).min();
        }
    }
    batches
}

/// Stops every term when the heartbeat's task is dropped before its end.
struct Fall(Option<Arc<Heartbeat>>);

impl Drop for Fall {
    fn drop(&mut self) {
        if let Some(heartbeat) = &self.0 {
            heartbeat.stop_all("its runtime went down");
        }
    }
}

/// A term under the heartbeat, until this is dropped.
#[derive(Debug)]
pub(crate) struct Keeping {
    heartbeat: Arc<Heartbeat>,
    id: u64,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let kept = self.heartbeat.pulse().terms.remove(&self.id);
        if kept.is_some() {
            self.heartbeat.changed.notify_one();
        }
    }
}

/// Renews once, for at most `limit`.
pub(crate) async fn renew_within(
    store: &dyn LeaseStore,
    term: &Term,
    schedule: &Schedule,
    limit: Duration,
) -> Result<Renewal, StoreError> {
    let renewal = store.renew(&term.name, &term.owner, schedule.duration);
    tokio::time::timeout(limit, renewal).await.unwrap_or_else(|_| Err(unanswered(limit)))
}

fn unanswered(limit: Duration) -> StoreError {
    StoreError::new(Operation::Renew, ErrorKind::Indeterminate).with_detail(format!("no answer within {limit:?}"))
}

/// Why an answer does not extend the term.
pub(crate) enum Failure {
    Lost(LossReason),
    Unanswered(StoreError),
}

/// Whether the holder is to hand over. An answer extends the term only when it carries the term's own token (E7).
pub(crate) fn judge(term: &Term, answer: Result<Renewal, StoreError>) -> Result<bool, Failure> {
    match answer {
        Ok(Renewal::Renewed { token, hand_over }) if token == term.token => Ok(hand_over),
        Ok(Renewal::Renewed { token, .. }) => Err(Failure::Lost(LossReason::Superseded(token))),
        Ok(Renewal::Lost(reason)) => Err(Failure::Lost(reason)),
        Err(error) => Err(Failure::Unanswered(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryLeaseStore, SingletonExecutor, SingletonOptions, clock};

    /// E4: a renewal in flight is waited for: its term is neither sent again nor looked at for that at once, and forgotten at its release.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_in_flight_is_waited_for() {
        let executor = SingletonExecutor::new(MemoryLeaseStore::new(), SingletonOptions::enabled()).unwrap();
        let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
        let (heartbeat, mut flights) = (&executor.0.heartbeat, FuturesUnordered::new());
        let step = heartbeat.schedule.clock_step();
        clock::simulate(heartbeat.schedule.renew_interval);
        for _ in 0..2 {
            let wake = heartbeat.send_what_is_due(&mut flights).unwrap();
            assert_eq!((flights.len(), wake), (1, LocalInstant::now() + step));
        }
        assert!(guard.release().await.unwrap());
        assert!(heartbeat.pulse().terms.is_empty(), "what was released is forgotten");
    }
}
