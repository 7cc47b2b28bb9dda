//! A store that does what a test tells it, and remembers each call.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::{
    Acquisition, ErrorKind, LeaseDuration, LeaseName, LeaseStore, MemoryLeaseStore, Operation, OwnerId, Renewal,
    SingletonExecutor, SingletonOptions, StoreError, Term, Wakeup,
    clock::{self, LocalInstant},
};

/// The duration of every lease in these tests; the rest is the default: renew 7.5 s, grace 5 s, margin 0.3 s, poll 2 s.
pub(super) const DURATION: Duration = Duration::from_secs(30);
pub(super) const GRACE: Duration = Duration::from_secs(5);
pub(super) const MARGIN: Duration = Duration::from_millis(300);
/// How long after its anchor a job is told to stop.
pub(super) const STOP_AFTER: Duration = Duration::from_millis(24_700);
/// How long after its anchor a job is dropped.
pub(super) const DROP_AFTER: Duration = Duration::from_millis(29_700);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// The request arrives this much later.
    DelayRequest(Duration),
    /// The answer arrives this much later.
    DelayAnswer(Duration),
    /// The machine sleeps this long before the answer is seen.
    Suspend(Duration),
    /// The call is applied, and its answer is lost.
    LoseAnswer,
    /// The call is not applied, and fails with this kind.
    Fail(ErrorKind),
    /// Nothing is applied and no answer ever comes.
    Hang,
    /// The store panics.
    Panic,
}

/// One call that the store has seen.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) owner: OwnerId,
    pub(super) at: LocalInstant,
}

/// A memory store behind a script. Clones share everything.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedStore {
    pub(super) rows: MemoryLeaseStore,
    script: Arc<Mutex<Script>>,
    deaf: bool,
}

#[derive(Debug, Default)]
struct Script {
    next: HashMap<Operation, VecDeque<Act>>,
    always: HashMap<Operation, Act>,
    calls: Vec<Call>,
    /// How many terms each call of `renew_many` had.
    batches: Vec<usize>,
    /// The names whose rows a stranger has locked: renewed together they are contended, and alone they wait.
    locked: HashSet<LeaseName>,
    /// The names whose renewals fail.
    failing: HashMap<LeaseName, ErrorKind>,
}

/// More calls than this at one instant are a loop that would never let the paused clock go on.
const MAX_CALLS_AT_ONCE: usize = 5000;

impl ScriptedStore {
    /// Without wake-ups, as over a database that has none.
    pub(super) fn deaf() -> Self {
        Self { deaf: true, ..Self::default() }
    }

    /// Does `act` to the next call of `operation` that has no act yet.
    pub(super) fn next(&self, operation: Operation, act: Act) {
        self.script.lock().unwrap().next.entry(operation).or_default().push_back(act);
    }

    /// Does `act` to each call of `operation` from now on.
    pub(super) fn always(&self, operation: Operation, act: Act) {
        self.script.lock().unwrap().always.insert(operation, act);
    }

    /// Makes every verb fail with `kind`, as an outage would.
    pub(super) fn outage(&self, kind: ErrorKind) {
        for operation in [Operation::Acquire, Operation::Renew, Operation::Release, Operation::ReleaseAfter] {
            self.always(operation, Act::Fail(kind));
        }
    }

    /// Answers truly from now on.
    pub(super) fn heal(&self) {
        self.script.lock().unwrap().always.clear();
    }

    /// Lets a stranger lock or unlock the row of `name`.
    pub(super) fn lock(&self, name: &str, locked: bool) {
        let name = LeaseName::new(name).unwrap();
        let names = &mut self.script.lock().unwrap().locked;
        if locked {
            names.insert(name)
        } else {
            names.remove(&name)
        };
    }

    /// Lets the renewals of `name` fail with `kind`, or succeed.
    pub(super) fn fail(&self, name: &str, kind: Option<ErrorKind>) {
        let name = LeaseName::new(name).unwrap();
        let names = &mut self.script.lock().unwrap().failing;
        match kind {
            Some(kind) => names.insert(name, kind),
            None => names.remove(&name),
        };
    }

    fn failure(&self, name: &LeaseName) -> Option<StoreError> {
        let kind = self.script.lock().unwrap().failing.get(name).copied();
        kind.map(|kind| StoreError::new(Operation::Renew, kind))
    }

    fn is_locked(&self, name: &LeaseName) -> bool {
        self.script.lock().unwrap().locked.contains(name)
    }

    pub(super) fn batches(&self) -> Vec<usize> {
        self.script.lock().unwrap().batches.clone()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.script.lock().unwrap().calls.clone()
    }

    pub(super) fn count(&self, operation: Operation) -> usize {
        self.calls().iter().filter(|call| call.operation == operation).count()
    }

    /// The calls of `operation`, as the ids that they carried.
    pub(super) fn owners(&self, operation: Operation) -> Vec<OwnerId> {
        self.calls().into_iter().filter(|call| call.operation == operation).map(|call| call.owner).collect()
    }

    /// Who holds `name` now, as another replica sees it: it takes the lease when it is free.
    pub(super) async fn rival(&self, name: &str) -> Acquisition {
        let (name, owner) = (LeaseName::new(name).unwrap(), OwnerId::new("rival").unwrap());
        self.rows.try_acquire(&name, &owner, LeaseDuration::new(DURATION).unwrap()).await.unwrap()
    }

