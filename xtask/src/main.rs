//! The workspace's own commands, `cargo xtask <verb>`: each is what a person runs, and what the gate runs.

mod bench;
mod cargo;
mod compose;
mod matrix;
mod providers;
mod server;
mod test;
mod tidy;
mod waivers;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The workspace's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run every test that this machine can run, tidy among them.
    Test(test::Arguments),
    /// Run the suite on every provider and server version, and print a table.
    Matrix(matrix::Arguments),
    /// Start the servers of docker-compose.yml, and say what to export.
    Up(compose::Arguments),
    /// Remove them with what they hold.
    Down,
    /// Check what a compiler does not: rules without a test, files in the wrong room, arrows that point the wrong way.
    Tidy,
    /// Measure each provider against its performance budget.
    Bench,
    /// List the providers, as their crates describe themselves.
    Providers(providers::Arguments),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().verb {
        Verb::Test(arguments) => test::run(&arguments),
        Verb::Matrix(arguments) => matrix::run(&arguments),
        Verb::Up(arguments) => compose::up(&arguments),
        Verb::Down => compose::down(),
        Verb::Tidy => tidy::run(),
        Verb::Bench => bench::run(),
        Verb::Providers(arguments) => providers::run(&arguments),
    }
}
