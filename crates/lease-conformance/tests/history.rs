//! The history checker on real tasks and processes: it lets a sound store through and catches one that is not.
#![cfg(unix)]

use std::{sync::Arc, time::Duration};

use lease_conformance::history::{Load, Plan, check, record};
use lease_core::MemoryLeaseStore;

const TOLERANCE: Duration = Duration::from_micros(100);

/// S1, S6: ten thousand operations of many tasks on one memory store, on several threads and in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_one_store_are_sound() {
    let load = Load::default().operations(10_000).tasks(32).pause(Duration::from_millis(2));
    let records = record(&Arc::new(MemoryLeaseStore::new()), &load, 0).await;
    let summary = check(&records, TOLERANCE).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((summary.operations, summary.failed), (10_000, 0));
    assert!(summary.takeovers.min(summary.renewals).min(summary.releases).min(summary.losses) > 0, "{summary:?}");
}

/// S1: two stores that do not know of one another, as if they were one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_are_not_taken_for_one() {
    let load = Load::default().operations(2000).names(1);
    let (one, other) = (Arc::new(MemoryLeaseStore::new()), Arc::new(MemoryLeaseStore::new()));
    let (one, other) = tokio::join!(record(&one, &load, 0), record(&other, &load, 1));
    let violation = check(&[one, other].concat(), TOLERANCE).expect_err("both stores granted the same lease");
    assert!(violation.to_string().starts_with("S1"), "{violation}");
}

/// S1: several processes with a store each; their histories are merged and told by one clock.
#[test]
fn processes_with_a_store_each_are_caught() {
    let records = Plan::new("processes_with_a_store_each_are_caught")
        .processes(3)
        .load(Load::default().operations(3000).names(1))
        .record(async |_| {}, async |_| MemoryLeaseStore::new());
    let violation = check(&records, TOLERANCE).expect_err("each process has granted the same lease");
    assert!(violation.to_string().starts_with("S1"), "{violation}");
}

/// S1, S6: one process with a store of its own is sound, so that it is not the plan which is caught above.
#[test]
fn one_process_with_a_store_is_sound() {
    let summary = Plan::new("one_process_with_a_store_is_sound")
        .processes(1)
        .load(Load::default().operations(3000).names(1))
        .tolerance(TOLERANCE)
        .run(async |_| {}, async |_| MemoryLeaseStore::new());
    assert_eq!((summary.operations, summary.failed), (3000, 0));
}
