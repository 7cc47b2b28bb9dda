//! A SQL Server for tests.

use std::{env, fmt, sync::OnceLock, time::Duration};

use testcontainers_modules::{mssql_server, testcontainers::ImageExt};

use super::{NoServer, Source, container};

/// A SQL Server, and the URL of a login that may do everything there.
#[derive(Debug)]
pub struct MssqlServer {
    url: String,
    source: Source,
    _container: Option<container::Container>,
}

/// The variable that names a running SQL Server.
pub const MSSQL_URL: &str = "LEASE_MSSQL_URL";

/// The variable that names the image of a SQL Server container.
pub const MSSQL_IMAGE: &str = "LEASE_MSSQL_IMAGE";

/// The server asks for a password of three kinds of characters.
const PASSWORD: &str = "Lease-tests-1";

/// How long a server may take until it has recovered its own databases.
const START: Duration = Duration::from_secs(300);

impl MssqlServer {
    /// The server that the tests of this process share; it is found or started by the first of them.
    ///
    /// # Panics
    ///
    /// When there is none. `cargo xtask test` finds out before, and shows the tests that need one as ignored.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MssqlServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::find().unwrap_or_else(|none| panic!("{none}")))
    }

    /// Finds or starts a server, in the order that [this module](super) names. It blocks the thread meanwhile.
    ///
    /// # Errors
    ///
    /// [`NoServer`] says what was tried, and why each way is closed.
    pub fn find() -> Result<Self, NoServer> {
        if let Ok(url) = env::var(MSSQL_URL) {
            return Ok(Self { url, source: Source::Url(MSSQL_URL), _container: None });
        }
        let chosen = env::var(MSSQL_IMAGE).ok();
        Self::in_container(chosen.as_deref().unwrap_or("mcr.microsoft.com/mssql/server:2022-latest"))
    }

    /// Starts a container of this image, such as `mcr.microsoft.com/mssql/server:2022-latest`. It blocks the thread meanwhile.
    ///
    /// The image runs the Developer edition, and starting it accepts its licence (`ACCEPT_EULA=Y`).
    ///
    /// # Errors
    ///
    /// [`NoServer`] when no engine answers, or it cannot start the image.
    pub fn in_container(image: &str) -> Result<Self, NoServer> {
        let (name, tag) = container::name_and_tag(image);
        let server = mssql_server::MssqlServer::default().with_accept_eula().with_sa_password(PASSWORD);
        let request = server.with_name(name).with_tag(tag).with_startup_timeout(START);
        let container = container::start(image, request, 1433).map_err(none)?;
        // The certificate is one that the server has signed itself.
        let url = format!("mssql://sa:{PASSWORD}@{}/master?trust_cert=true", container.address());
        Ok(Self { url, source: Source::Container(image.into()), _container: Some(container) })
    }

    /// `mssql://USER:PASSWORD@HOST[:PORT]/DATABASE`, with the parameters that the server asks for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the server came from.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

fn none(reason: impl fmt::Display) -> NoServer {
    NoServer { reason: reason.to_string(), example: "LEASE_MSSQL_URL=mssql://USER:PASSWORD@HOST/DATABASE" }
}
