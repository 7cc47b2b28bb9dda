//! A schema of a test's own, a foreign client that looks at it and gets in the way, and verbs that must go one way.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{Acquisition, FencingToken, Holder, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal},
    tokio_postgres::{
        Client, Config, Row,
        types::{FromSqlOwned, ToSql},
    },
};

use crate::server::{PATIENCE, connect, driver, elsewhere};

/// A schema with the table, on one server.
pub(crate) struct Schema {
    pub(crate) name: String,
    /// Sessions on the schema, with all rights.
    pub(crate) driver: Config,
    pub(crate) foreign: Foreign,
}

impl Schema {
    /// A schema on the server that tests share.
    pub(crate) async fn new() -> Self {
        Self::on(PostgresServer::shared()).await
    }

    /// A schema on a server of the test's own.
    pub(crate) async fn on(server: &PostgresServer) -> Self {
        let schema = Self::without_table(server).await;
        schema.store().await.migrate().await.unwrap();
        schema
    }

    /// A schema that is empty yet.
    pub(crate) async fn without_table(server: &PostgresServer) -> Self {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lease_test_{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let mut driver = driver(server);
        let setup = connect(&driver).await;
        setup.batch_execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")).await.unwrap();
        driver.options(format!("-c search_path={name}"));
        let foreign = Foreign(connect(&driver).await);
        Self { name, driver, foreign }
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::new(self.driver.clone()).operation_timeout(PATIENCE)
    }

    pub(crate) async fn store(&self) -> PostgresLeaseStore {
        PostgresLeaseStore::connect(self.config()).await.unwrap()
    }

    /// Another client on the schema.
    pub(crate) async fn client(&self) -> Foreign {
        Foreign(connect(&self.driver).await)
    }

    /// The driver's configuration with another way to the server.
    pub(crate) fn through(&self, port: u16) -> Config {
        let mut driver = elsewhere(&self.driver, port);
        driver.options(format!("-c search_path={}", self.name));
        driver
    }
}

/// A client that knows nothing of leases.
pub(crate) struct Foreign(pub(crate) Client);

impl Foreign {
    pub(crate) async fn execute(&self, sql: &str) {
        self.0.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn one<T: FromSqlOwned>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> T {
        self.0.query_one(sql, parameters).await.unwrap().get(0)
    }

    /// The row of a lease, times in microseconds.
    pub(crate) async fn row(&self, name: &str) -> Option<Lease> {
        let sql = "SELECT owner, token, (extract(epoch FROM acquired_at) * 1000000)::bigint, \
                   (extract(epoch FROM expires_at) * 1000000)::bigint FROM singleton_leases WHERE name = $1";
        self.0.query_opt(sql, &[&name]).await.unwrap().as_ref().map(Lease::read)
    }

    /// The database's clock in microseconds.
    pub(crate) async fn clock(&self) -> i64 {
        self.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", &[]).await
    }

    /// Makes a lease run out now.
    pub(crate) async fn expire(&self, name: &str) {
        let sql = "UPDATE singleton_leases SET expires_at = clock_timestamp() WHERE name = $1";
        assert_eq!(self.0.execute(sql, &[&name]).await.unwrap(), 1);
    }

    /// The server's number of this session.
    pub(crate) async fn pid(&self) -> i32 {
        self.one("SELECT pg_backend_pid()", &[]).await
    }

    /// Waits until somebody waits for a lock of the session `pid`.
    pub(crate) async fn until_blocked_by(&self, pid: i32) {
        let sql =
            "SELECT EXISTS (SELECT FROM pg_stat_activity AS waiting WHERE $1 = ANY (pg_blocking_pids(waiting.pid)))";
        self.until(sql, &[&pid]).await;
    }

    /// Waits until nobody waits for a lock of the session `pid`.
    pub(crate) async fn until_blocking_nobody(&self, pid: i32) {
        let sql = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity AS waiting WHERE $1 = ANY (pg_blocking_pids(waiting.pid)))";
        self.until(sql, &[&pid]).await;
    }

    /// Waits until the answer of a query is true.
    pub(crate) async fn until(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) {
        let waiting = async {
            while !self.one::<bool>(sql, parameters).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never true: {sql}"));
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) owner: Option<String>,
    pub(crate) token: i64,
    pub(crate) acquired_at: i64,
    pub(crate) expires_at: i64,
}

impl Lease {
    fn read(row: &Row) -> Self {
        Self { owner: row.get(0), token: row.get(1), acquired_at: row.get(2), expires_at: row.get(3) }
    }
}

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

pub(crate) fn owner(text: &str) -> OwnerId {
    OwnerId::new(text).unwrap()
}

pub(crate) fn seconds(seconds: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(seconds)).unwrap()
}

pub(crate) fn millis(millis: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_millis(millis)).unwrap()
}

/// Acquires a lease that must be free.
pub(crate) async fn granted(
    store: &PostgresLeaseStore,
    lease: &str,
    to: &str,
    duration: LeaseDuration,
) -> FencingToken {
    match store.try_acquire(&name(lease), &owner(to), duration).await.unwrap() {
        Acquisition::Acquired(token) => token,
        other => panic!("{lease} should be free: {other:?}"),
    }
}

/// Is refused a lease, and learns by whom.
pub(crate) async fn refused(store: &PostgresLeaseStore, lease: &str, to: &str) -> Holder {
    match store.try_acquire(&name(lease), &owner(to), seconds(30)).await.unwrap() {
        Acquisition::Held(holder) => holder,
        other => panic!("{lease} should be held: {other:?}"),
    }
}

/// Renews a lease that its owner must have.
pub(crate) async fn renewed(
    store: &PostgresLeaseStore,
    lease: &str,
    of: &str,
    duration: LeaseDuration,
) -> FencingToken {
    match store.renew(&name(lease), &owner(of), duration).await.unwrap() {
        Renewal::Renewed { token, .. } => token,
        other => panic!("{lease} should be {of}'s: {other:?}"),
    }
}
