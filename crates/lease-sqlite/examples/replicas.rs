//! Three replicas of a service on one SQLite file: one works, it is killed, another takes over.
//!
//! Run it with `cargo run -p lease-sqlite --example replicas`. The replicas are real processes, this program started three times
//! more, and the one that works is killed with SIGKILL, so that it can tell nobody.
#![expect(clippy::print_stdout, reason = "the lines are what the example shows")]

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{SingletonExecutor, SingletonOptions, clock::LocalInstant},
};
use tokio::sync::oneshot;

/// A killed holder's lease lasts at most as long. A real service takes its 30 s.
const DURATION: Duration = Duration::from_secs(3);

/// How often the working replica says so.
const STEP: Duration = Duration::from_millis(500);

/// How many steps the example watches of each holder.
const STEPS: usize = 4;

/// Tells the program that it is a replica, and which one.
const REPLICA: &str = "LEASE_EXAMPLE_REPLICA";
const PLACE: &str = "LEASE_EXAMPLE_PLACE";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    match (env::var(REPLICA), env::var_os(PLACE)) {
        (Ok(me), Some(place)) => replicate(&me, Path::new(&place)),
        _ => watch_replicas(),
    }
}

/// What a service does: it connects, and runs its job wherever the lease is won.
#[tokio::main(flavor = "current_thread")]
async fn replicate(me: &str, place: &Path) -> Result<()> {
    let store = SqliteLeaseStore::connect(SqliteConfig::new(place)).await?;
    store.migrate().await?;
    let executor = SingletonExecutor::new(store, SingletonOptions::enabled().duration(DURATION).label(me))?;
    let job = executor.job("probe")?;
    println!("stands by");

    let work = job.run(|lease| async move {
        let token = lease.token().map(|token| token.to_string()).unwrap_or_default();
        let stopped = lease.cancelled();
        while lease.check().is_ok() {
            println!("works with token {token}");
            tokio::select! {
                () = stopped.cancelled() => break,
                () = tokio::time::sleep(STEP) => {}
            }
        }
    });
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return Ok(result?),
        _ = end_of_input() => {}
    }
    executor.shutdown().await;
    println!("ends");
    Ok(())
}

/// Completes when the program that started this replica closes its end, or dies.
fn end_of_input() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    end
}

/// Starts three replicas, kills the one that works, and watches another take over.
fn watch_replicas() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("leases.db");
    let (heard, lines) = channel();
    let mut show = Show { started: LocalInstant::now(), lines };
    let mut replicas = Vec::new();
    for number in 1..=3 {
        replicas.push(Replica::start(number, &place, heard.clone())?);
    }

    let first = show.until_somebody_works()?;
    replicas[first].child.kill()?;
    replicas[first].child.wait()?;
    show.line(first, "is killed");
    let second = show.until_somebody_works()?;
    assert_ne!(first, second);

    for replica in &mut replicas {
        drop(replica.child.stdin.take());
        replica.child.wait()?;
    }
    drop(heard);
    while let Ok((replica, line)) = show.lines.recv() {
        show.line(replica, &line);
    }
    Ok(())
}

/// A process, which ends with this one.
struct Replica {
    child: Child,
}

impl Replica {
    fn start(number: usize, place: &Path, heard: Sender<(usize, String)>) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(REPLICA, ["replica-", &number.to_string()].concat())
            .env(PLACE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the replica has no output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                let _ = heard.send((number - 1, line));
            }
        });
        Ok(Self { child })
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints what the replicas say: when, who, and with which token.
struct Show {
    started: LocalInstant,
    lines: Receiver<(usize, String)>,
}

impl Show {
    /// Waits until one replica has worked for a while, and answers which.
    fn until_somebody_works(&mut self) -> Result<usize> {
        let mut steps = [0; 3];
        loop {
            let (replica, line) = self.lines.recv_timeout(5 * DURATION)?;
            self.line(replica, &line);
            steps[replica] += usize::from(line.starts_with("works"));
            if steps[replica] == STEPS {
                return Ok(replica);
            }
        }
    }

    fn line(&self, replica: usize, line: &str) {
        let elapsed = LocalInstant::now().saturating_duration_since(self.started).as_secs_f64();
        println!("{elapsed:5.1} s  replica-{}  {line}", replica + 1);
    }
}
