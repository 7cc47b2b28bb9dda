//! The terminal's foreground: lent to the child's process group, and taken back.

use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd,
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// This process's group, when `lease` should lend the foreground to its child unasked: it has the foreground, and both standard input
/// and standard output are the terminal.
///
/// In a pipeline such as `lease run .. | less` the other members of the group need the terminal, so there a child gets it only
/// when it asks by reading, see [`lender`].
pub(crate) fn lender_unasked() -> Option<i32> {
    if io::stdout().is_terminal() { lender() } else { None }
}

/// This process's group, when standard input is a terminal whose foreground it has.
pub(crate) fn lender() -> Option<i32> {
    let own = getpgrp();
    (foreground(io::stdin()) == Some(own)).then_some(own.as_raw())
}

/// Whether standard input is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// The process group that has the foreground of this terminal; none when it is no terminal of this session's.
pub(crate) fn foreground(terminal: impl AsFd) -> Option<Pid> {
    tcgetpgrp(terminal).ok()
}

/// Gives the foreground to a process group. Failing that, nothing changes: the group or the terminal has gone.
///
/// The caller may be in the background, where the attempt would stop it unless SIGTTOU is blocked.
pub(crate) fn give_foreground(terminal: impl AsFd, group: Pid) {
    let ttou = SigSet::from(Signal::SIGTTOU);
    let Ok(before) = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
    let _ = tcsetpgrp(terminal, group);
    let _ = before.thread_set_mask();
}
