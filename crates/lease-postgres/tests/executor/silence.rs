//! Two instances, and a network that goes silent for one of them at a random instant.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use lease_conformance::faults::{Held, Proxy};
use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{HeldLease, SingletonExecutor},
};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    server::PATIENCE,
    steps::Steps,
    support::{DURATION, Schema, executor, short_leases},
};

const ROUNDS: usize = 200;
const LANES: usize = 16;

/// The instance whose network goes silent, and the other.
const SILENCED: usize = 0;
const OTHER: usize = 1;

const STEP: Duration = Duration::from_millis(5);

/// What a job does before each of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// It checks its lease.
    Checks,
    /// It does nothing, and is dropped at its deadline.
    Ignores,
    /// It does nothing, and takes its steps where nobody can drop it.
    Escapes,
}

/// RN-03, E2, E3: the last step of the job always precedes the other instance's first, whether it checks its lease before each step or
/// has to be dropped, wherever the silence begins and whatever it swallows; and whatever the network lets through when it speaks
/// again does nothing to the other's term. Somebody takes over every time, and the silenced instance heals by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_silenced_job_stops_before_the_other_starts() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    let rounds = stream::iter(0..ROUNDS).map(|round| {
        let care = if round.is_multiple_of(2) { Care::Checks } else { Care::Ignores };
        let (schema, store) = (&schema, &store);
        async move { silence(schema, store, round, care).await }
    });
    let mut gaps = Vec::new();
    let mut interrupted = 0;
    for (round, steps) in rounds.buffer_unordered(LANES).collect::<Vec<_>>().await {
        let found = steps.gaps().unwrap_or_else(|overlap| panic!("round {round}: {overlap}"));
        let instances: Vec<_> = steps.tenures().values().map(|tenure| tenure.instance).collect();
        interrupted += usize::from(instances.starts_with(&[SILENCED, OTHER]));
        gaps.extend(found);
    }
    gaps.sort_unstable();
    println!("{interrupted} jobs were silenced; gaps from {:?}, median {:?}", gaps[0], gaps[gaps.len() / 2]);
    assert!(interrupted >= ROUNDS * 3 / 4, "only {interrupted} of {ROUNDS} rounds silenced a job");
}

/// The record finds a job that goes on where nobody can drop it, every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_job_that_escapes_is_found() {
    let schema = Schema::new().await;
    let store = schema.store().await;
    let rounds = (1..8).map(|round| silence(&schema, &store, round, Care::Escapes));
    for (round, steps) in futures::future::join_all(rounds).await {
        assert!(steps.gaps().is_err(), "round {round} found nothing: {:?}", steps.tenures());
    }
}

/// One round under a name of its own. Every eighth time the network goes silent while the instance is still acquiring.
async fn silence(schema: &Schema, store: &PostgresLeaseStore, round: usize, care: Care) -> (usize, Arc<Steps>) {
    let name = format!("silence-{round}-{care:?}");
    let proxy = Proxy::start(schema.address()).await.unwrap();
    let behind = schema.through(proxy.address().port()).pool_size(2).operation_timeout(PATIENCE);
    let silenced = executor(&PostgresLeaseStore::connect(behind).await.unwrap(), short_leases());
    let other = executor(store, short_leases());
    let steps = Arc::new(Steps::new());
    let instance = |number, executor: &SingletonExecutor| Instance::start(number, executor, &name, care, &steps);

    let first = instance(SILENCED, &silenced);
    let second = if round.is_multiple_of(8) {
        sleep(Duration::from_millis(20).mul_f64(fastrand::f64())).await;
        instance(OTHER, &other)
    } else {
        steps.until("a first step", |step| step.instance == SILENCED).await;
        let second = instance(OTHER, &other);
        sleep(DURATION.mul_f64(fastrand::f64())).await;
        second
    };
    let swallowed = [(true, true), (true, false), (false, true)][fastrand::usize(..3)];
    proxy.hold(Held { requests: swallowed.0, responses: swallowed.1 });

    let taken_over = steps.until("taken over", |step| step.instance == OTHER).await;
    proxy.hold(Held::default());
    // What was swallowed arrives now.
    sleep(Duration::from_millis(200).mul_f64(fastrand::f64())).await;
    second.finish(&other).await;
    let healed = |step: &crate::steps::Step| step.instance == SILENCED && step.token > taken_over.token;
    steps.until("healed", healed).await;
    first.finish(&silenced).await;
    (round, steps)
}

/// An instance that contends for the name until it is told to finish.
struct Instance {
    over: CancellationToken,
    tasks: TaskTracker,
}

impl Instance {
    fn start(number: usize, executor: &SingletonExecutor, name: &str, care: Care, steps: &Arc<Steps>) -> Self {
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (job_over, job_tasks, steps) = (over.clone(), tasks.clone(), Arc::clone(steps));
        let run = executor.job(name).unwrap().run(move |lease| {
            let work = work(number, lease, care, Arc::clone(&steps), job_over.clone());
            let escapes = care == Care::Escapes;
            let tasks = job_tasks.clone();
            async move {
                if escapes {
                    drop(tasks.spawn(work).await);
                } else {
                    work.await;
                }
            }
        });
        tasks.spawn(async move { drop(run.await) });
        Self { over, tasks }
    }

    async fn finish(self, executor: &SingletonExecutor) {
        self.over.cancel();
        assert_eq!(executor.shutdown().await.unfinished, []);
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.unwrap();
    }
}

async fn work(number: usize, lease: HeldLease, care: Care, steps: Arc<Steps>, over: CancellationToken) {
    while !over.is_cancelled() && (care != Care::Checks || lease.check().is_ok()) {
        steps.take(number, &lease);
        sleep(STEP).await;
    }
}
