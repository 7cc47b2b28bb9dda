//! Contending for a lease: attempts, owner ids, and a standby's pauses (E2, E5, E7).

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    Acquisition, ErrorKind, FencingToken, Holder, LeaseName, Operation, OwnerId, StoreError, Term, Wakeup,
    clock::{self, LocalInstant},
    executor::{
        Active, Shared,
        heartbeat::{judge, renew_within},
        schedule::Floor,
        slot::Turn,
        stop::release_once,
        term::TermState,
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

/// Why contending ended without a grant.
#[derive(Debug)]
pub(crate) enum NoGrant {
    HeldElsewhere(Holder),
    Store(StoreError),
    ShutDown,
}

/// Contends for `name` until it is granted or the caller's patience ends.
///
/// # Cancel safety
///
/// An attempt in flight ends in the background, and gives back what it was granted.
pub(crate) async fn contend(shared: &Arc<Shared>, name: &LeaseName, patience: Patience) -> Result<Grant, NoGrant> {
    let contention = async {
        if !shared.enabled {
            return Ok(Grant::unleased(shared, name));
        }
        let turn = take_turn(shared, name, patience).await.map_err(NoGrant::HeldElsewhere)?;
        let mut grant = win(shared, name, patience).await?;
        grant.keep_turn(turn);
        Ok(grant)
    };
    tokio::select! {
        biased;
        () = shared.shutdown.cancelled() => Err(NoGrant::ShutDown),
        grant = contention => grant,
    }
}

async fn take_turn(shared: &Shared, name: &LeaseName, patience: Patience) -> Result<Turn, Holder> {
    let place = shared.slots.place(name);
    match patience {
        Patience::Once => place.try_turn(),
        Patience::Forever => Ok(place.turn().await),
        Patience::Until(limit) => {
            tokio::select! {
                biased;
                turn = place.turn() => Ok(turn),
                () = clock::sleep_until(limit, shared.schedule.clock_step()) => Err(shared.slots.place(name).holder()),
            }
        }
    }
}

async fn win(shared: &Arc<Shared>, name: &LeaseName, patience: Patience) -> Result<Grant, NoGrant> {
    let schedule = &shared.schedule;
    let mut floor = Floor::new(schedule.poll_interval);
    let mut owner = shared.owners.mint();
    let mut answered = false;
    loop {
        let wakeup = shared.store.watch(name);
        let (pause, refusal) = match attempt(shared, name, &owner).await {
            Attempt::Granted(grant) => return Ok(grant),
            Attempt::Held(holder) => {
                answered = true;
                telemetry::refused(name, &holder);
                (schedule.standby_pause(holder.remaining), NoGrant::HeldElsewhere(holder))
            }
            Attempt::Failed(error) => {
                telemetry::attempt_failed(name, &error);
                if !error.proves_nothing_happened() {
                    owner = shared.owners.mint();
                }
                if !answered && !error.is_retryable() {
                    return Err(NoGrant::Store(error));
                }
                (Duration::ZERO, NoGrant::Store(error))
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

/// Tries once, on a task of its own: a caller that goes away cannot leave an outcome unknown that could be known.
async fn attempt(shared: &Arc<Shared>, name: &LeaseName, owner: &OwnerId) -> Attempt {
    let (answer, outcome) = oneshot::channel();
    let task = {
        let (shared, name, owner) = (Arc::clone(shared), name.clone(), owner.clone());
        async move {
            // When nobody listens any more, dropping a grant releases it.
            let _ = answer.send(try_once(&shared, name, owner).await);
        }
    };
    shared.tasks.spawn(task);
    let panicked = || StoreError::new(Operation::Acquire, ErrorKind::Unexpected).with_detail("the store panicked");
    outcome.await.unwrap_or_else(|_| Attempt::Failed(panicked()))
}

async fn try_once(shared: &Arc<Shared>, name: LeaseName, owner: OwnerId) -> Attempt {
    let limit = shared.schedule.operation_timeout;
    let anchor = LocalInstant::now();
    let answer = tokio::time::timeout(limit, shared.store.try_acquire(&name, &owner, shared.schedule.duration)).await;
    let unknown = || {
        let detail = format!("no answer within {limit:?}");
        Err(StoreError::new(Operation::Acquire, ErrorKind::Indeterminate).with_detail(detail))
    };
    match answer.unwrap_or_else(|_| unknown()) {
        Ok(Acquisition::Acquired(token)) => confirm(Grant::new(shared, Term::new(name, owner, token), anchor)).await,
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

/// A grant whose stop point has passed on arrival is renewed once before the job's first poll, and failing that released (E2).
async fn confirm(mut grant: Grant) -> Attempt {
    let schedule = grant.shared.schedule;
    let Some((state, anchor)) = grant.held.as_mut().map(|held| (Arc::clone(&held.state), &mut held.anchor)) else {
        return Attempt::Granted(grant);
    };
    let (Some(term), false) = (state.term(), state.is_held()) else {
        return Attempt::Granted(grant);
    };
    let sent = LocalInstant::now();
    let answer = renew_within(&*grant.shared.store, term, &schedule, schedule.operation_timeout).await;
    if judge(term, answer).is_ok() {
        state.extend(sent);
        if state.is_held() {
            *anchor = sent;
            return Attempt::Granted(grant);
        }
    }
    // Dropping the grant releases it, and the id is used up.
    Attempt::Failed(
        StoreError::new(Operation::Acquire, ErrorKind::Indeterminate)
            .with_detail("the grant arrived after its stop point, and no renewal landed in time"),
    )
}

/// Sends one release for a term that never began; its answer is of no use.
async fn give_back(shared: &Shared, term: &Term) {
    let give_up = LocalInstant::now() + shared.schedule.operation_timeout;
    if let Err(error) = release_once(&*shared.store, term, give_up).await {
        telemetry::release_failed(&term.name, &error);
    }
}

/// A lease that was granted and whose job has not started. Dropping it gives the lease back.
#[derive(Debug)]
pub(crate) struct Grant {
    shared: Arc<Shared>,
    held: Option<Held>,
}

/// What a supervisor needs of a grant.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) state: Arc<TermState>,
    /// The instant before the call whose answer counts.
    pub(crate) anchor: LocalInstant,
    /// Kept until the job has ended (E11).
    pub(crate) slot: Option<Turn>,
    /// Lets a shutdown wait for the term. It is dropped last.
    _active: Active,
}

impl Held {
    fn new(shared: &Arc<Shared>, state: Arc<TermState>, anchor: LocalInstant) -> Self {
        let active = shared.register(&state);
        Self { state, anchor, slot: None, _active: active }
    }
}

impl Grant {
    /// What stands for a grant while the executor is disabled (E1).
    pub(crate) fn unleased(shared: &Arc<Shared>, name: &LeaseName) -> Self {
        let state = TermState::unleased(name.clone(), shared.owners.mint(), shared.schedule);
        Self { shared: Arc::clone(shared), held: Some(Held::new(shared, state, LocalInstant::now())) }
    }

    fn new(shared: &Arc<Shared>, term: Term, anchor: LocalInstant) -> Self {
        let state = TermState::granted(term, shared.schedule, anchor);
        Self { shared: Arc::clone(shared), held: Some(Held::new(shared, state, anchor)) }
    }

    fn keep_turn(&mut self, turn: Turn) {
        if let Some(held) = &mut self.held {
            turn.announce(&held.state);
            held.slot = Some(turn);
        }
    }

    /// The term, for the job's hands.
    pub(crate) fn state(&self) -> Arc<TermState> {
        let held = self.held.as_ref().expect("a grant is taken apart only when it is consumed");
        Arc::clone(&held.state)
    }

    /// Hands the grant to its supervisor, who releases it from here on.
    pub(crate) fn start(mut self) -> Held {
        let held = self.held.take().expect("a grant is taken apart only when it is consumed");
        if let Some(term) = held.state.term() {
            telemetry::acquired(term);
        }
        held
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        held.state.end();
        let (shared, runtime) = (Arc::clone(&self.shared), Handle::try_current());
        if let (Some(_), Ok(runtime)) = (held.state.term(), runtime) {
            let tasks = shared.tasks.clone();
            let give_back = async move {
                if let Some(term) = held.state.term() {
                    give_back(&shared, term).await;
                }
            };
            tasks.spawn_on(give_back, &runtime);
        }
    }
}
