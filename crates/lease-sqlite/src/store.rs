//! The store: which thread serves a verb, and until when.

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use lease_core::{
    Acquisition, ErrorKind, Holder, LeaseDuration, LeaseName, LeaseStore, Operation, OwnerId, Renewal, StoreError,
    Term, clock::LocalInstant,
};
use rusqlite::Connection;

use crate::{
    SqliteConfig,
    config::{Location, Settings},
    connection::{Role, Slot},
    error::Failure,
    migrate::migrate,
    session::Session,
    sql::Sql,
    worker::Worker,
};

/// The first version with STRICT tables; RETURNING is older.
const OLDEST_SQLITE: i32 = 3_037_000;

/// A lease store in a SQLite file.
///
/// It has two threads with a connection each: one writes, and one reads while that is busy, so that a refused attempt waits for no
/// writer. Clones share them. When the last clone is dropped, the threads close their connections and end, and nobody waits for that.
///
/// Every call needs a tokio runtime whose clock is enabled and not paused, and ends within
/// [`operation_timeout`](SqliteConfig::operation_timeout). A call that waits for another process's write transaction and is dropped,
/// or runs out of time, writes nothing any more; then the error is [`ErrorKind::Busy`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_sqlite::{SqliteLeaseStore, lease_core::{LeaseDuration, LeaseName, LeaseStore, OwnerId}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", directory.path().join("leases.db").display());
/// let store = SqliteLeaseStore::connect(url).await?; // for example "sqlite:leases.db"
/// store.migrate().await?;
///
/// let (name, owner) = (LeaseName::new("nightly-report")?, OwnerId::new("web-1:4711")?);
/// let duration = LeaseDuration::new(Duration::from_secs(30))?;
/// assert!(store.try_acquire(&name, &owner, duration).await?.is_acquired());
/// assert!(store.release(&name, &owner).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteLeaseStore {
    reader: Worker,
    writer: Worker,
    pub(crate) sql: Arc<Sql>,
    pub(crate) settings: Arc<Settings>,
}

impl SqliteLeaseStore {
    /// Opens the database that a [`SqliteConfig`] or a store URL names.
    ///
    /// A missing file is created unless the configuration says otherwise; its table is created by [`migrate`](Self::migrate). The
    /// file's journal becomes a write-ahead log, for good.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value. [`ErrorKind::Unsupported`]: SQLite is older than 3.37, or the
    /// file lies on a network file system. [`ErrorKind::Unavailable`], [`ErrorKind::Denied`] and [`ErrorKind::ReadOnly`] say what is
    /// in the way of the file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened. The file may have been created.
    pub async fn connect(config: impl Into<SqliteConfig>) -> Result<Self, StoreError> {
        let config = config.into();
        Self::open(&config).await.map_err(|failure| failure.into_error(Operation::Connect))
    }

    /// Creates the table when it is not there, and checks its columns when it is.
    ///
    /// Any number of processes may call this at the same time. It needs the right to write only when there is something to do, and
    /// never drops anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotMigrated`] when there is a table of this name that will not do; the error names the column.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future the table is there, or it is not.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let sql = Arc::clone(&self.sql);
        let migrated = self.writer.call(self.deadline(), move |session| migrate(session, &sql));
        migrated.await.map_err(|failure| failure.into_error(Operation::Migrate))
    }

    async fn open(config: &SqliteConfig) -> Result<Self, Failure> {
        let settings = config.settings()?;
        check_version(rusqlite::version_number())?;
        let deadline = LocalInstant::now() + settings.operation_timeout;
        let writer = spawn("lease-writer", &settings, Role::Writer)?;
        // The writer goes first: it creates the file.
        writer.call(deadline, open_connection).await?;
        let reader = match settings.location {
            Location::File(_) => spawn("lease-reader", &settings, Role::Reader)?,
            // A second connection would see another database.
            Location::Memory => writer.clone(),
        };
        reader.call(deadline, open_connection).await?;
        let sql = Arc::new(Sql::new(&settings.table));
        Ok(Self { reader, writer, sql, settings: Arc::new(settings) })
    }

    /// Makes an attempt, whose refusal must not wait behind another call's wait for the write lock.
    ///
    /// A writer that is idle refuses as fast as the reader would, and a grant is spared the way from one thread to the other.
    async fn attempt(&self, attempt: Attempt) -> Result<Acquisition, Failure> {
        let deadline = self.deadline();
        let at_once = attempt.clone();
        if let Some(answer) = self.writer.call_if_idle(deadline, move |session| at_once.make(session)).await {
            return answer;
        }
        let guard = attempt.clone();
        match self.reader.call(deadline, move |session| guard.refusal(session)).await? {
            Some(holder) => Ok(Acquisition::Held(holder)),
            None => self.writer.call(deadline, move |session| attempt.make(session)).await,
        }
    }

    pub(crate) fn deadline(&self) -> LocalInstant {
        LocalInstant::now() + self.settings.operation_timeout
    }

    /// Runs one verb in a write transaction of its own.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        deadline: LocalInstant,
        verb: impl FnOnce(&Sql, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let sql = Arc::clone(&self.sql);
        self.writer.call(deadline, move |session| session.write(|transaction| Ok(verb(&sql, transaction)?))).await
    }
}

