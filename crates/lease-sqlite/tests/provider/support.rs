//! A database file of a test's own, and a foreign client that looks at it and gets in the way.

use std::{fs, path::PathBuf, time::Duration};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{Acquisition, FencingToken, Holder, LeaseDuration, LeaseName, LeaseStore, OwnerId},
    rusqlite::{Connection, Params, types::FromSql},
};
use tempfile::TempDir;

/// Long enough for whatever must happen, on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A file in a directory that goes with the test.
pub(crate) struct Database {
    directory: TempDir,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("leases.db")
    }

    pub(crate) fn config(&self) -> SqliteConfig {
        SqliteConfig::new(self.path()).operation_timeout(PATIENCE)
    }

    /// A store whose table is there.
    pub(crate) async fn store(&self) -> SqliteLeaseStore {
        migrated(self.config()).await
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.directory.path().join("leases.db-wal")
    }

    /// The commits in the write-ahead log: frames whose header has the database's size, see "WAL Format" in SQLite's file format.
    pub(crate) fn logged_commits(&self) -> usize {
        const HEADER: usize = 32;
        const FRAME: usize = 24 + 4096;
        let log = fs::read(self.log_path()).unwrap();
        let frames = log.get(HEADER..).unwrap_or_default().chunks_exact(FRAME);
        frames.filter(|frame| frame[4..8] != [0; 4]).count()
    }

    /// A client that knows nothing of leases.
    pub(crate) fn foreign(&self) -> Foreign {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        Foreign(connection)
    }
}

/// Connects, and creates the table.
pub(crate) async fn migrated(config: SqliteConfig) -> SqliteLeaseStore {
    let store = SqliteLeaseStore::connect(config).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// A foreign client's connection.
pub(crate) struct Foreign(pub(crate) Connection);

impl Foreign {
    pub(crate) fn execute(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap();
    }

    pub(crate) fn one<T: FromSql>(&self, sql: &str, parameters: impl Params) -> T {
        self.0.query_row(sql, parameters, |row| row.get(0)).unwrap()
    }

    /// Holds the write lock until `unlock`.
    pub(crate) fn lock(&self) {
        self.execute("BEGIN IMMEDIATE");
    }

    pub(crate) fn unlock(&self) {
        self.execute("ROLLBACK");
    }

    /// Moves everything from the write-ahead log into the database.
    pub(crate) fn empty_log(&self) {
        assert_eq!(self.one::<i64>("PRAGMA wal_checkpoint(TRUNCATE)", []), 0);
    }

    /// All columns of the row, to tell whether anything changed.
    pub(crate) fn row(&self, name: &LeaseName) -> Option<Row> {
        let sql = "SELECT owner, token, acquired_at, expires_at, hand_over_at FROM singleton_leases WHERE name = ?1";
        let mut statement = self.0.prepare(sql).unwrap();
        let mut rows = statement.query([name.as_str()]).unwrap();
        rows.next().unwrap().map(|row| Row {
            owner: row.get(0).unwrap(),
            token: row.get(1).unwrap(),
            acquired_at: row.get(2).unwrap(),
            expires_at: row.get(3).unwrap(),
            hand_over_at: row.get(4).unwrap(),
        })
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) owner: Option<String>,
    pub(crate) token: i64,
    pub(crate) acquired_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) hand_over_at: Option<i64>,
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
pub(crate) async fn granted(store: &SqliteLeaseStore, lease: &str, to: &str, duration: LeaseDuration) -> FencingToken {
    match store.try_acquire(&name(lease), &owner(to), duration).await.unwrap() {
        Acquisition::Acquired(token) => token,
        other => panic!("{lease} should be free: {other:?}"),
    }
}

/// Is refused a lease, and learns by whom.
pub(crate) async fn refused(store: &SqliteLeaseStore, lease: &str, to: &str) -> Holder {
    match store.try_acquire(&name(lease), &owner(to), seconds(30)).await.unwrap() {
        Acquisition::Held(holder) => holder,
        other => panic!("{lease} should be held: {other:?}"),
    }
}
