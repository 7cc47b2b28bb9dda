//! A schema of a test's own, and stores and executors on it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{SingletonExecutor, SingletonOptions},
    tokio_postgres::{
        Client, Config,
        types::{FromSqlOwned, ToSql},
    },
};
use tokio::time::timeout;

use crate::server::{PATIENCE, address, connect, driver, elsewhere};

/// A schema with the table, on the server that tests share, and a session there that knows nothing of leases.
pub(crate) struct Schema {
    pub(crate) name: String,
    driver: Config,
    pub(crate) foreign: Client,
}

impl Schema {
    pub(crate) async fn new() -> Self {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lease_executor_{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let mut driver = driver(PostgresServer::shared());
        let setup = connect(&driver).await;
        setup.batch_execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")).await.unwrap();
        driver.options(format!("-c search_path={name}"));
        let foreign = connect(&driver).await;
        let schema = Self { name, driver, foreign };
        schema.store().await.migrate().await.unwrap();
        schema
    }

    /// Where the server listens, for a proxy.
    pub(crate) fn address(&self) -> String {
        address(&self.driver)
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::new(self.driver.clone())
    }

    /// A configuration whose way to the server leads through another port of this machine.
    pub(crate) fn through(&self, port: u16) -> PostgresConfig {
        let mut driver = elsewhere(&self.driver, port);
        // The server's list of sessions tells a schema's stores by it.
        driver.application_name(&self.name);
        PostgresConfig::new(driver).schema(&self.name)
    }

    pub(crate) async fn store(&self) -> PostgresLeaseStore {
        PostgresLeaseStore::connect(self.config().operation_timeout(PATIENCE)).await.unwrap()
    }

    /// Another session on the schema.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.driver).await
    }

    pub(crate) async fn one<T: FromSqlOwned>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> T {
        self.foreign.query_one(sql, parameters).await.unwrap().get(0)
    }

    /// Waits until the answer of a query is true.
    pub(crate) async fn until(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) {
        let waiting = async {
            while !self.one::<bool>(sql, parameters).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never true: {sql}"));
    }
}

/// Options under which a job that is not told to stop has 250 ms after its deadline, and one that is told has 550 ms: longer than a
/// busy machine holds a step up between the look at the clock and the record of the step.
pub(crate) fn short_leases() -> SingletonOptions {
    SingletonOptions::enabled()
        .duration(DURATION)
        .renew_interval(Duration::from_millis(300))
        .grace(Duration::from_millis(300))
        .margin(Duration::from_millis(250))
        .poll_interval(Duration::from_millis(200))
        .operation_timeout(Duration::from_secs(1))
}

/// The duration of [`short_leases`].
pub(crate) const DURATION: Duration = Duration::from_millis(1500);

pub(crate) fn executor(store: &PostgresLeaseStore, options: SingletonOptions) -> SingletonExecutor {
    SingletonExecutor::new(store.clone(), options).unwrap()
}