#[async_trait]
impl LeaseStore for SqliteLeaseStore {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        let (sql, name, owner) = (Arc::clone(&self.sql), name.clone(), owner.clone());
        let acquired = self.attempt(Attempt { sql, name, owner, duration }).await;
        acquired.map_err(|failure| failure.into_error(Operation::Acquire))
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        let (name, owner) = (name.clone(), owner.clone());
        let renewed =
            self.write(self.deadline(), move |sql, transaction| sql.renew(transaction, &name, &owner, duration)).await;
        renewed.map_err(|failure| failure.into_error(Operation::Renew))
    }

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        let (name, owner) = (name.clone(), owner.clone());
        let released =
            self.write(self.deadline(), move |sql, transaction| sql.release(transaction, &name, &owner)).await;
        released.map_err(|failure| failure.into_error(Operation::Release))
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        let (name, owner) = (name.clone(), owner.clone());
        let released = self
            .write(self.deadline(), move |sql, transaction| sql.release_after(transaction, &name, &owner, hold))
            .await;
        released.map_err(|failure| failure.into_error(Operation::ReleaseAfter))
    }

    /// Renews all of them in one transaction, which waits for the disk once.
    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        let count = terms.len();
        let terms = terms.to_vec();
        let renewed = self.write(self.deadline(), move |sql, transaction| {
            terms.iter().map(|term| sql.renew(transaction, &term.name, &term.owner, duration)).collect()
        });
        match renewed.await {
            Ok(renewals) => Vec::into_iter(renewals).map(Ok).collect(),
            Err(failure) => failure.into_errors(Operation::Renew, count).map(Err).collect(),
        }
    }
}

impl fmt::Debug for SqliteLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { location, table, .. } = self.settings.as_ref();
        f.debug_struct("SqliteLeaseStore").field("location", location).field("table", table).finish_non_exhaustive()
    }
}

/// One attempt to acquire a lease.
#[derive(Clone)]
struct Attempt {
    sql: Arc<Sql>,
    name: LeaseName,
    owner: OwnerId,
    duration: LeaseDuration,
}

impl Attempt {
    /// Who has the lease, if the attempt is in vain: only a read (S3).
    fn refusal(&self, session: &mut Session<'_>) -> Result<Option<Holder>, Failure> {
        session.read(|connection| self.sql.guard(connection, &self.name, &self.owner))
    }

    fn make(&self, session: &mut Session<'_>) -> Result<Acquisition, Failure> {
        if let Some(holder) = self.refusal(session)? {
            return Ok(Acquisition::Held(holder));
        }
        session.write(|transaction| Ok(self.sql.acquire(transaction, &self.name, &self.owner, self.duration)?))
    }
}

fn spawn(name: &str, settings: &Settings, role: Role) -> Result<Worker, Failure> {
    let cannot = |error: io::Error| Failure::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"));
    Worker::spawn(name, Slot::new(settings.clone(), role)).map_err(cannot)
}

/// A call's wait is bounded, so opening is one.
fn open_connection(session: &mut Session<'_>) -> Result<(), Failure> {
    session.create()
}

/// Refuses a linked SQLite that lacks what the statements use (CT-11, OV-08).
fn check_version(number: i32) -> Result<(), Failure> {
    if number >= OLDEST_SQLITE {
        return Ok(());
    }
    let (major, minor, patch) = (number / 1_000_000, number / 1000 % 1000, number % 1000);
    Err(Failure::new(
        ErrorKind::Unsupported,
        format!("the linked SQLite is {major}.{minor}.{patch}: it must be 3.37.0 or later"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CT-11, CT-12, OV-08
    #[test]
    fn an_old_sqlite_is_refused_by_its_version() {
        assert!(check_version(OLDEST_SQLITE).is_ok());
        for (number, version) in [(3_036_000, "3.36.0"), (3_007_017, "3.7.17")] {
            let error = check_version(number).unwrap_err().into_error(Operation::Connect);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(version), "{error}");
        }
    }
}
