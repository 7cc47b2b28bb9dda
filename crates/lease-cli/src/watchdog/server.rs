//! The watchdog's own process: it starts the child, keeps its deadline, and ends its group.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{self, Command, ExitCode, Stdio},
    time::Duration,
};

use lease_core::clock::{LocalInstant, sleep_until};
use nix::{sys::signal::Signal, unistd::Pid};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::{
    exit::{self, say},
    linux,
    protocol::{Channel, Order, Report, receive_descriptor},
    signals, terminal,
    watchdog::{
        chain::{Due, StopChain},
        group::{Group, Vigil},
        program,
        reaper::{Change, next_change},
        voice::Voice,
    },
};

/// The clock is read again at least this often, for no timer is trusted over it.
const CLOCK_STEP: Duration = Duration::from_millis(250);

/// How often a group without its leader is looked at: often at first, for most are gone at once.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A group that survives SIGKILL this often is reported: it runs as somebody else, or hangs inside the system.
const KILLS_UNTIL_REPORT: u32 = 50;

/// Watches over `command` until nothing of its process group runs any more. Standard input is the socket to `lease`.
pub(crate) fn watch(command: &[OsString]) -> ExitCode {
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("watchdog: {error}"));
            exit::INTERNAL.into()
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(command: &[OsString]) -> io::Result<()> {
    signals::let_pass()?;
    linux::adopt_orphans();
    linux::go_by_the_name_watchdog();
    let input = receive_descriptor(io::stdin())?;
    let mut lease = Channel::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))?;
    // Before the start there is nothing to end: a `lease` that dies or talks nonsense leaves no child.
    let Some(Order::Start { deadline, grace, foreground_of }) = lease.receive().await else { return Ok(()) };
    let mut chain = StopChain::new(deadline.into(), grace);
    if chain.stop_point().has_passed() {
        chain.kill(LocalInstant::now());
        return lease.send(&Report::Gone { lapsed: chain.has_lapsed() });
    }
    let terminal = input.is_terminal().then(|| input.try_clone()).transpose()?;
    // A child that has ended is noticed also where `lease` was started with SIGCHLD ignored.
    let children = signal(SignalKind::child())?;
    let group = match start(command, input, foreground_of.is_some()) {
        Ok(group) => group,
        Err(error) => return lease.send(&Report::NotStarted(error.to_string())),
    };
    let lender = foreground_of.map(Pid::from_raw);
    let voice = Voice::default();
    let mut watch =
        Watch { lease, orphaned: false, group, chain, terminal, lender, child: Child::Starting, kills: 0, voice };
    watch.report(&Report::Started(group.id().as_raw()));
    watch.until_gone(children).await;
    watch.voice.finish().await;
    Ok(())
}

fn start(command: &[OsString], input: OwnedFd, foreground: bool) -> io::Result<Group> {
    let mut child = Command::new(program()?);
    child.arg0("lease").args(["child", "--watchdog", &process::id().to_string()]);
    if foreground {
        child.arg("--foreground");
    }
    let child = child.arg("--").args(command).stdin(Stdio::from(input)).process_group(0).spawn()?;
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Group::led_by(Pid::from_raw(id)))
}

/// How far the child, the group's leader, has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    Starting,
    /// It has stopped itself, and waits to become the command.
    Waits,
    /// `lease` knows the group and lets the child go on, which has not stopped itself yet.
    MayGo,
    Goes,
    Exited,
}

/// A child's group under watch.
#[derive(Debug)]
struct Watch {
    lease: Channel,
    /// `lease` is dead, or does not speak any more.
    orphaned: bool,
    group: Group,
    chain: StopChain,
    /// Standard input, when it is a terminal.
    terminal: Option<OwnedFd>,
    /// The process group that lends its foreground.
    lender: Option<Pid>,
    child: Child,
    /// How often the group was killed.
    kills: u32,
    voice: Voice,
}

