//! What `lease` does with the means of Linux alone.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::support::{Place, Running, eventually, output, undisturbed};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The kernel kills the command with its watchdog, so that no command outlives all of `lease`.
#[test]
fn no_command_outlives_both_lease_and_watchdog() {
    let place = Place::new();
    let script = "echo $PPID >watchdog; trap '' TERM; while :; do sleep 0.1; done";
    let mut holder = Running::start(&mut place.run(&["--duration", "30s"], script));
    let watchdog = place.await_pid("watchdog");
    holder.signal(Signal::SIGSTOP);
    kill(watchdog, Signal::SIGKILL).unwrap();
    holder.signal(Signal::SIGKILL);
    holder.await_end();
    eventually("the end of the command", || place.is_deserted());
}

/// E3: nothing of the command's group outlives its lease, not even what forks and ends while the watchdog looks at the processes one by
/// one. Each command finds out whether anything of the one before still holds the lock.
#[test]
fn what_forks_and_ends_is_ended_too() {
    let place = Place::new();
    for script in ["(sleep 600 &) &", "( (sleep 600 &) & ) & exit 0"] {
        for _ in 0..20 {
            assert!(Running::start(&mut place.run(&[], script)).await_end().success());
            assert!(place.is_deserted(), "{script} left something behind");
        }
    }
}

/// E3: a watchdog that dies before `lease` knows the command's group leaves no command: it has not begun.
#[test]
fn a_watchdog_that_dies_at_the_start_leaves_no_command() {
    let place = Place::new();
    for pause in 0..40 {
        let mut holder = Running::start(&mut place.run(&[], "(while :; do sleep 0.1; done) & sleep 600"));
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        for watchdog in std::fs::read_to_string(children).unwrap_or_default().split_ascii_whitespace() {
            let _ = kill(Pid::from_raw(watchdog.parse().unwrap()), Signal::SIGKILL);
        }
        holder.signal(Signal::SIGTERM);
        holder.await_end();
        assert!(place.is_deserted(), "after {pause} ms something was left behind");
    }
}

/// The watchdog goes by another name than `lease`, so that `killall lease` does not take it along.
#[test]
fn the_watchdog_goes_by_another_name() {
    let place = Place::new();
    let holder = Running::start(&mut place.run(&[], "echo $PPID >watchdog; exec sleep 600"));
    let watchdog = place.await_pid("watchdog");
    let name = |process: Pid| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    assert_eq!((name(holder.id()).as_str(), name(watchdog).as_str()), ("lease\n", "watchdog\n"));
}

/// Nothing of `lease` leaks into the command: it has the files and the signal mask that it would have without, and ignores no more
/// signals; but it leads a process group of its own.
#[test]
fn the_command_inherits_nothing_of_lease() {
    let script = "echo /proc/$$/fd/*; grep -E 'Sig(Blk|Ign)' /proc/self/status; cut -d ' ' -f 5 /proc/$$/stat; echo $$";
    let seen = |command: &mut Command| {
        let output = output(command.args(["sh", "-c", script]).stdin(Stdio::null()));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = text.lines().map(|line| line.replace(text.lines().last().unwrap(), "PID")).collect();
        (lines[..3].to_vec(), lines[3..].to_vec())
    };
    let place = Place::new();
    let mut leased = place.lease();
    leased.args(["run", "--name", "job", "--store", &place.url(), "--"]);
    let (leased, group) = seen(&mut leased);
    let (plain, _) = seen(&mut undisturbed("env"));
    assert_eq!(leased, plain);
    assert_eq!(group, ["PID", "PID"]);
}

/// Orphans of the group become the watchdog's children and are reaped while the command runs: a long-lived command does not fill the
/// process table of a container without an init.
#[test]
fn orphans_are_reaped() {
    let place = Place::new();
    let script = "(sleep 600 & echo $! >orphan); echo $PPID >watchdog; until [ -e go ]; do sleep 0.02; done";
    let mut holder = Running::start(&mut place.run(&[], script));
    let (orphan, watchdog) = (place.await_pid("orphan"), place.await_pid("watchdog"));
    let parent = || {
        let status = std::fs::read_to_string(format!("/proc/{orphan}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t")).map(str::to_owned)
    };
    assert_eq!(parent(), Some(watchdog.to_string()));
    kill(orphan, Signal::SIGKILL).unwrap();
    eventually("the orphan to be reaped", || parent().is_none());
    assert!(holder.is_running());
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(holder.finish().0, Some(0));
}
