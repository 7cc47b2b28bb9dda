//! A model of the executor's protocol over the store's contract, which the checker explores state by state.
//!
//! Two processes contend for one name through a network that loses, delays and repeats. Process 0 has two tasks for it, process 1
//! has one. `action.rs` lists what can happen, and is the place to start.
//!
//! | here | the crate's | rules |
//! |---|---|---|
//! | `store.rs` | `store.rs`, as every provider has it | S1 to S7 |
//! | `network.rs` | nothing: what a `StoreError` of unknown outcome stands for | S8, S11 |
//! | `process.rs`: `granted`, `abandon`, `finish` | `executor/contend.rs`, `executor/owner.rs` | E2, E7 |
//! | `process.rs`: `renewed`, `lost`; `may_renew` in `action.rs` | `executor/heartbeat.rs` | E2, E4, E7 |
//! | `process.rs`: `tick`, `notice_the_clock`, `drop_job`, `end`, `release` | `executor/stop.rs` | E3, E10 |
//! | `process.rs`: `promise`, `left` in `state.rs` | `executor/schedule.rs`, `executor/term.rs` | E2, E3, E12 |
//! | `may_contend` in `action.rs` | `executor/slot.rs` | E11, E12 |
//!
//! # What it leaves out
//!
//! - Time is a number of small ticks. A step takes none, so that a job is dropped at its deadline and not a poll later; what a pause
//!   inside one poll can do is left to fencing, as in E3. Local clocks may lag behind the store's; one that runs ahead only stops a
//!   job sooner.
//! - When a renewal or a retry is sent is left open: it may be at any time, or never. So are the floors and jitter of E4 and E5.
//! - The row is never deleted or restored, and nobody forces a release; S6 is the old token plus one.
//! - A call has no time limit of its own: it may be abandoned at any time, and an error of unknown outcome is the same thing.
//! - A repeated request is one of the late ones, which may each arrive any number of times. At most two are late at once; a third is
//!   lost.
//! - Jobs either resign (E12) or have a minimum hold (E10), never both. After a crash nobody stands back, as documented.
//!
//! The tests that always run are small: one kind of trouble each. Those that take minutes are ignored, and mix them.

mod action;
mod canonical;
mod network;
mod process;
mod property;
mod protocol;
mod sabotage;
mod state;
mod store;

use std::thread;

use stateright::{Checker, HasDiscoveries, Model};

use crate::{protocol::Protocol, sabotage::Sabotage};

/// E2, E3, S1: process 0 has a clock that lags, both are paused.
#[test]
fn one_job_runs_although_a_clock_lags() {
    explore(Protocol { drifts: [true, false], pauses: [true, true], ..Protocol::SMALL });
}

/// E7: a request of anybody is late, and repeated.
#[test]
fn one_job_runs_although_a_request_is_late() {
    explore(Protocol { late: 1, ..Protocol::SMALL });
}

/// E3, E11: a job that will not end keeps its executor's turn.
#[test]
fn one_job_runs_although_another_overruns() {
    explore(Protocol { pauses: [true, false], stubborn: [true, true], ..Protocol::SMALL });
}

/// E10: a rest is written until it is answered, and nobody cuts it.
#[test]
fn a_minimum_hold_is_respected() {
    explore(Protocol { pauses: [true, false], hold: Some(4), ..Protocol::SMALL });
}

/// E12: jobs are told to resign at any time.
#[test]
fn who_resigns_stands_back() {
    explore(Protocol { pauses: [true, false], resigns: true, ..Protocol::SMALL });
}

/// E2, E3, E7: a clock lags, a process is paused, and a request is late.
#[test]
#[ignore = "a million states: cargo test --release -p lease-core --test model -- --ignored --nocapture --test-threads 1"]
fn one_job_runs_in_a_million_states() {
    let states =
        explore(Protocol { duration: 4, late: 1, drifts: [true, false], pauses: [true, false], ..Protocol::SMALL });
    assert!(states >= 1_000_000, "{states}");
}

/// E2, E3, E7: both clocks lag, both processes are paused, and two requests are late at once.
#[test]
#[ignore = "minutes and gigabytes: cargo test --release -p lease-core --test model -- --ignored --nocapture --test-threads 1"]
fn one_job_runs_whatever_goes_wrong() {
    explore(Protocol { late: 2, drifts: [true, true], pauses: [true, true], ..Protocol::SMALL });
}

/// E2, E3, E7, E11, E12: jobs resign or overrun in both processes, a clock lags, and a request is late.
#[test]
#[ignore = "minutes and gigabytes: cargo test --release -p lease-core --test model -- --ignored --nocapture --test-threads 1"]
fn one_job_runs_whoever_resigns_or_overruns() {
    let both = [true, true];
    let all = Protocol { late: 1, drifts: [true, false], pauses: both, stubborn: both, ..Protocol::SMALL };
    explore(Protocol { resigns: true, ..all });
}

