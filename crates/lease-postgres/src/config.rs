//! Where the leases are, and what else a store can be told.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use lease_core::{ErrorKind, Operation, StoreError};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    error::Failure,
    sql::Sql,
    tls::{self, SslMode},
};

mod url;

/// The table's name unless another is configured, and the one word that `sql.rs` replaces in the SQL files.
pub(crate) const DEFAULT_TABLE: &str = "singleton_leases";

/// The longest name that PostgreSQL keeps whole, in bytes.
const MAX_NAME_LENGTH: usize = 63;

/// The longest that a call may take (S12), unless another is configured.
pub(crate) const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A store's calls are short and a heartbeat renews all its leases in one, so that few connections serve many jobs.
const DEFAULT_POOL_SIZE: usize = 4;

/// The configuration of a [`PostgresLeaseStore`](crate::PostgresLeaseStore).
///
/// Everything is checked by [`connect`](crate::PostgresLeaseStore::connect). Neither `Debug` nor an error ever shows the password.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_postgres::{PostgresConfig, SslMode};
///
/// let config = PostgresConfig::from_url("postgres://app:secret@db-1,db-2/service?sslmode=verify-full")?
///     .table("job_leases")
///     .operation_timeout(Duration::from_secs(2));
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), lease_postgres::lease_core::StoreError>(())
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until it is connected"]
pub struct PostgresConfig {
    /// What is wrong with the URL, to be told by `connect`.
    fault: Option<String>,
    driver: Box<tokio_postgres::Config>,
    ssl_mode: SslMode,
    ssl_root_cert: Option<PathBuf>,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
    pool_size: usize,
}

impl PostgresConfig {
    /// Leases in the database that the driver's own configuration names. Its `sslmode` is overruled by
    /// [`ssl_mode`](Self::ssl_mode).
    ///
    /// What the driver leaves to the operating system is given bounds, so that a connection whose peer is gone is noticed: a limit
    /// for connecting, TCP keepalives after 10 s, and a limit for data that is not acknowledged. With several hosts, one that takes
    /// writes is looked for.
    pub fn new(driver: tokio_postgres::Config) -> Self {
        use tokio_postgres::config::SslMode as Driver;
        let ssl_mode = match driver.get_ssl_mode() {
            Driver::Disable => SslMode::Disable,
            Driver::Require => SslMode::Require,
            _ => SslMode::Prefer,
        };
        Self {
            fault: None,
            driver: Box::new(driver),
            ssl_mode,
            ssl_root_cert: None,
            schema: None,
            table: DEFAULT_TABLE.into(),
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            pool_size: DEFAULT_POOL_SIZE,
        }
    }

    /// Reads a store URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?KEY=VALUE&..`, with the keys of PostgreSQL's own client
    /// library that [`tokio_postgres::Config`] knows, `sslmode` in all its values, `sslrootcert`, and the keys `schema`, `table`,
    /// `operation_timeout` (in seconds) and `pool_size` of this crate.
    ///
    /// Several hosts are separated by commas. A Unix socket is named by its directory, percent-encoded or under the key `host`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when it is not such a URL.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = Self::from(url);
        match config.fault {
            Some(fault) => Err(invalid(fault).into_error(Operation::Connect)),
            None => Ok(config),
        }
    }

    /// The schema of the table; by default the first one on the role's search path that has it. It must exist.
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), ..self }
    }

    /// The name of the table, `singleton_leases` by default: 1 to 63 ASCII letters, digits and underscores, not beginning with a
    /// digit. It is quoted, so that upper and lower case are two names.
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// The longest that a call may take (S12), 5 s by default: the wait for a connection and for the network included.
    pub fn operation_timeout(self, operation_timeout: Duration) -> Self {
        Self { operation_timeout, ..self }
    }

    /// The most connections that the store opens for its calls, 4 by default. Wake-ups take one more, once somebody watches.
    pub fn pool_size(self, pool_size: usize) -> Self {
        Self { pool_size, ..self }
    }

    /// How connections are protected, by default TLS when the server has it.
    pub fn ssl_mode(self, ssl_mode: SslMode) -> Self {
        Self { ssl_mode, ..self }
    }

    /// The file of the root certificates to trust, in PEM; by default, and for `system`, the system's own.
    pub fn ssl_root_cert(self, ssl_root_cert: impl Into<PathBuf>) -> Self {
        Self { ssl_root_cert: Some(ssl_root_cert.into()), ..self }
    }

    /// The SQL that [`migrate`](crate::PostgresLeaseStore::migrate) runs when there is no table, for those who run it themselves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value.
    pub fn migration_sql(&self) -> Result<String, StoreError> {
        let settings = self.settings().map_err(|failure| failure.into_error(Operation::Migrate))?;
        Ok(settings.sql.migrations)
    }

    /// Checks everything.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        if let Some(fault) = &self.fault {
            return Err(invalid(fault));
        }
        let Self { operation_timeout, pool_size, ssl_mode, .. } = *self;
        check_operation_timeout(operation_timeout)?;
        if pool_size == 0 {
            return Err(invalid("pool_size is 0: it must be at least 1"));
        }
        let sql = checked_sql(self.schema.as_deref(), &self.table)?;
        let tls = tls::connector(ssl_mode, self.ssl_root_cert.as_deref())?;
        let mut driver = (*self.driver).clone();
        if driver.get_hosts().is_empty() && driver.get_hostaddrs().is_empty() {
            return Err(invalid("the configuration names no host"));
        }
        driver.ssl_mode(driver_ssl_mode(ssl_mode, driver.get_hosts()));
        bound(&mut driver, operation_timeout);
        Ok(Settings { driver, tls, sql, operation_timeout, pool_size })
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.driver.get_hosts())
            .field("ports", &self.driver.get_ports())
            .field("user", &self.driver.get_user())
            .field("dbname", &self.driver.get_dbname())
            .field("ssl_mode", &self.ssl_mode)
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("operation_timeout", &self.operation_timeout)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

