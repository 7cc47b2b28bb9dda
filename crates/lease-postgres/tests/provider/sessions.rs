//! Sessions: their time zones, isolation levels and limits, and pools that are a service's own.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    deadpool_postgres::{Manager, Pool},
    lease_core::{Acquisition, ErrorKind, LeaseStore, clock::LocalInstant},
    tokio_postgres::{Config, NoTls, types::Type},
};
use tokio::sync::Barrier;

use crate::{
    server::PATIENCE,
    support::{Schema, granted, name, owner, refused, renewed, seconds},
};

/// A pool as a service makes it, whose sessions have these settings.
fn pool(schema: &Schema, settings: &str, size: usize) -> Pool {
    let mut driver: Config = schema.driver.clone();
    driver.options(format!("{} {settings}", driver.get_options().unwrap()));
    Pool::builder(Manager::new(driver, NoTls)).max_size(size).build().unwrap()
}

fn on_pool(pool: &Pool) -> PostgresLeaseStore {
    PostgresLeaseStore::from_pool(pool.clone()).operation_timeout(PATIENCE).build().unwrap()
}

/// S1, S8, RC-06: under stricter isolation levels one of many wins, the others are refused, and nobody sees a serialization failure.
async fn one_wins(stores: &[PostgresLeaseStore], round: usize) {
    const CONTENDERS: usize = 32;
    let start = Arc::new(Barrier::new(CONTENDERS));
    let contenders = (0..CONTENDERS).map(|number| {
        let (store, start) = (stores[number % stores.len()].clone(), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            let job = name(&format!("job-{}", round / 2));
            store.try_acquire(&job, &owner(&format!("{round}-{number}")), seconds(600)).await.unwrap()
        })
    });
    let answers = join_all(contenders).await;
    assert_eq!(answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_acquired()).count(), 1);
}

/// S8, RC-06: on a service's own pool, whose role has a stricter default isolation level.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn stricter_isolation_levels_leak_no_errors() {
    for level in [r"repeatable\ read", "serializable"] {
        let schema = Schema::new().await;
        let pools: Vec<_> =
            (0..4).map(|_| pool(&schema, &format!("-c default_transaction_isolation={level}"), 4)).collect();
        let isolation = pools[0].get().await.unwrap().query_one("SHOW transaction_isolation", &[]).await.unwrap();
        assert_eq!(isolation.get::<_, String>(0), level.replace('\\', ""));
        let stores: Vec<_> = pools.iter().map(on_pool).collect();
        for round in 0..30 {
            one_wins(&stores, round).await;
            // Every other round is about a lease that has run out.
            if round % 2 == 0 {
                schema.foreign.expire(&format!("job-{}", round / 2)).await;
            }
        }
        // A renewal and an attempt at the same moment: the renewal goes through.
        granted(&stores[0], "job", "a", seconds(600)).await;
        for _ in 0..50 {
            tokio::join!(
                async { renewed(&stores[0], "job", "a", seconds(600)).await },
                async { renewed(&stores[1], "job", "a", seconds(600)).await },
                async { refused(&stores[2], "job", "b").await },
            );
        }
    }
}

/// S8, RC-06, OB-03: on connections of the store's own, a role's isolation level and lock timeout do not count, and the server's log
/// knows nothing of contention.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn sessions_of_the_stores_own_are_read_committed() {
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    for setting in
        ["default_transaction_isolation = 'serializable'", "lock_timeout = '1ms'", "statement_timeout = '1ms'"]
    {
        schema.foreign.execute(&format!("ALTER ROLE postgres SET {setting}")).await;
    }
    let before = server.cluster().unwrap().log().unwrap().len();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(schema.store().await);
    }
    for round in 0..30 {
        one_wins(&stores, round).await;
        if round % 2 == 0 {
            schema.foreign.expire(&format!("job-{}", round / 2)).await;
        }
    }
    assert_nothing_logged(&server, before);
}

/// S7, S8: a role's lock timeout on a service's own pool: a renewal waits for a lock all the same, and an attempt is refused.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_roles_lock_timeout_leaks_no_errors() {
    let schema = Schema::new().await;
    let store = on_pool(&pool(&schema, "-c lock_timeout=10", 2));
    let blocking = schema.client().await;
    granted(&store, "job", "a", seconds(600)).await;
    blocking.execute("BEGIN; SELECT FROM singleton_leases WHERE name = 'job' FOR UPDATE").await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { renewed(&store, "job", "a", seconds(600)).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    blocking.execute("COMMIT").await;
    waiting.await.unwrap();

    let impatient = pool(&schema, "-c lock_timeout=10", 2);
    let impatient = PostgresLeaseStore::from_pool(impatient).operation_timeout(Duration::from_secs(1)).build().unwrap();
    blocking.execute("BEGIN; INSERT INTO singleton_leases VALUES ('new', 'x', 1, now(), now())").await;
    assert_eq!(refused(&impatient, "new", "a").await.remaining, Duration::ZERO);
    blocking.execute("ROLLBACK").await;
    granted(&impatient, "new", "a", seconds(600)).await;
}

