//! Random histories of fenced writes by several processes, which must leave no row of a stale term.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{Acquisition, ForceRelease, LeaseAdmin, LeaseDuration, LeaseName, LeaseStore, OwnerId, Term},
    rusqlite::{Connection, Transaction, TransactionBehavior},
};
use tokio::runtime;

use crate::{
    children::{Process, hear, say},
    support::{Database, Foreign, PATIENCE, millis, name, owner},
};

const PROCESSES: usize = 4;
const THREADS: usize = 2;

/// S1, RC-10, SL-01: ten thousand random steps of grants, renewals, forced releases and fenced writes by holders who do not know whether
/// they still are.
#[tokio::test]
async fn no_stale_row_is_committed() {
    let history = History::run("verify main", 10_000).await;
    assert_eq!(history.stale, 0);
    assert_eq!(history.rows, history.committed);
    let History { committed, refused, .. } = history;
    assert!(committed > 200 && refused > 200, "{committed} committed and {refused} refused prove little");
}

/// S1: an attached file's rows are fenced too, for the lease's own file is locked meanwhile.
#[tokio::test]
async fn no_stale_row_is_committed_in_an_attached_file() {
    let history = History::run("verify attached", 2_000).await;
    assert_eq!(history.stale, 0);
    assert_eq!(history.rows, history.committed);
    let History { committed, refused, .. } = history;
    assert!(committed > 50 && refused > 50, "{committed} committed and {refused} refused prove little");
}

/// The two tests above could have failed: without `verify` there are stale rows, and so there are when it only reads.
#[tokio::test]
async fn a_missing_fence_and_one_that_only_reads_are_caught() {
    for fence in ["skip main", "skip attached", "read attached"] {
        let mut stale = 0;
        for _ in 0..20 {
            stale = History::run(fence, 500).await.stale;
            if stale > 0 {
                break;
            }
        }
        assert!(stale > 0, "{fence}: no stale row");
    }
}

/// What became of a random history.
struct History {
    /// Rows of tokens that were not the lease's when they were written, or that are lower than one before them. SQLite's writers come one
    /// after the other, so that the order of the rows is that of the commits.
    stale: i64,
    rows: i64,
    committed: i64,
    refused: i64,
}

impl History {
    /// `plan` says how rows are fenced, by `verify`, `read` or `skip`, and which file has them, the `main` one or an `attached` one.
    async fn run(plan: &str, steps: usize) -> Self {
        let database = Database::new();
        database.store().await;
        let ledger = create_ledger(&database, plan);
        let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start("write rows", &database.path())).collect();
        for process in &mut processes {
            process.say(&format!("{plan} {}", steps / PROCESSES / THREADS));
        }
        let (mut committed, mut refused) = (0, 0);
        for process in &mut processes {
            for _ in 0..THREADS {
                let counts = process.hear();
                let (more_committed, more_refused) = counts.split_once(' ').unwrap();
                committed += more_committed.parse::<i64>().unwrap();
                refused += more_refused.parse::<i64>().unwrap();
            }
        }
        processes.into_iter().for_each(Process::finish);
        let stale = ledger.one::<i64>("SELECT count(*) FROM stale", [])
            + ledger.one::<i64>(
                "SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY rowid) AS former FROM ledger)
                 WHERE former > token",
                [],
            );
        Self { stale, rows: ledger.one("SELECT count(*) FROM ledger", []), committed, refused }
    }
}

fn create_ledger(database: &Database, plan: &str) -> Foreign {
    const TABLES: &str = "CREATE TABLE ledger (token INTEGER NOT NULL); CREATE TABLE stale (token INTEGER NOT NULL);";
    // The witness sees what is true until the commit: it looks while the row that it was written for keeps others from writing.
    const WITNESS: &str = "CREATE TRIGGER witness AFTER INSERT ON ledger BEGIN
             INSERT INTO stale SELECT token FROM singleton_leases WHERE token <> NEW.token;
         END;";
    if plan.ends_with("main") {
        let ledger = database.foreign();
        ledger.execute(TABLES);
        ledger.execute(WITNESS);
        return ledger;
    }
    let ledger = Foreign(Connection::open(attached(&database.path())).unwrap());
    ledger.execute("PRAGMA journal_mode = wal");
    ledger.execute(TABLES);
    ledger
}

