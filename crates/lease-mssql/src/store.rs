//! The store: which statements a verb is made of.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use lease_core::{
    Acquisition, ErrorKind, LeaseDuration, LeaseName, LeaseStore, Operation, OwnerId, Renewal, StoreError, Term,
};

use crate::{
    MssqlConfig,
    config::Settings,
    connection,
    error::Failure,
    link::{Limit, Link, Value},
    migrate::migrate,
    server::Abilities,
    sql::{self, CHUNK, Pairs, Renewed, Sql},
};

/// How often a renewal asks what became of a row that changed while it waited for it.
const RENEWAL_ATTEMPTS: usize = 5;

/// A lease store in a SQL Server table.
///
/// Each verb is one batch and one round trip, on a connection of its pool. Clones share the pool. When the last clone is dropped, the
/// connections close.
///
/// Every call needs a tokio runtime with its clock and its network enabled, and ends within
/// [`operation_timeout`](MssqlConfig::operation_timeout). The connection of a call that was dropped, or ran out of time, is closed.
///
/// # Rights
///
/// The user needs SELECT, INSERT and UPDATE on the table; to [`migrate`](Self::migrate) where there is no table yet, CREATE TABLE in the
/// database and ALTER on the schema.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use lease_mssql::{MssqlLeaseStore, lease_core::{LeaseDuration, LeaseName, LeaseStore, OwnerId}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MssqlLeaseStore::connect("mssql://app:secret@db.internal/service").await?;
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
pub struct MssqlLeaseStore {
    pub(crate) link: Link,
    pub(crate) sql: Arc<Sql>,
    abilities: Abilities,
    pub(crate) operation_timeout: Duration,
}

impl MssqlLeaseStore {
    /// Connects to the database that a [`MssqlConfig`], a store URL or an ADO string names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value, or what is wrong with the server's certificate.
    /// [`ErrorKind::Unsupported`]: the server is older than SQL Server 2017, the database's compatibility level is below 110, or the database
    /// forces delayed durability, by which a crash could lose a grant. [`ErrorKind::Unavailable`], [`ErrorKind::Denied`] and
    /// [`ErrorKind::ReadOnly`] say what is in the way.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(config: impl Into<MssqlConfig>) -> Result<Self, StoreError> {
        let config = config.into();
        Self::open(&config).await.map_err(|failure| failure.into_error(Operation::Connect))
    }

    /// Creates the table when it is not there, and checks its columns when it is.
    ///
    /// Any number of processes may call this at the same time. It needs the right to create only when there is something to do, and
    /// never drops anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotMigrated`] when there is a table of this name that will not do, and the error names the column; or when its
    /// schema does not exist.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future the table is there, or it is not.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let migrated = migrate(&self.link, self.limit(), &self.sql).await;
        migrated.map_err(|failure| failure.into_error(Operation::Migrate))
    }

    async fn open(config: &MssqlConfig) -> Result<Self, Failure> {
        let settings = config.settings()?;
        let link = Link::new(connection::pool(&settings)?);
        let Settings { sql, operation_timeout, .. } = settings;
        let server = link.query(Limit::new(operation_timeout), &sql.server, &[]).await?;
        let abilities = Abilities::read(&server)?;
        Ok(Self { link, sql: Arc::new(sql), abilities, operation_timeout })
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::new(self.operation_timeout)
    }

    async fn acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, Failure> {
        let [seconds, milliseconds] = sql::split(duration);
        let resource = Value::Text(sql::resource(name));
        let parameters = [text(name.as_str()), text(owner.as_str()), seconds, milliseconds, resource];
        match self.link.query(self.limit(), &self.sql.acquire, &parameters).await {
            // Losing a race is no error, not even to a transaction that was in the way where the hints are ignored.
            Err(failure) if matches!(failure.kind(), ErrorKind::Contended | ErrorKind::Busy) => Ok(sql::contended()),
            rows => Ok(sql::acquisition(&rows?)?),
        }
    }

    async fn renewal(
        &self,
        limit: Limit,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Renewal, Failure> {
        let parameters = lease(name, owner, duration);
        for _ in 0..RENEWAL_ATTEMPTS {
            let rows = self.link.query(limit, &self.sql.renew, &parameters).await?;
            let renewed = rows.first().map_or(Ok(Renewed::Contended), |row| sql::renewed(row, owner))?;
            if let Renewed::Answer(renewal) = renewed {
                return Ok(renewal);
            }
        }
        Err(Failure::new(ErrorKind::Contended, "the row changed each time that it was to be renewed"))
    }

    /// Renews pairs one by one, all at the same time.
    async fn alone(
        &self,
        limit: Limit,
        pairs: &[(&LeaseName, &OwnerId)],
        duration: LeaseDuration,
    ) -> Vec<Result<Renewal, Failure>> {
        let renewals = pairs.iter().map(|(name, owner)| async move {
            match self.renewal(limit, name, owner, duration).await {
                // To whoever renews many, a row that is locked is one to be renewed alone, and no busy database.
                Err(failure) if failure.kind() == ErrorKind::Busy => Err(failure.contended()),
                renewal => renewal,
            }
        });
        join_all(renewals).await
    }

    /// Renews a chunk of pairs in one statement.
    async fn chunk(
        &self,
        limit: Limit,
        pairs: &[(&LeaseName, &OwnerId)],
        duration: LeaseDuration,
    ) -> Vec<Result<Renewal, Failure>> {
        let [seconds, milliseconds] = sql::split(duration);
        let parameters = [Value::Text(sql::json(pairs)), seconds, milliseconds];
        let rows = self.link.query(limit, &self.sql.renew_many, &parameters).await;
        let answers = match rows.and_then(|rows| Ok(sql::renewals(&rows, pairs)?)) {
            Ok(answers) => answers,
            // A lock that the statement could not pass by kept it from all of the rows.
            Err(failure) if matches!(failure.kind(), ErrorKind::Contended | ErrorKind::Busy) => {
                return self.alone(limit, pairs, duration).await;
            }
            Err(failure) => return pairs.iter().map(|_| Err(failure.clone())).collect(),
        };
        let is_unseen = |answer: &Renewed| *answer == Renewed::Unseen;
        let unseen: Vec<_> =
            answers.iter().zip(pairs).filter(|(answer, _)| is_unseen(answer)).map(|(_, pair)| *pair).collect();
        let mut alone = self.alone(limit, &unseen, duration).await.into_iter();
        let contended = || Failure::new(ErrorKind::Contended, "somebody's transaction has the row");
        let renewals = answers.into_iter().map(|answer| match answer {
            Renewed::Answer(renewal) => Ok(renewal),
            Renewed::Contended => Err(contended()),
            Renewed::Unseen => alone.next().unwrap_or_else(|| Err(contended())),
        });
        renewals.collect()
    }

    async fn given_up(&self, statement: &sql::Statement, parameters: &[Value]) -> Result<bool, Failure> {
        let rows = self.link.query(self.limit(), statement, parameters).await?;
        Ok(sql::released(&rows)?)
    }
}

