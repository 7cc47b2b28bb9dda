//! The watchdog as `lease` sees it.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
};

use crate::{
    protocol::{Channel, Order, Report, send_descriptor},
    watchdog::program,
};

/// A running watchdog.
#[derive(Debug)]
pub(crate) struct Watchdog {
    process: Child,
    channel: Channel,
}

impl Watchdog {
    /// Starts a watchdog for `command`, which sees these environment variables. The command starts when it is [told](Self::tell) so.
    pub(crate) fn start(command: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let (own, theirs) = UnixStream::pair()?;
        let process = Command::new(program()?)
            .arg0("lease-watchdog")
            .args(["watchdog", "--"])
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        send_descriptor(&own, io::stdin().as_fd())?;
        Ok(Self { process, channel: Channel::new(own)? })
    }

    /// Tells the watchdog something. A watchdog that cannot be told is killed, and [`report`](Self::report) says so.
    pub(crate) fn tell(&mut self, order: &Order) {
        if self.channel.send(order).is_err() {
            self.kill();
        }
    }

    /// What the watchdog says next; none when it is dead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        self.channel.receive().await
    }

    /// Kills a watchdog that cannot be relied on. What it said before can still be heard.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Makes sure that the watchdog is no more.
    pub(crate) fn bury(&mut self) {
        self.kill();
        let _ = self.process.wait();
    }
}
