//! Contending for a lease: attempts, owner ids, and a standby's pauses (E2, E5, E7).

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    AcquireError, Acquisition, ErrorKind, FencingToken, Holder, LeaseName, Operation, OwnerId, Role, StoreError, Term,
    Wakeup,
    clock::{self, LocalInstant},
    executor::{
        Shared,
        gate::Pass,
        grant::Grant,
        heartbeat::{judge, renew_within},
        release::release_once,
        schedule::Floor,
        slot::Turn,
    },
    telemetry,
};

/// How long a caller contends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// One whole try.
    Once,
    /// At least one whole try, and the last one at this instant.
    Until(LocalInstant),
    Forever,
}

/// Contends for `name` until it is granted or the caller's patience ends.
///
/// # Cancel safety
///
/// An attempt in flight ends in the background, and gives back what it was granted.
pub(crate) async fn contend(shared: &Arc<Shared>, name: &LeaseName, patience: Patience) -> Result<Grant, AcquireError> {
    if !shared.enabled {
        if shared.shutdown.is_cancelled() {
            return Err(AcquireError::ShutDown);
        }
        return Ok(Grant::unleased(shared, name));
    }
    loop {
        let contention = async {
            shared.until_eligible(patience).await?;
            let turn = take_turn(shared, name, patience).await?;
            let mut grant = win(shared, name, patience).await?;
            grant.keep_turn(turn);
            Ok(grant)
        };
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return Err(AcquireError::ShutDown),
            () = shared.until_not_eligible() => {}
            grant = contention => return grant,
        }
    }
}

/// A caller that stops contending without a grant is no standby any more.
struct Contending<'a> {
    shared: &'a Shared,
    name: &'a LeaseName,
    granted: bool,
}

impl Drop for Contending<'_> {
    fn drop(&mut self) {
        if !self.granted {
            self.shared.board.enter(self.name, Role::Idle);
        }
    }
}

/// Waits for the turn within this executor, and until it need not stand back any more (E11, E12).
async fn take_turn(shared: &Shared, name: &LeaseName, patience: Patience) -> Result<Turn, AcquireError> {
    let place = shared.slots.place(name);
    if let Patience::Once = patience {
        let turn = place.try_turn().map_err(AcquireError::HeldElsewhere)?;
        let refusal = |until: LocalInstant| AcquireError::HeldElsewhere(Holder::new(None, until.remaining()));
        return turn.not_before().map_or(Ok(turn), |until| Err(refusal(until)));
    }
    let waiting = async {
        let turn = place.turn().await;
        while let Some(until) = turn.not_before() {
            clock::sleep_until(until, shared.schedule.clock_step()).await;
        }
        turn
    };
    tokio::select! {
        biased;
        turn = waiting => Ok(turn),
        () = patience.end(shared) => Err(AcquireError::HeldElsewhere(shared.slots.place(name).holder())),
    }
}

impl Patience {
    /// Completes when the caller's patience ends; at once when there is none.
    async fn end(self, shared: &Shared) {
        match self {
            Self::Once => {}
            Self::Until(limit) => clock::sleep_until(limit, shared.schedule.clock_step()).await,
            Self::Forever => std::future::pending().await,
        }
    }
}

impl Shared {
    /// Waits until this instance may contend.
    async fn until_eligible(&self, patience: Patience) -> Result<(), AcquireError> {
        let mut eligible = self.eligible.subscribe();
        tokio::select! {
            biased;
            _ = eligible.wait_for(|eligible| *eligible) => Ok(()),
            () = patience.end(self) => Err(AcquireError::HeldElsewhere(Holder::new(None, Duration::ZERO))),
        }
    }

    /// After a term, or a try, that hardly lasted, waits a little before the next.
    pub(crate) async fn recover(&self, floor: &mut Floor, started: LocalInstant) {
        let pause = floor.lift(LocalInstant::now().saturating_duration_since(started));
        self.pause_until(started + pause).await;
    }

    /// Waits until then, or for the shutdown.
    pub(crate) async fn pause_until(&self, until: LocalInstant) {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            () = clock::sleep_until(until, self.schedule.clock_step()) => {}
        }
    }

    /// Completes when this instance may not contend any more.
    async fn until_not_eligible(&self) {
        let mut eligible = self.eligible.subscribe();
        let _ = eligible.wait_for(|eligible| *eligible).await;
        let _ = eligible.wait_for(|eligible| !*eligible).await;
    }
}

async fn win(shared: &Arc<Shared>, name: &LeaseName, patience: Patience) -> Result<Grant, AcquireError> {
    let schedule = &shared.schedule;
    let mut floor = Floor::new(schedule.poll_interval);
    let mut contending = Contending { shared, name, granted: false };
    let mut owner = shared.owners.mint();
    let mut answered = false;
    let mut free_at = None;
    let mut long_wait = Some((LocalInstant::now(), schedule.report_wait_after));
    loop {
        let wakeup = shared.store.watch(name);
        let (pause, refusal) = match attempt(shared, name, &owner, patience).await {
            Attempt::Granted(mut grant) => {
                contending.granted = true;
                grant.late_by = free_at.map(|free_at| LocalInstant::now().saturating_duration_since(free_at));
                return Ok(grant);
            }
            Attempt::Held(holder) => {
                answered = true;
                free_at = Some(LocalInstant::now() + holder.remaining);
                telemetry::refused(name, &holder);
                if let Some((since, limit)) = long_wait
                    && (since + limit).has_passed()
                {
                    telemetry::waits_long(name, LocalInstant::now().saturating_duration_since(since), &holder);
                    long_wait = None;
                }
                shared.board.enter(name, Role::Standby { holder: holder.clone() });
                (schedule.standby_pause(holder.remaining), AcquireError::HeldElsewhere(holder))
            }
            Attempt::Failed(error) => {
                telemetry::attempt_failed(name, &error);
                if !error.proves_nothing_happened() {
                    owner = shared.owners.mint();
                }
                if !answered && !error.is_retryable() {
                    return Err(AcquireError::Store(error));
                }
                (Duration::ZERO, AcquireError::Store(error))
            }
        };
        let now = LocalInstant::now();
        match patience {
            Patience::Once => return Err(refusal),
            Patience::Until(limit) if now >= limit => return Err(refusal),
            Patience::Until(limit) => {
                let limited = pause.min(limit.saturating_duration_since(now));
                stand_by(shared, &mut floor, limited, wakeup).await;
            }
            Patience::Forever => stand_by(shared, &mut floor, pause, wakeup).await,
        }
    }
}

