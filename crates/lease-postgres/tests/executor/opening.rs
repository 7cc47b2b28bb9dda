//! Connections that take longer to open than anybody waits for them.

use std::time::Duration;

use lease_conformance::faults::{Delay, Proxy};
use lease_postgres::{
    PostgresLeaseStore,
    lease_core::{ErrorKind, LeaseDuration, LeaseName, LeaseStore, OwnerId, SingletonOptions, StoreError},
};
use tokio::time::timeout;

use crate::{
    server::PATIENCE,
    support::{Schema, executor},
};

/// How long one call waits, and how much longer a connection takes.
const LIMIT: Duration = Duration::from_millis(600);
const SLOW: Duration = Duration::from_millis(900);

/// The sessions of a store behind the proxy.
const SESSIONS: &str = "FROM pg_stat_activity WHERE application_name = $1";

struct Way {
    schema: Schema,
    proxy: Proxy,
}

impl Way {
    async fn new() -> Self {
        let schema = Schema::new().await;
        let proxy = Proxy::start(schema.address()).await.unwrap();
        Self { schema, proxy }
    }

    /// A store that has no connection left, behind a way on which each new connection takes `delay`.
    async fn store(&self, limit: Duration, delay: Duration) -> PostgresLeaseStore {
        let config = self.schema.through(self.proxy.address().port()).pool_size(2).operation_timeout(limit);
        let connecting = async {
            loop {
                match PostgresLeaseStore::connect(config.clone()).await {
                    Ok(store) => return store,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
                }
            }
        };
        let store = timeout(PATIENCE, connecting).await.unwrap();
        self.proxy.delay(Delay { connections: delay, ..Delay::default() });
        let end = format!("SELECT pg_terminate_backend(pid) {SESSIONS}");
        self.schema.foreign.query(&end, &[&self.schema.name]).await.unwrap();
        self.schema.until(&format!("SELECT count(*) = 0 {SESSIONS}"), &[&self.schema.name]).await;
        store
    }
}

async fn acquire(store: &PostgresLeaseStore, name: &str) -> Result<bool, StoreError> {
    let (name, owner) = (LeaseName::new(name).unwrap(), OwnerId::new("a").unwrap());
    Ok(store.try_acquire(&name, &owner, LeaseDuration::new(PATIENCE).unwrap()).await?.is_acquired())
}

/// CL-14, S12: a connection that takes longer to open than a call may take is the next call's to use, so that a store whose connections
/// all take so long works; and it has no more of them than its pool may have.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_connection_outlives_the_call_that_wanted_it() {
    let way = Way::new().await;
    let store = way.store(LIMIT, SLOW).await;
    let error = acquire(&store, "first").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let callers = (0..6).map(|index| {
        let store = &store;
        async move {
            let name = format!("job-{index}");
            while !acquire(store, &name).await.unwrap_or(false) {}
        }
    });
    timeout(PATIENCE, futures::future::join_all(callers)).await.expect("the store gets a connection");
    let sessions: i64 = way.schema.one(&format!("SELECT count(*) {SESSIONS}"), &[&way.schema.name]).await;
    assert!((1..=2).contains(&sessions), "{sessions} sessions for a pool of 2");
}

/// CL-14, E5: the same for calls that an executor gives up earlier than the store would, and for connections that are slow only at first.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn an_executor_waits_for_a_slow_connection() {
    let way = Way::new().await;
    for stays_slow in [true, false] {
        let store = way.store(PATIENCE, if stays_slow { SLOW } else { SLOW * 2 }).await;
        let options = SingletonOptions::enabled().poll_interval(Duration::from_millis(50)).operation_timeout(LIMIT);
        let executor = executor(&store, options);
        let ran = executor.job(format!("job-{stays_slow}")).unwrap().run(|lease| async move { lease.is_held() });
        if !stays_slow {
            tokio::time::sleep(LIMIT).await;
            way.proxy.delay(Delay::default());
        }
        assert!(timeout(PATIENCE, ran).await.expect("the executor gets a connection").unwrap());
        executor.shutdown().await;
        way.proxy.delay(Delay::default());
    }
}

/// CL-04, S12: a connection that never comes about holds up the calls that wait for it, and none that begins later.
#[tokio::test]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn a_connection_that_never_comes_about_holds_nobody_up() {
    let way = Way::new().await;
    let store = way.store(Duration::from_secs(5), Duration::MAX).await;
    let gave_up = timeout(Duration::from_millis(100), acquire(&store, "job")).await;
    assert!(gave_up.is_err(), "{gave_up:?}");
    way.proxy.delay(Delay::default());
    assert!(acquire(&store, "job").await.unwrap());
}
