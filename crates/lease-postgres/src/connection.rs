//! How the store opens its connections, and what it tells the server of each.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use lease_core::ErrorKind;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{config::Settings, error::Failure};

/// Whether a connection pooler stands before the server, such as PgBouncer in transaction mode: each statement may run in another
/// session, so that nothing can be left in one. It is learnt on the way, and kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pooler(Arc<AtomicBool>);

impl Pooler {
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn learn(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A pool of connections of the store's own. None is opened yet.
pub(crate) fn pool(settings: &Settings, pooler: &Pooler) -> Result<Pool, Failure> {
    let connector = Connector {
        tls: settings.tls.clone(),
        with_options: with_options(&settings.driver, settings.operation_timeout),
        pooler: pooler.clone(),
    };
    // A connection that has ended is not lent again; to find out by a query would be a second round trip for each call.
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_connect(settings.driver.clone(), connector, config);
    let built = Pool::builder(manager).max_size(settings.pool_size).build();
    built.map_err(|error| Failure::new(ErrorKind::InvalidConfig, error.to_string()))
}

/// The configuration with what every session of the store's own is started with, behind the user's own options.
///
/// - READ COMMITTED, whatever the role's default: then contention is no error, nor a line in the server's log (S8).
/// - A lock is waited for a little less than an operation lasts, so that a renewal whose row somebody keeps is an answer.
/// - A statement lasts no longer than an operation, so that one whose client is gone does not outlive it.
fn with_options(driver: &Config, operation_timeout: Duration) -> Config {
    // The server counts milliseconds in 32 bits.
    let statement_timeout = operation_timeout.as_millis().min(i32::MAX.unsigned_abs().into());
    let lock_timeout = (statement_timeout * 9 / 10).max(1);
    let mut driver = driver.clone();
    let options = [
        driver.get_options().unwrap_or_default(),
        r"-c default_transaction_isolation=read\ committed",
        &format!("-c lock_timeout={lock_timeout}"),
        &format!("-c statement_timeout={statement_timeout}"),
    ];
    driver.options(options.join(" ").trim_start());
    driver
}

/// Opens a connection with the session's options, or without them when a pooler refuses options.
struct Connector {
    tls: MakeRustlsConnect,
    with_options: Config,
    pooler: Pooler,
}

type Connected<'a> = Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for Connector {
    fn connect(&self, without_options: &Config) -> Connected<'_> {
        let without_options = without_options.clone();
        Box::pin(async move {
            if !self.pooler.is_known() {
                match self.open(&self.with_options).await {
                    Err(error) if refuses_options(&error) => self.pooler.learn(),
                    opened => return opened,
                }
            }
            self.open(&without_options).await
        })
    }
}

impl Connector {
    async fn open(&self, driver: &Config) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, connection) = driver.connect(self.tls.clone()).await?;
        // Whoever waits for an answer learns why the connection ended; nobody else needs to.
        let driving = tokio::spawn(async move { drop(connection.await) });
        Ok((client, driving))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("pooler", &self.pooler).finish_non_exhaustive()
    }
}

/// PgBouncer's way to say that it cannot give a session that it shares the options of one client.
fn refuses_options(error: &Error) -> bool {
    error
        .as_db_error()
        .is_some_and(|error| error.code().code() == "08P01" && error.message().contains("startup parameter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8: the store's own options come last, so that the server takes them, and leave the user's others alone.
    #[test]
    fn sessions_are_started_with_the_stores_options() {
        let options = |url: &str, operation_timeout| {
            let driver: Config = url.parse().unwrap();
            with_options(&driver, operation_timeout).get_options().unwrap().to_owned()
        };
        let seconds = Duration::from_secs(5);
        let ours = r"-c default_transaction_isolation=read\ committed -c lock_timeout=4500 -c statement_timeout=5000";
        assert_eq!(options("postgres://localhost", seconds), ours);
        assert_eq!(options("postgres://localhost?options=-c%20jit%3Doff", seconds), format!("-c jit=off {ours}"));
        assert!(options("postgres://localhost", Duration::MAX).ends_with("-c statement_timeout=2147483647"));
        assert!(options("postgres://localhost", Duration::from_millis(1)).contains("-c lock_timeout=1 "));
    }
}
