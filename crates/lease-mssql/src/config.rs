//! Where the leases are, and what else a store can be told.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use lease_core::{Operation, StoreError};
use tiberius::{AuthMethod, Config};

use crate::{
    connection::{self, Server},
    error::Failure,
    sql::Sql,
};
use check::invalid;
pub use encrypt::Encrypt;

mod ado;
mod check;
mod encrypt;
mod key;
mod url;

/// The table's name unless another is configured, and the one word that `sql.rs` replaces in the SQL files.
pub(crate) const DEFAULT_TABLE: &str = "singleton_leases";

/// The longest that a call may take (S12), unless another is configured.
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that opening a connection may take, as in Microsoft's own drivers.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A store's calls are short and a heartbeat renews all its leases in one, so that few connections serve many jobs.
const DEFAULT_POOL_SIZE: usize = 4;

const DEFAULT_PORT: u16 = 1433;

/// The configuration of a store in SQL Server.
///
/// Everything is checked when the store connects. Neither `Debug` nor an error ever shows the password.
///
/// # Certificates
///
/// The server's certificate must lead to a root certificate of the system, or of the file of [`ca`](Self::ca), and name the host. A
/// server that was given no certificate makes one for itself, which leads nowhere: give it one, or
/// [`trust_cert`](Self::trust_cert) where nobody can stand in between. A certificate that is its own authority is refused even when
/// `ca` names it: have the server show one that the authority has signed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_mssql::{Encrypt, MssqlConfig};
///
/// let config = MssqlConfig::from_url("mssql://app:p%40ssword@db.internal/service?encrypt=strict")?
///     .table("job_leases")
///     .operation_timeout(Duration::from_secs(2));
/// assert!(!format!("{config:?}").contains("p@ssword"));
///
/// let same = MssqlConfig::new("db.internal").login("app", "p@ssword").database("service").encrypt(Encrypt::Strict);
/// let same = MssqlConfig::from_ado("Server=tcp:db.internal,1433;Database=service;User ID=app;Password=p@ssword;Encrypt=Strict")?;
/// # Ok::<(), lease_mssql::lease_core::StoreError>(())
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until it is connected"]
pub struct MssqlConfig {
    /// What is wrong with the URL, to be told by `connect`.
    fault: Option<String>,
    host: String,
    port: u16,
    database: Option<String>,
    user: String,
    password: String,
    encrypt: Encrypt,
    trust_cert: bool,
    ca: Option<PathBuf>,
    hostname_in_certificate: Option<String>,
    application_name: String,
    connect_timeout: Duration,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
    pool_size: usize,
}

