//! The database's clock: an SQL function over this host's wall clock.
//!
//! All processes that share a SQLite file run on one host, so that they share this clock as clients of a server share the server's.
//! A function of our own, because SQLite's have whole seconds only (`unixepoch`) or are missing before 3.42 (`'subsec'`).

use std::time::UNIX_EPOCH;

use rusqlite::{Connection, Result, functions::FunctionFlags};

/// Makes `lease_clock()`, the Unix time in microseconds, known to a connection.
///
/// It is not marked as deterministic, so every call in a statement reads the clock; what belongs together comes from one call.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("lease_clock", 0, flags, |_| Ok(unix_micros()))
}

/// A clock that stands before 1970 shows zero: every statement relies on a time that is not negative.
#[expect(clippy::disallowed_methods, reason = "here this host's clock is the database's (S2)")]
fn unix_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2, CT-14: the clock has microseconds and moves within a connection.
    #[test]
    fn the_clock_is_the_hosts_in_microseconds() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        let read = || connection.query_row("SELECT lease_clock()", [], |row| row.get::<_, i64>(0)).unwrap();
        let (before, shown, after) = (unix_micros(), read(), unix_micros());
        assert!(before <= shown && shown <= after);
        assert!((0..10_000).any(|_| read() % 1000 != 0));
    }
}
