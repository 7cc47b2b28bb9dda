//! `cargo xtask bench`: each provider's performance budget, measured on this machine.

use std::{
    env,
    process::{Command, ExitCode},
};

use anyhow::Context;
use cargo_metadata::{Package, TargetKind};

use crate::{providers, workspace::Workspace};

/// The bench target in which a provider measures its budget.
const BUDGET: &str = "budget";

/// Runs the budget of every provider that has one, and fails when one is over it.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let mut is_kept = true;
    for package in workspace.packages() {
        if providers::describe(package)?.is_some() && has_budget(package) {
            let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["bench", "--quiet", "--package", package.name.as_str(), "--bench", BUDGET])
                .current_dir(workspace.root())
                .status()
                .context("cannot start cargo")?;
            is_kept &= status.success();
        }
    }
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_budget(package: &Package) -> bool {
    package.targets.iter().any(|target| target.kind.contains(&TargetKind::Bench) && target.name == BUDGET)
}
