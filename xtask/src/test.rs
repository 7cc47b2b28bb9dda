//! `cargo xtask test`: every test of the workspace, with nothing but the toolchain, a C compiler, and the servers that are to be had.

use std::process::ExitCode;

use crate::{
    cargo::cargo,
    providers::{Description, described},
    server::Server,
    workspace::Workspace,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments for the test binaries, such as a filter.
    #[arg(last = true)]
    binaries: Vec<String>,
}

/// Runs `cargo test` over the workspace: units, suites, documentation tests, and the examples' build.
///
/// Each database that needs a server gets one for the whole run; where there is none, its tests are shown as ignored. Tidy is one of the
/// tests. Nothing is captured or printed after cargo, so that its closing lines are the last ones; a failing crate does not keep the
/// others from running.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut tests = cargo(&workspace);
    tests.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    let mut flags = Vec::new();
    let mut servers = Vec::new();
    for description in described(&workspace)? {
        let Description { name, url_env: Some(url_env), .. } = description else { continue };
        match Server::find(&workspace, &name, None)? {
            Ok(server) => {
                tests.env(url_env, &server.url);
                servers.push(server);
            }
            Err(reason) => {
                say(&format!("the {name} tests are ignored: {reason}"));
                flags.push(format!("--cfg=lease_no_{name}"));
            }
        }
    }
    if !flags.is_empty() {
        tests.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    }
    let status = tests.arg("--").args(&arguments.binaries).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stderr, reason = "what is left out is said before the tests begin")]
fn say(line: &str) {
    eprintln!("xtask: {line}");
}