#[async_trait]
impl LeaseStore for MssqlLeaseStore {
    async fn try_acquire(
        &self,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Acquisition, StoreError> {
        self.acquire(name, owner, duration).await.map_err(|failure| failure.into_error(Operation::Acquire))
    }

    async fn renew(&self, name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> Result<Renewal, StoreError> {
        let renewal = self.renewal(self.limit(), name, owner, duration).await;
        renewal.map_err(|failure| failure.into_error(Operation::Renew))
    }

    /// Does not wait for the disk where the database allows that (`DELAYED_DURABILITY = ALLOWED`).
    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        let statement = if self.abilities.delays { &self.sql.release_delayed } else { &self.sql.release };
        let released = self.given_up(statement, &[text(name.as_str()), text(owner.as_str())]).await;
        released.map_err(|failure| failure.into_error(Operation::Release))
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        let released = self.given_up(&self.sql.release_after, &lease(name, owner, hold)).await;
        released.map_err(|failure| failure.into_error(Operation::ReleaseAfter))
    }

    /// Renews up to a thousand in one statement, which waits for the disk once, and for no row. Where the database does not know
    /// `OPENJSON` (a compatibility level below 130), they are renewed one by one.
    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        let Pairs { pairs, indices } = Pairs::of(terms);
        let limit = self.limit();
        let mut renewals = Vec::with_capacity(pairs.len());
        if self.abilities.knows_json {
            for chunk in pairs.chunks(CHUNK) {
                renewals.extend(self.chunk(limit, chunk, duration).await);
            }
        } else {
            renewals = self.alone(limit, &pairs, duration).await;
        }
        let to_error = |failure: Failure| failure.into_error(Operation::Renew);
        indices.into_iter().map(|index| renewals[index].clone().map_err(to_error)).collect()
    }
}

impl fmt::Debug for MssqlLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlLeaseStore")
            .field("table", &self.sql.table)
            .field("link", &self.link)
            .field("abilities", &self.abilities)
            .finish_non_exhaustive()
    }
}

/// A parameter, of the type that all names and owners have.
pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// The parameters of most verbs.
fn lease(name: &LeaseName, owner: &OwnerId, duration: LeaseDuration) -> [Value; 4] {
    let [seconds, milliseconds] = sql::split(duration);
    [text(name.as_str()), text(owner.as_str()), seconds, milliseconds]
}
