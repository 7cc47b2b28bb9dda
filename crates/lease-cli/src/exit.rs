//! How the program ends: its exit codes, and the one line that says why.

use std::{
    error::Error,
    fmt,
    io::{self, Write},
    process::ExitCode,
};

/// Bad usage: an argument breaks a rule, and nothing was touched.
pub(crate) const USAGE: u8 = 64;
/// The lease store cannot be reached.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something inside failed, such as the watchdog.
pub(crate) const INTERNAL: u8 = 70;
/// The lease is somebody else's, and waiting was not wanted.
pub(crate) const REFUSED: u8 = 75;
/// The lease was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The command cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command, or that ended `lease` while it waited.
pub(crate) const SIGNALLED: u8 = 128;

/// Why the program ends, for people and as an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure with this exit code and message.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A failure caused by an error; the message ends with the error and its causes.
    pub(crate) fn caused(code: u8, context: impl fmt::Display, error: &dyn Error) -> Self {
        Self::new(code, format!("{context}: {}", chain(error)))
    }

    /// Says the message, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say(&self.message);
        self.code.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error and its causes on one line. No error of a store shows a credential.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some drivers repeat their cause in their own message.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// The exit code of a process that this signal ended.
pub(crate) fn signalled(signal: i32) -> u8 {
    SIGNALLED.wrapping_add(u8::try_from(signal).unwrap_or_default())
}

/// Says one line on standard error. When that is closed there is nobody to tell.
pub(crate) fn say(message: &str) {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(io::stderr().lock(), "lease: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_follow_on_one_line() {
        let cause = io::Error::other("disk on fire");
        let error = lease_core::StoreError::new(lease_core::Operation::Connect, lease_core::ErrorKind::Unavailable)
            .with_source(cause);
        assert_eq!(chain(&error), "open lease store: database unavailable: disk on fire");
    }

    #[test]
    fn a_signal_becomes_a_code_as_in_a_shell() {
        assert_eq!(signalled(9), 137);
        assert_eq!(signalled(15), 143);
    }
}
