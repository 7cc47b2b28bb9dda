//! A database of a test's own on a SQL Server, which goes with it.

use std::sync::atomic::{AtomicUsize, Ordering};

use lease_conformance::servers::MssqlServer;
use lease_mssql::tiberius::{AuthMethod, Client, Config, Query, error::Error};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt as _};

/// A session of the test's own.
pub(crate) type Session = Client<Compat<TcpStream>>;

#[derive(Debug)]
pub(crate) struct MssqlDatabase {
    name: String,
    /// The URL of a store in this database.
    pub(crate) url: String,
    server: Config,
}

impl MssqlDatabase {
    /// A new database on this server.
    pub(crate) fn new(server: &MssqlServer) -> Self {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lease_cli_{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed));
        let (address, query) = server.url().split_once('?').unwrap_or((server.url(), ""));
        let (scheme, rest) = address.split_once("://").unwrap();
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        // Babelfish takes seconds to open a connection, and six programs at once take it longer.
        let url = format!("{scheme}://{authority}/{name}?operation_timeout=30&pool_size=1&{query}");
        let database = Self { url, server: config(authority), name };
        let (runtime, mut session) = connect(&database.server).unwrap();
        one_at_a_time(&runtime, &mut session).unwrap();
        execute(&runtime, &mut session, &format!("DROP DATABASE IF EXISTS {}", database.name)).unwrap();
        execute(&runtime, &mut session, &format!("CREATE DATABASE {}", database.name)).unwrap();
        database
    }

    /// A session in it.
    pub(crate) fn session(&self) -> (Runtime, Session) {
        let mut config = self.server.clone();
        config.database(&self.name);
        connect(&config).unwrap()
    }
}

impl Drop for MssqlDatabase {
    fn drop(&mut self) {
        if let Ok((runtime, mut session)) = connect(&self.server) {
            // A program that was killed may still have a session there; then the database goes with the server.
            let _ = one_at_a_time(&runtime, &mut session);
            let _ = execute(&runtime, &mut session, &format!("DROP DATABASE {}", self.name));
        }
    }
}

/// `USER:PASSWORD@HOST:PORT`, of a server whose certificate is nobody's business.
fn config(authority: &str) -> Config {
    let (login, host) = authority.rsplit_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap();
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "1433"));
    let mut config = Config::new();
    config.host(host);
    config.port(port.parse().unwrap());
    config.authentication(AuthMethod::sql_server(user, password));
    config.trust_cert();
    config
}

fn connect(config: &Config) -> Result<(Runtime, Session), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let session = runtime.block_on(async {
        let stream = TcpStream::connect(config.get_addr()).await?;
        stream.set_nodelay(true)?;
        Box::pin(Client::connect(config.clone(), stream.compat_write())).await
    })?;
    Ok((runtime, session))
}

/// Babelfish cannot make or drop two databases at once. The lock goes with the session.
fn one_at_a_time(runtime: &Runtime, session: &mut Session) -> Result<(), Error> {
    let lock = "EXEC sp_getapplock @Resource = N'lease_tests', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000";
    execute(runtime, session, lock)
}

/// Runs a batch to its end.
pub(crate) fn execute(runtime: &Runtime, session: &mut Session, sql: &str) -> Result<(), Error> {
    runtime.block_on(async { session.simple_query(sql).await?.into_results().await }).map(drop)
}

/// The number that a query finds; none when it finds no row.
pub(crate) fn number(runtime: &Runtime, session: &mut Session, query: &str) -> Option<i64> {
    let answer = runtime.block_on(async { Query::new(query).query(session).await?.into_row().await });
    answer.unwrap().map(|row| row.try_get(0).unwrap().unwrap())
}
