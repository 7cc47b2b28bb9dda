//! A disk that is full, and one that is read-only: real ones, in a mount namespace of the test's own.
//!
//! Root ignores the permissions of a file but not a full or read-only file system, so each trial starts this program once more under
//! `unshare`, which needs no privileges where user namespaces are allowed. Where they are not, the trials show as ignored.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails as loudly as the test")]

use std::{
    env,
    fs::{self, File},
    io::{ErrorKind as IoErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use lease_sqlite::{
    SqliteConfig, SqliteLeaseStore,
    lease_core::{
        Acquisition, ErrorKind, FencingToken, LeaseDuration, LeaseName, LeaseStore, OwnerId, Renewal, StoreError,
        clock::LocalInstant,
    },
    rusqlite::Connection,
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const PART: &str = "LEASE_TEST_PART";
const PLACE: &str = "LEASE_TEST_PLACE";
const PARTS: [&str; 3] = [
    "a_full_disk_is_a_typed_error_and_loses_nothing",
    "a_read_only_disk_is_a_typed_error_until_it_is_writable_again",
    "a_read_only_disk_without_a_log_is_named_at_connect",
];

fn main() -> ExitCode {
    if let (Ok(part), Some(place)) = (env::var(PART), env::var_os(PLACE)) {
        play(&part, Path::new(&place));
        return ExitCode::SUCCESS;
    }
    let trials = PARTS.map(|part| Trial::ignorable_test(part, move || run(part)));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// Runs one part in a namespace of its own.
fn run(part: &str) -> Result<Completion, Failed> {
    let unshare = ["--user", "--map-root-user", "--mount", "--"];
    if !Command::new("unshare").args(unshare).arg("true").output().is_ok_and(|output| output.status.success()) {
        return Ok(Completion::ignored_with("`unshare --user --mount` is not allowed here"));
    }
    let place = tempfile::tempdir()?;
    let output = Command::new("unshare")
        .args(unshare)
        .arg(env::current_exe()?)
        .env(PART, part)
        .env(PLACE, place.path())
        .output()?;
    if output.status.success() {
        return Ok(Completion::Completed);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

fn play(part: &str, place: &Path) {
    let disk = Disk::mount(place);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match part {
            "a_full_disk_is_a_typed_error_and_loses_nothing" => full(&disk).await,
            "a_read_only_disk_is_a_typed_error_until_it_is_writable_again" => read_only(&disk).await,
            "a_read_only_disk_without_a_log_is_named_at_connect" => closed_and_read_only(&disk).await,
            _ => panic!("no such part: {part}"),
        }
    });
}

/// S8, S11, S14: a write that finds no room changes nothing and says so; reads go on; with room made the same store works.
async fn full(disk: &Disk) {
    let store = disk.store().await.unwrap();
    let token = grant(&store, "kept", "a").await;
    let filler = disk.fill();

    let error = loop {
        match renew(&store, "kept", "a").await {
            Ok(renewed) => assert_eq!(renewed, token),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error:?}");
    assert!(error.proves_nothing_happened());
    let refused = store.try_acquire(&name("other"), &owner("a"), long()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused:?}");
    assert_eq!(holder(&store, "kept").await, Some(owner("a")));
    let fresh = disk.path().with_file_name("fresh.db");
    let unopened = SqliteLeaseStore::connect(SqliteConfig::new(fresh)).await.unwrap_err();
    assert_eq!(unopened.kind(), ErrorKind::StorageFull, "{unopened:?}");

    fs::remove_file(filler).unwrap();
    assert_eq!(renew(&store, "kept", "a").await.unwrap(), token);
    grant(&store, "other", "a").await;
    assert!(store.release(&name("kept"), &owner("a")).await.unwrap());
    assert!(grant(&store, "kept", "b").await > token);
    let foreign = Connection::open(disk.path()).unwrap();
    let check: String = foreign.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// S8, S14, CL-06: on a read-only disk a refusal is still a refusal, every write is `ReadOnly`, a table that is there needs no
/// migration, and the same store writes as soon as the disk is writable.
async fn read_only(disk: &Disk) {
    // The files of a process that was killed: with its log, without which SQLite could not read the database.
    let elsewhere = tempfile::tempdir().unwrap();
    let original = elsewhere.path().join("leases.db");
    let killed = SqliteLeaseStore::connect(SqliteConfig::new(&original)).await.unwrap();
    killed.migrate().await.unwrap();
    let token = grant(&killed, "kept", "a").await;
    for file in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        fs::copy(elsewhere.path().join(file), disk.path().with_file_name(file)).unwrap();
    }
    disk.remount("ro");

    let store = disk.connect().await.unwrap();
    store.migrate().await.unwrap();
    for _ in 0..2 {
        assert_eq!(holder(&store, "kept").await, Some(owner("a")));
        assert_eq!(renew(&store, "kept", "a").await.unwrap_err().kind(), ErrorKind::ReadOnly);
        let refused = store.try_acquire(&name("other"), &owner("a"), long()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused:?}");
        assert!(refused.proves_nothing_happened() && refused.is_retryable());
    }
    disk.remount("rw");
    assert_eq!(renew(&store, "kept", "a").await.unwrap(), token);
    grant(&store, "other", "b").await;
    assert_eq!(holder(&store, "other").await, Some(owner("b")));
}

/// CL-06: SQLite cannot even read a cleanly closed database in write-ahead mode there; the error says why.
async fn closed_and_read_only(disk: &Disk) {
    let store = disk.store().await.unwrap();
    let token = grant(&store, "kept", "a").await;
    drop(store);
    disk.remount("ro");
    let error = disk.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    assert!(error.to_string().contains("its file system is read-only"), "{error}");
    disk.remount("rw");
    assert_eq!(renew(&disk.connect().await.unwrap(), "kept", "a").await.unwrap(), token);
}

/// A file system of half a megabyte.
struct Disk(PathBuf);

impl Disk {
    fn mount(place: &Path) -> Self {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "lease-test"]).arg(place).status();
        assert!(status.unwrap().success());
        Self(place.into())
    }

    /// Waits for stores that were dropped to close their files.
    fn remount(&self, mode: &str) {
        let deadline = LocalInstant::now() + Duration::from_secs(60);
        let option = ["remount,", mode].concat();
        while !Command::new("mount").args(["-o", &option]).arg(&self.0).output().unwrap().status.success() {
            assert!(!deadline.has_passed(), "the disk is still in use");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Fills the disk to the last byte.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[0; 512]) {
                break error;
            }
        };
        assert_eq!(error.kind(), IoErrorKind::StorageFull);
        path
    }

    fn path(&self) -> PathBuf {
        self.0.join("leases.db")
    }

    async fn connect(&self) -> Result<SqliteLeaseStore, StoreError> {
        SqliteLeaseStore::connect(SqliteConfig::new(self.path())).await
    }

    async fn store(&self) -> Result<SqliteLeaseStore, StoreError> {
        let store = self.connect().await?;
        store.migrate().await?;
        Ok(store)
    }
}

fn name(text: &str) -> LeaseName {
    LeaseName::new(text).unwrap()
}

fn owner(text: &str) -> OwnerId {
    OwnerId::new(text).unwrap()
}

fn long() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(600)).unwrap()
}

async fn grant(store: &SqliteLeaseStore, lease: &str, to: &str) -> FencingToken {
    let acquisition = store.try_acquire(&name(lease), &owner(to), long()).await.unwrap();
    acquisition.token().unwrap_or_else(|| panic!("{lease} should be free: {acquisition:?}"))
}

async fn renew(store: &SqliteLeaseStore, lease: &str, of: &str) -> Result<FencingToken, StoreError> {
    match store.renew(&name(lease), &owner(of), long()).await? {
        Renewal::Renewed { token, .. } => Ok(token),
        other => panic!("{lease} should be {of}'s: {other:?}"),
    }
}

async fn holder(store: &SqliteLeaseStore, lease: &str) -> Option<OwnerId> {
    match store.try_acquire(&name(lease), &owner("stranger"), long()).await.unwrap() {
        Acquisition::Held(holder) => holder.owner,
        other => panic!("{lease} should be held: {other:?}"),
    }
}