/// E2, E3, E7, E10, E11: the same with a minimum hold.
#[test]
#[ignore = "minutes and gigabytes: cargo test --release -p lease-core --test model -- --ignored --nocapture --test-threads 1"]
fn a_minimum_hold_is_respected_whatever_goes_wrong() {
    let both = [true, true];
    let all = Protocol { late: 1, drifts: [true, false], pauses: both, stubborn: both, ..Protocol::SMALL };
    explore(Protocol { hold: Some(4), ..all });
}

/// E2, CT-10
#[test]
fn an_anchor_at_the_answer_is_found() {
    find(Protocol::SMALL, Sabotage::AnchorAtAnswer, &[property::EXCLUSION]);
}

/// E2, E8
#[test]
fn a_missing_margin_is_found() {
    find(Protocol { drifts: [true, false], ..Protocol::SMALL }, Sabotage::NoMargin, &[property::EXCLUSION]);
}

/// E3, SD-01
#[test]
fn a_release_before_the_end_is_found() {
    find(Protocol { resigns: true, ..Protocol::SMALL }, Sabotage::ReleaseBeforeEnd, &[property::EXCLUSION]);
}

/// E7, RC-10
#[test]
fn an_id_reused_after_an_unanswered_release_is_found() {
    let broken = [property::EXCLUSION, property::LATE_IS_HARMLESS];
    find(Protocol { late: 1, ..Protocol::SMALL }, Sabotage::ReuseAfterUnansweredRelease, &broken);
}

/// E7, RC-10
#[test]
fn an_id_reused_after_an_unused_grant_is_found() {
    let broken = [property::EXCLUSION, property::LATE_IS_HARMLESS];
    find(Protocol { late: 1, ..Protocol::SMALL }, Sabotage::ReuseAfterUnusedGrant, &broken);
}

/// E2, S3: it takes a definite refusal whose request is repeated by the network.
#[test]
fn a_regrant_that_only_reports_is_found() {
    find(Protocol { late: 1, ..Protocol::SMALL }, Sabotage::RegrantOnlyReports, &[property::EXCLUSION]);
}

/// S4
#[test]
fn a_shorter_renewal_is_found() {
    find(Protocol { duration: 4, ..Protocol::SMALL }, Sabotage::ShorterRenewal, &[property::EXCLUSION]);
}

/// E3, CT-16
#[test]
fn a_resume_without_the_clock_is_found() {
    find(Protocol { pauses: [true, false], ..Protocol::SMALL }, Sabotage::NoClockAtResume, &[property::EXCLUSION]);
}

/// E11, SD-08
#[test]
fn a_missing_turn_is_found() {
    find(Protocol { stubborn: [true, false], ..Protocol::SMALL }, Sabotage::NoTurn, &[property::ONE_EACH]);
}

/// E12
#[test]
fn a_missing_stand_back_is_found() {
    find(Protocol { resigns: true, ..Protocol::SMALL }, Sabotage::NoStandBack, &[property::STAND_BACK]);
}

/// E10, RC-16
#[test]
fn a_missing_rest_is_found() {
    find(Protocol { hold: Some(4), ..Protocol::SMALL }, Sabotage::NoRest, &[property::HOLD]);
}

/// S5, S6
#[test]
fn a_deleted_row_is_found() {
    find(Protocol::SMALL, Sabotage::ReleaseDeletesRow, &[property::TOKENS_RISE]);
}

/// S3, SL-01
#[test]
fn a_missing_takeover_is_found() {
    find(Protocol::SMALL, Sabotage::NoTakeover, &[property::LIVENESS]);
}

/// Looks at every state that the model can reach, and answers how many those are.
fn explore(protocol: Protocol) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let checker = protocol.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let states = checker.unique_state_count();
    report(&format!("{states} states, {} steps, {} deep: {protocol:?}", checker.state_count(), checker.max_depth()));
    checker.assert_properties();
    states
}

/// Looks for what breaks each of `properties`, and fails when it finds nothing.
fn find(protocol: Protocol, sabotage: Sabotage, properties: &[&'static str]) {
    let sabotaged = Protocol { sabotage: Some(sabotage), ..protocol };
    let all = HasDiscoveries::AllOf(properties.iter().copied().collect());
    let checker = sabotaged.checker().finish_when(all).spawn_bfs().join();
    let states = checker.unique_state_count();
    for property in properties {
        let path = checker.assert_any_discovery(property).into_actions();
        let steps = path.len();
        report(&format!("{sabotage:?}, {states} states: in {steps} steps it is false that {property}: {path:?}"));
    }
}

#[expect(clippy::print_stdout, reason = "the counts and the paths are what a reader of the test's output wants")]
fn report(line: &str) {
    println!("{line}");
}
