//! The `lease` program: runs a command on one instance at a time.
//!
//! `lease run` starts itself twice more: as the [`watchdog`], and as the [`child`] that becomes the command.

mod args;
mod child;
mod exit;
mod hold;
mod linux;
mod migrate;
mod protocol;
mod run;
mod runtime;
mod settings;
mod signals;
mod store;
mod supervise;
mod terminal;
mod watchdog;

use std::{env, process::ExitCode};

use args::{Action, Unparsed};
use exit::Failure;
use settings::RunSettings;

fn main() -> ExitCode {
    let arguments = match args::parse(env::args_os()) {
        Ok(arguments) => arguments,
        Err(Unparsed::Show(text)) => return show(&text),
        Err(Unparsed::Refused(failure)) => return failure.report(),
    };
    act(arguments.action).unwrap_or_else(|failure| failure.report())
}

fn act(action: Action) -> Result<ExitCode, Failure> {
    match action {
        Action::Run(arguments) => runtime::block_on(run::run(&RunSettings::try_from(arguments)?)),
        Action::Migrate(arguments) => runtime::block_on(migrate::migrate(&arguments)),
        Action::Watchdog { command } => Ok(watchdog::watch(&command)),
        Action::Child { watchdog, foreground, command } => Ok(child::become_command(watchdog, foreground, &command)),
    }
}

/// Shows help or the version, as was asked for.
fn show(text: &clap::Error) -> ExitCode {
    match text.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => exit::INTERNAL.into(),
    }
}
