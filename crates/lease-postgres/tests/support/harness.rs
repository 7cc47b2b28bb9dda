//! The suite's way to PostgreSQL: a schema for each case, and a network that can be held still.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lease_conformance::{
    Harness, Row, Undo,
    faults::{Held, Proxy},
    servers::PostgresServer,
};
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, OwnerId, StoreError, async_trait},
    tokio_postgres::{Client, Config},
};

use crate::server::{address, connect, driver, elsewhere};

const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How the stores reach the server; the hooks go there themselves.
pub(crate) trait Way: Send + Sync + 'static {
    /// The host and the port where a way to this server begins.
    fn to(driver: &Config) -> String;
}

/// No detour.
pub(crate) struct Direct;

impl Way for Direct {
    fn to(driver: &Config) -> String {
        address(driver)
    }
}

pub(crate) struct PostgresHarness<W = Direct> {
    /// A session of its own on the case's schema, for the hooks.
    client: Client,
    /// What other sessions on that schema are made of.
    config: Config,
    schema: String,
    proxy: Arc<Proxy>,
    way: PhantomData<W>,
}

impl<W: Way> PostgresHarness<W> {
    fn store_config(&self) -> PostgresConfig {
        let driver = elsewhere(&self.config, self.proxy.address().port());
        PostgresConfig::new(driver).schema(&self.schema).operation_timeout(OPERATION_TIMEOUT)
    }

    async fn execute(&self, sql: &str, name: &LeaseName) {
        self.client.execute(sql, &[&name.as_str()]).await.unwrap();
    }
}

#[async_trait]
impl<W: Way> Harness for PostgresHarness<W> {
    type Store = PostgresLeaseStore;

    async fn start() -> Self {
        static CASES: AtomicUsize = AtomicUsize::new(0);
        let mut config = driver(PostgresServer::shared());
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let schema = format!("lease_case_{}_{case}", std::process::id());
        let setup = connect(&config).await;
        setup.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await.unwrap();
        config.options(format!("-c search_path={schema}"));
        let client = connect(&config).await;
        let version: String = client.query_one("SHOW server_version", &[]).await.unwrap().get(0);
        let product = version.split(' ').next().unwrap_or_default();
        lease_conformance::report(&format!("PostgreSQL {product}"), &PostgresServer::shared().source().to_string());
        let proxy = Arc::new(Proxy::start(W::to(&config)).await.unwrap());
        let harness = Self { client, config, schema, proxy, way: PhantomData };
        harness.store().await.migrate().await.unwrap();
        harness
    }

    async fn store(&self) -> PostgresLeaseStore {
        PostgresLeaseStore::connect(self.store_config()).await.unwrap()
    }

    async fn expire(&self, name: &LeaseName) {
        let sql = "UPDATE singleton_leases SET expires_at = least(expires_at, clock_timestamp()) WHERE name = $1";
        self.execute(sql, name).await;
    }

    fn precision(&self) -> Duration {
        // Two clocks of one machine, and the least wait for which a grant is not renewed.
        Duration::from_millis(5)
    }

    fn operation_timeout(&self) -> Duration {
        OPERATION_TIMEOUT
    }

    async fn row(&self, name: &LeaseName) -> Option<Row> {
        let sql = "SELECT owner, token, (extract(epoch FROM acquired_at) * 1000000)::bigint, \
                   (extract(epoch FROM expires_at) * 1000000)::bigint, \
                   (extract(epoch FROM hand_over_at) * 1000000)::bigint FROM singleton_leases WHERE name = $1";
        let row = self.client.query_opt(sql, &[&name.as_str()]).await.unwrap()?;
        Some(Row {
            owner: row.get::<_, Option<String>>(0).map(|owner| OwnerId::new(owner).unwrap()),
            token: row.get(1),
            acquired_at: row.get(2),
            expires_at: row.get(3),
            hand_over_at: row.get(4),
        })
    }

    async fn set_row(&self, name: &LeaseName, row: Row) {
        let sql = "UPDATE singleton_leases SET owner = $2, token = $3, \
                   acquired_at = 'epoch'::timestamptz + $4::bigint::float8 * interval '1 microsecond', \
                   expires_at = 'epoch'::timestamptz + $5::bigint::float8 * interval '1 microsecond', \
                   hand_over_at = 'epoch'::timestamptz + $6::bigint::float8 * interval '1 microsecond' WHERE name = $1";
        let owner = row.owner.as_ref().map(OwnerId::as_str);
        let times = (row.acquired_at, row.expires_at, row.hand_over_at);
        self.client.execute(sql, &[&name.as_str(), &owner, &row.token, &times.0, &times.1, &times.2]).await.unwrap();
    }

    async fn clock(&self) -> i64 {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.execute("DELETE FROM singleton_leases WHERE name = $1", name).await;
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.store().await.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        self.execute("UPDATE singleton_leases SET hand_over_at = clock_timestamp() WHERE name = $1", name).await;
    }

    async fn drop_table(&self) -> Undo {
        self.client.batch_execute("DROP TABLE singleton_leases").await.unwrap();
        let store = self.store().await;
        Undo::new(async move { store.migrate().await.unwrap() })
    }

    async fn lock_row(&self, name: &LeaseName) -> Undo {
        let locking = connect(&self.config).await;
        locking.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM singleton_leases WHERE name = $1 FOR UPDATE";
        if locking.query_opt(lock, &[&name.as_str()]).await.unwrap().is_none() {
            let insert = "INSERT INTO singleton_leases (name, owner, token, acquired_at, expires_at) \
                          VALUES ($1, 'foreign', 1, now(), now() + interval '1 h')";
            locking.execute(insert, &[&name.as_str()]).await.unwrap();
        }
        Undo::new(async move { locking.batch_execute("ROLLBACK").await.unwrap() })
    }

    async fn stall(&self) -> Undo {
        self.proxy.hold(Held { requests: true, responses: true });
        let proxy = Arc::clone(&self.proxy);
        Undo::new(async move { proxy.hold(Held::default()) })
    }
}
