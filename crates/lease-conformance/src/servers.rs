//! Servers for tests: the one that a variable names, else a container, else the machine's own server programs.
//!
//! | database | a running server | the container's image | the machine's own programs |
//! |---|---|---|---|
//! | PostgreSQL | `LEASE_POSTGRES_URL` | `LEASE_POSTGRES_IMAGE`, by default `postgres:17-alpine` | the newest that are installed |
//! | SQL Server | `LEASE_MSSQL_URL` | `LEASE_MSSQL_IMAGE`, by default `mcr.microsoft.com/mssql/server:2022-latest` | none |
//!
//! A server that was started here lasts as long as its [`PostgresServer`] or [`MssqlServer`], and not longer than the process: a small shell waits for
//! the end of the process, however that comes, and cleans up. Cases that run on one server at the same time keep out of each
//! other's way with a schema or a database each.

mod container;
mod local;
mod mssql;
mod postgres;

use std::{fmt, path::PathBuf};

pub use local::Cluster;
pub use mssql::{MSSQL_IMAGE, MSSQL_URL, MssqlServer};
pub use postgres::{POSTGRES_IMAGE, POSTGRES_URL, PostgresServer};

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

/// There is no server for the tests, and this is why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoServer {
    reason: String,
    /// How a running server is named.
    example: &'static str,
}

impl NoServer {
    /// Both reasons, where two ways were tried.
    fn and(self, other: &Self) -> Self {
        Self { reason: format!("{}; {}", self.reason, other.reason), ..self }
    }
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no server for the tests ({}); name one, for example {}", self.reason, self.example)
    }
}

impl std::error::Error for NoServer {}
