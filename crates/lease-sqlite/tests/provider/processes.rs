//! Many processes on one file.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{Acquisition, LeaseStore, clock::LocalInstant},
    rusqlite::Connection,
};

use crate::{
    children::{Process, hear, say},
    support::{Database, PATIENCE, granted, migrated, millis, name, owner, refused, seconds},
};

const PROCESSES: usize = 16;
const FILES: usize = 50;
const ROUNDS: usize = 200;

/// SM-07: sixteen processes open a file that does not exist yet at the same moment, fifty times.
#[test]
fn processes_may_open_a_fresh_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start("open fresh files", directory.path())).collect();
    for process in &mut processes {
        assert_eq!(process.hear(), "ready");
    }
    for file in 0..FILES {
        for process in &mut processes {
            process.say(&file.to_string());
        }
        let grants = processes.iter_mut().map(Process::hear).filter(|answer| answer == "granted");
        assert_eq!(grants.count(), 1, "file {file}");
    }
    processes.into_iter().for_each(Process::finish);
}

/// The part of each process in the test above.
pub(crate) async fn open_fresh_files(directory: &Path) {
    say("ready");
    for _ in 0..FILES {
        let path = directory.join(hear());
        let store = migrated(SqliteConfig::new(path).operation_timeout(PATIENCE)).await;
        let me = owner(&format!("process-{}", std::process::id()));
        let acquisition = store.try_acquire(&name("job"), &me, seconds(60)).await.unwrap();
        say(if acquisition.is_acquired() { "granted" } else { "refused" });
    }
}

/// RC-18, S1, S6, S8: sixteen processes acquire, renew and release two hundred times each, while another client holds the write
/// lock for 300 ms at a time. No call fails, no answer is wrong, no two have the shared lease at once, and no token comes twice.
#[tokio::test]
async fn processes_take_turns_beside_a_greedy_writer() {
    let database = Database::new();
    database.store().await;
    let place = database.path();
    let is_over = AtomicBool::new(false);
    let tokens = thread::scope(|scope| {
        let greedy = scope.spawn(|| write_greedily(&place, &is_over));
        let over = Over(&is_over);
        let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start("take turns", &place)).collect();
        let mut tokens = Vec::new();
        for process in &mut processes {
            loop {
                match process.hear().as_str() {
                    "done" => break,
                    token => tokens.push(token.parse::<i64>().unwrap()),
                }
            }
        }
        processes.into_iter().for_each(Process::finish);
        drop(over);
        let times = greedy.join().unwrap();
        assert!(times >= 10, "the greedy writer got in the way only {times} times");
        tokens
    });
    assert!(tokens.len() >= PROCESSES, "{} shared terms", tokens.len());
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
    let last = database.foreign().row(&name("shared")).unwrap();
    assert_eq!((last.owner, Some(&last.token)), (None, tokens.iter().max()));
}

/// Holds the write lock for 300 ms, over and over, with 200 ms in between; answers how often.
fn write_greedily(place: &Path, is_over: &AtomicBool) -> usize {
    let connection = Connection::open(place).unwrap();
    // SQLite's own waiting, with pauses of up to 100 ms, would hardly ever find the lock free here.
    connection.busy_timeout(Duration::ZERO).unwrap();
    let mut times = 0;
    while !is_over.load(Ordering::Relaxed) {
        if connection.execute_batch("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS orders (id)").is_ok() {
            thread::sleep(Duration::from_millis(300));
            connection.execute_batch("INSERT INTO orders VALUES (1); COMMIT").unwrap();
            times += 1;
            thread::sleep(Duration::from_millis(200));
        }
        thread::sleep(Duration::from_micros(200));
    }
    times
}

/// Ends the greedy writer however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The part of each process in the test above. The operation timeout is the default one: 5 s for every wait.
pub(crate) async fn take_turns(place: &Path) {
    let store = SqliteLeaseStore::connect(SqliteConfig::new(place)).await.unwrap();
    let me = owner(&format!("process-{}", std::process::id()));
    let (own, shared) = (name(me.as_str()), name("shared"));
    let claimed = place.with_file_name("claimed");
    for _ in 0..ROUNDS {
        assert!(store.try_acquire(&own, &me, seconds(60)).await.unwrap().is_acquired());
        assert!(store.renew(&own, &me, seconds(60)).await.unwrap().is_renewed());
        assert!(store.release(&own, &me).await.unwrap());
        if let Acquisition::Acquired(token) = store.try_acquire(&shared, &me, seconds(60)).await.unwrap() {
            File::create_new(&claimed).expect("another process has the lease");
            assert!(store.renew(&shared, &me, seconds(60)).await.unwrap().is_renewed());
            fs::remove_file(&claimed).unwrap();
            assert!(store.release(&shared, &me).await.unwrap());
            say(&token.to_string());
        }
    }
    say("done");
}

/// SL-01: a holder that is killed leaves nothing behind but its lease, which is another's as soon as it has expired.
#[tokio::test]
async fn a_killed_holder_is_succeeded_once_its_lease_has_expired() {
    let database = Database::new();
    let (store, foreign) = (database.store().await, database.foreign());
    let mut holder = Process::start("hold for ever", &database.path());
    let first: i64 = holder.hear().parse().unwrap();
    holder.kill();

    let left = refused(&store, "job", "b").await;
    assert_eq!(left.owner, Some(owner("killed")));
    let killed = foreign.row(&name("job")).unwrap();
    let deadline = LocalInstant::now() + PATIENCE;
    let second = loop {
        match store.try_acquire(&name("job"), &owner("b"), seconds(30)).await.unwrap() {
            Acquisition::Acquired(token) => break token,
            Acquisition::Held(holder) => tokio::time::sleep(holder.remaining.min(Duration::from_millis(100))).await,
            other => panic!("{other:?}"),
        }
        assert!(!deadline.has_passed());
    };
    assert!(second.value() > first);
    let row = foreign.row(&name("job")).unwrap();
    assert!(row.acquired_at >= killed.expires_at);
}

/// The part of the holder in the test above: it renews until it is killed.
pub(crate) async fn hold_for_ever(place: &Path) {
    let store = SqliteLeaseStore::connect(SqliteConfig::new(place)).await.unwrap();
    let token = granted(&store, "job", "killed", millis(1500)).await;
    say(&token.to_string());
    loop {
        assert!(store.renew(&name("job"), &owner("killed"), millis(1500)).await.unwrap().is_renewed());
    }
}
