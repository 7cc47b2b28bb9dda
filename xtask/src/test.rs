//! `cargo xtask test`: every test of the workspace, with nothing but the toolchain and a C compiler.

use std::{
    env,
    process::{Command, ExitCode},
};

use anyhow::Context;

use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments for the test binaries, such as a filter.
    #[arg(last = true)]
    binaries: Vec<String>,
}

/// Runs `cargo test` over the workspace: units, suites, documentation tests, and the examples' build.
///
/// Tidy is one of the tests. Nothing is captured or printed after cargo, so that its closing lines are the last ones; a failing
/// crate does not keep the others from running.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--workspace", "--no-fail-fast", "--"])
        .args(&arguments.binaries)
        .current_dir(workspace.root())
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
