//! This provider's performance budget, as ratios measured in one run: `cargo xtask bench`.

use std::{
    error::Error,
    future::Future,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use lease_sqlite::{
    SqliteLeaseStore,
    lease_core::{LeaseDuration, LeaseName, LeaseStore, OwnerId, clock::LocalInstant},
    rusqlite::{self, Connection, TransactionBehavior},
};
use tokio::sync::oneshot;

/// Both sides of a ratio take turns, so that whatever slows the machine down slows both down.
const BLOCKS: usize = 10;
const REFUSALS: usize = 500;
const GRANTS: usize = 100;

/// How long the other connection stays in each of its write transactions.
const WRITE: Duration = Duration::from_millis(30);

const REFUSAL_BUDGET: Duration = Duration::from_millis(1);
const GRANT_BUDGET: f64 = 1.25;

/// Somebody else's table. The bare UPDATE has it in a file of its own, for two connections that take turns at one file read anew
/// what the other has changed, which no lone holder does.
const OTHERS: &str = "PRAGMA journal_mode = WAL; CREATE TABLE other (id INTEGER PRIMARY KEY, value INTEGER) STRICT; \
                      INSERT INTO other VALUES (1, 0)";

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    // Beside the build and not in the system's temporary directory, which may lie in memory, where a sync costs nothing.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = directory.path().join("leases.db");
    let store = SqliteLeaseStore::connect(format!("sqlite:{}", path.display())).await?;
    store.migrate().await?;
    let others = directory.path().join("others.db");
    for path in [&path, &others] {
        open(path)?.execute_batch(OTHERS)?;
    }

    let kept = [refusals(&store, &path).await?, grants(&store, &others).await?];
    Ok(if kept == [true, true] { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A refusal is a read, and never waits for a writer.
async fn refusals(store: &SqliteLeaseStore, path: &Path) -> Result<bool> {
    let (job, a, b) = (LeaseName::new("refused")?, OwnerId::new("a")?, OwnerId::new("b")?);
    assert!(store.try_acquire(&job, &a, LeaseDuration::MAX).await?.is_acquired());
    let (mut idle, mut busy) = (Samples::default(), Samples::default());
    for _ in 0..BLOCKS {
        for _ in 0..REFUSALS {
            let refused = idle.time(store.try_acquire(&job, &b, LeaseDuration::MAX)).await?;
            assert!(!refused.is_acquired());
        }
        let writer = BusyWriter::start(path)?;
        for _ in 0..REFUSALS {
            let refused = busy.time(store.try_acquire(&job, &b, LeaseDuration::MAX)).await?;
            assert!(!refused.is_acquired());
        }
        assert!(writer.stop()? > 0, "nobody wrote");
    }
    let (idle, busy) = (idle.quantile(0.99), busy.quantile(0.99));
    let measured = format!("{busy:?} (idle {idle:?}), budget {REFUSAL_BUDGET:?}");
    Ok(report("refusal while another connection writes, p99", &measured, busy < REFUSAL_BUDGET))
}

/// A grant costs what its one durable write costs.
async fn grants(store: &SqliteLeaseStore, path: &Path) -> Result<bool> {
    let (job, owner) = (LeaseName::new("granted")?, OwnerId::new("a")?);
    let bare = BareUpdate::start(path)?;
    let (mut acquire, mut update) = (Samples::default(), Samples::default());
    for _ in 0..BLOCKS * GRANTS {
        update.time(bare.run()).await?;
        assert!(acquire.time(store.try_acquire(&job, &owner, LeaseDuration::MAX)).await?.is_acquired());
    }
    let (acquire, update) = (acquire.quantile(0.5), update.quantile(0.5));
    let ratio = acquire.as_secs_f64() / update.as_secs_f64();
    let measured = format!("{ratio:.2} ({acquire:?} / {update:?}), budget {GRANT_BUDGET}");
    Ok(report("acquire / bare UPDATE on a thread, medians", &measured, ratio <= GRANT_BUDGET))
}

/// How long the same thing took, each time.
#[derive(Default)]
struct Samples(Vec<Duration>);

impl Samples {
    async fn time<F: Future>(&mut self, call: F) -> F::Output {
        let called = LocalInstant::now();
        let output = call.await;
        self.0.push(LocalInstant::now().saturating_duration_since(called));
        output
    }

    fn quantile(mut self, part: f64) -> Duration {
        self.0.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (self.0.len() as f64 * part) as usize;
        self.0[index.min(self.0.len() - 1)]
    }
}

/// A connection of somebody else's that is always in a write transaction.
struct BusyWriter {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<u32>>,
}

impl BusyWriter {
    fn start(path: &Path) -> Result<Self> {
        let mut connection = open(path)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopped);
        let (began, first) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut writes = 0;
            while !flag.load(Ordering::Relaxed) {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                transaction.execute("UPDATE other SET value = value + 1", [])?;
                let _ = began.send(());
                thread::sleep(WRITE);
                transaction.commit()?;
                writes += 1;
            }
            Ok(writes)
        });
        first.recv()?;
        Ok(Self { stopped, thread })
    }

    /// Ends it, and says how often it wrote.
    fn stop(self) -> Result<u32> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer does not panic")
    }
}

/// What a grant is compared with: one durable UPDATE of one row, on a thread that owns its connection as the store's does.
struct BareUpdate(mpsc::Sender<oneshot::Sender<rusqlite::Result<usize>>>);

impl BareUpdate {
    fn start(path: &Path) -> Result<Self> {
        let connection = open(path)?;
        let (commands, queue) = mpsc::channel::<oneshot::Sender<_>>();
        thread::spawn(move || {
            for reply in queue {
                let update = connection.prepare_cached("UPDATE other SET value = value + 1 WHERE id = 1");
                let _ = reply.send(update.and_then(|mut update| update.execute([])));
            }
        });
        Ok(Self(commands))
    }

    async fn run(&self) -> Result<usize> {
        let (reply, answer) = oneshot::channel();
        self.0.send(reply)?;
        Ok(answer.await??)
    }
}

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

#[expect(clippy::print_stdout, reason = "the measurements are this program's output")]
fn report(what: &str, measured: &str, is_kept: bool) -> bool {
    println!("{} sqlite: {what}: {measured}", if is_kept { "ok  " } else { "OVER" });
    is_kept
}
