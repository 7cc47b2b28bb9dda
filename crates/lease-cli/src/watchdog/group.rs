//! A process group: signalling all of it at once, and telling whether anything of it still runs.

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// The process group that a child leads.
///
/// On Linux its id stays the child's for as long as the child has not been reaped, dead or not, so whoever signals the group keeps
/// the child unreaped until the group has gone. Elsewhere the id is the group's while the group has a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(Pid);

impl Group {
    /// The group that this child leads.
    pub(crate) fn led_by(child: Pid) -> Self {
        Self(child)
    }

    /// The id of the group, which is its leader's.
    pub(crate) fn id(self) -> Pid {
        self.0
    }

    /// Sends a signal to all of the group at once. A group that has gone, or that runs as somebody else, is left as it is.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Tells all of the group to end. What is stopped is continued, so that it can.
    pub(crate) fn terminate(self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Whether anything of the group is seen to run. Zombies do not: in a container without an init nobody may ever reap them.
    pub(crate) fn is_running(self) -> bool {
        match killpg(self.0, None) {
            Err(Errno::ESRCH) => false,
            // What cannot be signalled runs as somebody else, and may be hidden from `/proc` too.
            Err(_) => true,
            Ok(()) => has_running_member(self.0),
        }
    }
}

/// Looks at a group that is to end, until it has.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    quiet_looks: u32,
}

/// How often nothing of a group must have been seen before what could not be seen is killed.
const QUIET_LOOKS: u32 = 2;

impl Vigil {
    /// Looks once more, and makes sure when nothing was seen to run.
    ///
    /// A look at the processes one by one misses a member that forks and ends between two of them. SIGKILL misses none: it reaches all
    /// of the group at one instant, and who is about to fork does not any more.
    pub(crate) fn sees_it_gone(&mut self, group: Group) -> bool {
        self.quiet_looks = if group.is_running() { 0 } else { self.quiet_looks + 1 };
        if self.quiet_looks < QUIET_LOOKS {
            return false;
        }
        group.signal(Signal::SIGKILL);
        !group.is_running()
    }
}

/// Looks for a member that is more than a zombie.
#[cfg(target_os = "linux")]
fn has_running_member(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|process| std::fs::read_to_string(format!("/proc/{process}/stat")).ok())
        .filter_map(|stat| Member::parse(&stat))
        .any(|member| member.group == group.as_raw() && member.is_running())
}

/// Elsewhere a dead child's orphans are reaped by the system, and the child by the watchdog.
#[cfg(not(target_os = "linux"))]
fn has_running_member(_group: Pid) -> bool {
    true
}

/// What `/proc/<pid>/stat` says that matters here, see
/// [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Member {
    state: char,
    group: i32,
    threads: u64,
}

#[cfg(target_os = "linux")]
impl Member {
    /// The command's name stands in brackets and may hold anything, brackets and line breaks included.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let group = fields.nth(1)?.parse().ok()?;
        let threads = fields.nth(14)?.parse().ok()?;
        Some(Self { state, group, threads })
    }

    /// A process whose first thread has ended shows as a zombie while its other threads run.
    fn is_running(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x') || self.threads > 1
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Child, Command},
    };

    use super::*;

    fn leader(script: &str) -> (Child, Group) {
        let child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let group = Group::led_by(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        (child, group)
    }

    #[test]
    fn a_group_is_gone_when_only_zombies_are_left() {
        let (mut child, group) = leader("sleep 600 & sleep 600");
        assert!(group.is_running());
        group.signal(Signal::SIGKILL);
        while group.is_running() {
            std::thread::yield_now();
        }
        // The leader has not been reaped, and its id cannot be another's.
        child.wait().unwrap();
        assert!(!group.is_running());
    }

    #[test]
    fn a_stopped_group_hears_that_it_is_to_end() {
        let (mut child, group) = leader("sleep 600");
        group.signal(Signal::SIGSTOP);
        group.terminate();
        assert!(!child.wait().unwrap().success());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_strange_name_does_not_hide_a_member() {
        let rest = "1 77 77 0 -1 4194560 150 0 0 0 0 0 0 0 20 0 3 0 12345 0 0";
        let member = Member::parse(&format!("78 (a) Z 1 (b\n) S {rest}")).unwrap();
        assert_eq!(member, Member { state: 'S', group: 77, threads: 3 });
        assert!(member.is_running());
        assert!(Member::parse(&format!("78 (a) Z {rest}")).unwrap().is_running());
        let zombie = format!("78 (a) Z {}", rest.replace("20 0 3", "20 0 1"));
        assert!(!Member::parse(&zombie).unwrap().is_running());
    }
}
