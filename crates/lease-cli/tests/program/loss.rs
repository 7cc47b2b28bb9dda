//! The lease is lost while the holder is well: forced out, deleted, or not to be renewed.

use crate::support::{Place, Running, Store, code, eventually, on_each_store};
use nix::sys::signal::{Signal, kill};

on_each_store! {
    a_command_whose_lease_is_lost_is_killed_at_once,
    a_command_whose_lease_cannot_be_renewed_is_stopped_in_time,
    a_loss_is_not_held_up_by_a_frozen_watchdog,
}

const HEARING: &str = "trap 'echo heard >heard; exit 0' TERM; echo up >up; while :; do sleep 0.1; done";

/// E3, OB-02: the lease may be another's already, so there is no grace.
fn a_command_whose_lease_is_lost_is_killed_at_once(store: Store) {
    for (change, reason) in [
        ("DELETE FROM singleton_leases", "the row was deleted"),
        ("UPDATE singleton_leases SET owner = NULL, expires_at = acquired_at", "released or forced out"),
        ("UPDATE singleton_leases SET owner = 'web-2'", "taken over by web-2"),
    ] {
        let place = Place::on(store);
        let mut holder = Running::start(&mut place.run(&["--duration", "2s"], HEARING));
        place.await_line("up");
        place.database.session().execute(change);
        let (code, said) = holder.finish();
        assert_eq!(code, Some(76), "{said}");
        assert!(said.starts_with("lease: lost \"job\"") && said.contains(reason), "{said}");
        assert!(place.is_deserted());
        assert_eq!(place.read("heard"), "", "the command was given a grace");
    }
}

/// RN-02, RN-03, OB-02: a store that cannot be written to costs the lease, but not before its stop point, and the command has its
/// grace; afterwards all goes on as before.
fn a_command_whose_lease_cannot_be_renewed_is_stopped_in_time(store: Store) {
    let place = Place::on(store);
    let mut holder = Running::start(&mut place.run(&["--duration", "2s"], HEARING));
    place.await_line("up");
    let observer = place.database.session();
    assert!(place.database.remaining_in(&observer).is_some());
    let blocker = place.database.block();
    place.await_line("heard");
    eventually("the end of the group", || place.is_deserted());
    assert!(place.database.remaining_in(&observer).is_some(), "the command ended no sooner than the lease");
    blocker.execute("ROLLBACK");
    let (end, said) = holder.finish();
    assert_eq!(end, Some(76), "{said}");
    assert!(said.contains("no renewal landed before the stop point"), "{said}");
    assert_eq!(code(&mut place.run(&["--no-wait"], "exit 0")), Some(0), "the lease was not released");
}

/// E3: not even a watchdog that is frozen is waited for.
fn a_loss_is_not_held_up_by_a_frozen_watchdog(store: Store) {
    let place = Place::on(store);
    let mut holder = Running::start(&mut place.run(&["--duration", "20s"], "echo $PPID >watchdog; sleep 600"));
    let watchdog = place.await_pid("watchdog");
    kill(watchdog, Signal::SIGSTOP).unwrap();
    place.database.session().execute("UPDATE singleton_leases SET owner = 'web-2'");
    eventually("the end of the group", || place.is_deserted());
    assert!(holder.is_running(), "only a watchdog that is heard again, or the deadline, ends lease itself");
    kill(watchdog, Signal::SIGCONT).unwrap();
    assert_eq!(holder.finish().0, Some(76));
}
