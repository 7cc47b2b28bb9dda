//! The store: which statements a verb is made of.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use deadpool_postgres::Pool;
use lease_core::{
    Acquisition, ErrorKind, LeaseDuration, LeaseName, LeaseStore, Operation, OwnerId, Renewal, StoreError, Term, Wakeup,
};

use crate::{
    PoolStore, PostgresConfig,
    config::Settings,
    connection::{self, Pooler},
    error::Failure,
    link::{Limit, Link, Parameters},
    listener::{Listener, Source},
    migrate::migrate,
    sql::{self, Acquired, Pairs, Sql},
};

/// The first version with `WITH .. AS MATERIALIZED`.
const OLDEST_SERVER: i64 = 12_00_00;

/// How often a renewal asks what became of a row that changed while it waited for it.
const RENEWAL_ATTEMPTS: usize = 5;

/// A lease store in a PostgreSQL table.
///
/// Each verb is one statement and one round trip, on a connection of its pool. Clones share the pool, and the one connection more
/// that [`watch`](LeaseStore::watch) listens on. When the last clone is dropped, the connections close.
///
/// Every call needs a tokio runtime with its clock and its network enabled, and ends within
/// [`operation_timeout`](PostgresConfig::operation_timeout). The statement of a call that was dropped, or ran out of time, is
/// cancelled at the server, and its connection is not used again.
///
/// # Rights
///
/// The role needs SELECT, INSERT and UPDATE on the table and USAGE on its schema; to [`migrate`](Self::migrate) where there is no
/// table yet, CREATE on the schema.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use lease_postgres::{PostgresLeaseStore, lease_core::{LeaseDuration, LeaseName, LeaseStore, OwnerId}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresLeaseStore::connect("postgres://app@db.internal/service?sslmode=verify-full").await?;
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
pub struct PostgresLeaseStore {
    pub(crate) link: Link,
    pub(crate) sql: Arc<Sql>,
    listener: Option<Arc<Listener>>,
    pub(crate) operation_timeout: Duration,
}

impl PostgresLeaseStore {
    /// Connects to the database that a [`PostgresConfig`] or a store URL names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value, or what is wrong with the server's certificate.
    /// [`ErrorKind::Unsupported`]: the server is older than PostgreSQL 12. [`ErrorKind::Unavailable`], [`ErrorKind::Denied`] and
    /// [`ErrorKind::ReadOnly`] say what is in the way.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(config: impl Into<PostgresConfig>) -> Result<Self, StoreError> {
        let config = config.into();
        Self::open(&config).await.map_err(|failure| failure.into_error(Operation::Connect))
    }

    /// Makes a store on an existing pool, for a service that has one already. Nothing is connected yet.
    ///
    /// A call takes one connection for the time of one statement. It keeps its own
    /// [`operation_timeout`](PoolStore::operation_timeout) also when the pool would wait for ever. The pool must be able to open a
    /// connection within that time: what it has begun for a call that ends before is lost. Sessions are left as the pool made
    /// them: where their role has another default isolation level, or a lock timeout, a statement that another transaction gets in
    /// the way of is repeated.
    pub fn from_pool(pool: Pool) -> PoolStore {
        PoolStore::new(pool)
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

    pub(crate) fn new(link: Link, sql: Sql, source: Option<Source>, operation_timeout: Duration) -> Self {
        let listener = source.map(|source| Arc::new(Listener::new(source)));
        Self { link, sql: Arc::new(sql), listener, operation_timeout }
    }

    async fn open(config: &PostgresConfig) -> Result<Self, Failure> {
        let settings = config.settings()?;
        let pooler = Pooler::default();
        let pool = connection::pool(&settings, &pooler)?;
        let Settings { driver, tls, sql, operation_timeout, .. } = settings;
        let link = Link::new(pool, tls.clone(), pooler.clone());
        let source = Source { driver, tls, listen: sql.listen.clone(), operation_timeout, pooler };
        let store = Self::new(link, sql, Some(source), operation_timeout);
        let version = store.link.query(store.limit(), &store.sql.version, &[]).await?;
        check_version(version.first().map_or(Ok(0), |row| row.try_get(0))?)?;
        Ok(store)
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
        let limit = self.limit();
        let micros = duration.as_micros();
        let rows = match self.link.query(limit, &self.sql.acquire, &[&name.as_str(), &owner.as_str(), &micros]).await {
            // Losing a race is no error, not even to a transaction that was in the way for all of the call's time.
            Err(failure) if matches!(failure.kind(), ErrorKind::Contended | ErrorKind::Busy) => {
                return Ok(sql::contended());
            }
            answer => answer?,
        };
        match Acquired::read(&rows)? {
            Acquired::Answer(acquisition) => Ok(acquisition),
            Acquired::Late => match self.renewal(limit, name, owner, duration).await {
                Ok(Renewal::Renewed { token, .. }) => Ok(Acquisition::Acquired(token)),
                Ok(_) => Ok(sql::contended()),
                Err(failure) => Err(failure.after_a_grant()),
            },
        }
    }

    async fn renewal(
        &self,
        limit: Limit,
        name: &LeaseName,
        owner: &OwnerId,
        duration: LeaseDuration,
    ) -> Result<Renewal, Failure> {
        let micros = duration.as_micros();
        for _ in 0..RENEWAL_ATTEMPTS {
            let rows = self.link.query(limit, &self.sql.renew, &[&name.as_str(), &owner.as_str(), &micros]).await?;
            let renewal = rows.first().map_or(Ok(None), |row| sql::renewal(row, owner))?;
            if let Some(renewal) = renewal {
                return Ok(renewal);
            }
        }
        Err(Failure::new(ErrorKind::Contended, "the row changed each time that it was to be renewed"))
    }
}