    fn act(&self, operation: Operation, owner: &OwnerId) -> Option<Act> {
        let mut script = self.script.lock().unwrap();
        ring();
        let at = LocalInstant::now();
        let many_calls_ago = script.calls.iter().rev().nth(MAX_CALLS_AT_ONCE);
        let loops = many_calls_ago.is_some_and(|call| call.at == at);
        if loops {
            drop(script);
            panic!("the store is called in a loop");
        }
        script.calls.push(Call { operation, owner: owner.clone(), at });
        let next = script.next.get_mut(&operation).and_then(VecDeque::pop_front);
        next.or_else(|| script.always.get(&operation).copied())
    }

    async fn perform<T>(
        &self,
        operation: Operation,
        owner: &OwnerId,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.act(operation, owner) {
            None => call.await,
            Some(Act::DelayRequest(delay)) => {
                tokio::time::sleep(delay).await;
                call.await
            }
            Some(Act::DelayAnswer(delay)) => {
                let answer = call.await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Act::Suspend(duration)) => {
                let answer = call.await;
                clock::simulate(duration);
                answer
            }
            Some(Act::LoseAnswer) => {
                drop(call.await);
                Err(StoreError::new(operation, ErrorKind::Indeterminate))
            }
            Some(Act::Fail(kind)) => Err(StoreError::new(operation, kind)),
            Some(Act::Hang) => pending().await,
            Some(Act::Panic) => panic!("the script says so"),
        }
    }
}

#[async_trait]
impl LeaseStore for ScriptedStore {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        self.perform(Operation::Acquire, owner, self.rows.try_acquire(name, owner, duration)).await
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        let renewal = async {
            while self.is_locked(name) {
                tokio::time::sleep(millis(1)).await;
            }
            if let Some(error) = self.failure(name) {
                return Err(error);
            }
            self.rows.renew(name, owner, duration).await
        };
        self.perform(Operation::Renew, owner, renewal).await
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        self.perform(Operation::Release, owner, self.rows.release(name, owner)).await
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        self.perform(Operation::ReleaseAfter, owner, self.rows.release_after(name, owner, hold)).await
    }

    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        self.script.lock().unwrap().batches.push(terms.len());
        let renewals = terms.iter().map(|term| async move {
            if self.is_locked(&term.name) {
                return Err(StoreError::new(Operation::Renew, ErrorKind::Contended));
            }
            self.renew(&term.name, &term.owner, duration).await
        });
        futures::future::join_all(renewals).await
    }

    fn watch(&self, name: &LeaseName) -> Wakeup {
        if self.deaf { Wakeup::never() } else { self.rows.watch(name) }
    }
}

/// An executor with the default schedule over `store`.
pub(super) fn executor(store: &ScriptedStore) -> SingletonExecutor {
    SingletonExecutor::new(store.clone(), SingletonOptions::enabled().duration(DURATION)).unwrap()
}

thread_local! {
    /// Rings when a store was called, or something was noted: the tests with a paused clock run on one thread each.
    static BELL: Arc<Notify> = Arc::default();
}

fn ring() {
    BELL.with(|bell| bell.notify_waiters());
}

/// Waits on the paused clock until `condition` holds. It is looked at whenever a store is called or something is noted, and each
/// second.
pub(super) async fn until(condition: impl Fn() -> bool) {
    let (bell, limit) = (BELL.with(Arc::clone), LocalInstant::now() + seconds(7200));
    loop {
        let rung = bell.notified();
        if condition() {
            return;
        }
        assert!(!limit.has_passed(), "the condition did not come true within two hours");
        let _ = tokio::time::timeout(seconds(1), rung).await;
    }
}

/// What happened when, in order.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    start: LocalInstant,
    entries: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Journal {
    pub(super) fn start() -> Self {
        Self { start: LocalInstant::now(), entries: Arc::default() }
    }

    pub(super) fn note(&self, what: impl Into<String>) {
        self.entries.lock().unwrap().push((what.into(), LocalInstant::now().saturating_duration_since(self.start)));
        ring();
    }

    /// The entries' names.
    pub(super) fn names(&self) -> Vec<String> {
        self.entries.lock().unwrap().iter().map(|(what, _)| what.clone()).collect()
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.names().iter().any(|name| name == what)
    }

    /// When `what` happened first, since the journal was started.
    pub(super) fn when(&self, what: &str) -> Duration {
        let entries = self.entries.lock().unwrap();
        entries.iter().find(|(name, _)| name == what).unwrap_or_else(|| panic!("no {what} in {entries:?}")).1
    }

    /// Each time at which `what` happened.
    pub(super) fn times(&self, what: &str) -> Vec<Duration> {
        let entries = self.entries.lock().unwrap();
        entries.iter().filter(|(name, _)| name == what).map(|(_, at)| *at).collect()
    }

    /// The time from one entry to another.
    pub(super) fn between(&self, from: &str, to: &str) -> Duration {
        self.when(to).saturating_sub(self.when(from))
    }

    /// Notes `what` when the answer is dropped.
    pub(super) fn on_drop(&self, what: &'static str) -> impl Drop + Send + use<> {
        struct Note(Journal, &'static str);
        impl Drop for Note {
            fn drop(&mut self) {
                self.0.note(self.1);
            }
        }
        Note(self.clone(), what)
    }
}

/// Asserts that `actual` is at most 5 ms from `expected`: tokio's timers round up to milliseconds.
#[track_caller]
pub(super) fn assert_about(actual: Duration, expected: Duration) {
    assert!(actual.abs_diff(expected) <= millis(5), "{actual:?} is not about {expected:?}");
}
