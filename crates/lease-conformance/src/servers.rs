//! Servers for tests: the one that a variable names, else a container, else the machine's own server programs.
//!
//! | database | a running server | the container's image | the machine's own programs |
//! |---|---|---|---|
//! | PostgreSQL | `LEASE_POSTGRES_URL` | `LEASE_POSTGRES_IMAGE`, by default `postgres:17-alpine` | the newest that are installed |
//!
//! A server that was started here lasts as long as the [`PostgresServer`], and not longer than the process: a small shell waits for
//! the end of the process, however that comes, and cleans up. Cases that run on one server at the same time keep out of each
//! other's way with a schema or a database each.

mod container;
mod local;

use std::{env, fmt, path::PathBuf, sync::OnceLock, thread};

pub use local::Cluster;

/// Where a server for tests came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The variable of this name has its URL.
    Url(&'static str),
    /// A container of this image.
    Container(String),
    /// The server programs in this folder.
    Local(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(variable) => f.write_str(variable),
            Self::Container(image) => write!(f, "container {image}"),
            Self::Local(programs) => write!(f, "programs in {}", programs.display()),
        }
    }
}

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
                Self::local("").map_err(|no_programs| NoServer(format!("{no_container}; {no_programs}")))
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
        let owned = image.to_owned();
        // A container is started asynchronously, and a test may call this inside its own runtime.
        let started = thread::spawn(move || container::postgres(&owned)).join();
        let (container, url) = started.unwrap_or_else(|_| Err(NoServer("the container's thread panicked".into())))?;
        Ok(Self { url, source: Source::Container(image.into()), cluster: None, _container: Some(container) })
    }

    /// Starts a server of its own from the machine's programs, with these lines in its configuration: for tests that stop it.
    ///
    /// # Errors
    ///
    /// [`NoServer`] when there are no programs, or they do not work.
    pub fn local(settings: &str) -> Result<Self, NoServer> {
        let (cluster, programs, url) = local::postgres(settings)?;
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

/// There is no server for the tests, and this is why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoServer(String);

impl NoServer {
    fn because(what: &str, error: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no server for the tests ({}); name one, for example {POSTGRES_URL}=postgres://USER@HOST/DATABASE",
            self.0
        )
    }
}

impl std::error::Error for NoServer {}