/// Reads a store URL as [`from_url`](Self::from_url) does, but leaves its errors to
/// [`connect`](crate::PostgresLeaseStore::connect).
impl From<&str> for PostgresConfig {
    fn from(url: &str) -> Self {
        url::parse(url).unwrap_or_else(|fault| Self { fault: Some(fault), ..Self::new(tokio_postgres::Config::new()) })
    }
}

/// As from a `&str`.
impl From<String> for PostgresConfig {
    fn from(url: String) -> Self {
        Self::from(url.as_str())
    }
}

/// As [`new`](Self::new).
impl From<tokio_postgres::Config> for PostgresConfig {
    fn from(driver: tokio_postgres::Config) -> Self {
        Self::new(driver)
    }
}

impl FromStr for PostgresConfig {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<Self, StoreError> {
        Self::from_url(url)
    }
}

/// A configuration that was checked.
pub(crate) struct Settings {
    pub(crate) driver: tokio_postgres::Config,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) sql: Sql,
    pub(crate) operation_timeout: Duration,
    pub(crate) pool_size: usize,
}

pub(crate) fn check_operation_timeout(operation_timeout: Duration) -> Result<(), Failure> {
    if operation_timeout < Duration::from_millis(1) {
        return Err(invalid(format!("operation_timeout is {operation_timeout:?}: it must be at least 1 ms")));
    }
    Ok(())
}

/// The statements for a table whose name is checked here.
pub(crate) fn checked_sql(schema: Option<&str>, table: &str) -> Result<Sql, Failure> {
    check_name("table", table)?;
    if let Some(schema) = schema {
        check_name("schema", schema)?;
    }
    Ok(Sql::new(schema, table))
}

fn check_name(field: &str, name: &str) -> Result<(), Failure> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_well = !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain && begins_well && (1..=MAX_NAME_LENGTH).contains(&name.len()) {
        return Ok(());
    }
    Err(invalid(format!(
        "{field} {name:?} is no such name: 1 to {MAX_NAME_LENGTH} ASCII letters, digits and underscores, not beginning with a digit"
    )))
}

/// The driver knows whether to use TLS; whom to trust is the connector's part.
fn driver_ssl_mode(mode: SslMode, hosts: &[Host]) -> tokio_postgres::config::SslMode {
    use tokio_postgres::config::SslMode as Driver;
    // As the client library does: nobody stands between the two ends of a Unix socket.
    let local = !hosts.is_empty() && hosts.iter().all(|host| !matches!(host, Host::Tcp(_)));
    match mode {
        SslMode::Disable => Driver::Disable,
        _ if local => Driver::Disable,
        SslMode::Prefer => Driver::Prefer,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Driver::Require,
    }
}

