//! Runs the command under a held lease: tells the watchdog each deadline, passes signals on, and learns how the command ended.

use std::{ffi::OsString, io, time::Duration};

use lease_core::{
    HeldLease, StopReason,
    clock::{LocalInstant, sleep_until},
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, getpgrp},
};

use crate::{
    protocol::{BootTime, ChildEnd, Order, Report},
    signals::Signals,
    terminal,
    watchdog::{Due, Group, StopChain, Vigil, Watchdog},
};

/// The clock is read again at least this often.
const CLOCK_STEP: Duration = Duration::from_millis(250);

/// How much later than at the deadline the watchdog may say that all is over. It is less than the least margin.
const ALLOWANCE: Duration = Duration::from_millis(15);

/// How often a group is looked at whose watchdog is dead.
const LOOK: Duration = Duration::from_millis(20);

/// How long a stop signal to this process may take to be delivered.
const DELIVERY: Duration = Duration::from_millis(100);

/// What became of the command. Nothing of its process group runs any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ended by itself, or because it was asked to.
    Ended(ChildEnd),
    /// It was ended, because its lease was lost.
    Lapsed,
    /// It was never started.
    NotStarted(String),
    /// It was ended, because its watchdog had died.
    Unwatched,
}

/// Runs the command until nothing of its process group is left.
///
/// The lease is renewed all the while; release it afterwards.
///
/// # Errors
///
/// When no watchdog can be started. The command was not started either.
pub(crate) async fn supervise(
    lease: &HeldLease,
    command: &[OsString],
    grace: Duration,
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let environment = [
        ("LEASE_NAME", lease.name().to_string()),
        ("LEASE_OWNER", lease.owner().to_string()),
        ("LEASE_TOKEN", lease.token().map(|token| token.to_string()).unwrap_or_default()),
    ];
    let watchdog = Watchdog::start(command, &environment)?;
    let deadline = deadline_of(lease);
    let mut supervision = Supervision {
        lease,
        watchdog,
        grace,
        group: None,
        end: None,
        told: deadline,
        told_as: deadline.into(),
        heard: deadline,
        asked_to_stop: false,
    };
    Ok(supervision.until_gone(signals).await)
}

/// Only a disabled executor's lease has no deadline; were there one, its command would never start.
fn deadline_of(lease: &HeldLease) -> LocalInstant {
    lease.deadline().unwrap_or_else(LocalInstant::now)
}

#[derive(Debug)]
struct Supervision<'a> {
    lease: &'a HeldLease,
    watchdog: Watchdog,
    grace: Duration,
    /// The command's process group, once it runs.
    group: Option<Group>,
    /// How the command itself ended.
    end: Option<ChildEnd>,
    /// The deadline that the watchdog was told last, also as it was told, and the one that it confirmed last.
    told: LocalInstant,
    told_as: BootTime,
    heard: LocalInstant,
    asked_to_stop: bool,
}

