//! The holder is killed: what it ran is ended at once, before anybody else starts.

use std::{os::unix::process::CommandExt as _, time::Duration};

use crate::support::{Place, Running, Store, eventually, on_each_store};
use lease_core::clock::LocalInstant;
use nix::sys::signal::{Signal, killpg};

on_each_store! {
    the_whole_group_hears_at_once,
    killing_the_holders_group_does_not_take_the_watchdog_along,
    a_contender_takes_over_as_soon_as_the_lease_has_expired,
    a_deaf_group_is_gone_before_the_next_starts,
}

/// Says when it has heard SIGTERM, in both generations.
const HEARING: &str = r"
    (trap 'echo heard >>grandchild; exit' TERM; echo up >>ready; while :; do sleep 0.1; done) &
    trap 'echo heard >>child; exit' TERM; echo up >>ready; while :; do sleep 0.1; done";

/// Kills the holder, by the function, and expects both generations to hear of it at once, long before the stop point of its lease.
fn ended_at_once(place: &Place, kill: impl FnOnce(&Running)) {
    let mut holder = Running::start(place.run(&["--duration", "60s"], HEARING).process_group(0));
    eventually("both generations", || place.lines("ready").len() == 2);
    kill(&holder);
    holder.await_end();
    eventually("the end of the group", || place.is_deserted());
    assert_eq!((place.read("child"), place.read("grandchild")), ("heard\n".into(), "heard\n".into()));
    assert!(place.remaining().is_some_and(|left| left > Duration::from_secs(20)), "the lease had to run out first");
}

/// SL-01, E3: the whole process group gets SIGTERM at once.
fn the_whole_group_hears_at_once(store: Store) {
    ended_at_once(&Place::on(store), |holder| holder.signal(Signal::SIGKILL));
}

/// The watchdog is in a group of its own: what kills the holder's whole group leaves it alone.
fn killing_the_holders_group_does_not_take_the_watchdog_along(store: Store) {
    ended_at_once(&Place::on(store), |holder| killpg(holder.id(), Signal::SIGKILL).expect("the group is there"));
}

/// SL-01, SL-04: a waiting contender starts within what was left of the lease and 0.3 s. The machine may be busy, so the best of a
/// few takes counts.
fn a_contender_takes_over_as_soon_as_the_lease_has_expired(store: Store) {
    // Long enough for the contender to be there when the lease expires.
    let duration = format!("{}s", 2 * store.reach());
    let take = || {
        let place = Place::on(store);
        let holder = Running::start(&mut place.run(&["--duration", &duration], "echo up >up; sleep 600"));
        place.await_line("up");
        let contender = Running::start(&mut place.run(&["--duration", &duration], "echo ran >ran"));
        let left = place.remaining().unwrap();
        let killed = LocalInstant::now();
        holder.signal(Signal::SIGKILL);
        place.await_line("ran");
        let took = LocalInstant::now().saturating_duration_since(killed);
        place.assert_no_overlap();
        drop((holder, contender));
        took.saturating_sub(left)
    };
    let mut late = Duration::MAX;
    for _ in 0..5 {
        late = late.min(take());
        if late <= Duration::from_millis(300) {
            return;
        }
    }
    panic!("a contender started {late:?} after the lease had expired");
}

/// E3: a group that does not heed SIGTERM is gone after the grace, and before the next command starts.
fn a_deaf_group_is_gone_before_the_next_starts(store: Store) {
    let place = Place::on(store);
    let script = "trap '' TERM; sleep 600 & (sleep 600) & echo up >up; sleep 600";
    let mut holder = Running::start(&mut place.run(&["--duration", "3s", "--grace", "300ms"], script));
    place.await_line("up");
    let mut contender = Running::start(&mut place.run(&["--duration", "3s"], "echo ran >ran"));
    holder.signal(Signal::SIGKILL);
    holder.await_end();
    eventually("the end of the group", || place.is_deserted());
    assert!(place.remaining().is_some(), "the group ended no sooner than the lease");
    assert_eq!(contender.finish().0, Some(0));
    place.assert_no_overlap();
}
