//! Stores that cannot be reached, or cannot be written to.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::support::{Place, code, refusal};

/// Runs on this store, and expects exit code 69, one line, and no command.
fn unreachable(place: &Place, url: &str) -> String {
    let (code, said) = refusal(place.lease().args(["run", "--name", "job", "--store", url, "--", "touch", "ran"]));
    assert_eq!(code, Some(69), "{said}");
    assert!(said.starts_with("lease: ") && said.lines().count() == 1, "{said:?}");
    assert!(!place.path("ran").exists());
    said
}

#[test]
fn a_store_that_is_not_there() {
    let place = Place::new();
    let said = unreachable(&place, "sqlite:absent/leases.db");
    assert!(said.starts_with("lease: open lease store: database unavailable"), "{said}");
    assert!(said.contains("absent/leases.db") && said.contains("directory does not exist"), "{said}");
    assert!(!place.path("absent").exists());
}

/// What can never be a store is bad usage.
#[test]
fn a_store_that_is_something_else() {
    let place = Place::new();
    fs::create_dir(place.path("directory")).unwrap();
    let text = "no database, and longer than the header of one\n".repeat(99);
    fs::write(place.path("text"), &text).unwrap();
    for (url, reason) in [("sqlite:directory", "it is a directory"), ("sqlite:text", "file is not a database")] {
        let (code, said) = refusal(place.lease().args(["run", "--name", "job", "--store", url, "--", "touch", "ran"]));
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    assert!(!place.path("ran").exists());
    assert!(fs::read_to_string(place.path("text")).unwrap() == text, "the file was changed");
}

#[test]
fn a_table_that_will_not_do() {
    let place = Place::new();
    let connection = lease_sqlite::rusqlite::Connection::open(place.path("leases.db")).unwrap();
    connection.execute_batch("CREATE TABLE singleton_leases (name TEXT)").unwrap();
    assert!(unreachable(&place, &place.url()).contains("lease table not migrated"));
    let (code, said) = refusal(place.lease().args(["migrate", "--store", &place.url()]));
    assert_eq!(code, Some(69));
    assert!(said.contains("lease table not migrated"), "{said}");
}

/// A small file system in memory, mounted on `disk`.
struct Disk<'a>(&'a Place);

impl<'a> Disk<'a> {
    fn mount(place: &'a Place) -> Self {
        fs::create_dir(place.path("disk")).unwrap();
        let mut mount = Command::new("mount");
        assert_eq!(code(mount.args(["-t", "tmpfs", "-o", "size=256k", "lease-test"]).arg(place.path("disk"))), Some(0));
        Self(place)
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        assert_eq!(code(mount.args(["-o", &format!("remount,{options}")]).arg(self.0.path("disk"))), Some(0));
    }

    fn fill(&self) {
        let mut fill = Command::new("dd");
        fill.arg("if=/dev/zero").arg(format!("of={}", self.0.path("disk/filler").display())).stderr(Stdio::null());
        assert_eq!(code(&mut fill), Some(1), "the disk did not fill up");
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path("disk")).status();
    }
}

/// S8: a disk that is full or read-only is told by name, nothing is lost, and all is well when the cause has gone.
#[test]
#[ignore = "mounts a file system: run `cargo test -p lease-cli stores -- --ignored` as root"]
fn a_disk_that_takes_no_writes() {
    let place = Place::new();
    let disk = Disk::mount(&place);
    let url = "sqlite:disk/leases.db";
    let run = || code(place.lease().args(["run", "--name", "job", "--store", url, "--no-wait", "--", "true"]));
    assert_eq!(run(), Some(0));

    disk.fill();
    let said = unreachable(&place, url);
    assert!(said.contains("no storage left"), "{said}");
    fs::remove_file(place.path("disk/filler")).unwrap();
    assert_eq!(run(), Some(0));

    disk.remount("ro");
    let said = unreachable(&place, url);
    assert!(said.contains("read-only"), "{said}");
    disk.remount("rw");
    assert_eq!(run(), Some(0));
}
