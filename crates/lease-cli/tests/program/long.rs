//! A command that lasts longer than its lease's duration keeps it.

use crate::support::{Place, Running, Store, code, on_each_store};
use nix::sys::signal::Signal;

on_each_store! {
    a_command_of_four_durations_is_never_overtaken,
    a_frozen_command_keeps_its_lease,
}

/// SL-07, RN-10, S4: a command of four durations is kept by renewals, while contenders are refused all the time.
fn a_command_of_four_durations_is_never_overtaken(store: Store) {
    let place = Place::on(store);
    let mut waiting = Vec::new();
    let command = format!("echo up >up; sleep {}; echo end >end", 7 + store.reach());
    let mut holder = Running::start(&mut place.run(&["--duration", "2s"], &command));
    place.await_line("up");
    waiting.push(Running::start(&mut place.run(&["--duration", "2s"], "echo ran >>ran")));
    let mut refusals = 0;
    while place.read("end").is_empty() {
        match code(&mut place.run(&["--no-wait"], "echo ran >>ran")) {
            Some(75) => refusals += 1,
            // It was let in the moment the command had ended.
            Some(0) if !place.read("end").is_empty() => {}
            other => panic!("exit code {other:?} after {refusals} refusals"),
        }
    }
    assert!(refusals >= 20 / store.reach(), "only {refusals} refusals");
    assert_eq!(holder.finish(), (Some(0), String::new()));
    for contender in &mut waiting {
        assert_eq!(contender.finish().0, Some(0));
    }
    place.assert_no_overlap();
}

/// A command that is frozen is a slow command: its lease is renewed.
fn a_frozen_command_keeps_its_lease(store: Store) {
    let place = Place::on(store);
    let mut holder = Running::start(&mut place.run(&["--duration", "1s"], "echo $$ >up; sleep 600"));
    let command = place.await_pid("up");
    nix::sys::signal::kill(command, Signal::SIGSTOP).unwrap();
    let mut contender = Running::start(&mut place.run(&["--duration", "1s"], "echo ran >ran"));
    for _ in 0..30 {
        assert!(place.remaining().is_some());
        assert_eq!(place.read("ran"), "");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // Told to end, it is let go on, so that it can.
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.finish().0, Some(128 + 15));
    assert_eq!(contender.finish().0, Some(0));
    place.assert_no_overlap();
}
