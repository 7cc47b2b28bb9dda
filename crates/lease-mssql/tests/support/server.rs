//! Databases of the tests' own on a server, and sessions there that know nothing of leases.

use std::{
    sync::{
        PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::TryStreamExt;
use lease_conformance::servers::MssqlServer;
use lease_mssql::{
    MssqlConfig,
    tiberius::{AuthMethod, Client, Config, FromSql, QueryItem, QueryStream, Row, ToSql, error::Error},
};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::Mutex,
};
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

/// Long enough for whatever must happen, on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The parts of a store URL, `mssql://USER:PASSWORD@HOST:PORT/DATABASE?KEYS`.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) user: String,
    pub(crate) password: String,
    host: String,
    port: u16,
    pub(crate) database: String,
    keys: String,
}

impl Address {
    /// The server that the tests share. Its login may do everything.
    pub(crate) fn shared() -> Self {
        Self::parse(MssqlServer::shared().url())
    }

    pub(crate) fn parse(url: &str) -> Self {
        let (_, rest) = url.split_once("://").unwrap();
        let (login, rest) = rest.rsplit_once('@').unwrap();
        let (user, password) = login.split_once(':').unwrap();
        let (place, rest) = rest.split_once('/').unwrap_or((rest, "master"));
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "1433"));
        let (database, keys) = rest.split_once('?').unwrap_or((rest, ""));
        Self {
            user: user.into(),
            password: password.into(),
            host: host.into(),
            port: port.parse().unwrap(),
            database: database.into(),
            keys: keys.into(),
        }
    }

    /// Where the server listens, for a proxy.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn config(&self) -> MssqlConfig {
        let Self { user, password, host, port, database, keys } = self;
        MssqlConfig::from_url(&format!("mssql://{user}:{password}@{host}:{port}/{database}?{keys}")).unwrap()
    }

    /// The same database behind another port of this machine.
    pub(crate) fn through(&self, port: u16) -> Self {
        Self { host: "127.0.0.1".into(), port, ..self.clone() }
    }

    pub(crate) fn of(&self, database: &str) -> Self {
        Self { database: database.into(), ..self.clone() }
    }

    /// A session of the tests' own, waiting for a server that is starting.
    pub(crate) async fn session(&self) -> Session {
        let connecting = async {
            loop {
                match self.connect().await {
                    Ok(client) => return Session(Mutex::new(client)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, connecting).await.expect("the test server takes a connection")
    }

    pub(crate) async fn connect(&self) -> Result<Driver, Error> {
        let mut config = Config::new();
        config.host(&self.host);
        config.port(self.port);
        config.database(&self.database);
        config.authentication(AuthMethod::sql_server(&self.user, &self.password));
        config.trust_cert();
        let socket = TcpStream::connect(config.get_addr()).await?;
        socket.set_nodelay(true)?;
        Box::pin(Client::connect(config, socket.compat_write())).await
    }
}

/// The driver's client.
pub(crate) type Driver = Client<Compat<TcpStream>>;

/// A session that knows nothing of leases.
pub(crate) struct Session(pub(crate) Mutex<Driver>);

impl Session {
    /// Runs a plain batch.
    pub(crate) async fn execute(&self, batch: &str) {
        self.try_execute(batch).await.unwrap();
    }

    pub(crate) async fn try_execute(&self, batch: &str) -> Result<(), Error> {
        self.batch(batch).await.map(drop)
    }

    /// The rows that a plain batch answers.
    pub(crate) async fn batch(&self, batch: &str) -> Result<Vec<Row>, Error> {
        let mut client = self.0.lock().await;
        read(client.simple_query(batch).await?).await
    }

    pub(crate) async fn query(&self, sql: &str, parameters: &[&dyn ToSql]) -> Vec<Row> {
        let mut client = self.0.lock().await;
        read(client.query(sql, parameters).await.unwrap()).await.unwrap()
    }

    /// The first column of the first row.
    pub(crate) async fn one<T: for<'a> FromSql<'a>>(&self, sql: &str, parameters: &[&dyn ToSql]) -> T {
        self.query(sql, parameters).await[0].get(0).unwrap()
    }
}

async fn read(mut stream: QueryStream<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    while let Some(item) = stream.try_next().await? {
        if let QueryItem::Row(row) = item {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// A database of a test's own. It is dropped with this.
pub(crate) struct Database {
    pub(crate) address: Address,
    server: Address,
}

/// Babelfish makes and drops one database at a time.
const LOCK: &str = "EXEC sp_getapplock @Resource = N'lease_tests', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000";
const UNLOCK: &str = "EXEC sp_releaseapplock @Resource = N'lease_tests', @LockOwner = N'Session'";

impl Database {
    /// A database on this server, with `options` after its name in CREATE DATABASE.
    pub(crate) async fn create(server: Address, options: &str) -> Self {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lease_{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed));
        let sql = format!("CREATE DATABASE {name} {options}");
        let creating = tokio::task::spawn_blocking({
            let server = server.clone();
            move || Administrator::run(&server, async |session| session.try_execute(&sql).await)
        });
        creating.await.unwrap().unwrap();
        Self { address: server.of(&name), server }
    }

    /// A database with the table, which is made by a session that has made others.
    pub(crate) async fn with_table(server: Address) -> Self {
        let database = Self::create(server, "").await;
        let migrations = database.address.config().migration_sql().unwrap();
        let (server, name) = (database.server.clone(), database.address.database.clone());
        let creating = tokio::task::spawn_blocking(move || {
            Administrator::run(&server, async |session| {
                session.try_execute(&format!("USE {name}")).await?;
                session.try_execute(&migrations).await?;
                session.try_execute("USE master").await
            })
        });
        creating.await.unwrap().unwrap();
        database
    }
}

/// What is still in use after a while stays behind.
impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.address.database.clone());
        let dropping = std::thread::spawn(move || {
            Administrator::run(&server, async |session| {
                let mut dropped = Ok(());
                for _ in 0..50 {
                    // Babelfish does not know the first.
                    let alone = format!("ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE");
                    drop(session.try_execute(&alone).await);
                    dropped = session.try_execute(&format!("DROP DATABASE {name}")).await;
                    if dropped.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                dropped
            })
        });
        drop(dropping.join());
    }
}

/// The one session of this process that makes and drops databases, for a first statement takes Babelfish long. It has a runtime of its
/// own, for a test's ends with the test.
struct Administrator {
    place: String,
    session: Session,
    runtime: Runtime,
}

impl Administrator {
    fn run<T>(server: &Address, work: impl AsyncFnOnce(&Session) -> Result<T, Error>) -> Result<T, Error> {
        static ONE: std::sync::Mutex<Option<Administrator>> = std::sync::Mutex::new(None);
        let mut one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = one.take().filter(|known| known.place == server.place());
        let known = known.unwrap_or_else(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let session = runtime.block_on(server.session());
            Administrator { place: server.place(), session, runtime }
        });
        let Self { session, runtime, .. } = &known;
        let done = runtime.block_on(async {
            session.try_execute(LOCK).await?;
            let done = work(session).await;
            session.try_execute(UNLOCK).await?;
            done
        });
        if done.is_ok() {
            *one = Some(known);
        }
        done
    }
}
