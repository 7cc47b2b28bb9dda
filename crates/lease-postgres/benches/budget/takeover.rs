//! How soon a standby runs: after a crash, and after a release.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{
        Acquisition, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal, Role, SingletonExecutor, SingletonOptions,
        StoreError, Term, Wakeup, async_trait, clock::LocalInstant,
    },
    tokio_postgres::Client,
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{Place, Result, report, samples::Samples};

/// A standby polls once a sixth of this.
const DURATION: Duration = Duration::from_secs(6);
const STANDBYS: usize = 3;
const CRASHES: usize = 50;
const ROUNDS: usize = 2;
const HAND_OVERS: usize = 100;

const MEDIAN_BUDGET: Duration = Duration::from_millis(10);
const P99_BUDGET: Duration = Duration::from_millis(50);
const ATTEMPTS_BUDGET: f64 = 1.5;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(place: &Place) -> Result<bool> {
    let kept = [takeovers(place).await?, hand_overs(place).await?];
    Ok(kept == [true; 2])
}

/// From a crashed holder's expiry to the first poll of a standby's job, both by the database's clock.
async fn takeovers(place: &Place) -> Result<bool> {
    let mut delays = Samples::default();
    let (mut attempts, mut waited) = (0, Duration::ZERO);
    for round in 0..ROUNDS {
        let mut standbys = Vec::new();
        for _ in 0..STANDBYS {
            standbys.push(Standby::new(place).await?);
        }
        let (store, clock) = (place.store().await?, Arc::new(place.client().await?));
        let mut crashes = JoinSet::new();
        for index in 0..CRASHES {
            let name = LeaseName::new(format!("crash-{round}-{index}"))?;
            crashes.spawn(crash(store.clone(), Arc::clone(&clock), standbys.clone(), name));
        }
        while let Some(crash) = crashes.join_next().await {
            let (delay, span, tries) = crash??;
            delays.add(delay);
            waited += span;
            attempts += tries;
        }
        join_all(standbys.iter().map(|standby| standby.executor.shutdown())).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate of some thousand attempts")]
    let rate = attempts as f64 / waited.as_secs_f64();
    let (median, p99) = (delays.median(), delays.quantile(0.99));
    let measured =
        format!("median {median:?}, p99 {p99:?} of {}, budget {MEDIAN_BUDGET:?}, {P99_BUDGET:?}", delays.len());
    let in_time = report("takeover past expiry", &measured, median <= MEDIAN_BUDGET && p99 <= P99_BUDGET);
    let measured = format!("{rate:.2} a second, budget {ATTEMPTS_BUDGET}");
    Ok(report("attempts of each standby", &measured, rate <= ATTEMPTS_BUDGET) && in_time)
}

/// An instance that waits, and how often it has tried for each name.
#[derive(Clone)]
struct Standby {
    executor: SingletonExecutor,
    attempts: Attempts,
}

type Attempts = Arc<Mutex<HashMap<LeaseName, usize>>>;

impl Standby {
    async fn new(place: &Place) -> Result<Self> {
        let attempts = Attempts::default();
        let store = Counting { store: place.store().await?, attempts: Arc::clone(&attempts) };
        let executor = SingletonExecutor::new(store, SingletonOptions::enabled().duration(DURATION))?;
        Ok(Self { executor, attempts })
    }
}

/// A holder is granted a lease and never heard of again. How long after its expiry the job began elsewhere, and how long the standbys
/// have waited and how often they have tried until then, all together.
async fn crash(
    store: PostgresLeaseStore,
    clock: Arc<Client>,
    standbys: Vec<Standby>,
    name: LeaseName,
) -> Result<(Duration, Duration, usize)> {
    sleep(DURATION.mul_f64(fastrand::f64())).await;
    let owner = OwnerId::new("crashed")?;
    assert!(store.try_acquire(&name, &owner, LeaseDuration::new(DURATION)?).await?.is_acquired());
    let sql = "SELECT (extract(epoch FROM expires_at) * 1000000)::bigint FROM singleton_leases WHERE name = $1";
    let expires_at: i64 = clock.query_one(sql, &[&name.as_str()]).await?.get(0);
    let since = LocalInstant::now();
    let (began, beginning) = oneshot::channel();
    let began = Arc::new(Mutex::new(Some(began)));
    for Standby { executor, .. } in &standbys {
        let (began, clock) = (Arc::clone(&began), Arc::clone(&clock));
        let run = executor.job(&name)?.run(move |lease| {
            let began = began.lock().unwrap_or_else(PoisonError::into_inner).take();
            let clock = Arc::clone(&clock);
            async move {
                let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
                if let (Some(began), Ok(row)) = (began, clock.query_one(sql, &[]).await) {
                    let _ = began.send(row.get::<_, i64>(0));
                }
                lease.cancelled().cancelled().await;
            }
        });
        tokio::spawn(run);
    }
    let began: i64 = timeout(PATIENCE, beginning).await??;
    let span = LocalInstant::now().saturating_duration_since(since);
    let tries = |standby: &Standby| {
        standby.attempts.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied().unwrap_or_default()
    };
    let attempts = standbys.iter().map(tries).sum();
    assert!(began >= expires_at, "a job began {} us before the expiry", expires_at - began);
    let delay = Duration::from_micros((began - expires_at).unsigned_abs());
    Ok((delay, span * u32::try_from(standbys.len())?, attempts))
}

/// From before a holder releases to the moment when a standby of another process's store has it.
async fn hand_overs(place: &Place) -> Result<bool> {
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let executor = SingletonExecutor::new(place.store().await?, SingletonOptions::enabled())?;
        jobs.push(executor.job("handed-over")?);
    }
    let mut delays = Samples::default();
    let mut guard = jobs[0].acquire(None).await?;
    for round in 1..=HAND_OVERS {
        let job = jobs[round % 2].clone();
        let mut status = job.status();
        let standby = tokio::spawn(async move {
            let guard = job.acquire(None).await;
            (guard, LocalInstant::now())
        });
        timeout(PATIENCE, status.wait_for(|status| matches!(status.role, Role::Standby { .. }))).await??;
        // Long after its last look, as standbys mostly are.
        sleep(Duration::from_millis(50).mul_f64(1.0 + fastrand::f64())).await;
        let released = LocalInstant::now();
        assert!(guard.release().await?);
        let (next, at) = standby.await?;
        guard = next?;
        delays.add(at.saturating_duration_since(released));
    }
    assert!(guard.release().await?);
    let (median, p99) = (delays.median(), delays.quantile(0.99));
    let measured = format!("median {median:?}, p99 {p99:?} of {HAND_OVERS}, budget {MEDIAN_BUDGET:?}");
    Ok(report("hand-over on release", &measured, median <= MEDIAN_BUDGET))
}

/// A store that counts attempts.
#[derive(Debug)]
struct Counting {
    store: PostgresLeaseStore,
    attempts: Attempts,
}

#[async_trait]
impl LeaseStore for Counting {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        *self.attempts.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default() += 1;
        self.store.try_acquire(name, owner, duration).await
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        self.store.renew(name, owner, duration).await
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        self.store.release(name, owner).await
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        self.store.release_after(name, owner, hold).await
    }

    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        self.store.renew_many(terms, duration).await
    }

    fn watch(&self, name: &LeaseName) -> Wakeup {
        self.store.watch(name)
    }
}
