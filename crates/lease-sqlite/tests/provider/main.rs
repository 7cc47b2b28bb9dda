//! What only SQLite does: its file, its locks, its write-ahead log, and many processes on one file.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as loudly as the test")]

mod children;
mod clock;
mod fence;
mod fence_locks;
mod files;
mod ledger;
mod locks;
mod log;
mod processes;
mod readme;
mod schema;
mod support;
