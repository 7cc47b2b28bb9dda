//! The last step before the user's command: the watchdog's child becomes the command.
//!
//! It exists for what only the child itself can do without unsafe code: it takes the terminal's foreground before the command could
//! miss it, and on Linux it asks the kernel to kill it when the watchdog dies, so that even `pkill -9` of every `lease` process
//! leaves no command running. And it stops itself until `lease` has been told of its process group: a watchdog that dies before it
//! could tell leaves nothing that nobody knows of.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use nix::{
    sys::signal::{Signal, raise},
    unistd::{Pid, getpgrp, getppid},
};

use crate::{
    exit::{self, say},
    linux, terminal,
};

/// Becomes the command, or exits as a shell would: 127 when there is none, 126 when it cannot be run.
pub(crate) fn become_command(watchdog: i32, foreground: bool, command: &[OsString]) -> ExitCode {
    if let Err(error) = linux::die_with_parent() {
        say(&format!("cannot tie the command to its watchdog: {error}"));
        return exit::NOT_EXECUTABLE.into();
    }
    // The watchdog lets this process go on when `lease` knows its group, so that either can end all of it. When the watchdog dies before
    // the kernel knew, there is nobody left to answer to, and nobody who would let it go on.
    let is_watched = || getppid() == Pid::from_raw(watchdog);
    if is_watched()
        && let Err(error) = raise(Signal::SIGSTOP)
    {
        say(&format!("cannot stop until `lease` knows of the command: {error}"));
        return exit::NOT_EXECUTABLE.into();
    }
    if !is_watched() {
        say("the command's watchdog is gone: not starting it");
        return exit::NOT_EXECUTABLE.into();
    }
    if foreground {
        terminal::give_foreground(io::stdin(), getpgrp());
    }
    let [program, arguments @ ..] = command else { return exit::NOT_FOUND.into() };
    let error = Command::new(program).args(arguments).exec();
    say(&format!("cannot run {}: {error}", program.to_string_lossy()));
    match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND.into(),
        _ => exit::NOT_EXECUTABLE.into(),
    }
}
