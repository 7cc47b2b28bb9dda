//! Servers in containers.

use std::{
    io,
    process::{Child, Command, Stdio},
};

use testcontainers_modules::{
    postgres::Postgres,
    testcontainers::{ContainerAsync, ImageExt, runners::AsyncRunner},
};
use tokio::runtime::Runtime;

use super::NoServer;

/// A running container. It is removed with this, or with the process, whichever comes first.
#[derive(Debug)]
pub(super) struct Container {
    /// A shell that removes the container when its input ends.
    reaper: Option<Child>,
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(mut reaper) = self.reaper.take() {
            drop(reaper.stdin.take());
            drop(reaper.wait());
        }
    }
}

/// Starts PostgreSQL in a container, and waits until it takes connections.
pub(super) fn postgres(image: &str) -> Result<(Container, String), NoServer> {
    let runtime = Runtime::new().map_err(|error| NoServer::because("no runtime", &error))?;
    let failed = |error: &dyn std::fmt::Display| NoServer::because(&format!("container {image}"), error);
    runtime.block_on(async {
        let (name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
        let request = Postgres::default().with_name(name).with_tag(tag);
        let running: ContainerAsync<Postgres> = request.start().await.map_err(|error| failed(&error))?;
        let host = running.get_host().await.map_err(|error| failed(&error))?;
        let port = running.get_host_port_ipv4(5432).await.map_err(|error| failed(&error))?;
        let container = Container { reaper: Some(reaper(running.id()).map_err(|error| failed(&error))?) };
        // From here on the shell removes it: the crate's own handle would do so only when this process ends in order.
        std::mem::forget(running);
        Ok((container, format!("postgres://postgres:postgres@{host}:{port}/postgres")))
    })
}

/// A process killed outright drops nothing, but its pipes close.
fn reaper(id: &str) -> io::Result<Child> {
    let script = r#"read -r _; docker rm --force --volumes "$1""#;
    Command::new("sh")
        .args(["-c", script, "sh", id])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
