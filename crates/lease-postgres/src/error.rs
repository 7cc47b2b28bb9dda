//! What PostgreSQL's errors mean to whoever called the store.

use std::{error, io, iter};

use deadpool_postgres::PoolError;
use lease_core::{ErrorKind, Operation, StoreError};
use tokio_postgres::{
    Error,
    error::{DbError, Severity, SqlState},
};

/// What a driver's error means. Nothing else in the crate looks at a native code.
///
/// The kinds that prove that nothing happened hold for whatever was refused, for the transaction of a failed statement is rolled
/// back; [`Failure::at_answer`] takes the promise back where the server may have done what it could not say.
pub(crate) fn classify(error: &Error) -> ErrorKind {
    if let Some(state) = error.code() {
        return classify_state(state);
    }
    let source = error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    // The driver's own kinds are private, and its texts are what it shows of them.
    match error.to_string().as_str() {
        "authentication error" => ErrorKind::Denied,
        "invalid connection string" | "invalid configuration" => ErrorKind::InvalidConfig,
        // Hosts that take no writes were skipped, and no other was left.
        "error connecting to server" if io.is_some_and(|io| io.to_string() == "database does not allow writes") => {
            ErrorKind::ReadOnly
        }
        "error performing TLS handshake" if !io.is_some_and(is_broken_pipe) => ErrorKind::InvalidConfig,
        "error performing TLS handshake"
        | "error connecting to server"
        | "error communicating with the server"
        | "connection closed"
        | "timeout waiting for server" => ErrorKind::Unavailable,
        _ => ErrorKind::Unexpected,
    }
}

fn classify_state(state: &SqlState) -> ErrorKind {
    match state.code() {
        "25006" => ErrorKind::ReadOnly,
        "40001" | "40P01" => ErrorKind::Contended,
        "55P03" => ErrorKind::Busy,
        // No table, column, schema or primary key; a column of another type.
        "42P01" | "42703" | "3F000" | "42P10" | "42804" => ErrorKind::NotMigrated,
        "42501" | "28000" | "28P01" => ErrorKind::Denied,
        "3D000" => ErrorKind::InvalidConfig,
        "53100" => ErrorKind::StorageFull,
        "25001" | "25P01" | "25P02" | "25P03" => ErrorKind::RestartTransaction,
        // A server that is too old, an encoding without the name's letters, somebody's trigger or constraint, a token or a time at
        // the end of its range: no retry mends that.
        "0A000" | "42601" | "42883" | "22021" | "22P05" | "22003" | "22008" | "P0001" => ErrorKind::Unsupported,
        code => match code.get(..2) {
            Some("23") => ErrorKind::Unsupported,
            // Lost connections; a pooler's complaints; no resources; shutdowns, restarts and cancellations; lost statements.
            Some("08" | "26" | "53" | "57" | "58") => ErrorKind::Unavailable,
            _ if *state == SqlState::DUPLICATE_PSTATEMENT => ErrorKind::Unavailable,
            _ => ErrorKind::Unexpected,
        },
    }
}

/// Whether a handshake broke off, as it does when a server goes down, rather than failed.
fn is_broken_pipe(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof)
}

/// Whether the server has ended the connection with this error, or there is no connection.
fn ends_connection(error: &Error) -> bool {
    error.as_db_error().is_none_or(|error| match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        // A pooler sends only the word that a server would translate.
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    })
}

/// What a call can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing.
    None,
    /// Send the statement again: another transaction was in the way.
    Repeat,
    /// Send the statement unnamed: the connection does not lead to the session that knows it.
    Unnamed,
    /// Take another connection: this one has ended, or leads to a server that takes no writes.
    Reconnect,
    /// Take another connection, if running the statement twice does no more than running it once: this one has ended without an
    /// answer.
    Resend,
}

/// A failed call on its way to the caller, who knows the operation.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    detail: Option<String>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
    remedy: Remedy,
    spoils_connection: bool,
}