impl Supervision<'_> {
    async fn until_gone(&mut self, signals: &mut Signals) -> Outcome {
        let foreground_of = terminal::lender_unasked();
        let mut deadlines = self.lease.deadlines();
        let cancelled = self.lease.cancelled();
        let (mut stopped, mut doubted) = (false, false);
        self.watchdog.tell(&Order::Start { deadline: self.told_as, grace: self.grace, foreground_of });
        loop {
            let limit = self.limit();
            tokio::select! {
                // What the watchdog has already done counts, however late this process comes to hear of it.
                biased;
                report = self.watchdog.report() => match report {
                    Some(Report::Gone { lapsed }) => {
                        self.watchdog.bury();
                        return self.outcome(lapsed);
                    }
                    Some(Report::NotStarted(error)) => return Outcome::NotStarted(error),
                    Some(report) => self.note(report).await,
                    None => return self.end_unwatched().await,
                },
                signal = signals.next() => self.pass_on(signal),
                () = cancelled.cancelled(), if !stopped => {
                    stopped = true;
                    self.lapse();
                }
                Ok(()) = deadlines.changed() => {
                    let deadline = deadline_of(self.lease);
                    (self.told, self.told_as) = (deadline, deadline.into());
                    self.watchdog.tell(&Order::Deadline(self.told_as));
                }
                () = sleep_until(limit, CLOCK_STEP), if !doubted => {
                    doubted = true;
                    self.watchdog.kill();
                }
            }
        }
    }

    /// When the watchdog is not to be relied on any more. While it has not confirmed the last deadline, it ends the group at the stop
    /// point of the one before, if it works at all; else it is done by the deadline.
    fn limit(&self) -> LocalInstant {
        if self.told == self.heard {
            self.heard + ALLOWANCE
        } else {
            self.heard.checked_sub(self.grace).unwrap_or(self.heard) + ALLOWANCE
        }
    }

    async fn note(&mut self, report: Report) {
        match report {
            Report::Started(id) => {
                self.group = Some(Group::led_by(Pid::from_raw(id)));
                self.watchdog.tell(&Order::Go);
            }
            Report::Heard(deadline) if deadline == self.told_as => self.heard = self.told,
            Report::Stopped(number) => self.suspend(number).await,
            Report::Exited(end) => self.end = Some(end),
            // An older deadline, which a newer one follows; and two ends, which the caller sees to.
            Report::Heard(_) | Report::Gone { .. } | Report::NotStarted(_) => {}
        }
    }

    /// The command has to end. After a loss another may run already, so not even the watchdog is waited for.
    fn lapse(&mut self) {
        if !self.is_lost() {
            self.watchdog.tell(&Order::Lapse);
            return;
        }
        self.watchdog.tell(&Order::Kill);
        if let Some(group) = self.group {
            group.signal(Signal::SIGKILL);
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.lease.stop_reason(), Some(StopReason::Lost(_)))
    }

    fn pass_on(&mut self, signal: Signal) {
        let order = match signal {
            Signal::SIGTERM if !self.asked_to_stop => {
                self.asked_to_stop = true;
                Order::Stop
            }
            Signal::SIGCONT if terminal::is_interactive() => {
                Order::Resume { foreground_of: terminal::lender_unasked() }
            }
            other => Order::Signal(other as i32),
        };
        self.watchdog.tell(&order);
    }

    /// The terminal has stopped the command: gives it the foreground if that is what it wants and this group has it, and otherwise
    /// stops this group as well, so that the shell can tell. The lease is not renewed then, and lapses in its time.
    async fn suspend(&mut self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        if signal != Signal::SIGTSTP
            && let Some(lender) = terminal::lender()
        {
            self.watchdog.tell(&Order::Resume { foreground_of: Some(lender) });
            return;
        }
        let _ = killpg(getpgrp(), signal);
        tokio::time::sleep(DELIVERY).await;
        // Here this process has been continued, or could not be stopped for want of anybody who could continue it.
        if signal == Signal::SIGTSTP {
            self.watchdog.tell(&Order::Resume { foreground_of: terminal::lender_unasked() });
        }
    }

    /// Ends the group without a watchdog. The lease is renewed meanwhile, if it can be.
    async fn end_unwatched(&mut self) -> Outcome {
        self.watchdog.bury();
        let mut chain = StopChain::without_watchdog(deadline_of(self.lease), self.grace, LocalInstant::now());
        let mut vigil = Vigil::default();
        while let Some(group) = self.group {
            if vigil.sees_it_gone(group) {
                break;
            }
            let now = LocalInstant::now();
            chain.set_deadline(deadline_of(self.lease));
            if self.is_lost() {
                chain.kill(now);
            }
            match chain.due(now) {
                Due::Terminate => group.terminate(),
                Due::Kill => group.signal(Signal::SIGKILL),
                Due::Nothing(until) => sleep_until(until.min(now + LOOK), CLOCK_STEP).await,
            }
        }
        if let Some(group) = self.group
            && terminal::foreground(io::stdin()) == Some(group.id())
        {
            terminal::give_foreground(io::stdin(), getpgrp());
        }
        self.outcome(chain.has_lapsed() || self.is_lost())
    }

    fn outcome(&self, lapsed: bool) -> Outcome {
        match self.end {
            _ if lapsed => Outcome::Lapsed,
            Some(end) => Outcome::Ended(end),
            None => Outcome::Unwatched,
        }
    }
}