impl MssqlConfig {
    /// Leases on the server at this host: a name or an address, without a port.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            fault: None,
            host: host.into(),
            port: DEFAULT_PORT,
            database: None,
            user: String::new(),
            password: String::new(),
            encrypt: Encrypt::default(),
            trust_cert: false,
            ca: None,
            hostname_in_certificate: None,
            application_name: "lease".into(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            schema: None,
            table: DEFAULT_TABLE.into(),
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            pool_size: DEFAULT_POOL_SIZE,
        }
    }

    /// Reads a store URL: `mssql://USER:PASSWORD@HOST:PORT/DATABASE?KEY=VALUE&..`.
    ///
    /// The keys are `encrypt` (`strict`, `mandatory` or `true`, `optional` or `false`, `never`), `trust_cert` (`true`, `false`), `ca`,
    /// `hostname_in_certificate`, `application_name`, `schema`, `table`, `pool_size`, and, in seconds, `connect_timeout` and
    /// `operation_timeout`. Whatever has a meaning in a URL is percent-encoded in a user's name, in a password and in values.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](lease_core::ErrorKind::InvalidConfig) when it is not such a URL.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        url::parse(url).map_err(|fault| invalid(fault).into_error(Operation::Connect))
    }

    /// Reads an ADO.NET connection string: `Server=tcp:HOST,PORT;Database=..;User ID=..;Password=..;Encrypt=..;..`.
    ///
    /// `Connect Timeout` is [`connect_timeout`](Self::connect_timeout), `Command Timeout` is
    /// [`operation_timeout`](Self::operation_timeout), `Max Pool Size` is [`pool_size`](Self::pool_size); the keys of a
    /// [URL](Self::from_url) are taken too. A named instance (`HOST\INSTANCE`) is refused: name its port.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](lease_core::ErrorKind::InvalidConfig) when it is not such a string, or asks for what this store does not do.
    pub fn from_ado(text: &str) -> Result<Self, StoreError> {
        ado::parse(text).map_err(|fault| invalid(fault).into_error(Operation::Connect))
    }

    /// The server's port, 1433 by default.
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// The database, by default the login's own. It must exist.
    pub fn database(self, database: impl Into<String>) -> Self {
        Self { database: Some(database.into()), ..self }
    }

    /// Who logs in, by SQL Server's own authentication.
    pub fn login(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into(), ..self }
    }

    /// How connections are encrypted.
    pub fn encrypt(self, encrypt: Encrypt) -> Self {
        Self { encrypt, ..self }
    }

    /// Takes whatever certificate the server shows. It protects against nobody who can alter what is sent.
    pub fn trust_cert(self, trust_cert: bool) -> Self {
        Self { trust_cert, ..self }
    }

    /// A file of root certificates to trust beside the system's own, in PEM or, a single one, in DER.
    pub fn ca(self, ca: impl Into<PathBuf>) -> Self {
        Self { ca: Some(ca.into()), ..self }
    }

    /// The name that the server's certificate must have, by default the host's.
    pub fn hostname_in_certificate(self, name: impl Into<String>) -> Self {
        Self { hostname_in_certificate: Some(name.into()), ..self }
    }

    /// What the server calls the sessions, `lease` by default.
    pub fn application_name(self, name: impl Into<String>) -> Self {
        Self { application_name: name.into(), ..self }
    }

    /// The longest that opening a connection may take, 15 s by default: the look-up of the name, each of its addresses, the handshake,
    /// the login and a redirect included. A call does not wait for longer than its own
    /// [`operation_timeout`](Self::operation_timeout); a connection that takes longer serves a later one.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The schema of the table, by default the user's own.
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), ..self }
    }

    /// The name of the table, `singleton_leases` by default: 1 to 128 ASCII letters, digits and underscores, not beginning with a
    /// digit. It is quoted.
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// The longest that a call may take (S12), 5 s by default: the wait for a connection and for the network included.
    pub fn operation_timeout(self, operation_timeout: Duration) -> Self {
        Self { operation_timeout, ..self }
    }

    /// The most connections that the store opens, 4 by default.
    pub fn pool_size(self, pool_size: usize) -> Self {
        Self { pool_size, ..self }
    }

    /// Checks everything.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        if let Some(fault) = &self.fault {
            return Err(invalid(fault));
        }
        check::time("operation_timeout", self.operation_timeout)?;
        check::time("connect_timeout", self.connect_timeout)?;
        if self.pool_size == 0 {
            return Err(invalid("pool_size is 0: it must be at least 1"));
        }
        check::name("table", &self.table)?;
        if let Some(schema) = &self.schema {
            check::name("schema", schema)?;
        }
        let driver = self.driver()?;
        // A call that has waited for a lock in vain still has time to look again, and to wait once more; also one of an executor, which has
        // a timeout of its own.
        let lock_timeout = (self.operation_timeout.min(DEFAULT_OPERATION_TIMEOUT).as_millis() / 4).max(1);
        let sql = Sql::new(self.schema.as_deref(), &self.table);
        let server = Server {
            driver,
            host: self.host.clone(),
            port: self.port,
            is_strict: self.encrypt == Encrypt::Strict,
            connect_timeout: self.connect_timeout,
            operation_timeout: self.operation_timeout,
            session: connection::session(lock_timeout) + &sql.warm_up,
            stage: Arc::default(),
        };
        Ok(Settings {
            server: Arc::new(server),
            sql,
            operation_timeout: self.operation_timeout,
            pool_size: self.pool_size,
        })
    }

    fn driver(&self) -> Result<Config, Failure> {
        check::host(&self.host)?;
        if self.port == 0 {
            return Err(invalid("port is 0: it must be from 1 to 65535"));
        }
        if self.user.is_empty() {
            return Err(invalid("the configuration names no user"));
        }
        check::login("user", &self.user)?;
        check::login("password", &self.password)?;
        check::login("application_name", &self.application_name)?;
        if let Some(database) = &self.database {
            check::login("database", database)?;
        }
        let mut driver = Config::new();
        driver.host(&self.host);
        driver.port(self.port);
        driver.authentication(AuthMethod::sql_server(&self.user, &self.password));
        driver.application_name(&self.application_name);
        if let Some(database) = &self.database {
            driver.database(database);
        }
        driver.encryption(self.encrypt.level());
        if let Some(name) = &self.hostname_in_certificate {
            driver.hostname_in_certificate(name);
        }
        match (&self.ca, self.trust_cert) {
            (Some(_), true) => {
                return Err(invalid("trust_cert takes any certificate, and ca only some: give one of them"));
            }
            (Some(path), false) => driver.trust_cert_ca_bundle(check::certificates(path)?),
            (None, true) => driver.trust_cert(),
            (None, false) => {}
        }
        // The store's own limits are around all that the driver does.
        driver.handshake_timeout(None);
        driver.command_timeout(None);
        Ok(driver)
    }
}