impl Failure {
    /// A failure that the store itself found.
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: Some(detail.into()), source: None, remedy: Remedy::None, spoils_connection: false }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn remedy(&self) -> Remedy {
        self.remedy
    }

    /// Whether the connection that met this must not be used again.
    pub(crate) fn spoils_connection(&self) -> bool {
        self.spoils_connection
    }

    /// The same failure, of a connection that has ended.
    pub(crate) fn spoilt(self) -> Self {
        Self { spoils_connection: true, ..self }
    }

    /// The same failure, met when there was no connection yet or by one that was dead before anything was sent.
    pub(crate) fn unsent(self) -> Self {
        let remedy = if self.spoils_connection { Remedy::Reconnect } else { self.remedy };
        Self { remedy, ..self }
    }

    /// The same failure, met while the statement may have been running or done: without the server's word that it was rolled
    /// back, nobody knows.
    pub(crate) fn at_answer(self) -> Self {
        if !self.spoils_connection || self.kind == ErrorKind::ReadOnly {
            return self;
        }
        Self { kind: ErrorKind::Indeterminate, remedy: Remedy::Resend, ..self }
    }

    /// The same failure, of a statement in somebody's transaction, which is over when another one was in the way.
    pub(crate) fn in_a_transaction(self) -> Self {
        match self.kind {
            ErrorKind::Contended | ErrorKind::Busy => Self { kind: ErrorKind::RestartTransaction, ..self },
            _ => self,
        }
    }

    /// The same failure, of a statement that only completes what another has done.
    pub(crate) fn after_a_grant(self) -> Self {
        Self { kind: ErrorKind::Indeterminate, ..self }
    }

    /// The error that the caller of `operation` sees.
    pub(crate) fn into_error(self, operation: Operation) -> StoreError {
        let Self { kind, detail, source, .. } = self;
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
        let quoted =
            self.detail.clone().or_else(|| self.source.as_deref().map(|source| root_cause(source))).unwrap_or_default();
        let others = iter::repeat_with(move || StoreError::new(operation, kind).with_detail(quoted.clone()));
        iter::once(self.into_error(operation)).chain(others).take(count)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = classify(&error);
        let remedy = match (kind, error.code().map(SqlState::code)) {
            (ErrorKind::Contended | ErrorKind::Busy, _) => Remedy::Repeat,
            (_, Some("26000" | "42P05" | "0A000")) => Remedy::Unnamed,
            (ErrorKind::ReadOnly, _) => Remedy::Reconnect,
            _ => Remedy::None,
        };
        let spoils_connection = kind == ErrorKind::ReadOnly || ends_connection(&error);
        Self { kind, detail: detail(kind, &error), source: Some(Box::new(error)), remedy, spoils_connection }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        use deadpool_postgres::{HookError, TimeoutType};
        let kind = match &error {
            PoolError::Timeout(TimeoutType::Wait) => ErrorKind::PoolTimeout,
            PoolError::Timeout(_) | PoolError::Closed | PoolError::PostCreateHook(HookError::Message(_)) => {
                ErrorKind::Unavailable
            }
            PoolError::NoRuntimeSpecified => ErrorKind::InvalidConfig,
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => classify(error),
        };
        match error {
            PoolError::Backend(error) => Self { remedy: Remedy::None, ..Self::from(error) },
            error => Self {
                kind,
                detail: None,
                source: Some(Box::new(error)),
                remedy: Remedy::None,
                spoils_connection: false,
            },
        }
    }
}

/// What the caller needs to know to mend a failure that no retry mends. The server's messages hold no credential.
fn detail(kind: ErrorKind, error: &Error) -> Option<String> {
    let message = error.as_db_error().map(DbError::message);
    match (kind, message) {
        (ErrorKind::NotMigrated, Some(message)) => Some(format!("{message}: call `migrate`")),
        (ErrorKind::Denied | ErrorKind::InvalidConfig | ErrorKind::Unsupported, Some(message)) => Some(message.into()),
        (ErrorKind::Denied | ErrorKind::InvalidConfig, None) => Some(root_cause(error)),
        _ => None,
    }
}