/// S12, S13, PE-01, PE-02: a pool that a service has emptied, and that would wait for ever, is `PoolTimeout` within the operation
/// timeout; and what it gives is given back.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn an_emptied_pool_is_a_timeout_of_its_own_kind() {
    let schema = Schema::new().await;
    let pool = pool(&schema, "", 2);
    let limit = Duration::from_millis(300);
    let store = PostgresLeaseStore::from_pool(pool.clone()).operation_timeout(limit).build().unwrap();
    granted(&store, "job", "a", seconds(600)).await;
    let (first, second) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let (job, a) = (name("job"), owner("a"));
    let started = LocalInstant::now();
    let errors = [
        store.try_acquire(&job, &a, seconds(9)).await.map(drop),
        store.renew(&job, &a, seconds(9)).await.map(drop),
        store.release(&job, &a).await.map(drop),
        store.release_after(&job, &a, seconds(9)).await.map(drop),
        store.migrate().await,
    ];
    let took = LocalInstant::now().saturating_duration_since(started);
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PoolTimeout, "{error:?}");
        assert!(error.proves_nothing_happened());
    }
    assert!(took >= limit * 5 && took < limit * 20, "{took:?}");
    drop((first, second));
    renewed(&store, "job", "a", seconds(600)).await;
    assert_eq!(pool.status().available, pool.status().size);
}

/// S2, CT-02, CT-18: sessions in other time zones write and read the same instants.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn time_zones_make_no_difference() {
    let schema = Schema::new().await;
    let mut stores = Vec::new();
    for zone in ["Pacific/Kiritimati", "America/Los_Angeles", "UTC"] {
        let mut driver = schema.driver.clone();
        driver.options(format!("{} -c timezone={zone}", driver.get_options().unwrap()));
        stores.push(PostgresLeaseStore::connect(PostgresConfig::new(driver)).await.unwrap());
    }
    let day = 26 * 60 * 60;
    for (index, store) in stores.iter().enumerate() {
        let job = format!("job-{index}");
        granted(store, &job, "a", seconds(day)).await;
        let token = granted(store, &job, "a", seconds(day)).await;
        let row = schema.foreign.row(&job).await.unwrap();
        assert_eq!(row.expires_at - row.acquired_at, 26 * 60 * 60 * 1_000_000);
        assert_eq!(row.acquired_at, row.token);
        assert!((schema.foreign.clock().await - row.acquired_at).abs() < 60_000_000);
        for other in &stores {
            let holder = refused(other, &job, "b").await;
            let left = holder.remaining.as_secs_f64();
            assert!(left > 26.0 * 3600.0 - 60.0 && left <= 26.0 * 3600.0, "{left}");
            assert_eq!(renewed(other, &job, "a", seconds(day)).await, token);
        }
    }
}

/// S10, CT-03: durations are absolute, also across a change of the clocks: what the statements add is no day of a calendar.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn durations_are_absolute_across_a_change_of_the_clocks() {
    let schema = Schema::new().await;
    let expression = "interval '1 microsecond'";
    for statement in ["acquire", "renew", "renew_many", "release_after"] {
        let path = format!("{}/src/sql/{statement}.sql", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&format!("$3 * {expression}")), "{statement}");
    }
    schema.foreign.execute("SET timezone = 'Europe/Amsterdam'").await;
    for base in ["2026-03-28 12:00", "2026-03-29 01:59:59.999999", "2026-10-24 12:00", "2026-10-25 02:30"] {
        for hours in [1, 2, 26, 365 * 24] {
            let micros: i64 = hours * 60 * 60 * 1_000_000;
            let sql = format!(
                "SELECT (extract(epoch FROM '{base}'::timestamptz + $1 * {expression}) * 1000000)::bigint \
                 - (extract(epoch FROM '{base}'::timestamptz) * 1000000)::bigint"
            );
            let statement = schema.foreign.0.prepare_typed(&sql, &[Type::INT8]);
            let statement = statement.await.unwrap();
            let row = schema.foreign.0.query_one(&statement, &[&micros]).await.unwrap();
            assert_eq!(row.get::<_, i64>(0), micros, "{base} and {hours} h");
        }
    }
}

/// S1, S8, RC-01, RC-07, OB-03: 64 contenders for a new name, five hundred times: one winner each, no error, and nothing in the
/// server's log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn of_sixty_four_contenders_one_wins() {
    const CONTENDERS: usize = 64;
    let server = PostgresServer::local("").unwrap();
    let schema = Schema::on(&server).await;
    let before = server.cluster().unwrap().log().unwrap().len();
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(schema.store().await);
    }
    for round in 0..500 {
        let start = Arc::new(Barrier::new(CONTENDERS));
        let contenders = (0..CONTENDERS).map(|number| {
            let (store, start) = (stores[number % stores.len()].clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let (job, contender) = (name(&format!("job-{round}")), owner(&format!("contender-{number}")));
                store.try_acquire(&job, &contender, seconds(600)).await.unwrap()
            })
        });
        let mut winners = 0;
        for answer in join_all(contenders).await {
            match answer.unwrap() {
                Acquisition::Acquired(_) => winners += 1,
                Acquisition::Held(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(winners, 1, "round {round}");
    }
    assert_nothing_logged(&server, before);
}

/// Shows that the server has logged nothing worth a look since its log had this length.
fn assert_nothing_logged(server: &PostgresServer, before: usize) {
    let log = server.cluster().unwrap().log().unwrap().split_off(before);
    assert!(["WARNING", "ERROR", "FATAL", "PANIC"].iter().all(|level| !log.contains(level)), "{log}");
}
