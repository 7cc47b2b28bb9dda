//! A store on a pool that the service has already.

use std::{fmt, time::Duration};

use deadpool_postgres::Pool;
use lease_core::{Operation, StoreError};

use crate::{
    PostgresConfig, PostgresLeaseStore, SslMode,
    config::{self, DEFAULT_OPERATION_TIMEOUT, DEFAULT_TABLE, Settings},
    connection::Pooler,
    error::Failure,
    link::Link,
    listener::Source,
    tls,
};

/// What [`PostgresLeaseStore::from_pool`] makes a store from.
///
/// # Examples
///
/// ```
/// use lease_postgres::{
///     PostgresLeaseStore,
///     deadpool_postgres::{Manager, Pool},
///     tokio_postgres::NoTls,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://app@localhost/service";
/// let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).build()?;
/// let store = PostgresLeaseStore::from_pool(pool).listen(url).build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the store is made by `build`"]
pub struct PoolStore {
    pool: Pool,
    listen: Option<PostgresConfig>,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
}

impl PoolStore {
    pub(crate) fn new(pool: Pool) -> Self {
        let operation_timeout = DEFAULT_OPERATION_TIMEOUT;
        Self { pool, listen: None, schema: None, table: DEFAULT_TABLE.into(), operation_timeout }
    }

    /// Where wake-ups come from: a connection of the store's own, which is opened once somebody watches. Without it a standby
    /// polls. Of the configuration only what concerns the connection is used.
    pub fn listen(self, config: impl Into<PostgresConfig>) -> Self {
        Self { listen: Some(config.into()), ..self }
    }

    /// As [`PostgresConfig::schema`].
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), ..self }
    }

    /// As [`PostgresConfig::table`].
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// As [`PostgresConfig::operation_timeout`].
    pub fn operation_timeout(self, operation_timeout: Duration) -> Self {
        Self { operation_timeout, ..self }
    }

    /// Checks everything and makes the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](lease_core::ErrorKind::InvalidConfig) names the field and the value.
    pub fn build(self) -> Result<PostgresLeaseStore, StoreError> {
        self.checked().map_err(|failure| failure.into_error(Operation::Connect))
    }

    fn checked(self) -> Result<PostgresLeaseStore, Failure> {
        let Self { pool, listen, schema, table, operation_timeout } = self;
        config::check_operation_timeout(operation_timeout)?;
        let sql = config::checked_sql(schema.as_deref(), &table)?;
        let pooler = Pooler::default();
        let source = match listen {
            Some(config) => {
                let Settings { driver, tls, .. } = config.settings()?;
                Some(Source { driver, tls, listen: sql.listen.clone(), operation_timeout, pooler: pooler.clone() })
            }
            None => None,
        };
        // How the pool trusts the server is not to be seen. A cancel request needs no trust: it holds no more than the key to the one
        // statement that it ends.
        let tls = match &source {
            Some(source) => source.tls.clone(),
            None => tls::connector(SslMode::Prefer, None)?,
        };
        Ok(PostgresLeaseStore::new(Link::new(pool, tls, pooler), sql, source, operation_timeout))
    }
}

impl fmt::Debug for PoolStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolStore")
            .field("listen", &self.listen)
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("operation_timeout", &self.operation_timeout)
            .finish_non_exhaustive()
    }
}
