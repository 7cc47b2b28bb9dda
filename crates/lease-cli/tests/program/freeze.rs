//! The holder is frozen: what it ran is gone before anybody else starts, and the holder learns of it when it thaws.

use crate::support::{Place, Running, Store, on_each_store};
use nix::sys::signal::Signal;

on_each_store! {
    a_frozen_holders_command_is_gone_before_another_starts,
    a_frozen_holders_deaf_group_is_gone_before_another_starts,
    a_command_that_ended_in_time_keeps_its_code,
    a_holder_that_thaws_in_time_goes_on,
}

/// Freezes the holder of a script until another has run, and gives what the thawed holder ended with.
fn freeze_until_another_ran(place: &Place, options: &[&str], script: &str) -> (Option<i32>, String) {
    let mut holder = Running::start(&mut place.run(&[&["--duration", "2s"], options].concat(), script));
    place.await_line("up");
    holder.signal(Signal::SIGSTOP);
    let mut contender = Running::start(&mut place.run(&["--duration", "2s"], "echo ran >ran"));
    assert_eq!(contender.finish().0, Some(0));
    // Each command looks for members of another's group as it starts.
    place.assert_no_overlap();
    assert_eq!(place.read("ran"), "ran\n");
    assert!(holder.is_running());
    holder.signal(Signal::SIGCONT);
    holder.finish()
}

/// CT-16, RN-03, E3: the command is told to end by its watchdog alone, and the thawed holder exits 76 whatever its command did.
fn a_frozen_holders_command_is_gone_before_another_starts(store: Store) {
    let place = Place::on(store);
    let script = "trap 'echo heard >>heard; exit 0' TERM; echo up >up; while :; do sleep 0.1; done";
    let (code, said) = freeze_until_another_ran(&place, &[], script);
    assert_eq!(code, Some(76), "{said}");
    assert!(said.starts_with("lease: lost \"job\", and ended the command: "), "{said}");
    assert_eq!(place.read("heard"), "heard\n");
}

/// E3: a command and its descendants that ignore SIGTERM are all gone after the grace.
fn a_frozen_holders_deaf_group_is_gone_before_another_starts(store: Store) {
    let place = Place::on(store);
    let script = "trap '' TERM; sleep 600 & (sleep 600 & sleep 600) & echo up >up; sleep 600";
    let (code, said) = freeze_until_another_ran(&place, &["--grace", "300ms"], script);
    assert_eq!(code, Some(76), "{said}");
}

/// A command that ended by itself before its lease lapsed has done its work, however late the holder hears of it.
fn a_command_that_ended_in_time_keeps_its_code(store: Store) {
    let place = Place::on(store);
    let script = "echo up >up; until [ -e go ]; do sleep 0.02; done; exit 3";
    let mut holder = Running::start(&mut place.run(&["--duration", "3s"], script));
    place.await_line("up");
    holder.signal(Signal::SIGSTOP);
    std::fs::write(place.path("go"), "").unwrap();
    let mut contender = Running::start(&mut place.run(&["--duration", "2s"], "exit 0"));
    assert_eq!(contender.finish().0, Some(0));
    place.assert_no_overlap();
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.finish().0, Some(3));
}

/// A short freeze is nothing: the lease is renewed in time.
fn a_holder_that_thaws_in_time_goes_on(store: Store) {
    let place = Place::on(store);
    let script = "echo up >up; until [ -e go ]; do sleep 0.02; done; exit 0";
    let mut holder = Running::start(&mut place.run(&["--duration", "30s"], script));
    place.await_line("up");
    holder.signal(Signal::SIGSTOP);
    let before = place.remaining().unwrap();
    while place.remaining().unwrap() + std::time::Duration::from_millis(200) > before {}
    holder.signal(Signal::SIGCONT);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(holder.finish().0, Some(0));
}
