//! The one error type of every store.

use std::{error, fmt};

/// Why a store could not answer, and what it was doing.
///
/// Losing a race is never an error (S8): `Err` means that the outcome is unknown, or that nothing happened, and [`kind`](Self::kind)
/// says which. The display names the act and the kind, never the source and never a credential.
///
/// # Examples
///
/// A provider makes an error from its driver's:
///
/// ```
/// use std::{error::Error, io};
/// use lease_core::{ErrorKind, Operation, StoreError};
///
/// let driver = io::Error::from(io::ErrorKind::ConnectionRefused);
/// let error = StoreError::new(Operation::Renew, ErrorKind::Unavailable).with_source(driver);
/// assert_eq!(error.to_string(), "renew lease: database unavailable");
/// assert!(error.is_retryable());
/// assert_eq!(error.source().unwrap().to_string(), "connection refused");
/// ```
pub struct StoreError(Box<Repr>);

struct Repr {
    operation: Operation,
    kind: ErrorKind,
    detail: Option<String>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error of this kind, met during this operation.
    pub fn new(operation: Operation, kind: ErrorKind) -> Self {
        Self(Box::new(Repr { operation, kind, detail: None, source: None }))
    }

    /// Adds what the caller needs to know to mend it, shown after the kind. It must hold no credential.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the driver's error. Its own display must hold no credential.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What went wrong, in terms of what the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What the store was doing.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// What the caller needs to know to mend it, if the store said more than the kind.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// Whether the same call may succeed later without anybody changing the configuration.
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// Whether the error proves that nothing was written, so that the same owner id may try again (E7).
    pub fn proves_nothing_happened(&self) -> bool {
        self.0.kind.proves_nothing_happened()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.kind)?;
        match &self.0.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("operation", &self.0.operation)
            .field("kind", &self.0.kind)
            .field("detail", &self.0.detail)
            .field("source", &self.0.source)
            .finish()
    }
}

impl error::Error for StoreError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// What a store was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening the store.
    Connect,
    /// Creating or upgrading the table.
    Migrate,
    /// [`try_acquire`](crate::LeaseStore::try_acquire).
    Acquire,
    /// [`renew`](crate::LeaseStore::renew) and [`renew_many`](crate::LeaseStore::renew_many).
    Renew,
    /// [`release`](crate::LeaseStore::release).
    Release,
    /// [`release_after`](crate::LeaseStore::release_after).
    ReleaseAfter,
    /// Verifying a fenced transaction.
    Verify,
    /// Committing a fenced transaction.
    Commit,
    /// Reading the state of leases for an operator.
    Inspect,
    /// Forcing a holder out.
    ForceRelease,
    /// Asking a holder to hand over.
    RequestRelease,
    /// Deleting the rows of dead names.
    Purge,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "open lease store",
            Self::Migrate => "migrate lease table",
            Self::Acquire => "acquire lease",
            Self::Renew => "renew lease",
            Self::Release => "release lease",
            Self::ReleaseAfter => "release lease after a hold",
            Self::Verify => "verify lease",
            Self::Commit => "commit under lease",
            Self::Inspect => "inspect leases",
            Self::ForceRelease => "force release of lease",
            Self::RequestRelease => "request release of lease",
            Self::Purge => "purge leases",
        })
    }
}

/// What went wrong, in terms of what the caller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The answer never came: the statement may have been applied, or may be applied yet. Treat the lease as neither held nor free;
    /// for a renewal, go on with the old deadline and try again.
    Indeterminate,
    /// The database could not be reached or would not serve; nothing happened. Try again with backoff.
    Unavailable,
    /// No pooled connection became free within the operation timeout; nothing happened. Give the pool room, or the store its own.
    PoolTimeout,
    /// Another transaction has the row and the call does not queue for it; nothing happened. Try again alone.
    Contended,
    /// Another writer kept the database for the whole operation timeout; nothing happened. Shorten the foreign write transactions.
    Busy,
    /// The database or this connection takes no writes; nothing happened. Try again: a failover may be under way.
    ReadOnly,
    /// The database has no room left to write; nothing happened. Make room.
    StorageFull,
    /// The table is not there, or lacks a column; nothing happened. Run the migrations.
    NotMigrated,
    /// The role lacks a right, or could not log in; nothing happened. Grant what the provider's documentation lists.
    Denied,
    /// The configuration cannot work; nothing happened. The message names the field and the value.
    InvalidConfig,
    /// The server's version or a setting of the database cannot hold the contract; nothing happened.
    Unsupported,
    /// The user's own transaction must be rolled back and started again; nothing happened.
    RestartTransaction,
    /// Anything else, with the outcome unknown. Report it, with its source, as a fault of the provider.
    Unexpected,
}

impl ErrorKind {
    /// Whether the same call may succeed later without anybody changing the configuration.
    ///
    /// The rest are the permanent kinds: `NotMigrated`, `Denied`, `InvalidConfig` and `Unsupported`.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::NotMigrated | Self::Denied | Self::InvalidConfig | Self::Unsupported)
    }

    /// Whether the kind proves that nothing was written.
    pub fn proves_nothing_happened(self) -> bool {
        !matches!(self, Self::Indeterminate | Self::Unexpected)
    }

    /// The kind as a word for logs and for `error.type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Indeterminate => "indeterminate",
            Self::Unavailable => "unavailable",
            Self::PoolTimeout => "pool_timeout",
            Self::Contended => "contended",
            Self::Busy => "busy",
            Self::ReadOnly => "read_only",
            Self::StorageFull => "storage_full",
            Self::NotMigrated => "not_migrated",
            Self::Denied => "denied",
            Self::InvalidConfig => "invalid_config",
            Self::Unsupported => "unsupported",
            Self::RestartTransaction => "restart_transaction",
            Self::Unexpected => "unexpected",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Indeterminate => "outcome unknown",
            Self::Unavailable => "database unavailable",
            Self::PoolTimeout => "no pooled connection became free in time",
            Self::Contended => "row contended",
            Self::Busy => "database busy with another writer",
            Self::ReadOnly => "database is read-only",
            Self::StorageFull => "no storage left",
            Self::NotMigrated => "lease table not migrated",
            Self::Denied => "permission denied",
            Self::InvalidConfig => "invalid configuration",
            Self::Unsupported => "unsupported database",
            Self::RestartTransaction => "transaction must be restarted",
            Self::Unexpected => "unexpected failure",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, io};

    use super::*;

    #[test]
    fn the_display_never_repeats_the_source() {
        let error = StoreError::new(Operation::Acquire, ErrorKind::NotMigrated)
            .with_detail("table \"singleton_leases\" does not exist")
            .with_source(io::Error::other("no such table"));
        assert_eq!(
            error.to_string(),
            "acquire lease: lease table not migrated (table \"singleton_leases\" does not exist)"
        );
        assert_eq!(error.source().unwrap().to_string(), "no such table");
        assert_eq!(error.detail(), Some("table \"singleton_leases\" does not exist"));
    }

    #[test]
    fn an_unknown_outcome_proves_nothing() {
        for kind in [ErrorKind::Indeterminate, ErrorKind::Unexpected] {
            let error = StoreError::new(Operation::Acquire, kind);
            assert!(!error.proves_nothing_happened());
            assert!(error.is_retryable());
        }
        let error = StoreError::new(Operation::Acquire, ErrorKind::Denied);
        assert!(error.proves_nothing_happened());
        assert!(!error.is_retryable());
    }
}
