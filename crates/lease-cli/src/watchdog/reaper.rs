//! How the watched child is doing.
//!
//! `rustix` rather than `nix` asks the kernel here, for the latter has no words for a process that a real-time signal ended.

use nix::{sys::signal::Signal, unistd::Pid};
use rustix::process::{self as system};

use crate::protocol::ChildEnd;

/// What has happened to the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended.
    Ended(ChildEnd),
    /// It was stopped by this signal, and may go on.
    Stopped(Signal),
}

/// The next thing that has happened to the child; call it until the child has ended.
pub(crate) fn next_change(child: Pid) -> Option<Change> {
    next_of(system::Pid::from_raw(child.as_raw())?)
}

/// The dead child stays unreaped, so that its id, which is its group's, cannot become another's while signals are sent to it. Orphans
/// of the group are reaped as they end, for this process is their parent.
#[cfg(target_os = "linux")]
fn next_of(child: system::Pid) -> Option<Change> {
    use system::{WaitId, WaitIdOptions, WaitIdStatus, WaitOptions};
    let look = |options| {
        let status = system::waitid(WaitId::Pid(child), options | WaitIdOptions::NOHANG);
        status.ok().flatten()
    };
    let end = |status: &WaitIdStatus| {
        let code = status.exit_status().map(ChildEnd::Code);
        code.or_else(|| status.terminating_signal().map(ChildEnd::Signal)).map(Change::Ended)
    };
    if let Some(change) = look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).as_ref().and_then(end) {
        return Some(change);
    }
    while let Ok(Some((orphan, status))) = system::wait(WaitOptions::NOHANG) {
        // A child that ends between the look and here is reaped after all: its id is then the group's only while that has members.
        if orphan == child {
            return ended(status).map(Change::Ended);
        }
    }
    stopped(look(WaitIdOptions::STOPPED)?.stopping_signal()?)
}

/// Elsewhere a zombie cannot be told from a process of another user's, so the child is reaped at once: its id is the group's while
/// that has members. Its orphans are the system's.
#[cfg(not(target_os = "linux"))]
fn next_of(child: system::Pid) -> Option<Change> {
    use system::WaitOptions;
    let (_, status) = system::waitpid(Some(child), WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
    match status.stopping_signal() {
        Some(signal) if status.stopped() => stopped(signal),
        _ => ended(status).map(Change::Ended),
    }
}

fn ended(status: system::WaitStatus) -> Option<ChildEnd> {
    let code = status.exit_status().map(ChildEnd::Code);
    code.or_else(|| status.terminating_signal().map(ChildEnd::Signal))
}

fn stopped(signal: i32) -> Option<Change> {
    Signal::try_from(signal).ok().map(Change::Stopped)
}