impl fmt::Debug for MssqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlConfig")
            .field("fault", &self.fault)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("encrypt", &self.encrypt)
            .field("trust_cert", &self.trust_cert)
            .field("ca", &self.ca)
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("connect_timeout", &self.connect_timeout)
            .field("operation_timeout", &self.operation_timeout)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

/// Reads a store URL or an ADO.NET connection string, but leaves its errors to whoever connects.
impl From<&str> for MssqlConfig {
    fn from(text: &str) -> Self {
        let config = if url::is_url(text) { url::parse(text) } else { ado::parse(text) };
        config.unwrap_or_else(|fault| Self { fault: Some(fault), ..Self::new("") })
    }
}

/// As from a `&str`.
impl From<String> for MssqlConfig {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl FromStr for MssqlConfig {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        if url::is_url(text) { Self::from_url(text) } else { Self::from_ado(text) }
    }
}

/// A configuration that was checked.
pub(crate) struct Settings {
    pub(crate) server: Arc<Server>,
    pub(crate) sql: Sql,
    pub(crate) operation_timeout: Duration,
    pub(crate) pool_size: usize,
}

#[cfg(test)]
mod tests {
    use lease_core::ErrorKind;

    use super::*;

    fn config() -> MssqlConfig {
        MssqlConfig::new("localhost").login("app", "secret")
    }

    fn refusal(config: &MssqlConfig) -> String {
        let error = config.settings().err().unwrap().into_error(Operation::Connect);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(!format!("{error} {error:?} {config:?}").contains("secret"), "{error:?}");
        error.to_string()
    }

    /// SM-04: brackets and quotes, and whatever they could let in, are refused.
    #[test]
    fn a_table_and_a_schema_have_plain_names() {
        for name in ["job_leases", "order", "_", "Table9", &"a".repeat(128)] {
            assert!(config().table(name).schema(name).settings().is_ok(), "{name}");
        }
        for name in ["", "9a", "a b", "a]b", "a; DROP TABLE b", "dbo.a", "#a", "é", "a\n", &"a".repeat(129)] {
            assert!(refusal(&config().table(name)).contains("table"), "{name}");
            assert!(refusal(&config().schema(name)).contains("schema"), "{name}");
        }
    }

    /// S12, CF-03
    #[test]
    fn limits_of_zero_are_refused() {
        assert!(refusal(&config().operation_timeout(Duration::ZERO)).contains("operation_timeout"));
        assert!(refusal(&config().connect_timeout(Duration::ZERO)).contains("connect_timeout"));
        assert!(refusal(&config().pool_size(0)).contains("pool_size"));
        assert!(refusal(&config().port(0)).contains("port"));
    }

    #[test]
    fn a_login_is_whole_and_no_longer_than_the_protocol_takes() {
        assert!(refusal(&MssqlConfig::new("localhost")).contains("no user"));
        assert!(refusal(&config().login("app", "secret".repeat(22))).contains("password is longer than 128"));
        assert!(refusal(&config().login("app", "secret\0")).contains("password has a NUL"));
        assert!(refusal(&config().database("a".repeat(129))).contains("database"));
        assert!(config().login("app", "\u{1F511}".repeat(64)).settings().is_ok());
        assert!(refusal(&MssqlConfig::new("a b").login("app", "secret")).contains("neither a name nor an address"));
    }

    /// Asking for both would leave open which of them is meant.
    #[test]
    fn any_certificate_and_only_some_exclude_each_other() {
        assert!(refusal(&config().trust_cert(true).ca("ca.pem")).contains("trust_cert"));
    }

    /// S12: a lock is waited for a quarter of a call, and no longer than an executor's call allows.
    #[test]
    fn a_session_is_told_how_long_it_may_wait() {
        let session = |operation_timeout| {
            let settings = config().operation_timeout(operation_timeout).settings().unwrap();
            settings.server.session.clone()
        };
        assert!(session(Duration::from_secs(5)).contains("SET LOCK_TIMEOUT 1250;"));
        assert!(session(Duration::from_millis(1)).contains("SET LOCK_TIMEOUT 1;"));
        assert!(session(Duration::MAX).contains("SET LOCK_TIMEOUT 1250;"));
    }
}