impl Watch {
    async fn until_gone(&mut self, mut children: unix::Signal) {
        let mut look = FIRST_LOOK;
        let mut vigil = Vigil::default();
        loop {
            self.look_at_child();
            let now = LocalInstant::now();
            let mut wake = match self.chain.due(now) {
                Due::Terminate => {
                    self.group.terminate();
                    continue;
                }
                Due::Kill => {
                    self.kill();
                    continue;
                }
                Due::Nothing(until) => until,
            };
            if self.has_exited() {
                // What is left hears that it is to end, whether or not it can be seen.
                if !self.chain.is_stopping() {
                    self.chain.stop(now);
                    continue;
                }
                if vigil.sees_it_gone(self.group) {
                    break;
                }
                wake = wake.min(now + look);
                look = (look * 2).min(LAST_LOOK);
            }
            tokio::select! {
                biased;
                order = self.lease.receive(), if !self.orphaned => self.obey(order),
                _ = children.recv() => {}
                () = sleep_until(wake, CLOCK_STEP) => {}
            }
        }
        self.take_foreground_back();
        self.report(&Report::Gone { lapsed: self.chain.has_lapsed() });
    }

    fn kill(&mut self) {
        self.group.signal(Signal::SIGKILL);
        self.kills += 1;
        if self.kills == KILLS_UNTIL_REPORT {
            self.voice.say(format!("process group {} still runs although it was killed", self.group.id()));
        }
    }

    fn obey(&mut self, order: Option<Order>) {
        let now = LocalInstant::now();
        match order {
            Some(Order::Go) => self.advance(Child::Waits, Child::MayGo),
            Some(Order::Deadline(deadline)) => {
                self.chain.set_deadline(deadline.into());
                self.report(&Report::Heard(deadline));
            }
            Some(Order::Stop) => self.chain.stop(now),
            Some(Order::Lapse) => self.chain.lapse(now),
            Some(Order::Kill) => self.chain.kill(now),
            Some(Order::Signal(number)) => {
                if let Ok(signal) = Signal::try_from(number) {
                    self.group.signal(signal);
                }
            }
            Some(Order::Resume { foreground_of }) => {
                self.lender = foreground_of.map(Pid::from_raw);
                if let (Some(terminal), Some(_)) = (&self.terminal, self.lender) {
                    terminal::give_foreground(terminal, self.group.id());
                }
                self.group.signal(Signal::SIGCONT);
            }
            Some(Order::Start { .. }) | None => {
                self.orphaned = true;
                self.chain.stop(now);
                if !self.has_exited() {
                    self.voice.say("the process that holds the lease is gone: ending its command".into());
                }
            }
        }
    }

    /// Lets the child become the command when the other of the two conditions was met `before`, and else remembers this one.
    fn advance(&mut self, before: Child, otherwise: Child) {
        if self.child == before {
            self.child = Child::Goes;
            self.group.signal(Signal::SIGCONT);
        } else if self.child == Child::Starting {
            self.child = otherwise;
        }
    }

    fn has_exited(&self) -> bool {
        self.child == Child::Exited
    }

    fn look_at_child(&mut self) {
        while !self.has_exited()
            && let Some(change) = next_change(self.group.id())
        {
            match change {
                Change::Ended(end) => {
                    self.child = Child::Exited;
                    self.report(&Report::Exited(end));
                }
                Change::Stopped(Signal::SIGSTOP) if matches!(self.child, Child::Starting | Child::MayGo) => {
                    self.advance(Child::MayGo, Child::Waits);
                }
                Change::Stopped(signal) => self.stopped(signal),
            }
        }
    }

    /// The terminal stops a child that the user suspends, or that reads in the background; then `lease` stops itself as well, so that
    /// the shell can tell, and needs the foreground for that. A child stopped by anybody else is simply a slow child.
    fn stopped(&mut self, signal: Signal) {
        let by_terminal = matches!(signal, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU);
        if by_terminal && self.terminal.is_some() && !self.chain.is_stopping() {
            self.take_foreground_back();
            self.report(&Report::Stopped(signal as i32));
        }
    }

    fn take_foreground_back(&mut self) {
        if let (Some(terminal), Some(lender)) = (&self.terminal, self.lender.take())
            && terminal::foreground(terminal) == Some(self.group.id())
        {
            terminal::give_foreground(terminal, lender);
        }
    }

    /// A `lease` that is dead hears nothing, and one that is frozen hears it later.
    fn report(&self, report: &Report) {
        let _ = self.lease.send(report);
    }
}
