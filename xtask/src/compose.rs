//! `cargo xtask up` and `down`: the servers of `docker-compose.yml`, for who wants to keep them between runs.

use std::{
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;

use crate::{
    providers::{Description, described},
    workspace::Workspace,
};

/// How often, and how many times, a server is asked whether it is healthy.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 360;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Start only these databases, such as `postgres`.
    databases: Vec<String>,
}

/// Starts the servers, and returns when they are healthy.
#[expect(clippy::print_stdout, reason = "the lines are for the shell")]
pub(crate) fn up(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let served: Vec<_> =
        described(&workspace)?.into_iter().filter(|description| description.compose_url.is_some()).collect();
    let names: Vec<_> = served.iter().map(|description| &description.name).collect();
    for name in &arguments.databases {
        anyhow::ensure!(names.contains(&name), "there is no server for {name:?}: there is one for each of {names:?}");
    }
    // `--wait` is newer than the compose that some systems have.
    run(compose(&workspace).args(["up", "--detach"]).args(&arguments.databases))?;
    let containers = text(compose(&workspace).args(["ps", "-q"]))?;
    anyhow::ensure!(!containers.trim().is_empty(), "no server was started");
    for container in containers.lines() {
        await_health(container)?;
    }
    for Description { name, url_env, compose_url, .. } in served {
        let is_asked_for = arguments.databases.is_empty() || arguments.databases.contains(&name);
        if let (true, Some(variable), Some(url)) = (is_asked_for, url_env, compose_url) {
            println!("export {variable}='{url}'");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the servers with what they hold.
pub(crate) fn down() -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    run(compose(&workspace).args(["down", "--volumes"]))?;
    Ok(ExitCode::SUCCESS)
}

/// Compose is a plugin of `docker`, or a program of its own.
fn compose(workspace: &Workspace) -> Command {
    let plugin =
        Command::new("docker").args(["compose", "version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut command = if plugin.is_ok_and(|status| status.success()) {
        let mut docker = Command::new("docker");
        docker.arg("compose");
        docker
    } else {
        Command::new("docker-compose")
    };
    command.current_dir(workspace.root());
    command
}

fn await_health(container: &str) -> anyhow::Result<()> {
    for _ in 0..LOOKS {
        let inspect = ["inspect", "--format", "{{.Name}} {{.State.Health.Status}}", container];
        let state = text(Command::new("docker").args(inspect))?;
        match state.trim().split_once(' ') {
            Some((_, "healthy")) => return Ok(()),
            Some((name, "unhealthy")) => anyhow::bail!("{name} is not healthy: see `docker logs {name}`"),
            _ => thread::sleep(LOOK),
        }
    }
    anyhow::bail!("container {container} was not healthy in time")
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().context("neither `docker compose` nor `docker-compose` can be started")?;
    anyhow::ensure!(status.success(), "compose failed");
    Ok(())
}

fn text(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().context("docker cannot be started")?;
    anyhow::ensure!(output.status.success(), "docker failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
