//! What SQL Server's errors mean to whoever called the store.

use std::{error, fmt};

use lease_core::{ErrorKind, Operation, StoreError};
use tiberius::error::{Error, IoErrorKind, TokenError};
use tokio::task::JoinError;

mod numbers;

/// From this severity on the server ends the connection.
const FATAL: u8 = 20;

/// What a driver's error means. Nothing else in the crate looks at a native number.
///
/// The kinds that prove that nothing happened hold for whatever was refused, for an error ends the batch and rolls its transaction
/// back; [`Failure::at_answer`] takes the promise back where the server may have done what it could not say.
pub(crate) fn classify(error: &Error) -> ErrorKind {
    match error {
        Error::Server(error) => numbers::classify(error.code(), error.message()),
        Error::Io { .. } | Error::Routing { .. } => ErrorKind::Unavailable,
        Error::Tls(_) => ErrorKind::InvalidConfig,
        _ => ErrorKind::Unexpected,
    }
}

/// What a call can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing.
    None,
    /// Send the statement again: another transaction was in the way.
    Repeat,
    /// Take another connection: this one has ended before anything was sent, or leads to a server that takes no writes.
    Reconnect,
    /// Take another connection, if running the statement twice does no more than running it once: this one has ended without an
    /// answer.
    Resend,
}

/// A failed call on its way to the caller, who knows the operation.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    detail: Option<String>,
    source: Option<Error>,
    remedy: Remedy,
    /// Whether the server, or the network, has ended the connection.
    ends_connection: bool,
}

impl Failure {
    /// A failure that the store itself found.
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: Some(detail.into()), source: None, remedy: Remedy::None, ends_connection: false }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn remedy(&self) -> Remedy {
        self.remedy
    }

    /// The failure of a task that ended without a result: with its runtime, or by a panic in the driver.
    pub(crate) fn of_task(error: &JoinError) -> Self {
        if error.is_panic() {
            return Self::new(ErrorKind::Unexpected, "the driver panicked");
        }
        Self::new(ErrorKind::Unavailable, "the runtime has ended")
    }

    /// What stands in an error's display beside its kind, or would.
    pub(crate) fn text(&self) -> String {
        let source = || self.source.as_ref().map(ToString::to_string);
        self.detail.clone().or_else(source).unwrap_or_else(|| self.kind.to_string())
    }

    /// The same failure, met while a connection to `address` was being opened: there was none yet that could do anything.
    pub(crate) fn at_connect(self, address: &str) -> Self {
        let kind = match (&self.source, self.kind) {
            // What the other side says is no TLS, or no TDS, or not what was asked for.
            (Some(Error::Io { kind: IoErrorKind::InvalidData, .. } | Error::Protocol(_)), _) => {
                ErrorKind::InvalidConfig
            }
            (_, ErrorKind::Unexpected | ErrorKind::Contended) => ErrorKind::Unavailable,
            (_, kind) => kind,
        };
        let detail = match &self.source {
            Some(Error::Io { message, .. }) if kind == ErrorKind::Unavailable => {
                Some(format!("{address} did not end the login: {message}"))
            }
            Some(source) => detail(kind, source),
            None => None,
        };
        Self { kind, detail: detail.or(self.detail), remedy: Remedy::None, ..self }
    }

    /// The same failure, of a connection that had ended before anything was sent.
    pub(crate) fn unsent(self) -> Self {
        Self { remedy: Remedy::Reconnect, ..self }
    }

    /// The same failure, met while the statement may have been running or done: without the server's word that it was rolled
    /// back, nobody knows.
    pub(crate) fn at_answer(self) -> Self {
        if !self.ends_connection {
            return self;
        }
        Self { kind: ErrorKind::Indeterminate, remedy: Remedy::Resend, ..self }
    }

    /// The same failure, told to somebody who renews many: their rows are not to wait for this one.
    pub(crate) fn contended(self) -> Self {
        Self { kind: ErrorKind::Contended, ..self }
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
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = classify(&error);
        let remedy = match kind {
            // One that was busy has waited for it already.
            ErrorKind::Contended => Remedy::Repeat,
            ErrorKind::ReadOnly => Remedy::Reconnect,
            _ => Remedy::None,
        };
        let ends_connection = match &error {
            Error::Server(error) => error.class() >= FATAL,
            Error::Io { .. } => true,
            _ => false,
        };
        Self { kind, detail: detail(kind, &error), source: Some(error), remedy, ends_connection }
    }
}

/// What the pool's own errors show.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl error::Error for Failure {}

/// What the caller needs to know to mend a failure that no retry mends. The server's messages hold no credential.
fn detail(kind: ErrorKind, error: &Error) -> Option<String> {
    let message = match error {
        Error::Server(error) => Some(TokenError::message(error)),
        _ => None,
    };
    match (kind, message) {
        (ErrorKind::NotMigrated, Some(message)) => Some(format!("{message}: call `migrate`")),
        (ErrorKind::Denied | ErrorKind::InvalidConfig | ErrorKind::Unsupported, Some(message)) => Some(message.into()),
        (ErrorKind::Denied | ErrorKind::InvalidConfig, None) => Some(explain(error)),
        _ => None,
    }
}

/// What the driver says of a handshake, with the words of our own configuration.
fn explain(error: &Error) -> String {
    let text = error.to_string();
    // The driver goes on to name functions of its own.
    let text = text.split(" To connect anyway").next().unwrap_or_default();
    if text.contains("CaUsedAsEndEntity") {
        return format!(
            "{text} The server shows a certificate that is its own authority: have it show one that an authority has signed, and name \
             that one by `ca`, or trust any by `trust_cert`"
        );
    }
    match error {
        Error::Io { .. } => format!("{text}: the server speaks another TLS, or none, see `encrypt`"),
        Error::Tls(_) => format!("{text} Name its authority by `ca`, or trust any by `trust_cert`"),
        Error::Protocol(_) if text.contains("encryption level") => {
            format!("{text} The server has no TLS: `encrypt=never` does without")
        }
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CX-04: whether a failure leaves open what happened depends on whether a statement was under way.
    #[test]
    fn a_lost_connection_is_told_by_when_it_was_lost() {
        let lost = || Failure::from(Error::Io { kind: IoErrorKind::ConnectionReset, message: "reset".into() });
        assert_eq!((lost().unsent().kind(), lost().unsent().remedy()), (ErrorKind::Unavailable, Remedy::Reconnect));
        assert_eq!(
            (lost().at_answer().kind(), lost().at_answer().remedy()),
            (ErrorKind::Indeterminate, Remedy::Resend)
        );
        assert_eq!(lost().at_connect("db:1433").remedy(), Remedy::None);
        assert!(lost().at_connect("db:1433").into_error(Operation::Renew).to_string().contains("db:1433"));
    }
}
