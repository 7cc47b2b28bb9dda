//! A PostgreSQL server for tests.

use std::{env, fmt, sync::OnceLock};

use testcontainers_modules::{postgres::Postgres, testcontainers::ImageExt};

use super::{Cluster, NoServer, Source, container, local};

/// A PostgreSQL server, and the URL of a role that may do everything there.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    source: Source,
    /// The server's process, when this process started it from the machine's own programs.
    cluster: Option<Cluster>,
    _container: Option<container::Container>,
}

/// The variable that names a running PostgreSQL server.
pub const POSTGRES_URL: &str = "LEASE_POSTGRES_URL";

/// The variable that names the image of a PostgreSQL container.
pub const POSTGRES_IMAGE: &str = "LEASE_POSTGRES_IMAGE";

impl PostgresServer {
    /// The server that the tests of this process share; it is found or started by the first of them.
    ///
    /// # Panics
    ///
    /// When there is none. `cargo xtask test` finds out before, and shows the tests that need one as ignored.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::find().unwrap_or_else(|none| panic!("{none}")))
    }

    /// Finds or starts a server, in the order that this module names. It blocks the thread meanwhile.
    ///
    /// # Errors
    ///
    /// [`NoServer`] says what was tried, and why each way is closed.
    pub fn find() -> Result<Self, NoServer> {
        if let Ok(url) = env::var(POSTGRES_URL) {
            return Ok(Self { url, source: Source::Url(POSTGRES_URL), cluster: None, _container: None });
        }
        let chosen = env::var(POSTGRES_IMAGE).ok();
        let in_container = Self::in_container(chosen.as_deref().unwrap_or("postgres:17-alpine"));
        // An image that somebody has asked for by name is not replaced by something else.
        match in_container {
            Err(no_container) if chosen.is_none() => {
                Self::local("").map_err(|no_programs| no_container.and(&no_programs))
            }
            answer => answer,
        }
    }

    /// Starts a container of this image, such as `postgres:17-alpine`. It blocks the thread meanwhile.
    ///
    /// # Errors
    ///
    /// [`NoServer`] when no engine answers, or it cannot start the image.
    pub fn in_container(image: &str) -> Result<Self, NoServer> {
        let (name, tag) = container::name_and_tag(image);
        let request = Postgres::default().with_name(name).with_tag(tag);
        let container = container::start(image, request, 5432).map_err(none)?;
        let url = format!("postgres://postgres:postgres@{}/postgres", container.address());
        Ok(Self { url, source: Source::Container(image.into()), cluster: None, _container: Some(container) })
    }

    /// Starts a server of its own from the machine's programs, with these lines in its configuration: for tests that stop it.
    ///
    /// # Errors
    ///
    /// [`NoServer`] when there are no programs, or they do not work.
    pub fn local(settings: &str) -> Result<Self, NoServer> {
        let (cluster, programs, url) = local::postgres(settings).map_err(none)?;
        Ok(Self { url, source: Source::Local(programs), cluster: Some(cluster), _container: None })
    }

    /// `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the server came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The server's process, when it is one of this process's own.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }
}

fn none(reason: impl fmt::Display) -> NoServer {
    NoServer { reason: reason.to_string(), example: "LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE" }
}
