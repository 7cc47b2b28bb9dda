//! The connection of one thread: how it is opened, and when it is given up for a new one.

use std::path::Path;

use lease_core::ErrorKind;
use rusqlite::{Connection, OpenFlags};

use crate::{
    clock,
    config::{Location, Settings},
    error::{Failure, classify},
    file::{self, FileId},
    session::Patience,
};

/// The write-ahead log shrinks to this when it starts anew: a little more than the 1,000 pages after which SQLite copies it into
/// the database, so that a log of the usual size is not cut and grown again for nothing (PB-04).
const JOURNAL_SIZE_LIMIT: i64 = 4 << 20;

/// What a thread's connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Guards: it cannot write.
    Reader,
    /// Everything else, and with a database in memory the guards too.
    Writer,
}

/// A place for one connection, which is opened when it is needed.
#[derive(Debug)]
pub(crate) struct Slot {
    settings: Settings,
    role: Role,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    file: Option<FileId>,
    is_read_only: bool,
}

impl Open {
    /// A transaction that would not end, or a file that could be opened for reading only: while any connection of this process
    /// keeps it so, no later one gets to write, even when the file has become writable.
    fn cannot_stay(&self) -> bool {
        self.is_read_only || !self.connection.is_autocommit()
    }
}

impl Slot {
    pub(crate) fn new(settings: Settings, role: Role) -> Self {
        Self { settings, role, open: None }
    }

    /// The connection to the file that the path leads to *now* (S14).
    ///
    /// A connection keeps a file that was deleted or replaced; two stores on two files would both grant the same lease.
    pub(crate) fn connection(&mut self, create: bool, patience: &Patience) -> Result<&Connection, Failure> {
        let path = self.settings.location.path();
        self.open = self.open.take().filter(|open| path.is_none_or(|path| open.file == FileId::of(path)));
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open(create, patience)?,
        };
        Ok(&self.open.insert(open).connection)
    }

    /// Passes a call's result on, and closes a connection that should not be used again.
    pub(crate) fn settle<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        let is_spoilt = result.as_ref().is_err_and(Failure::spoils_connection);
        if is_spoilt || self.open.as_ref().is_some_and(Open::cannot_stay) {
            self.discard();
        }
        result
    }

    /// Closes the connection; the next call opens another. A database in memory would be lost with it, and stays.
    pub(crate) fn discard(&mut self) {
        if self.settings.location.path().is_some() {
            self.open = None;
        }
    }

    fn open(&self, create: bool, patience: &Patience) -> Result<Open, Failure> {
        match &self.settings.location {
            Location::Memory => {
                let connection = Connection::open_in_memory()?;
                prepare(&connection)?;
                Ok(Open { connection, file: None, is_read_only: false })
            }
            Location::File(path) => {
                self.open_file(path, create, patience).map_err(|failure| file::explain(path, failure))
            }
        }
    }

    fn open_file(&self, path: &Path, create: bool, patience: &Patience) -> Result<Open, Failure> {
        if create && self.settings.create_parent {
            file::create_parent(path)?;
        }
        file::refuse_network(path)?;
        loop {
            let before = FileId::of(path);
            let connection = Connection::open_with_flags(path, self.flags(create))?;
            let file = FileId::of(path);
            // Between the two looks the path must not have begun to lead elsewhere.
            if before.is_none() || before == file {
                prepare(&connection)?;
                let mode = patience.retry(|| ensure_write_ahead_log(&connection))?;
                check_mode(&mode)?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                connection.pragma_update_and_check(None, "journal_size_limit", JOURNAL_SIZE_LIMIT, |_| Ok(()))?;
                connection.pragma_update(None, "query_only", self.role == Role::Reader)?;
                let is_read_only = connection.is_readonly("main")?;
                return Ok(Open { connection, file, is_read_only });
            }
        }
    }

    /// No URI: `file:x?mode=memory` would be a private database (SM-08). No mutex: one thread owns the connection.
    fn flags(&self, create: bool) -> OpenFlags {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if create && self.settings.create { flags | OpenFlags::SQLITE_OPEN_CREATE } else { flags }
    }
}

/// What every connection needs, before anything else: SQLite must not wait, for then nobody could call the wait off.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::ZERO)?;
    clock::register(connection)
}

/// The journal mode, after an attempt to make it the write-ahead log.
///
/// It is read before it is set, because setting it needs the whole file for a moment (SM-07), and a read-only file keeps its mode.
fn ensure_write_ahead_log(connection: &Connection) -> rusqlite::Result<String> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(mode);
    }
    match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
        Err(error) if classify(&error) == ErrorKind::ReadOnly => Ok("read-only".into()),
        result => result,
    }
}

fn check_mode(mode: &str) -> Result<(), Failure> {
    match mode {
        "wal" | "read-only" => Ok(()),
        _ => Err(Failure::new(
            ErrorKind::Unsupported,
            format!("the journal mode stays {mode}: this file system cannot hold a write-ahead log"),
        )),
    }
}
