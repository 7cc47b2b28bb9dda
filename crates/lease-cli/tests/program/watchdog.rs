//! The watchdog itself dies or freezes, and what commands leave behind.

use crate::support::{Place, Running, Store, code, eventually, on_each_store};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

on_each_store! {
    a_dead_watchdogs_command_is_ended_and_the_lease_released,
    a_frozen_watchdogs_command_is_ended_and_the_lease_released,
}

/// A command that says who its watchdog is.
const WATCHED: &str =
    "trap 'echo heard >>heard; exit 0' TERM; sleep 600 & echo $PPID >watchdog; while :; do sleep 0.1; done";

fn watched(place: &Place, duration: &str) -> (Running, Pid) {
    let holder = Running::start(&mut place.run(&["--duration", duration], WATCHED));
    let watchdog = place.await_pid("watchdog");
    (holder, watchdog)
}

fn a_dead_watchdogs_command_is_ended_and_the_lease_released(store: Store) {
    let place = Place::on(store);
    let (mut holder, watchdog) = watched(&place, "30s");
    kill(watchdog, Signal::SIGKILL).unwrap();
    let (end, said) = holder.finish();
    assert_eq!((end, said.as_str()), (Some(70), "lease: the watchdog failed, and the command was ended\n"));
    assert!(place.is_deserted());
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
    place.assert_no_overlap();
}

/// A watchdog that no longer confirms deadlines is not relied on: the command is gone before its lease could expire.
fn a_frozen_watchdogs_command_is_ended_and_the_lease_released(store: Store) {
    let place = Place::on(store);
    let (mut holder, watchdog) = watched(&place, "2s");
    kill(watchdog, Signal::SIGSTOP).unwrap();
    let mut contender = Running::start(&mut place.run(&["--duration", "2s"], "echo ran >ran"));
    assert_eq!(holder.finish().0, Some(70));
    assert_eq!(contender.finish().0, Some(0));
    place.assert_no_overlap();
}

/// What a supervisor sends to every process of a service does not end the watchdog before the command.
#[test]
fn a_watchdog_lets_signals_pass() {
    let place = Place::new();
    let (mut holder, watchdog) = watched(&place, "30s");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP] {
        kill(watchdog, signal).unwrap();
    }
    assert!(holder.is_running());
    assert_eq!(place.read("heard"), "");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish().0, Some(0));
}

/// What a command leaves behind in its group is ended before the lease is released, within the grace.
#[test]
fn what_a_command_leaves_behind_is_ended() {
    let place = Place::new();
    let script = r#"
        (trap 'echo heard >>heard; exit' TERM; echo up >>up; while :; do sleep 0.05; done) &
        (trap '' TERM; echo up >>up; exec sleep 600) &
        until [ "$(wc -l <up)" = 2 ]; do sleep 0.02; done; exit 7"#;
    let mut holder = Running::start(&mut place.run(&["--grace", "300ms"], script));
    assert_eq!(holder.finish().0, Some(7));
    assert!(place.is_deserted(), "the lease was released before all had ended");
    assert_eq!(place.read("heard"), "heard\n");
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
    place.assert_no_overlap();
}

/// A daemon leaves the group, and is let alone.
#[test]
fn a_daemon_is_not_waited_for() {
    let place = Place::new();
    let script = "setsid sh -c 'echo $$ >daemon; exec sleep 600' 9>&- </dev/null >/dev/null 2>&1 & until [ -s daemon ]; do sleep 0.02; done";
    assert_eq!(code(&mut place.run(&[], script)), Some(0));
    let daemon = place.await_pid("daemon");
    kill(daemon, Signal::SIGKILL).unwrap();
}

/// Standard error that nobody reads does not hold the watchdog up.
#[test]
fn a_full_standard_error_holds_nothing_up() {
    let place = Place::new();
    // The shell itself must not speak either, as it does when a signal ends a part of it.
    let fill = "dd if=/dev/zero bs=4096 count=16 >&2 2>/dev/null; (dd if=/dev/zero bs=1 count=1 >&2 2>/dev/null; echo not full >room) & exec 2>/dev/null;";
    let script = format!("trap 'echo heard >>heard; exit 0' TERM; {fill} echo up >up; while :; do sleep 0.1; done");
    let mut holder = Running::start(&mut place.run(&["--duration", "30s"], &script));
    place.await_line("up");
    holder.signal(Signal::SIGKILL);
    holder.await_end();
    place.await_line("heard");
    eventually("the end of the group", || place.is_deserted());
    assert_eq!(place.read("room"), "");
}
