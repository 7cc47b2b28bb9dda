//! The database's file as the operating system sees it: which one it is, what it lies on, and why it cannot be opened.
//!
//! Nothing here opens the file: closing it again would drop every lock that SQLite holds on it in this process.

use std::{fs, io, path::Path};

use lease_core::ErrorKind;

use crate::error::Failure;

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at the end of the path, if there is one.
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Elsewhere an open file can be neither deleted nor replaced.
    #[cfg(not(unix))]
    pub(crate) fn of(_path: &Path) -> Option<Self> {
        None
    }
}

/// Whether two paths lead to one file, by the same name: beside its name lies the write-ahead log, of which a hard link has another.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path| fs::canonicalize(path).ok();
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Creates the directory that the file lies in, and those above.
pub(crate) fn create_parent(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::StorageFull => ErrorKind::StorageFull,
            _ => ErrorKind::Unavailable,
        };
        Failure::new(kind, format!("cannot create directory {}: {error}", parent.display()))
    })
}

/// Refuses a file system that several hosts share: its locks, and the memory that a write-ahead log needs, do not reach from one
/// host to another, and each host has a clock of its own (SM-10).
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn refuse_network(path: &Path) -> Result<(), Failure> {
    let known = path.ancestors().find_map(|place| rustix::fs::statfs(place).ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the magic numbers are 32 bits wide")]
    match known.and_then(|status| network_file_system(status.f_type as u32)) {
        Some(name) => Err(Failure::new(
            ErrorKind::Unsupported,
            format!("{} lies on {name}: SQLite coordinates the processes of one host, on a local disk", path.display()),
        )),
        None => Ok(()),
    }
}

/// Elsewhere the documentation has to do.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn refuse_network(_path: &Path) -> Result<(), Failure> {
    Ok(())
}

/// Says which file could not be opened, and why, for SQLite's code does not.
pub(crate) fn explain(path: &Path, failure: Failure) -> Failure {
    let kind = failure.kind();
    if failure.has_detail() || kind == ErrorKind::Busy {
        return failure;
    }
    let (kind, reason) = match (kind, obstacle(path)) {
        (ErrorKind::Unavailable, Some(obstacle)) => obstacle,
        _ => (kind, "SQLite cannot open it"),
    };
    failure.explained(kind, format!("{}: {reason}", path.display()))
}

fn obstacle(path: &Path) -> Option<(ErrorKind, &'static str)> {
    let parent = path.parent().unwrap_or(path);
    if path.is_dir() {
        return Some((ErrorKind::InvalidConfig, "it is a directory"));
    }
    if !parent.exists() {
        return Some((ErrorKind::Unavailable, "its directory does not exist"));
    }
    // Beside the file SQLite keeps its write-ahead log, so that the directory has to be writable too.
    [path, parent].into_iter().find_map(refusal).or_else(|| {
        let is_missing = !path.exists();
        is_missing.then_some((ErrorKind::Unavailable, "the file does not exist"))
    })
}

#[cfg(unix)]
fn refusal(path: &Path) -> Option<(ErrorKind, &'static str)> {
    use rustix::{
        fs::{Access, access},
        io::Errno,
    };
    match access(path, Access::READ_OK | Access::WRITE_OK) {
        Err(Errno::ROFS) => Some((ErrorKind::ReadOnly, "its file system is read-only")),
        Err(Errno::ACCESS) => Some((ErrorKind::Denied, "this user may not write the file, or its directory")),
        _ => None,
    }
}

#[cfg(not(unix))]
fn refusal(_path: &Path) -> Option<(ErrorKind, &'static str)> {
    None
}

/// The name of the network or cluster file system with this magic number, see `statfs(2)` and `linux/magic.h`.
///
/// FUSE is not among them, for it serves local file systems too: `sshfs` and its like are not recognised.
#[cfg(any(test, target_os = "linux", target_os = "android"))]
fn network_file_system(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x564C => "NCP",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00C3_6400 => "Ceph",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0102_1997 => "9P",
        0x786F_4256 => "a VirtualBox shared folder",
        0xBACB_ACBC => "a VMware shared folder",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SM-10
    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        for (magic, name) in [(0x6969, "NFS"), (0xFF53_4D42, "SMB"), (0xFE53_4D42, "SMB"), (0x0BD0_0BD0, "Lustre")] {
            assert_eq!(network_file_system(magic), Some(name));
        }
        let (ext4, tmpfs, btrfs, xfs, overlay, zfs) =
            (0xEF53, 0x0102_1994, 0x9123_683E, 0x5846_5342, 0x794C_7630, 0x2FC1_2FC1);
        for magic in [ext4, tmpfs, btrfs, xfs, overlay, zfs] {
            assert_eq!(network_file_system(magic), None, "{magic:#x}");
        }
    }

    /// SM-10: the check looks at the directory while the file is not there yet.
    #[test]
    fn a_local_directory_is_let_through() {
        let directory = tempfile::tempdir().unwrap();
        assert!(refuse_network(&directory.path().join("a").join("b.db")).is_ok());
    }

    /// S14: a file that took another's place is another file.
    #[cfg(unix)]
    #[test]
    fn a_replaced_file_has_another_id() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a"), directory.path().join("b"));
        assert_eq!(FileId::of(&path), None);
        fs::write(&path, "").unwrap();
        fs::write(&other, "").unwrap();
        let before = FileId::of(&path);
        assert_eq!(FileId::of(&path), before);
        fs::rename(&other, &path).unwrap();
        assert_ne!(FileId::of(&path), before);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent").join("a.db");
        assert_eq!(obstacle(&path), Some((ErrorKind::Unavailable, "its directory does not exist")));
    }
}
