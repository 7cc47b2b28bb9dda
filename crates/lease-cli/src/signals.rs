//! The signals that `lease` passes on, and those that its watchdog lets pass.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What an operator, a terminal or a supervisor says to a command. The terminal's stop signals are not among them: they stop `lease`
/// itself, as they stop any program.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// What must not stop the watchdog.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// The signals that `lease` passes on to its command.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Begins to listen. Needs a tokio runtime.
    ///
    /// What was ignored when `lease` was started, as by `nohup` or for the background commands of a script, stays ignored, by `lease`
    /// and by its command.
    pub(crate) fn listen() -> io::Result<Self> {
        listened_to(&PASSED_ON).map(Self)
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next signal that asks a program to end.
    ///
    /// # Cancel safety
    ///
    /// As for [`next`](Self::next); the signals between are let pass.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT) {
                return signal;
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.0 {
            if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Makes this process survive them all. They are caught rather than ignored, for a command would inherit the latter.
pub(crate) fn let_pass() -> io::Result<()> {
    listened_to(&PASSED_ON)?;
    listened_to(&STOPS)?;
    Ok(())
}

fn listened_to(signals: &[Signal]) -> io::Result<Vec<(Signal, unix::Signal)>> {
    let ignored = ignored();
    signals
        .iter()
        .filter(|signal| ignored & (1 << (**signal as u32 - 1)) == 0)
        .map(|signal| Ok((*signal, unix::signal(SignalKind::from_raw(*signal as i32))?)))
        .collect()
}

/// The set of ignored signals, as a bit mask: bit 0 is signal 1.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().and_then(|status| ignored_in(&status)).unwrap_or(0)
}

/// Elsewhere the set cannot be read without unsafe code, and nothing is taken for ignored.
#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}

#[cfg(target_os = "linux")]
fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_are_read_from_the_kernel() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001006\nSigCgt:\t0000000000000440\n";
        let ignored = ignored_in(status).unwrap();
        assert_eq!(ignored & (1 << (Signal::SIGINT as u32 - 1)), 2);
        assert_eq!(ignored & (1 << (Signal::SIGQUIT as u32 - 1)), 4);
        assert_eq!(ignored & (1 << (Signal::SIGTERM as u32 - 1)), 0);
    }
}
