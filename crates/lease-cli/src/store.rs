//! Lease stores by URL scheme: the one place that knows which providers are built in.
//!
//! A provider plugs in with a feature, a variant of [`StoreUrl`], and a line in each `match` below.

use std::{fmt, sync::Arc};

use lease_core::{ErrorKind, LeaseStore, StoreError};

use crate::exit::{Failure, UNAVAILABLE, USAGE, chain};

#[cfg(not(any(feature = "mssql", feature = "postgres", feature = "sqlite")))]
compile_error!("`lease` needs a provider: enable one of the features `mssql`, `postgres` and `sqlite`");

/// The schemes of the providers that are built in.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "sqlite")]
    "sqlite:PATH",
    #[cfg(feature = "postgres")]
    "postgres://USER@HOST/DATABASE",
    #[cfg(feature = "mssql")]
    "mssql://USER@HOST/DATABASE",
];

/// A store that a URL names, checked but not touched.
#[derive(Clone, Debug)]
pub(crate) enum StoreUrl {
    #[cfg(feature = "sqlite")]
    Sqlite(lease_sqlite::SqliteConfig),
    #[cfg(feature = "postgres")]
    Postgres(lease_postgres::PostgresConfig),
    #[cfg(feature = "mssql")]
    Mssql(lease_mssql::MssqlConfig),
}

/// A store that was opened.
pub(crate) type Store = Arc<dyn LeaseStore>;

impl StoreUrl {
    /// Reads a URL; without one, the store is the user's own.
    pub(crate) fn parse(url: Option<&str>) -> Result<Self, Failure> {
        let Some(url) = url else { return user_store() };
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let parsed = match scheme {
            #[cfg(feature = "sqlite")]
            "sqlite" => lease_sqlite::SqliteConfig::from_url(url).map(Self::Sqlite),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => lease_postgres::PostgresConfig::from_url(url).map(Self::Postgres),
            #[cfg(feature = "mssql")]
            "mssql" | "sqlserver" => lease_mssql::MssqlConfig::from_url(url).map(Self::Mssql),
            // A URL may hold a password, so no more of it is shown than its scheme; what is no URL may hold one anywhere.
            other => {
                let what =
                    if is_scheme(other) { format!("store's scheme is {other:?}") } else { "store is no URL".into() };
                return Err(Failure::new(USAGE, format!("the {what}: it must be one of {}", SCHEMES.join(", "))));
            }
        };
        parsed.map_err(|error| refused(&error))
    }

    /// Opens the store, and sees to its table.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        let opened = match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(config) => {
                use lease_sqlite::SqliteLeaseStore as Opened;
                with_table(Box::pin(Opened::connect(config.clone())), Opened::migrate).await
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => {
                use lease_postgres::PostgresLeaseStore as Opened;
                with_table(Box::pin(Opened::connect(config.clone())), Opened::migrate).await
            }
            #[cfg(feature = "mssql")]
            Self::Mssql(config) => {
                use lease_mssql::MssqlLeaseStore as Opened;
                with_table(Box::pin(Opened::connect(config.clone())), Opened::migrate).await
            }
        };
        opened.map_err(|error| failed(&error))
    }

    /// The SQL that makes the table.
    pub(crate) fn migration_sql(&self) -> Result<String, Failure> {
        let sql = match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(config) => config.migration_sql(),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => config.migration_sql(),
            #[cfg(feature = "mssql")]
            Self::Mssql(config) => config.migration_sql(),
        };
        sql.map_err(|error| refused(&error))
    }
}

/// A store whose table is there.
async fn with_table<S: LeaseStore>(
    connecting: impl Future<Output = Result<S, StoreError>>,
    migrate: impl AsyncFnOnce(&S) -> Result<(), StoreError>,
) -> Result<Store, StoreError> {
    let store = connecting.await?;
    migrate(&store).await?;
    Ok(Arc::new(store))
}

/// Whether this is a scheme by RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|other| other.is_ascii_alphanumeric() || matches!(other, '+' | '-' | '.'))
}

/// A file in the user's state directory, `$XDG_STATE_HOME/lease/leases.db`.
#[cfg(feature = "sqlite")]
fn user_store() -> Result<StoreUrl, Failure> {
    use etcetera::{BaseStrategy as _, base_strategy::Xdg};
    let directories = Xdg::new().map_err(|error| no_store(&error))?;
    let state = directories.state_dir().ok_or_else(|| no_store(&"no state directory"))?;
    let config = lease_sqlite::SqliteConfig::new(state.join("lease").join("leases.db")).create_parent(true);
    Ok(StoreUrl::Sqlite(config))
}

#[cfg(not(feature = "sqlite"))]
fn user_store() -> Result<StoreUrl, Failure> {
    Err(no_store(&"SQLite is not built in"))
}

fn no_store(reason: &dyn fmt::Display) -> Failure {
    Failure::new(USAGE, format!("there is no default store ({reason}): name one with --store or LEASE_STORE"))
}

fn refused(error: &StoreError) -> Failure {
    Failure::new(USAGE, chain(error))
}

/// What the URL asks for cannot be, or the store cannot be reached now.
fn failed(error: &StoreError) -> Failure {
    let code = if error.kind() == ErrorKind::InvalidConfig { USAGE } else { UNAVAILABLE };
    Failure::new(code, chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection string as psql takes it is no URL: nothing of it is shown, for a password may stand before the first colon.
    #[test]
    fn what_is_no_url_is_not_shown() {
        for store in [
            "host=h password=S3cret:PW",
            "host=h password=S3cret options='a:b'",
            "S3cret@h:1",
            " S3cret:",
            "",
            "/var/S3cret.db",
        ] {
            let refused = StoreUrl::parse(Some(store)).unwrap_err().to_string();
            assert!(refused.starts_with("the store is no URL"), "{refused}");
            assert!(!refused.contains("S3cret"), "{refused}");
        }
        assert!(StoreUrl::parse(Some("mysql://h")).unwrap_err().to_string().contains("\"mysql\""));
    }
}