fn attached(place: &Path) -> PathBuf {
    place.with_file_name("ledger.db")
}

/// The part of each process: writers on threads that share a store.
pub(crate) async fn write_rows(place: &Path) {
    let store = SqliteLeaseStore::connect(SqliteConfig::new(place).operation_timeout(PATIENCE)).await.unwrap();
    let plan = hear();
    let [fence, file, steps] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("no such plan: {plan}") };
    let steps: usize = steps.parse().unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let mut writer = Writer::new(number, store.clone(), place, (fence, file));
            scope.spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                while writer.term.is_none() {
                    runtime.block_on(writer.acquire());
                }
                for _ in 0..steps {
                    runtime.block_on(writer.step());
                }
                say(&format!("{} {}", writer.committed, writer.refused));
            });
        }
    });
}

struct Writer<'a> {
    store: SqliteLeaseStore,
    connection: Connection,
    fence: &'a str,
    job: LeaseName,
    me: OwnerId,
    /// The last term, over or not.
    term: Option<Term>,
    committed: i64,
    refused: i64,
}

impl<'a> Writer<'a> {
    fn new(number: usize, store: SqliteLeaseStore, place: &Path, (fence, file): (&'a str, &str)) -> Self {
        let connection = Connection::open(place).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        if file == "attached" {
            connection.execute("ATTACH ?1 AS attached", [attached(place).to_str()]).unwrap();
        }
        let (job, me) = (name("job"), owner(&format!("writer-{}-{number}", std::process::id())));
        Self { store, connection, fence, job, me, term: None, committed: 0, refused: 0 }
    }

    async fn step(&mut self) {
        match (fastrand::u32(0..20), self.term.clone()) {
            (0..4, _) | (_, None) => self.acquire().await,
            (4, _) => drop(self.store.force_release(&self.job, ForceRelease::Now).await.unwrap()),
            (5, _) => drop(self.store.renew(&self.job, &self.me, lasting()).await.unwrap()),
            (_, Some(term)) => match self.write(&term) {
                Some(()) => self.committed += 1,
                None => self.refused += 1,
            },
        }
    }

    async fn acquire(&mut self) {
        if let Acquisition::Acquired(token) = self.store.try_acquire(&self.job, &self.me, lasting()).await.unwrap() {
            self.term = Some(Term::new(self.job.clone(), self.me.clone(), token));
        }
    }

    /// Writes a row and commits it under the lease; none when that was refused.
    fn write(&mut self, term: &Term) -> Option<()> {
        use TransactionBehavior::{Deferred, Immediate};
        let (shape, pause) = (fastrand::u32(0..3), Duration::from_micros(fastrand::u64(0..3000)));
        let behavior = if shape == 0 { Immediate } else { Deferred };
        let transaction = self.connection.transaction_with_behavior(behavior).ok()?;
        let insert = |transaction: &Transaction<'_>| {
            transaction.execute("INSERT INTO ledger VALUES (?1)", [term.token.value()]).ok()
        };
        match (shape, self.fence) {
            (0, "verify") => {
                insert(&transaction)?;
                return self.store.commit(transaction, term).ok();
            }
            (1, "verify") => {
                // What is read before makes the transaction one that may have to begin again.
                transaction.query_row("SELECT max(token) FROM ledger", [], |_| Ok(())).ok()?;
                thread::sleep(pause);
                self.store.verify(&transaction, term).ok()?;
                insert(&transaction)?;
            }
            (_, "verify") => {
                self.store.verify(&transaction, term).ok()?;
                thread::sleep(pause);
                insert(&transaction)?;
            }
            (_, "read") => {
                let held = "SELECT 1 FROM singleton_leases
                            WHERE owner = ?1 AND token = ?2 AND expires_at > unixepoch('subsec') * 1000000";
                transaction.query_row(held, (term.owner.as_str(), term.token.value()), |_| Ok(())).ok()?;
                thread::sleep(pause);
                insert(&transaction)?;
            }
            _ => drop(insert(&transaction)?),
        }
        transaction.commit().ok()
    }
}

/// As short as a step, so that terms end everywhere in the steps of others.
fn lasting() -> LeaseDuration {
    millis(fastrand::u64(1..60))
}
