//! What SQLite's errors mean to whoever called the store.

use std::iter;

use lease_core::{ErrorKind, Operation, StoreError};
use rusqlite::{Error, ffi};

/// What a driver's error means. Nothing else in the crate looks at a native code.
///
/// The kinds that prove that nothing happened hold for every statement before its COMMIT, because a failed transaction is rolled
/// back; [`Failure::at_commit`] takes the promise back where a COMMIT cannot keep it.
pub(crate) fn classify(error: &Error) -> ErrorKind {
    match error {
        Error::SqliteFailure(native, _) | Error::SqlInputError { error: native, .. } => {
            classify_native(native.extended_code, message(error))
        }
        Error::InvalidPath(_) | Error::NulError(_) => ErrorKind::InvalidConfig,
        Error::SqliteSingleThreadedMode => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    }
}

fn classify_native(extended: i32, message: Option<&str>) -> ErrorKind {
    match extended {
        ffi::SQLITE_BUSY_SNAPSHOT => return ErrorKind::RestartTransaction,
        // The file was replaced under the connection; the next call opens the new one.
        ffi::SQLITE_READONLY_DBMOVED => return ErrorKind::Unavailable,
        // The index of the write-ahead log could not grow, which is how a full tmpfs shows itself.
        ffi::SQLITE_IOERR_SHMSIZE => return ErrorKind::StorageFull,
        ffi::SQLITE_CANTOPEN_ISDIR => return ErrorKind::InvalidConfig,
        _ => {}
    }
    match extended & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => ErrorKind::Busy,
        // Only a caller's own connection is interrupted, which ends the transaction.
        ffi::SQLITE_INTERRUPT | ffi::SQLITE_ABORT => ErrorKind::RestartTransaction,
        ffi::SQLITE_READONLY => ErrorKind::ReadOnly,
        ffi::SQLITE_FULL => ErrorKind::StorageFull,
        ffi::SQLITE_CANTOPEN | ffi::SQLITE_IOERR | ffi::SQLITE_NOMEM => ErrorKind::Unavailable,
        ffi::SQLITE_PERM | ffi::SQLITE_AUTH => ErrorKind::Denied,
        ffi::SQLITE_NOTADB => ErrorKind::InvalidConfig,
        // Somebody's table, or a token at the end of its range: no retry mends that.
        ffi::SQLITE_CONSTRAINT | ffi::SQLITE_MISMATCH => ErrorKind::Unsupported,
        ffi::SQLITE_ERROR if message.is_some_and(is_missing) => ErrorKind::NotMigrated,
        _ => ErrorKind::Unexpected,
    }
}

/// SQLite has no code of its own for a table or a column that is not there.
fn is_missing(message: &str) -> bool {
    message.starts_with("no such table")
        || message.starts_with("no such column")
        || message.contains("has no column named")
}

/// A failed call on its way from the database's thread to the caller, who knows the operation.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    detail: Option<String>,
    source: Option<Error>,
}

impl Failure {
    /// A failure that the store itself found.
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: Some(detail.into()), source: None }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn has_detail(&self) -> bool {
        self.detail.is_some()
    }

    /// Says more about a failure, and what it means here.
    pub(crate) fn explained(self, kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: Some(detail.into()), ..self }
    }

    /// The same failure, met by a COMMIT: the write may stand unless the code proves that it does not.
    ///
    /// `SQLITE_FULL` does: the frame that commits is the last one, and it was not written whole. A constraint is checked before any is.
    /// An I/O error does not, for that frame may be there and only the sync, or the log's index, have failed.
    pub(crate) fn at_commit(self) -> Self {
        let code = self.source.as_ref().and_then(Error::sqlite_error).map(|native| native.extended_code & 0xff);
        match code {
            Some(ffi::SQLITE_BUSY | ffi::SQLITE_FULL | ffi::SQLITE_READONLY | ffi::SQLITE_CONSTRAINT) => self,
            _ => Self { kind: ErrorKind::Indeterminate, ..self },
        }
    }

    /// The same failure, of a write in a transaction that has read before: it was refused the lock at once, and the writer that has it
    /// makes what was read an old state.
    pub(crate) fn after_a_read(self) -> Self {
        match self.kind {
            ErrorKind::Busy => Self { kind: ErrorKind::RestartTransaction, ..self },
            _ => self,
        }
    }

    /// Whether the connection that met this should be closed, so that the next call finds out for itself how things stand.
    pub(crate) fn spoils_connection(&self) -> bool {
        use ErrorKind::{Indeterminate, ReadOnly, Unavailable, Unexpected};
        matches!(self.kind, Indeterminate | ReadOnly | Unavailable | Unexpected)
    }

    /// The error that the caller of `operation` sees.
    pub(crate) fn into_error(self, operation: Operation) -> StoreError {
        let Self { kind, detail, source } = self;
        let mut error = StoreError::new(operation, kind);
        if let Some(detail) = detail {
            error = error.with_detail(detail);
        }
        match source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }

    /// One error for each of `count` terms. Only the first can have the driver's error, the others quote it.
    pub(crate) fn into_errors(self, operation: Operation, count: usize) -> impl Iterator<Item = StoreError> {
        let kind = self.kind;
        let quoted = self.detail.clone().or_else(|| self.source.as_ref().map(ToString::to_string)).unwrap_or_default();
        let others = iter::repeat_with(move || StoreError::new(operation, kind).with_detail(quoted.clone()));
        iter::once(self.into_error(operation)).chain(others).take(count)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = classify(&error);
        let detail = match (kind, message(&error)) {
            (ErrorKind::NotMigrated, Some(message)) => Some(format!("{message}: call `migrate`")),
            _ => None,
        };
        Self { kind, detail, source: Some(error) }
    }
}