/// The innermost source, which says what the driver's own text leaves out.
fn root_cause(error: &(dyn error::Error + 'static)) -> String {
    iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S8, CL-06
    #[test]
    fn every_native_code_has_its_kind() {
        let table = [
            ("25006", ErrorKind::ReadOnly),
            ("40001", ErrorKind::Contended),
            ("40P01", ErrorKind::Contended),
            ("55P03", ErrorKind::Busy),
            ("57014", ErrorKind::Unavailable),
            ("57P01", ErrorKind::Unavailable),
            ("57P02", ErrorKind::Unavailable),
            ("57P03", ErrorKind::Unavailable),
            ("57P05", ErrorKind::Unavailable),
            ("08000", ErrorKind::Unavailable),
            ("08003", ErrorKind::Unavailable),
            ("08006", ErrorKind::Unavailable),
            ("08P01", ErrorKind::Unavailable),
            ("53200", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("53100", ErrorKind::StorageFull),
            ("58030", ErrorKind::Unavailable),
            ("26000", ErrorKind::Unavailable),
            ("42P05", ErrorKind::Unavailable),
            ("42P01", ErrorKind::NotMigrated),
            ("42703", ErrorKind::NotMigrated),
            ("42P10", ErrorKind::NotMigrated),
            ("42804", ErrorKind::NotMigrated),
            ("3F000", ErrorKind::NotMigrated),
            ("42501", ErrorKind::Denied),
            ("28P01", ErrorKind::Denied),
            ("28000", ErrorKind::Denied),
            ("3D000", ErrorKind::InvalidConfig),
            ("0A000", ErrorKind::Unsupported),
            ("22021", ErrorKind::Unsupported),
            ("22P05", ErrorKind::Unsupported),
            ("22003", ErrorKind::Unsupported),
            ("22008", ErrorKind::Unsupported),
            ("23514", ErrorKind::Unsupported),
            ("42601", ErrorKind::Unsupported),
            ("42883", ErrorKind::Unsupported),
            ("P0001", ErrorKind::Unsupported),
            ("25P02", ErrorKind::RestartTransaction),
            ("XX000", ErrorKind::Unexpected),
            ("99999", ErrorKind::Unexpected),
        ];
        for (code, kind) in table {
            assert_eq!(classify_state(&SqlState::from_code(code)), kind, "{code}");
        }
    }

    /// CL-03, PE-01: what the pool says, in our words.
    #[test]
    fn the_pools_errors_have_their_kinds() {
        use deadpool_postgres::TimeoutType;
        for (error, kind) in [
            (PoolError::Timeout(TimeoutType::Wait), ErrorKind::PoolTimeout),
            (PoolError::Timeout(TimeoutType::Create), ErrorKind::Unavailable),
            (PoolError::Timeout(TimeoutType::Recycle), ErrorKind::Unavailable),
            (PoolError::Closed, ErrorKind::Unavailable),
            (PoolError::NoRuntimeSpecified, ErrorKind::InvalidConfig),
        ] {
            assert_eq!(Failure::from(error).kind(), kind);
        }
    }

    #[test]
    fn every_term_of_a_batch_learns_the_cause() {
        let failure = Failure { detail: None, source: Some("disk full".into()), ..Failure::new(ErrorKind::Busy, "") };
        let errors: Vec<StoreError> = failure.into_errors(Operation::Renew, 3).collect();
        assert_eq!(errors.len(), 3);
        assert!(error::Error::source(&errors[0]).is_some());
        assert_eq!(errors[2].to_string(), "renew lease: database busy with another writer (disk full)");
    }
}
