//! Calling cargo on the workspace.

use std::{env, process::Command};

use crate::workspace::Workspace;

/// The cargo that runs this program, at the workspace's root.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root());
    command
}