fn message(error: &Error) -> Option<&str> {
    match error {
        Error::SqliteFailure(_, message) => message.as_deref(),
        Error::SqlInputError { msg, .. } => Some(msg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn native(code: i32, message: &str) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), Some(message.into()))
    }

    /// S8, SM-11
    #[test]
    fn every_native_code_has_its_kind() {
        let table = [
            (ffi::SQLITE_BUSY, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_TIMEOUT, ErrorKind::Busy),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorKind::RestartTransaction),
            (ffi::SQLITE_LOCKED, ErrorKind::Busy),
            (ffi::SQLITE_LOCKED_SHAREDCACHE, ErrorKind::Busy),
            (ffi::SQLITE_PROTOCOL, ErrorKind::Busy),
            (ffi::SQLITE_INTERRUPT, ErrorKind::RestartTransaction),
            (ffi::SQLITE_ABORT_ROLLBACK, ErrorKind::RestartTransaction),
            (ffi::SQLITE_READONLY, ErrorKind::ReadOnly),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorKind::ReadOnly),
            (ffi::SQLITE_READONLY_DBMOVED, ErrorKind::Unavailable),
            (ffi::SQLITE_FULL, ErrorKind::StorageFull),
            (ffi::SQLITE_IOERR_SHMSIZE, ErrorKind::StorageFull),
            (ffi::SQLITE_IOERR_READ, ErrorKind::Unavailable),
            (ffi::SQLITE_IOERR_FSYNC, ErrorKind::Unavailable),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Unavailable),
            (ffi::SQLITE_CANTOPEN_ISDIR, ErrorKind::InvalidConfig),
            (ffi::SQLITE_NOMEM, ErrorKind::Unavailable),
            (ffi::SQLITE_PERM, ErrorKind::Denied),
            (ffi::SQLITE_AUTH, ErrorKind::Denied),
            (ffi::SQLITE_NOTADB, ErrorKind::InvalidConfig),
            (ffi::SQLITE_CONSTRAINT_DATATYPE, ErrorKind::Unsupported),
            (ffi::SQLITE_CONSTRAINT_NOTNULL, ErrorKind::Unsupported),
            (ffi::SQLITE_MISMATCH, ErrorKind::Unsupported),
            (ffi::SQLITE_CORRUPT, ErrorKind::Unexpected),
            (ffi::SQLITE_INTERNAL, ErrorKind::Unexpected),
            (ffi::SQLITE_MISUSE, ErrorKind::Unexpected),
            (ffi::SQLITE_ERROR, ErrorKind::Unexpected),
        ];
        for (code, kind) in table {
            assert_eq!(classify(&native(code, "text")), kind, "code {code}");
        }
    }

    /// S14, SM-02: the message alone tells these apart, here as the linked library words them.
    #[test]
    fn a_missing_table_or_column_is_not_migrated() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE present (a)").unwrap();
        for sql in [
            "SELECT 1 FROM absent",
            "SELECT b FROM present",
            "INSERT INTO present (b) VALUES (1)",
            "UPDATE present SET b = 1",
        ] {
            let error = connection.prepare(sql).unwrap_err();
            assert_eq!(classify(&error), ErrorKind::NotMigrated, "{sql}");
        }
        assert_eq!(classify(&connection.prepare("nonsense").unwrap_err()), ErrorKind::Unexpected);
    }

    /// S8: a write whose COMMIT broke off may be on the disk.
    #[test]
    fn a_commit_keeps_only_the_promises_that_it_can() {
        for (code, kind) in [
            (ffi::SQLITE_IOERR_FSYNC, ErrorKind::Indeterminate),
            (ffi::SQLITE_IOERR_SHMSIZE, ErrorKind::Indeterminate),
            (ffi::SQLITE_CORRUPT, ErrorKind::Indeterminate),
            (ffi::SQLITE_FULL, ErrorKind::StorageFull),
            (ffi::SQLITE_BUSY, ErrorKind::Busy),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, ErrorKind::Unsupported),
            (ffi::SQLITE_INTERRUPT, ErrorKind::Indeterminate),
        ] {
            assert_eq!(Failure::from(native(code, "text")).at_commit().kind(), kind, "code {code}");
        }
    }

    #[test]
    fn every_term_of_a_batch_learns_the_cause() {
        let failure = Failure::from(native(ffi::SQLITE_FULL, "disk full"));
        let errors: Vec<StoreError> = failure.into_errors(Operation::Renew, 3).collect();
        assert_eq!(errors.len(), 3);
        assert!(errors[0].source().is_some_and(<dyn std::error::Error>::is::<Error>));
        assert_eq!(errors[2].to_string(), "renew lease: no storage left (disk full)");
    }
}
