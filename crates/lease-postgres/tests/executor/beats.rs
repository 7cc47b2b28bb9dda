//! A thousand leases in one executor: what a beat costs, and what a slow store or a stranger's lock does to them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lease_conformance::faults::{Delay, Proxy};
use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{
        FencingToken, LeaseDuration, LeaseName, LeaseStore, OwnerId, SingletonExecutor, SingletonOptions, StopReason,
        Term, clock::LocalInstant,
    },
};
use tokio::{sync::watch, time::sleep};
use tokio_util::task::TaskTracker;

use crate::{
    server::PATIENCE,
    support::{Schema, executor},
};

const LEASES: usize = 1000;

/// Counts the UPDATE statements on the table at the server, each with its rows.
const LEDGER: &str = "
CREATE TABLE beats (rows bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %I.beats SELECT count(*) FROM changed', TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE ON singleton_leases REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note();";

/// An executor whose jobs hold all the leases and only wait.
struct Thousand {
    executor: SingletonExecutor,
    /// How many jobs run now.
    running: watch::Sender<usize>,
    /// Why jobs were told to stop.
    stopped: Arc<Mutex<BTreeMap<String, Option<StopReason>>>>,
    tasks: TaskTracker,
}

impl Thousand {
    async fn start(store: &PostgresLeaseStore, options: SingletonOptions) -> Self {
        let executor = executor(store, options.operation_timeout(PATIENCE));
        let thousand =
            Self { executor, running: watch::Sender::new(0), stopped: Arc::default(), tasks: TaskTracker::new() };
        for index in 0..LEASES {
            // Not all at once: the first to be granted are renewed over the same few connections.
            thousand.until_run(index.saturating_sub(8)).await;
            let (running, stopped) = (thousand.running.clone(), Arc::clone(&thousand.stopped));
            let run = thousand.executor.job(format!("job-{index}")).unwrap().run(move |lease| {
                running.send_modify(|running| *running += 1);
                let (running, stopped) = (running.clone(), Arc::clone(&stopped));
                async move {
                    lease.cancelled().cancelled().await;
                    running.send_modify(|running| *running -= 1);
                    stopped.lock().unwrap().insert(lease.name().as_str().to_owned(), lease.stop_reason());
                }
            });
            thousand.tasks.spawn(async move { drop(run.await) });
        }
        thousand.until_run(LEASES).await;
        thousand
    }

    async fn until_run(&self, jobs: usize) {
        let mut running = self.running.subscribe();
        let enough = running.wait_for(|running| *running >= jobs);
        let enough = tokio::time::timeout(PATIENCE, enough).await.is_ok();
        assert!(enough, "{} jobs run", *self.running.borrow());
    }

    fn stopped(&self) -> BTreeMap<String, Option<StopReason>> {
        self.stopped.lock().unwrap().clone()
    }

    async fn finish(self) {
        self.executor.shutdown().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Looks at the table for so long, and answers which leases were ever found to have run out.
async fn lapses(schema: &Schema, span: Duration) -> Vec<String> {
    let until = LocalInstant::now() + span;
    let lapsed = "SELECT array_agg(name) FROM singleton_leases WHERE expires_at <= clock_timestamp()";
    let mut found = Vec::new();
    while !until.has_passed() {
        found.extend(schema.one::<Option<Vec<String>>>(lapsed, &[]).await.unwrap_or_default());
        sleep(Duration::from_millis(50)).await;
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// E4: the renewals of a thousand leases cost one statement a beat, counted at the server, and one round trip, counted on the wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_beat_is_one_statement() {
    const RENEW: Duration = Duration::from_secs(2);
    let schema = Schema::new().await;
    schema.foreign.batch_execute(LEDGER).await.unwrap();
    let proxy = Proxy::start(schema.address()).await.unwrap();
    let config = schema.through(proxy.address().port()).operation_timeout(PATIENCE);
    let store = PostgresLeaseStore::connect(config).await.unwrap();
    let options = SingletonOptions::enabled().duration(RENEW * 6).renew_interval(RENEW);
    let thousand = Thousand::start(&store, options).await;
    schema.foreign.batch_execute("TRUNCATE beats").await.unwrap();
    schema.until("SELECT count(*) >= 2 FROM beats", &[]).await;

    // Between two beats the counts are those of whole beats.
    proxy.round_trips();
    schema.foreign.batch_execute("TRUNCATE beats").await.unwrap();
    let began = LocalInstant::now();
    schema.until("SELECT count(*) >= 6 FROM beats", &[]).await;
    let took = LocalInstant::now().saturating_duration_since(began);
    let trips = proxy.round_trips();
    let beats = schema.one::<Vec<i64>>("SELECT array_agg(rows) FROM beats", &[]).await;
    println!("{beats:?} rows in {trips} round trips in {took:?}, {:?}", thousand.executor.health());
    assert_eq!(thousand.stopped().len(), 0);
    assert!(beats.iter().all(|rows| *rows == 1000), "{beats:?} {:?}", thousand.executor.health());
    assert!((6..=7).contains(&trips), "{trips} round trips");
    // Renewals are up to a tenth early.
    assert!(took >= RENEW.mul_f64(0.9 * 5.0), "six beats in {took:?}");
    thousand.finish().await;
}

/// E4: the server does not come to plan a beat for a few leases when it has seen it often; by such a plan a thousand take 25 times as
/// long.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_beat_stays_as_quick_as_it_was() {
    let schema = Schema::new().await;
    let store = PostgresLeaseStore::connect(schema.config().pool_size(1).operation_timeout(PATIENCE)).await.unwrap();
    let (owner, duration) = (OwnerId::new("a").unwrap(), LeaseDuration::new(PATIENCE).unwrap());
    let mut terms = Vec::new();
    for index in 0..LEASES {
        let name = LeaseName::new(format!("job-{index}")).unwrap();
        assert!(store.try_acquire(&name, &owner, duration).await.unwrap().is_acquired());
        terms.push(Term::new(name, owner.clone(), FencingToken::new(0)));
    }
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = LocalInstant::now();
        let renewals = store.renew_many(&terms, duration).await;
        took.push(LocalInstant::now().saturating_duration_since(began));
        assert!(renewals.iter().all(|renewal| renewal.as_ref().unwrap().is_renewed()));
    }
    let quickest = |some: &[Duration]| some.iter().copied().min().unwrap();
    let (first, later) = (quickest(&took[..5]), quickest(&took[5..]));
    println!("at first {first:?}, later {later:?}");
    assert!(later < first * 5, "at first {first:?}, later {later:?}");
}

/// PE-04, E4: nothing lapses for ten durations while the store takes 100 ms for each answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn nothing_lapses_on_a_slow_store() {
    let schema = Schema::new().await;
    let proxy = Proxy::start(schema.address()).await.unwrap();
    let config = schema.through(proxy.address().port()).operation_timeout(PATIENCE);
    let store = PostgresLeaseStore::connect(config).await.unwrap();
    let duration = Duration::from_secs(5);
    let thousand = Thousand::start(&store, SingletonOptions::enabled().duration(duration)).await;
    proxy.delay(Delay { responses: Duration::from_millis(100), ..Delay::default() });
    let lapsed = lapses(&schema, duration * 10).await;
    let health = thousand.executor.health();
    println!("{health:?}");
    assert_eq!(lapsed.len(), 0, "{:?} and more, {health:?}", lapsed[0]);
    assert_eq!(thousand.stopped().len(), 0, "{:?}, {health:?}", thousand.stopped().pop_first());
    proxy.delay(Delay::default());
    thousand.finish().await;
}

/// E4: a row that a stranger has locked for two durations costs at most that one lease, which is won again afterwards; no other lapses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_locked_row_costs_one_lease() {
    const LOCKED: &str = "job-500";
    let schema = Schema::new().await;
    let store = PostgresLeaseStore::connect(schema.config()).await.unwrap();
    let duration = Duration::from_secs(5);
    let thousand = Thousand::start(&store, SingletonOptions::enabled().duration(duration)).await;
    let stranger = schema.client().await;
    let lock = format!("BEGIN; SELECT FROM singleton_leases WHERE name = '{LOCKED}' FOR UPDATE");
    stranger.batch_execute(&lock).await.unwrap();
    let lapsed = lapses(&schema, duration * 2).await;
    stranger.batch_execute("ROLLBACK").await.unwrap();
    let health = thousand.executor.health();
    println!("{health:?}");
    let first = lapsed.first().cloned().unwrap_or_default();
    assert_eq!((lapsed.len(), first.as_str()), (1, LOCKED), "{health:?}");
    let mut stopped = thousand.stopped();
    let reason = stopped.remove(LOCKED).expect("the job is told");
    assert!(matches!(reason, Some(StopReason::DeadlinePassed { .. })), "{reason:?}");
    assert_eq!(stopped.len(), 0, "{:?}, {health:?}", stopped.pop_first());
    thousand.until_run(LEASES).await;
    thousand.finish().await;
}
