//! What a check found, and where.

use std::fmt;

/// One thing that is not tidy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    place: String,
    message: String,
}

impl Finding {
    /// A finding about a file, a crate or a rule.
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }

    /// A finding about one line, counted from 1.
    pub(crate) fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}
