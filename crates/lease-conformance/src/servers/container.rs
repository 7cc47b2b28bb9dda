//! Servers in containers.

use std::{
    io,
    process::{Child, Command, Stdio},
    thread,
};

use testcontainers_modules::testcontainers::{ContainerRequest, Image, TestcontainersError, runners::AsyncRunner};
use tokio::runtime::Runtime;

/// A running container. It is removed with this, or with the process, whichever comes first.
#[derive(Debug)]
pub(super) struct Container {
    address: String,
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

impl Container {
    /// `HOST:PORT`, as seen from this machine.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

/// `postgres:17` is `postgres` and `17`.
pub(super) fn name_and_tag(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        // Behind the last slash: a colon before it belongs to the registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// Starts a container, and waits until its server takes connections; the error says why it does not. It blocks the thread meanwhile.
pub(super) fn start<I: Image + 'static>(
    image: &str,
    request: ContainerRequest<I>,
    port: u16,
) -> Result<Container, String> {
    // A container is started asynchronously, and a test may call this inside its own runtime.
    let started = thread::spawn(move || {
        let runtime = Runtime::new().map_err(|error| error.to_string())?;
        runtime.block_on(run(request, port)).map_err(|error| error.to_string())
    });
    let started = started.join().unwrap_or_else(|_| Err("its thread panicked".into()));
    started.map_err(|reason| format!("container {image}: {reason}"))
}

async fn run<I: Image>(request: ContainerRequest<I>, port: u16) -> Result<Container, TestcontainersError> {
    let running = request.start().await?;
    let address = format!("{}:{}", running.get_host().await?, running.get_host_port_ipv4(port).await?);
    let reaper = Some(reaper(running.id()).map_err(TestcontainersError::from)?);
    // From here on the shell removes it: the crate's own handle would do so only when this process ends in order.
    std::mem::forget(running);
    Ok(Container { address, reaper })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registrys_port_is_no_tag() {
        assert_eq!(name_and_tag("postgres:17"), ("postgres", "17"));
        assert_eq!(name_and_tag("postgres"), ("postgres", "latest"));
        assert_eq!(name_and_tag("registry.example:5000/postgres"), ("registry.example:5000/postgres", "latest"));
        assert_eq!(
            name_and_tag("registry.example:5000/mssql/server:2022"),
            ("registry.example:5000/mssql/server", "2022")
        );
    }
}