#[async_trait]
impl LeaseStore for PostgresLeaseStore {
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

    async fn release(&self, name: &LeaseName, owner: &OwnerId) -> Result<bool, StoreError> {
        let Sql { release, channel, .. } = self.sql.as_ref();
        let released = self.link.query(self.limit(), release, &[&name.as_str(), &owner.as_str(), channel]).await;
        released.map(|rows| !rows.is_empty()).map_err(|failure| failure.into_error(Operation::Release))
    }

    async fn release_after(&self, name: &LeaseName, owner: &OwnerId, hold: LeaseDuration) -> Result<bool, StoreError> {
        let parameters: &Parameters<'_> = &[&name.as_str(), &owner.as_str(), &hold.as_micros()];
        let released = self.link.query(self.limit(), &self.sql.release_after, parameters).await;
        released.map(|rows| !rows.is_empty()).map_err(|failure| failure.into_error(Operation::ReleaseAfter))
    }

    /// Renews all of them in one statement, which waits for the disk once, and for no row.
    async fn renew_many(&self, terms: &[Term], duration: LeaseDuration) -> Vec<Result<Renewal, StoreError>> {
        if terms.is_empty() {
            return Vec::new();
        }
        let pairs = Pairs::of(terms);
        let parameters: &Parameters<'_> = &[&pairs.names, &pairs.owners, &duration.as_micros()];
        let rows = self.link.query(self.limit(), &self.sql.renew_many, parameters).await;
        let contended = || StoreError::new(Operation::Renew, ErrorKind::Contended);
        match rows.and_then(|rows| Ok(pairs.renewals(&rows)?)) {
            Ok(renewals) => renewals.into_iter().map(|renewal| renewal.ok_or_else(contended)).collect(),
            Err(failure) => failure.into_errors(Operation::Renew, terms.len()).map(Err).collect(),
        }
    }

    /// Wakes when the lease is released, by whichever process. Never behind a connection pooler, nor with a pool of the user's own
    /// that was not told to [`listen`](PoolStore::listen).
    fn watch(&self, name: &LeaseName) -> Wakeup {
        self.listener.as_ref().map_or_else(Wakeup::never, |listener| listener.watch(name))
    }
}

impl fmt::Debug for PostgresLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLeaseStore")
            .field("table", &self.sql.table)
            .field("link", &self.link)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// Refuses a server that lacks what the statements use (OV-08).
fn check_version(number: i64) -> Result<(), Failure> {
    if number >= OLDEST_SERVER {
        return Ok(());
    }
    let version = format!("the server's version is {}: it must be PostgreSQL 12 or later", number / 10_000);
    Err(Failure::new(ErrorKind::Unsupported, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OV-08
    #[test]
    fn an_old_server_is_refused_by_its_version() {
        assert!(check_version(OLDEST_SERVER).is_ok());
        let error = check_version(11_00_22).unwrap_err().into_error(Operation::Connect);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("version is 11"), "{error}");
    }
}
