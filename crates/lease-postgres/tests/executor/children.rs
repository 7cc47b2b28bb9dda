//! Processes of the tests' own: this test binary, started once more as an instance that contends for a job.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use lease_conformance::servers::{POSTGRES_URL, PostgresServer};
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    lease_core::{HeldLease, clock::LocalInstant},
};

use crate::{
    server::PATIENCE,
    steps::{Step, Steps},
    support::{Schema, executor, short_leases},
};

const SCHEMA: &str = "LEASE_TEST_SCHEMA";
const MARK: &str = "lease-test: ";
const STEP: Duration = Duration::from_millis(5);

/// An instance in a process of its own, which ends with the test at the latest.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
}

impl Process {
    /// Starts an instance, whose steps go into the record under its number.
    pub(crate) fn start(schema: &Schema, instance: usize, steps: &Arc<Steps>) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "children::instance_of_another_test", "--ignored", "--nocapture", "--test-threads=1"])
            .envs([(SCHEMA, schema.name.as_str()), (POSTGRES_URL, PostgresServer::shared().url())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let steps = Arc::clone(steps);
        thread::spawn(move || note_all(instance, stdout, &steps));
        Self { child, stdin }
    }

    /// Blocks the instance's only thread for so long, within its job if it has one.
    pub(crate) fn keep_busy(&mut self, span: Duration) {
        writeln!(self.stdin, "{}", span.as_millis()).unwrap();
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn note_all(instance: usize, stdout: ChildStdout, steps: &Steps) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Some((_, said)) = line.split_once(MARK) else { continue };
        let (token, nanos) = said.split_once(' ').unwrap();
        let at = Duration::from_nanos(nanos.parse().unwrap());
        steps.note(Step { instance, token: token.parse().unwrap(), at });
    }
}

/// The part of each process: a job that takes steps for as long as it may, and that blocks its runtime when it is told to.
#[tokio::test]
#[ignore = "a part of other tests, which start it as a process"]
async fn instance_of_another_test() {
    let schema = env::var(SCHEMA).expect("other tests start this one");
    let config = PostgresConfig::from_url(&env::var(POSTGRES_URL).unwrap()).unwrap().schema(schema);
    let store = PostgresLeaseStore::connect(config.operation_timeout(PATIENCE)).await.unwrap();
    let busy = Arc::new(AtomicU64::new(0));
    let commands = Arc::clone(&busy);
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            commands.store(line.parse().unwrap(), Ordering::Relaxed);
        }
        // The test has ended.
        std::process::exit(0);
    });
    let executor = executor(&store, short_leases());
    let run = executor.job("job").unwrap().run(move |lease| take_steps(lease, Arc::clone(&busy)));
    let ended: Result<(), _> = run.await;
    panic!("the job ended: {ended:?}");
}

async fn take_steps(lease: HeldLease, busy: Arc<AtomicU64>) {
    let token = lease.token().unwrap();
    while lease.check().is_ok() {
        say(token.value(), LocalInstant::now());
        let span = busy.swap(0, Ordering::Relaxed);
        if span > 0 {
            thread::sleep(Duration::from_millis(span));
            // Without a look at anything else the next check must fail.
            continue;
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Tells the test of a step, on the clock that all processes of this host share.
#[expect(clippy::print_stdout, reason = "the other process reads it")]
fn say(token: i64, at: LocalInstant) {
    // A conversion is never later than the instant, and earlier by as long as it was held up: the latest of some is the best.
    let at = (0..8).map(|_| at.to_boot_time()).max().unwrap_or_default();
    println!("{MARK}{token} {}", at.as_nanos());
}
