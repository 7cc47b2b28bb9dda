//! A random history of several processes on one file.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a store that does not open must fail its test")]

use std::path::Path;

use lease_conformance::history::{Load, Plan};
use lease_sqlite::{SqliteConfig, SqliteLeaseStore};

/// S1, S4, S6, S8: a hundred thousand calls by four processes of eight tasks, with leases of 5 to 50 ms that are renewed, released, let
/// run out and dropped in the middle of a call: no two owners at once, tokens that only rise, and not one error.
#[test]
fn hundred_thousand_operations_of_four_processes_are_sound() {
    let summary = Plan::new("hundred_thousand_operations_of_four_processes_are_sound")
        .processes(4)
        .load(Load::default().operations(100_000).tasks(8).names(4))
        .run(async |directory| open(directory).await.migrate().await.unwrap(), open);
    assert_eq!((summary.operations, summary.failed), (100_000, 0));
    assert!(summary.takeovers > 100, "too few leases ran out: {summary:?}");
}

async fn open(directory: &Path) -> SqliteLeaseStore {
    SqliteLeaseStore::connect(SqliteConfig::new(directory.join("leases.db"))).await.unwrap()
}
