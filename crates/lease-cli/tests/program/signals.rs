//! What an operator or a supervisor tells `lease` reaches the command.

use std::{os::unix::process::CommandExt as _, process::Command};

use crate::support::{Place, Running, Store, code, eventually, on_each_store};
use nix::sys::signal::Signal;

on_each_store! {
    a_holder_that_is_told_to_end_frees_the_lease,
    a_deaf_command_is_killed_after_its_grace,
    a_waiting_contender_goes_at_once,
}

/// SD-01, SD-03, SL-06: the command sees SIGTERM, and when it has ended the next gets the lease without waiting.
fn a_holder_that_is_told_to_end_frees_the_lease(store: Store) {
    let place = Place::on(store);
    let script = "trap 'sleep 0.3; echo done >>done; exit 5' TERM; echo up >up; while :; do sleep 0.1; done";
    let mut holder = Running::start(&mut place.run(&[], script));
    place.await_line("up");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish(), (Some(5), String::new()));
    assert_eq!(place.read("done"), "done\n");
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
    place.assert_no_overlap();
}

/// E3, SD-08: a command that does not heed SIGTERM gets its grace, then SIGKILL; the lease is held until then, and free at once.
fn a_deaf_command_is_killed_after_its_grace(store: Store) {
    let place = Place::on(store);
    let script = "trap '' TERM; sleep 600 & echo up >up; sleep 600";
    // Long enough for another to be refused meanwhile.
    let (grace, duration) = (store.reach(), store.reach() * 8);
    let options = ["--grace", &format!("{grace}s"), "--duration", &format!("{duration}s")];
    let mut holder = Running::start(&mut place.run(&options, script));
    place.await_line("up");
    holder.signal(Signal::SIGTERM);
    assert_eq!(
        code(&mut place.run(&["--no-wait"], "exit 0")),
        Some(75),
        "the lease was free before the command had ended"
    );
    assert_eq!(holder.finish().0, Some(128 + 9));
    assert!(place.is_deserted());
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
}

#[test]
fn other_signals_are_passed_on_and_end_nothing_by_themselves() {
    let place = Place::new();
    let signals = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];
    let traps: Vec<String> =
        signals.iter().map(|signal| format!("trap 'echo {signal} >>heard' {}", &signal.as_str()[3..])).collect();
    let script = format!("{}; trap 'exit 0' TERM; echo up >up; while :; do sleep 0.05; done", traps.join("; "));
    let mut holder = Running::start(&mut place.run(&[], &script));
    place.await_line("up");
    for signal in signals {
        holder.signal(signal);
        eventually(signal.as_str(), || place.lines("heard").iter().any(|line| line == signal.as_str()));
    }
    assert!(holder.is_running());
    assert_eq!(place.lines("heard").len(), signals.len());
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish().0, Some(0));
}

#[test]
fn a_signal_that_ends_the_command_ends_lease_with_its_number() {
    let place = Place::new();
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let mut holder = Running::start(&mut place.run(&[], "rm -f up; echo up >up; exec sleep 600"));
        place.await_line("up");
        holder.signal(signal);
        assert_eq!(holder.finish().0, Some(128 + signal as i32));
        assert_eq!(code(&mut place.run(&["--no-wait"], "rm up")), Some(0));
    }
}

/// A contender that is told to go while it waits goes at once, and leaves neither a command nor a lease behind.
fn a_waiting_contender_goes_at_once(store: Store) {
    let place = Place::on(store);
    let mut holder = Running::start(&mut place.run(&[], "echo up >up; until [ -e go ]; do sleep 0.02; done"));
    place.await_line("up");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut contender = Running::start(&mut place.run(&[], "echo ran >ran"));
        // It listens before it opens the store, so a signal before that would end it by the system's default.
        eventually("the contender to wait", || place.database.is_open_in(contender.id()));
        contender.signal(signal);
        assert_eq!(contender.finish(), (Some(128 + signal as i32), String::new()));
    }
    assert!(holder.is_running());
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(place.read("ran"), "");
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0));
}

/// `nohup`, and the background commands of a script, ignore signals, and so must what they start.
#[test]
fn what_is_ignored_stays_ignored() {
    let place = Place::new();
    let lease = place.run(&[], "echo up >up; kill -HUP $$; kill -INT $$; sleep 0.2; echo still here >>here; exit 0");
    let mut deaf = Command::new("sh");
    // Without what makes the other tests' `lease` hear.
    let words = std::iter::once(lease.get_program()).chain(lease.get_args());
    let words = words.skip(if cfg!(target_os = "linux") { 2 } else { 0 });
    deaf.args(["-c", r#"trap "" HUP INT; exec "$0" "$@""#]).args(words);
    deaf.current_dir(place.path("."));
    let mut holder = Running::start(&mut deaf);
    place.await_line("up");
    holder.signal(Signal::SIGHUP);
    holder.signal(Signal::SIGINT);
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(place.read("here"), "still here\n");
}

/// A terminal's Ctrl-C, and a supervisor that signals a whole group, reach the command once, by way of `lease`.
#[test]
fn a_signal_to_the_holders_group_reaches_the_command_once() {
    let place = Place::new();
    let script = "trap 'echo heard >>heard' INT; trap 'exit 0' TERM; echo up >up; while :; do sleep 0.05; done";
    let mut holder = Running::start(place.run(&[], script).process_group(0));
    place.await_line("up");
    nix::sys::signal::killpg(holder.id(), Signal::SIGINT).unwrap();
    place.await_line("heard");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(place.lines("heard").len(), 1);
}
