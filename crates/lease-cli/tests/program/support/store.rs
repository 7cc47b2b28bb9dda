//! The stores that the tests run on, and the tests' own way into them.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use lease_conformance::servers::{MssqlServer, PostgresServer};
use lease_postgres::tokio_postgres::{Client, Config, NoTls};
use lease_sqlite::rusqlite::{Connection, OptionalExtension as _};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

use self::mssql::MssqlDatabase;

mod mssql;

/// What the leases of a test are in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    /// A file.
    Sqlite,
    /// A schema on the server that tests share.
    Postgres,
    /// A database on the server that tests share.
    Mssql,
}

impl Store {
    /// The seconds that a program may take until the store has answered it: Babelfish has to learn T-SQL in each session.
    pub(crate) fn reach(self) -> u64 {
        match self {
            Self::Sqlite | Self::Postgres => 1,
            Self::Mssql => 8,
        }
    }
}

/// Makes a test of each of these functions on each store, such as `postgres::a_held_lease_is_refused`.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::support::Store::Sqlite);
                }
            )+
        }

        mod postgres {
            $(
                #[test]
                #[cfg_attr(
                    lease_no_postgres,
                    ignore = "no PostgreSQL server: run `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
                )]
                fn $test() {
                    super::$test($crate::support::Store::Postgres);
                }
            )+
        }

        mod mssql {
            $(
                #[test]
                #[cfg_attr(
                    lease_no_mssql,
                    ignore = "no SQL Server: run `LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE cargo xtask test`"
                )]
                fn $test() {
                    super::$test($crate::support::Store::Mssql);
                }
            )+
        }
    };
}

pub(crate) use on_each_store;

/// A store of a test's own.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(Schema),
    Mssql(Box<MssqlDatabase>),
}

impl Database {
    pub(crate) fn new(store: Store, directory: &Path) -> Self {
        match store {
            Store::Sqlite => Self::Sqlite(directory.join("leases.db")),
            Store::Postgres => Self::Postgres(Schema::new(PostgresServer::shared())),
            Store::Mssql => Self::Mssql(Box::new(MssqlDatabase::new(MssqlServer::shared()))),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(file) => format!("sqlite:{}", file.display()),
            Self::Postgres(schema) => schema.url.clone(),
            Self::Mssql(database) => database.url.clone(),
        }
    }

    /// A session of the test's own, beside those of the program.
    pub(crate) fn session(&self) -> Session {
        match self {
            Self::Sqlite(file) => Session::Sqlite(Connection::open(file).unwrap()),
            Self::Postgres(schema) => schema.session(),
            Self::Mssql(database) => {
                let (runtime, session) = database.session();
                Session::Mssql(runtime, Box::new(RefCell::new(session)))
            }
        }
    }

    /// How many tables there are, but the system's own. A file that is not there is not made by this.
    pub(crate) fn tables(&self) -> i64 {
        let query = match self {
            Self::Sqlite(file) if !file.exists() => return 0,
            Self::Sqlite(_) => "SELECT count(*) FROM sqlite_schema WHERE type = 'table'",
            Self::Postgres(_) => "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()",
            Self::Mssql(_) => "SELECT COUNT_BIG(*) FROM sys.tables WHERE name = N'singleton_leases'",
        };
        self.session().number(query).unwrap()
    }

    /// What is left of the lease `job` by the database's clock; none when nobody has it. It is a plain read, which no lock holds up.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.remaining_in(&self.session())
    }

    /// The same, by a session that was opened before.
    pub(crate) fn remaining_in(&self, session: &Session) -> Option<Duration> {
        let left = match self {
            Self::Sqlite(_) => "expires_at - CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
            Self::Postgres(_) => "(extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint",
            Self::Mssql(_) => "DATEDIFF_BIG(microsecond, SYSUTCDATETIME(), expires_at)",
        };
        let hint = if matches!(self, Self::Mssql(_)) { "WITH (NOLOCK)" } else { "" };
        let query = format!("SELECT {left} FROM singleton_leases {hint} WHERE name = 'job' AND owner IS NOT NULL");
        let microseconds = session.number(&query)?;
        u64::try_from(microseconds).ok().filter(|left| *left > 0).map(Duration::from_micros)
    }

    /// Keeps everybody from renewing the lease `job`, until the session rolls back.
    pub(crate) fn block(&self) -> Session {
        let session = self.session();
        session.execute(match self {
            Self::Sqlite(_) => "PRAGMA busy_timeout = 60000; BEGIN IMMEDIATE",
            Self::Postgres(_) => "BEGIN; SELECT FROM singleton_leases WHERE name = 'job' FOR UPDATE",
            Self::Mssql(_) => "BEGIN TRANSACTION; UPDATE singleton_leases SET token = token WHERE name = 'job'",
        });
        session
    }

    /// Whether this process has the store open: the file, or a connection.
    pub(crate) fn is_open_in(&self, process: Pid) -> bool {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
        let mut files = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        match self {
            Self::Sqlite(store) => files.any(|file| file == *store),
            Self::Postgres(_) | Self::Mssql(_) => {
                let sockets = sockets(process);
                files.any(|file| sockets.iter().any(|socket| file.as_os_str() == socket.as_str()))
            }
        }
    }
}

/// Sockets that are connected over TCP, as `/proc` shows a process's files.
fn sockets(process: Pid) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{process}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[3] == ESTABLISHED).map(|fields| format!("socket:[{}]", fields[9])).collect()
}

/// A schema of a test's own on a PostgreSQL server, which goes with it.
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
    /// The URL of a store in this schema.
    url: String,
    driver: Box<Config>,
}

impl Schema {
    pub(crate) fn new(server: &PostgresServer) -> Self {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lease_cli_{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let mut driver: Box<Config> = Box::new(server.url().parse().unwrap());
        driver.options(format!("-c search_path={name} -c lock_timeout=60s"));
        let separator = if server.url().contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}schema={name}", server.url());
        let schema = Self { name, url, driver };
        schema.session().execute(&format!("DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}", schema.name));
        schema
    }

    fn session(&self) -> Session {
        self.connect().unwrap()
    }

    fn connect(&self) -> Result<Session, lease_postgres::tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(self.driver.connect(NoTls))?;
        runtime.spawn(connection);
        Ok(Session::Postgres(runtime, client))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // A test may have stopped its server for good.
        if let Ok(Session::Postgres(runtime, client)) = self.connect() {
            let _ = runtime.block_on(client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.name)));
        }
    }
}

/// A session on a store.
#[derive(Debug)]
pub(crate) enum Session {
    Sqlite(Connection),
    Postgres(Runtime, Client),
    Mssql(Runtime, Box<RefCell<mssql::Session>>),
}

impl Session {
    pub(crate) fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(connection) => connection.execute_batch(sql).unwrap(),
            Self::Postgres(runtime, client) => runtime.block_on(client.batch_execute(sql)).unwrap(),
            Self::Mssql(runtime, session) => mssql::execute(runtime, &mut session.borrow_mut(), sql).unwrap(),
        }
    }

    /// The number that a query finds; none when it finds no row.
    pub(crate) fn number(&self, query: &str) -> Option<i64> {
        match self {
            Self::Sqlite(connection) => connection.query_row(query, [], |row| row.get(0)).optional().unwrap(),
            Self::Postgres(runtime, client) => {
                runtime.block_on(client.query_opt(query, &[])).unwrap().map(|row| row.get(0))
            }
            Self::Mssql(runtime, session) => mssql::number(runtime, &mut session.borrow_mut(), query),
        }
    }
}