/// Sleeps for `pause`, or until a wake-up, but never less than the floor.
async fn stand_by(shared: &Shared, floor: &mut Floor, pause: Duration, wakeup: Wakeup) {
    let step = shared.schedule.clock_step();
    let start = LocalInstant::now();
    let least = floor.current();
    let pause = floor.lift(pause);
    tokio::select! {
        () = clock::sleep_until(start + pause, step) => {}
        () = wakeup => {
            if LocalInstant::now() < start + least {
                floor.next();
            }
            clock::sleep_until(start + least, step).await;
        }
    }
}

/// What one attempt came to.
enum Attempt {
    Granted(Grant),
    Held(Holder),
    Failed(StoreError),
}

/// Tries once, when the gate lets it, on a task of its own: a caller that goes away cannot leave an outcome unknown that could be known.
async fn attempt(shared: &Arc<Shared>, name: &LeaseName, owner: &OwnerId, patience: Patience) -> Attempt {
    let pass = match shared.gate.pass(&shared.schedule, patience).await {
        Ok(pass) => pass,
        Err(error) => return Attempt::Failed(error),
    };
    let (answer, outcome) = oneshot::channel();
    let task = {
        let (shared, name, owner) = (Arc::clone(shared), name.clone(), owner.clone());
        async move {
            // When nobody listens any more, dropping a grant releases it.
            let _ = answer.send(try_once(&shared, name, owner, pass).await);
        }
    };
    shared.tasks.spawn(task);
    let Ok(outcome) = outcome.await else {
        disown(shared, Term::new(name.clone(), owner.clone(), FencingToken::new(0))).await;
        let error = StoreError::new(Operation::Acquire, ErrorKind::Unexpected);
        return Attempt::Failed(error.with_detail("the store panicked"));
    };
    outcome
}

async fn try_once(shared: &Arc<Shared>, name: LeaseName, owner: OwnerId, pass: Pass) -> Attempt {
    let limit = shared.schedule.operation_timeout;
    let anchor = LocalInstant::now();
    let answer = tokio::time::timeout(limit, shared.store.try_acquire(&name, &owner, shared.schedule.duration)).await;
    drop(pass);
    let unknown = || {
        let detail = format!("no answer within {limit:?}");
        Err(StoreError::new(Operation::Acquire, ErrorKind::Indeterminate).with_detail(detail))
    };
    let answer = answer.unwrap_or_else(|_| unknown());
    let took = LocalInstant::now().saturating_duration_since(anchor);
    telemetry::operated(Operation::Acquire, took, answer.as_ref().err().map(StoreError::kind));
    match answer {
        Ok(Acquisition::Acquired(token)) => {
            let term = Term::new(name, owner, token);
            if let Some(anchor) = anchor_in_time(shared, &term, anchor).await {
                return Attempt::Granted(Grant::new(shared, term, anchor));
            }
            disown(shared, term).await;
            let detail = "the grant arrived after its stop point, and no renewal landed in time";
            Attempt::Failed(StoreError::new(Operation::Acquire, ErrorKind::Indeterminate).with_detail(detail))
        }
        Ok(Acquisition::Held(holder)) => Attempt::Held(holder),
        Err(error) => {
            if !error.proves_nothing_happened() {
                disown(shared, Term::new(name, owner, FencingToken::new(0))).await;
            }
            Attempt::Failed(error)
        }
    }
}

/// After a try of unknown outcome its id is used up, and one release is sent for it, in case the grant was made (E7). A network that
/// swallows it delays the next try by a poll interval at most.
async fn disown(shared: &Arc<Shared>, term: Term) {
    let release = {
        let shared = Arc::clone(shared);
        async move { give_back(&shared, &term).await }
    };
    let sent = shared.tasks.spawn(release);
    let _ = tokio::time::timeout(shared.schedule.poll_interval, sent).await;
}

/// The anchor of a grant: its own, or that of the one renewal that a grant needs whose stop point has passed on arrival. None when that
/// did not land in time either (E2).
async fn anchor_in_time(shared: &Shared, term: &Term, anchor: LocalInstant) -> Option<LocalInstant> {
    let schedule = &shared.schedule;
    let in_time = |anchor| !schedule.stop_point(schedule.deadline(anchor)).has_passed();
    if in_time(anchor) {
        return Some(anchor);
    }
    let anchor = LocalInstant::now();
    let answer = renew_within(&*shared.store, term, schedule, schedule.operation_timeout).await;
    (judge(term, answer).is_ok() && in_time(anchor)).then_some(anchor)
}

/// Sends one release for a term that never began; its answer is of no use.
pub(crate) async fn give_back(shared: &Shared, term: &Term) {
    let give_up = LocalInstant::now() + shared.schedule.operation_timeout;
    if let Err(error) = release_once(&*shared.store, term, give_up).await {
        telemetry::release_failed(&term.name, &error);
    }
}
