//! How the suite acts as the database: a foreign client of the same file.
#![expect(clippy::unwrap_used, reason = "a harness that does not work must fail its test")]

use std::{path::PathBuf, time::Duration};

use lease_conformance::{Harness, Row, Undo};
use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, OwnerId, StoreError, async_trait},
    rusqlite::{Connection, OptionalExtension, Params},
};
use tempfile::TempDir;

/// A file in a directory that goes with the case.
#[derive(Debug)]
pub(crate) struct SqliteHarness(TempDir);

impl SqliteHarness {
    fn path(&self) -> PathBuf {
        self.0.path().join("leases.db")
    }

    fn foreign(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    fn execute(&self, sql: &str, parameters: impl Params) {
        self.foreign().execute(sql, parameters).unwrap();
    }
}

#[async_trait]
impl Harness for SqliteHarness {
    type Store = SqliteLeaseStore;

    async fn start() -> Self {
        lease_conformance::report(&format!("SQLite {}", rusqlite::version()), "compiled in");
        let harness = Self(tempfile::tempdir().unwrap());
        harness.store().await.migrate().await.unwrap();
        harness
    }

    async fn store(&self) -> SqliteLeaseStore {
        SqliteLeaseStore::connect(SqliteConfig::new(self.path())).await.unwrap()
    }

    async fn expire(&self, name: &LeaseName) {
        let now = self.clock().await;
        let sql = "UPDATE singleton_leases SET expires_at = min(expires_at, ?2) WHERE name = ?1";
        self.execute(sql, (name.as_str(), now));
    }

    /// The columns have microseconds; the rest is for a wall clock that is being adjusted.
    fn precision(&self) -> Duration {
        Duration::from_millis(5)
    }

    async fn row(&self, name: &LeaseName) -> Option<Row> {
        let sql = "SELECT owner, token, acquired_at, expires_at, hand_over_at FROM singleton_leases WHERE name = ?1";
        let row = self.foreign().query_row(sql, [name.as_str()], |row| {
            Ok(Row {
                owner: row.get::<_, Option<String>>(0)?.map(|owner| OwnerId::new(owner).unwrap()),
                token: row.get(1)?,
                acquired_at: row.get(2)?,
                expires_at: row.get(3)?,
                hand_over_at: row.get(4)?,
            })
        });
        row.optional().unwrap()
    }

    async fn set_row(&self, name: &LeaseName, row: Row) {
        let sql = "UPDATE singleton_leases SET owner = ?2, token = ?3, acquired_at = ?4, expires_at = ?5, hand_over_at = ?6 \
                   WHERE name = ?1";
        let owner = row.owner.as_ref().map(OwnerId::as_str);
        self.execute(sql, (name.as_str(), owner, row.token, row.acquired_at, row.expires_at, row.hand_over_at));
    }

    /// This host's wall clock is the database's (S2).
    async fn clock(&self) -> i64 {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        i64::try_from(since.as_micros()).unwrap()
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.execute("DELETE FROM singleton_leases WHERE name = ?1", [name.as_str()]);
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.store().await.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        self.execute("UPDATE singleton_leases SET hand_over_at = acquired_at WHERE name = ?1", [name.as_str()]);
    }

    async fn drop_table(&self) -> Undo {
        self.execute("DROP TABLE singleton_leases", []);
        let store = self.store().await;
        Undo::new(async move { store.migrate().await.unwrap() })
    }

    /// The one disturbance that SQLite knows: a foreign write transaction.
    async fn stall(&self) -> Undo {
        let foreign = self.foreign();
        foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
        Undo::new(async move { foreign.execute_batch("ROLLBACK").unwrap() })
    }
}
