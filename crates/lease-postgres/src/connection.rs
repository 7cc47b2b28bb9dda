//! How the store opens its connections, and what it tells the server of each.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use futures::{FutureExt, future::select_all};
use lease_core::{ErrorKind, clock::LocalInstant};
use tokio::task::{JoinHandle, unconstrained};
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
    let opener = Opener {
        tls: settings.tls.clone(),
        with_options: with_options(&settings.driver, settings.operation_timeout),
        pooler: pooler.clone(),
    };
    let longest_opening = longest_opening(settings.operation_timeout);
    let connector = Connector { opener, orphans: Mutex::default(), longest_opening };
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

/// Opens connections for the pool, each on a task of its own, which outlives the call that wanted it: when opening one takes longer than
/// calls may, the next call finds it half-way, or done, and no call is the last one to begin again.
struct Connector {
    opener: Opener,
    /// Connections that were to be opened for calls that ended before, the oldest first. With those of the pool they are not more than
    /// the pool may have: a call begins one of its own only when it was given a place in the pool, and gives back at most one.
    orphans: Mutex<Vec<Opening>>,
    longest_opening: Duration,
}

type Opened = Result<(Client, JoinHandle<()>), Error>;

impl Connect for Connector {
    fn connect(&self, without_options: &Config) -> Pin<Box<dyn Future<Output = Opened> + Send + '_>> {
        let without_options = without_options.clone();
        Box::pin(async move {
            if let Some(open) = self.take_open() {
                return Ok(open);
            }
            let mut waiting = Waiting { connector: self, openings: self.take_oldest().into_iter().collect() };
            // The elder may never come about, for example because the network has swallowed its first packet.
            waiting.openings.push(Opening::begin(self.opener.clone(), without_options.clone()));
            while !waiting.openings.is_empty() {
                let (ended, index, _) = select_all(waiting.openings.iter_mut().map(|opening| &mut opening.task)).await;
                waiting.openings.remove(index);
                match ended {
                    Ok(Ok(opened)) => {
                        waiting.openings.clear();
                        return Ok(opened);
                    }
                    // This call's own attempt is the news of the server; an elder's failure may be an old one.
                    Ok(Err(error)) if index == waiting.openings.len() => return Err(error),
                    _ => {}
                }
            }
            // The runtime is going down.
            self.opener.open(without_options).await
        })
    }
}

impl Connector {
    /// One that is open by now.
    fn take_open(&self) -> Option<(Client, JoinHandle<()>)> {
        let mut orphans = self.orphans();
        orphans.retain(|orphan| orphan.age() < self.longest_opening);
        while let Some(index) = orphans.iter().position(|orphan| orphan.task.is_finished()) {
            let mut orphan = orphans.remove(index);
            match unconstrained(&mut orphan.task).now_or_never() {
                Some(Ok(Ok(open))) if !open.0.is_closed() => return Some(open),
                _ => {}
            }
        }
        None
    }

    fn take_oldest(&self) -> Option<Opening> {
        let mut orphans = self.orphans();
        if orphans.is_empty() { None } else { Some(orphans.remove(0)) }
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<Opening>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("pooler", &self.opener.pooler).finish_non_exhaustive()
    }
}

/// A connection that is being opened, or was. Dropping it closes what was opened.
struct Opening {
    task: JoinHandle<Opened>,
    begun: LocalInstant,
}

impl Opening {
    fn begin(opener: Opener, without_options: Config) -> Self {
        let task = tokio::spawn(async move { opener.open(without_options).await });
        Self { task, begun: LocalInstant::now() }
    }

    fn age(&self) -> Duration {
        LocalInstant::now().saturating_duration_since(self.begun)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What one call waits for, the oldest first. When the call is given up, the oldest that may still come about goes on.
struct Waiting<'a> {
    connector: &'a Connector,
    openings: Vec<Opening>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let promising = |opening: &Opening| opening.age() < self.connector.longest_opening;
        if let Some(oldest) = self.openings.drain(..).find(promising) {
            self.connector.orphans().push(oldest);
        }
    }
}

/// How long it may take to open a connection: longer than the calls that want one, which may be many in a row.
pub(crate) fn longest_opening(operation_timeout: Duration) -> Duration {
    operation_timeout.saturating_mul(4).max(Duration::from_secs(30))
}

/// Opens a connection with the session's options, or without them when a pooler refuses options.
#[derive(Clone)]
struct Opener {
    tls: MakeRustlsConnect,
    with_options: Config,
    pooler: Pooler,
}

impl Opener {
    async fn open(&self, without_options: Config) -> Opened {
        if !self.pooler.is_known() {
            match self.connect(&self.with_options).await {
                Err(error) if refuses_options(&error) => self.pooler.learn(),
                opened => return opened,
            }
        }
        self.connect(&without_options).await
    }

    async fn connect(&self, driver: &Config) -> Opened {
        let (client, connection) = driver.connect(self.tls.clone()).await?;
        // Whoever waits for an answer learns why the connection ended; nobody else needs to.
        let driving = tokio::spawn(async move { drop(connection.await) });
        Ok((client, driving))
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
