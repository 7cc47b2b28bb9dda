//! `lease run`: acquire, run the command, release.

use std::{process::ExitCode, time::Duration};

use lease_core::LeaseGuard;

use crate::{
    exit::{Failure, INTERNAL, LOST, NOT_EXECUTABLE, chain, say, signalled},
    hold::Contender,
    linux,
    protocol::ChildEnd,
    settings::RunSettings,
    signals::Signals,
    supervise::{Outcome, supervise},
};

/// How long the executor may take to see that a stop point has passed: it reads the clock at least every 250 ms.
const HINDSIGHT: Duration = Duration::from_millis(500);

/// Runs the command under its lease.
pub(crate) async fn run(settings: &RunSettings) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::caused(INTERNAL, "cannot hear signals", &error))?;
    // When the watchdog dies, the command becomes this process's child, and its id stays the command's until this process ends.
    linux::adopt_orphans();
    let store = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signalled(signal as i32).into()),
        opened = settings.store.open() => opened?,
    };
    let contender = Contender::new(store, settings)?;
    let acquired = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(signal),
        acquired = contender.acquire(settings.wait) => Ok(acquired),
    };
    let answer = match acquired {
        Ok(Ok(guard)) => run_under(guard, settings, &mut signals).await,
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(signalled(signal as i32).into()),
    };
    contender.go().await;
    answer
}

/// Runs the command, and releases the lease when nothing of its process group runs any more.
async fn run_under(guard: LeaseGuard, settings: &RunSettings, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let outcome = supervise(&guard, &settings.command, settings.grace, signals).await;
    let name = guard.name().clone();
    if matches!(outcome, Ok(Outcome::Lapsed)) {
        // The watchdog may see the stop point a moment before the executor does, which then knows the reason.
        let _ = tokio::time::timeout(HINDSIGHT, guard.cancelled().cancelled()).await;
    }
    let reason = guard.stop_reason();
    // Also after a loss: a lease that ran out but that nobody took is freed for the next.
    let released = guard.release().await;
    match outcome {
        Ok(Outcome::Ended(end)) => {
            if let Err(error) = released {
                say(&format!("{name:?} was not released, and expires by itself: {}", chain(&error)));
            }
            Ok(exit_code(end))
        }
        Ok(Outcome::Lapsed) => {
            let reason = reason.map_or_else(|| "its deadline passed".into(), |reason| reason.to_string());
            Err(Failure::new(LOST, format!("lost {name:?}, and ended the command: {reason}")))
        }
        Ok(Outcome::NotStarted(error)) => {
            Err(Failure::new(NOT_EXECUTABLE, format!("cannot start the command: {error}")))
        }
        Ok(Outcome::Unwatched) => Err(Failure::new(INTERNAL, "the watchdog failed, and the command was ended")),
        Err(error) => Err(Failure::caused(INTERNAL, "cannot start the watchdog", &error)),
    }
}

fn exit_code(end: ChildEnd) -> ExitCode {
    match end {
        // The system keeps eight bits of a code.
        ChildEnd::Code(code) => u8::try_from(code & 0xff).unwrap_or(INTERNAL).into(),
        ChildEnd::Signal(signal) => signalled(signal).into(),
    }
}
