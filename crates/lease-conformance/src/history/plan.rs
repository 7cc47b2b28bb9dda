//! One history by several processes: the test's own program, started again.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use lease_core::LeaseStore;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::{Load, Record, Summary, check, record};

/// Tells a child its test, its number and the directory, one a line.
const WORKER: &str = "LEASE_CONFORMANCE_HISTORY";

/// A history that several processes make together.
///
/// The test that calls [`run`](Self::run) is started again in each process, by the name that [`new`](Self::new) was given.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use lease_conformance::history::{Load, Plan};
/// # struct SqliteLeaseStore;
/// # impl SqliteLeaseStore { async fn open(_: std::path::PathBuf) -> lease_core::MemoryLeaseStore { lease_core::MemoryLeaseStore::new() } }
///
/// #[test]
/// fn hundred_thousand_operations_are_sound() {
///     let summary = Plan::new("hundred_thousand_operations_are_sound")
///         .processes(4)
///         .load(Load::default().operations(100_000))
///         .run(
///             async |directory| drop(SqliteLeaseStore::open(directory.join("leases.db")).await),
///             async |directory| SqliteLeaseStore::open(directory.join("leases.db")).await,
///         );
///     assert_eq!(summary.failed, 0);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    test: String,
    processes: u32,
    load: Load,
    tolerance: Duration,
}

impl Plan {
    /// A plan for the test of this name, as `cargo test -- --list` shows it: four processes, the default load, and a tolerance of
    /// 200 us.
    pub fn new(test: impl Into<String>) -> Self {
        Self { test: test.into(), processes: 4, load: Load::default(), tolerance: Duration::from_micros(200) }
    }

    /// How many processes share the operations.
    #[must_use]
    pub fn processes(mut self, processes: u32) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// What all of them do together.
    #[must_use]
    pub fn load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    /// How much faster the database's clock may run than this host's within the longest lease.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Runs the plan and checks the history: `prepare` makes the table, once, and `open` opens a store on it, in each process. Both
    /// are given a directory that all share and that is empty at first.
    ///
    /// # Panics
    ///
    /// When a process fails, when the history is unsound, or when it shows too little: no grant, refusal, renewal or takeover. An
    /// unsound history is kept, and the message says where.
    pub fn run<S: LeaseStore>(self, prepare: impl AsyncFnOnce(&Path), open: impl AsyncFnOnce(&Path) -> S) -> Summary {
        let tolerance = self.tolerance;
        let records = self.record(prepare, open);
        let summary = check(&records, tolerance)
            .unwrap_or_else(|violation| panic!("{violation}\nthe history is kept in {}", keep(&records).display()));
        let Summary { grants, refusals, renewals, takeovers, .. } = summary;
        assert!(grants.min(refusals).min(renewals).min(takeovers) > 0, "too little happened: {summary:?}");
        summary
    }

    /// Runs the plan as [`run`](Self::run) does, and answers the merged history without a judgement.
    ///
    /// # Panics
    ///
    /// When a process fails.
    pub fn record<S: LeaseStore>(
        self,
        prepare: impl AsyncFnOnce(&Path),
        open: impl AsyncFnOnce(&Path) -> S,
    ) -> Vec<Record> {
        if let Ok(worker) = env::var(WORKER) {
            let mut lines = worker.lines();
            if let (Some(test), Some(number), Some(directory)) = (lines.next(), lines.next(), lines.next())
                && test == self.test
            {
                self.work(number.parse().expect("a worker has a number"), Path::new(directory), open);
            }
        }
        let directory = TempDir::new().expect("a temporary directory");
        runtime().block_on(prepare(directory.path()));
        let mut workers: Vec<Child> = (0..self.processes).map(|number| self.spawn(number, directory.path())).collect();
        // Whatever ends this process closes the pipes, which ends the workers.
        let _pipes: Vec<_> = workers.iter_mut().map(|worker| worker.stdin.take()).collect();
        for worker in workers {
            let output = worker.wait_with_output().expect("a worker can be waited for");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "a worker failed with {}:\n{text}", output.status);
        }
        (0..self.processes).flat_map(|number| read(&file(directory.path(), number))).collect()
    }

    fn spawn(&self, number: u32, directory: &Path) -> Child {
        let worker = format!("{}\n{number}\n{}", self.test, directory.display());
        Command::new(env::current_exe().expect("the test's own program"))
            .args([&self.test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(WORKER, worker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test's own program starts again")
    }

    /// Does one process's share and ends the process, so that nothing of the test beyond the plan runs twice.
    fn work<S: LeaseStore>(&self, number: u32, directory: &Path, open: impl AsyncFnOnce(&Path) -> S) -> ! {
        thread::spawn(|| {
            // Nobody writes to the pipe: it ends when the test has ended, killed or not.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            process::exit(1)
        });
        let records = runtime().block_on(async {
            let store = Arc::new(open(directory).await);
            record(&store, &self.load.share(self.processes), number).await
        });
        write(&file(directory, number), &records);
        process::exit(0)
    }
}

fn keep(records: &[Record]) -> PathBuf {
    let directory = TempDir::new().expect("a temporary directory").keep();
    write(&file(&directory, 0), records);
    directory
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("the runtime starts")
}

fn file(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("history-{number}.jsonl"))
}

fn write(path: &Path, records: &[Record]) {
    let mut file = BufWriter::new(fs::File::create(path).expect("the history's file"));
    for record in records {
        serde_json::to_writer(&mut file, record).expect("a record is written");
        writeln!(file).expect("a record is written");
    }
    file.flush().expect("the history is written");
}

fn read(path: &Path) -> Vec<Record> {
    let file = BufReader::new(fs::File::open(path).expect("a history, unless the plan names another test"));
    file.lines()
        .map(|line| serde_json::from_str(&line.expect("the history is read")).expect("a line is a record"))
        .collect()
}
