//! E11, PE-01: many contenders leave the store room for renewals.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::script::{Act, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    AcquireError, Acquisition, ErrorKind, LeaseDuration, LeaseGuard, LeaseName, LeaseStore, MemoryLeaseStore,
    Operation, OwnerId, Renewal, RunError, SingletonExecutor, SingletonOptions, StoreError, TryRun,
    clock::LocalInstant,
};

/// A store with four connections, each of which takes 50 ms for a call. Clones share everything.
#[derive(Clone, Debug)]
struct PooledStore {
    rows: MemoryLeaseStore,
    connections: Arc<Semaphore>,
}

impl PooledStore {
    fn new() -> Self {
        Self { rows: MemoryLeaseStore::new(), connections: Arc::new(Semaphore::new(4)) }
    }

    async fn perform<T>(&self, call: impl Future<Output = T>) -> T {
        let _connection = self.connections.acquire().await.unwrap();
        tokio::time::sleep(millis(25)).await;
        let answer = call.await;
        tokio::time::sleep(millis(25)).await;
        answer
    }
}

#[async_trait]
impl LeaseStore for PooledStore {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        self.perform(self.rows.try_acquire(name, owner, duration)).await
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        self.perform(self.rows.renew(name, owner, duration)).await
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        self.perform(self.rows.release(name, owner)).await
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        self.perform(self.rows.release_after(name, owner, hold)).await
    }

    async fn renew_many(&self, terms: &[crate::Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        self.perform(self.rows.renew_many(terms, duration)).await
    }
}

fn name(index: usize) -> LeaseName {
    LeaseName::new(format!("job {index}")).unwrap()
}

/// Contends for `count` names at once.
fn contend(executor: &SingletonExecutor, from: usize, count: usize) -> Vec<Contender> {
    let acquire = |index| executor.job(name(index)).unwrap().acquire(None);
    (from..from + count).map(|index| tokio::spawn(acquire(index))).collect()
}

type Contender = tokio::task::JoinHandle<Result<LeaseGuard, AcquireError>>;

/// PE-01, E2: a thousand leases of three seconds that one executor contends for at once, first and again after all were lost, are all
/// granted, and nothing that is held is renewed late or lost meanwhile.
#[tokio::test(start_paused = true)]
async fn a_thousand_contenders_are_granted_and_renewals_stay_on_time() {
    const COUNT: usize = 1000;
    let store = PooledStore::new();
    let executor = SingletonExecutor::new(store.clone(), SingletonOptions::enabled().duration(seconds(3))).unwrap();
    let leaderships: Vec<_> = (0..COUNT).map(|index| executor.job(name(index)).unwrap().leadership()).collect();
    let count_held = || leaderships.iter().filter(|leadership| leadership.is_held()).count();
    for round in 0..2 {
        let all_held = async {
            let mut held = 0;
            while held < COUNT {
                tokio::time::sleep(millis(500)).await;
                let now_held = count_held();
                assert!(now_held >= held, "round {round}: {held} leases were held, and then {now_held}");
                held = now_held;
            }
        };
        tokio::time::timeout(seconds(60), all_held).await.unwrap();
        for _ in 0..20 {
            tokio::time::sleep(millis(500)).await;
            assert_eq!(count_held(), COUNT);
        }
        let health = executor.health();
        assert_eq!((health.held, health.failures_in_a_row), (COUNT, 0));
        assert!(health.smallest_margin.unwrap() > millis(1500), "{health:?}");

        (0..COUNT).for_each(|index| store.rows.delete(&name(index)));
        until(|| count_held() < COUNT / 2).await;
    }
}

/// E11: a shutdown ends who waits at the gate in the same instant, and itself waits only for the attempts that are under way.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_who_waits_at_the_gate() {
    let store = ScriptedStore::default();
    store.always(Operation::Acquire, Act::DelayAnswer(seconds(1)));
    let executor = executor(&store);
    let contenders = contend(&executor, 0, 50);
    until(|| store.count(Operation::Acquire) == 3).await;
    let start = LocalInstant::now();
    let stopping = executor.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    for contender in contenders {
        assert!(matches!(contender.await.unwrap(), Err(AcquireError::ShutDown)));
    }
    assert_about(LocalInstant::now().saturating_duration_since(start), Duration::ZERO);
    assert!(shutdown.await.unwrap().unfinished.is_empty());
    assert_about(LocalInstant::now().saturating_duration_since(start), seconds(1));
    assert_eq!((store.count(Operation::Acquire), store.count(Operation::Release)), (3, 3));
}

