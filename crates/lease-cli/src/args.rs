//! The command line as it is typed; [`settings`](crate::settings) checks what it says.

use std::{ffi::OsString, time::Duration};

use clap::{Args, Parser, Subcommand, error::ErrorKind};

use crate::exit::{Failure, USAGE};

/// Runs a command on one instance at a time
#[derive(Debug, Parser)]
#[command(name = "lease", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a command while holding a lease, and end it before anybody else can have the lease
    Run(RunArguments),
    /// Create or upgrade the table of leases
    Migrate(MigrateArguments),
    /// The process that ends the command when the lease does; `run` starts it
    #[command(hide = true)]
    Watchdog {
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// The process that becomes the command; the watchdog starts it
    #[command(hide = true)]
    Child {
        #[arg(long)]
        watchdog: i32,
        #[arg(long)]
        foreground: bool,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args, Debug)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArguments {
    /// The name of the lease: 1 to 255 UTF-16 units, no control characters, no white space at either end
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// How long the lease lasts unless it is renewed, which it is: if this machine dies, another waits this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// How long the command has between SIGTERM and SIGKILL [default: a sixth of the duration]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) grace: Option<Duration>,
    /// Wait until the lease is free; this is the default
    #[arg(long, overrides_with = "no_wait")]
    pub(crate) wait: bool,
    /// Exit with code 75 if the lease is held
    #[arg(long, overrides_with = "wait")]
    pub(crate) no_wait: bool,
    /// The part of the owner's id that people read [default: host and process id]
    #[arg(long, value_name = "LABEL", allow_hyphen_values = true)]
    pub(crate) owner: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_HELP: &str = "\
The command sees LEASE_NAME, LEASE_OWNER and LEASE_TOKEN in its environment, and runs in a process group of its own.
When the lease is about to be lost, all of that group gets SIGTERM, and after the grace SIGKILL.

Exit codes:
  the command's own; 128 + n when signal n ended it
  126  the command cannot be run
  127  there is no such command
  75   the lease is held, and --no-wait was given
  76   the lease was lost while the command ran
  69   the store cannot be reached at the start
  70   something inside failed, such as the watchdog
  64   bad usage";

#[derive(Args, Debug)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print the SQL instead of running it
    #[arg(long)]
    pub(crate) print: bool,
}

const STORE_HELP: &str = "Where the leases are, such as sqlite:PATH or postgres://USER@HOST/DATABASE \
                          [default: a SQLite file in the user's state directory]";

#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    #[arg(long = "store", value_name = "URL", env = "LEASE_STORE", hide_env_values = true, help = STORE_HELP)]
    pub(crate) url: Option<String>,
}

/// Reads the command line.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, Unparsed> {
    Arguments::try_parse_from(arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Unparsed::Show(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Unparsed::Refused(Failure::new(USAGE, "a command is missing, such as `run`; see `lease --help`"))
        }
        _ => Unparsed::Refused(Failure::new(USAGE, one_line(&error.render().to_string()))),
    })
}

/// Why there are no arguments to act on.
#[derive(Debug)]
pub(crate) enum Unparsed {
    /// Help or the version was asked for.
    Show(clap::Error),
    /// The usage is bad.
    Refused(Failure),
}

/// The parser's message without its usage lines.
fn one_line(rendered: &str) -> String {
    let paragraphs = rendered.split("\n\n").take_while(|paragraph| !paragraph.starts_with("Usage"));
    let words: Vec<&str> = paragraphs.flat_map(str::split_whitespace).collect();
    let text = words.join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).replace(" For more information, try '--help'.", "")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse_line(line: &str) -> Result<Arguments, Unparsed> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_last_of_wait_and_no_wait_counts() {
        for (line, waits) in [
            ("lease run --name a -- true", true),
            ("lease run --name a --no-wait -- true", false),
            ("lease run --name a --no-wait --wait -- true", true),
            ("lease run --name a --wait --no-wait -- true", false),
        ] {
            let Ok(Arguments { action: Action::Run(run) }) = parse_line(line) else { panic!("{line}") };
            assert_eq!(!run.no_wait, waits, "{line}");
        }
    }

    #[test]
    fn a_mistake_is_told_on_one_line() {
        let refusal = |line| match parse_line(line) {
            Err(Unparsed::Refused(failure)) => failure.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refusal("lease run --no-wait -- true"),
            "the following required arguments were not provided: --name <NAME>"
        );
        let message = refusal("lease run --name a --duration soon -- true");
        assert!(message.starts_with("invalid value 'soon' for '--duration <DURATION>'"), "{message}");
        assert!(refusal("lease rum").contains("run"), "the parser's tips stay");
        assert!(refusal("lease").contains("--help"));
    }
}