/// Bounds what the driver leaves to the operating system, which may take hours to notice that a peer is gone.
fn bound(driver: &mut tokio_postgres::Config, operation_timeout: Duration) {
    const DRIVERS_KEEPALIVE: Duration = Duration::from_secs(2 * 60 * 60);
    if driver.get_connect_timeout().is_none() {
        driver.connect_timeout(operation_timeout);
    }
    if driver.get_tcp_user_timeout().is_none() {
        driver.tcp_user_timeout(operation_timeout);
    }
    if driver.get_keepalives_idle() == DRIVERS_KEEPALIVE {
        driver.keepalives_idle(Duration::from_secs(10));
    }
    if driver.get_keepalives_interval().is_none() {
        driver.keepalives_interval(Duration::from_secs(5));
    }
    if driver.get_keepalives_retries().is_none() {
        driver.keepalives_retries(3);
    }
    let several = driver.get_hosts().len().max(driver.get_hostaddrs().len()) > 1;
    if several && driver.get_target_session_attrs() == TargetSessionAttrs::Any {
        driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if driver.get_application_name().is_none() {
        driver.application_name("lease");
    }
}

fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidConfig, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(config: &PostgresConfig) -> String {
        let error = config.settings().err().unwrap().into_error(Operation::Connect);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.to_string()
    }

    /// SM-04: quotes, and whatever they could let in, are refused; words of SQL are names like others, for the name is quoted.
    #[test]
    fn a_table_and_a_schema_have_plain_names() {
        let config = || PostgresConfig::from("postgres://localhost");
        for name in ["job_leases", "order", "_", "Table9", &"a".repeat(63)] {
            assert!(config().table(name).schema(name).settings().is_ok(), "{name}");
        }
        for name in ["", "9a", "a b", "a\"b", "a; DROP TABLE b", "main.a", "é", "a\n", &"a".repeat(64)] {
            assert!(refusal(&config().table(name)).contains("table"), "{name}");
            assert!(refusal(&config().schema(name)).contains("schema"), "{name}");
        }
    }

    /// S12, CF-03
    #[test]
    fn limits_of_zero_are_refused() {
        let config = || PostgresConfig::from("postgres://localhost");
        assert!(refusal(&config().operation_timeout(Duration::ZERO)).contains("operation_timeout"));
        assert!(refusal(&config().pool_size(0)).contains("pool_size"));
        assert!(refusal(&PostgresConfig::from("postgres:///service")).contains("host"));
    }

    /// CL-03: what is not configured is bounded, and what is configured stays.
    #[test]
    fn a_dead_peer_is_noticed() {
        let driver = |url: &str| PostgresConfig::from(url).settings().unwrap().driver;
        let bounded = driver("postgres://localhost?operation_timeout=2");
        assert_eq!(bounded.get_connect_timeout(), Some(&Duration::from_secs(2)));
        assert_eq!(bounded.get_tcp_user_timeout(), Some(&Duration::from_secs(2)));
        assert_eq!(bounded.get_keepalives_idle(), Duration::from_secs(10));
        assert_eq!(bounded.get_target_session_attrs(), TargetSessionAttrs::Any);

        let configured = driver("postgres://a,b?connect_timeout=9&keepalives_idle=60&target_session_attrs=read-only");
        assert_eq!(configured.get_connect_timeout(), Some(&Duration::from_secs(9)));
        assert_eq!(configured.get_keepalives_idle(), Duration::from_secs(60));
        assert_eq!(configured.get_target_session_attrs(), TargetSessionAttrs::ReadOnly);
    }

    /// CL-06: of several hosts, the store needs one that takes writes.
    #[test]
    fn of_several_hosts_one_that_takes_writes_is_looked_for() {
        let settings = PostgresConfig::from("postgres://a:1,b:2/service").settings().unwrap();
        assert_eq!(settings.driver.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(settings.driver.get_ports(), [1, 2]);
    }

    #[test]
    fn a_unix_socket_needs_no_tls() {
        let driver = |url: &str| PostgresConfig::from(url).settings().unwrap().driver;
        let socket = driver("postgres:///service?host=/run/postgresql&sslmode=require");
        assert_eq!(socket.get_ssl_mode(), tokio_postgres::config::SslMode::Disable);
        let network = driver("postgres://localhost?sslmode=verify-ca&sslrootcert=system");
        assert_eq!(network.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
    }
}