/// E11: callers that go away, at the gate or during their attempts, take no room along: three attempts are made at once afterwards. An
/// attempt that nobody waits for any more has its room until it is answered.
#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_its_room_at_the_gate() {
    let store = ScriptedStore::default();
    store.always(Operation::Acquire, Act::DelayAnswer(seconds(1)));
    let executor = executor(&store);
    let gone = contend(&executor, 0, 9);
    until(|| store.count(Operation::Acquire) == 3).await;
    for contender in gone {
        contender.abort();
        assert!(contender.await.unwrap_err().is_cancelled());
    }
    let contenders = contend(&executor, 20, 3);
    tokio::time::sleep(millis(900)).await;
    assert_eq!(store.count(Operation::Acquire), 3, "the attempts under way keep their room");
    tokio::time::sleep(millis(200)).await;
    assert_eq!(store.count(Operation::Acquire), 6, "and give it back with their answers");
    for contender in contenders {
        assert!(contender.await.unwrap().unwrap().is_held());
    }
}

/// E11, S12: a store that panics or never answers has its room for one operation timeout at most.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_blocks_the_gate_for_one_operation_timeout() {
    let store = ScriptedStore::default();
    for act in [Act::Panic, Act::Hang, Act::Hang, Act::Hang] {
        store.next(Operation::Acquire, act);
    }
    let executor = executor(&store);
    let contenders = contend(&executor, 0, 10);
    until(|| store.count(Operation::Acquire) == 4).await;
    let start = LocalInstant::now();
    until(|| store.count(Operation::Acquire) > 4).await;
    assert_about(LocalInstant::now().saturating_duration_since(start), seconds(5));
    for contender in contenders {
        assert!(contender.await.unwrap().unwrap().is_held());
    }
}

/// E11: `try_run` waits at the gate as long as one attempt may take, and no longer; a limit is kept when it is longer than that. What did
/// not get through has asked nobody.
#[tokio::test(start_paused = true)]
async fn who_has_no_patience_waits_at_the_gate_for_one_operation_timeout() {
    let store = ScriptedStore::default();
    store.always(Operation::Acquire, Act::DelayAnswer(seconds(4)));
    let executor = executor(&store);
    let mut contenders = contend(&executor, 0, 3);
    until(|| store.count(Operation::Acquire) == 3).await;
    let job = executor.job("job").unwrap();
    let start = LocalInstant::now();
    let waited = || LocalInstant::now().saturating_duration_since(start);
    assert_eq!(job.try_run(|_| async { 7 }).await.unwrap(), TryRun::Ran(7), "there is room in time");
    assert_about(waited(), seconds(8));

    store.always(Operation::Acquire, Act::Hang);
    contenders.extend(contend(&executor, 3, 100));
    tokio::time::sleep(millis(1)).await;
    let calls = store.count(Operation::Acquire);
    let crowded = |error: &StoreError| {
        error.kind() == ErrorKind::PoolTimeout && error.to_string().contains("3 other attempts of this executor")
    };
    for (limit, expected) in [(None, 5), (Some(Duration::ZERO), 5), (Some(seconds(2)), 5), (Some(seconds(12)), 12)] {
        let start = LocalInstant::now();
        let refused = match limit {
            None => job.try_run(|_| async {}).await.unwrap_err(),
            limit => job.acquire(limit).await.unwrap_err().into(),
        };
        assert!(matches!(&refused, RunError::Store(error) if crowded(error)), "{refused:?}");
        assert_about(LocalInstant::now().saturating_duration_since(start), seconds(expected));
    }
    assert!(store.count(Operation::Acquire) > calls, "others got through meanwhile, in their turn");
}
