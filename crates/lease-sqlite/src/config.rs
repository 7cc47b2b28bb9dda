//! Where the leases are, and what else a store can be told.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use lease_core::{ErrorKind, Operation, StoreError};

use crate::{error::Failure, sql::Sql};

/// The table's name unless another is configured, and the one word that `sql.rs` replaces in the SQL files.
pub(crate) const DEFAULT_TABLE: &str = "singleton_leases";

/// The longest name of a table, for it has to fit PostgreSQL too when a service changes its database.
const MAX_TABLE_LENGTH: usize = 63;

/// The configuration of a [`SqliteLeaseStore`](crate::SqliteLeaseStore).
///
/// Everything is checked by [`connect`](crate::SqliteLeaseStore::connect). A relative path means a file below the directory that is
/// current then.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use lease_sqlite::SqliteConfig;
///
/// let config = SqliteConfig::new("service.db").table("job_leases").operation_timeout(Duration::from_secs(2));
/// let same_file = SqliteConfig::from_url("sqlite:service.db")?;
/// assert!(SqliteConfig::from_url("sqlite::memory:").is_err());
/// # Ok::<(), lease_sqlite::lease_core::StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a configuration does nothing until it is connected"]
pub struct SqliteConfig {
    place: Place,
    table: String,
    operation_timeout: Duration,
    create: bool,
    create_parent: bool,
}

#[derive(Clone, Debug)]
enum Place {
    Path(PathBuf),
    Url(String),
    Memory,
}

impl SqliteConfig {
    /// Leases in the SQLite file `path`, which may hold the service's own tables too.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::at(Place::Path(path.into()))
    }

    /// Leases in this process's memory: they are shared by the clones of one store, and end with the last of them.
    ///
    /// This is the only way to a database in memory. A path such as `:memory:` would give every connection a database of its own,
    /// and every store a lease of its own.
    pub fn in_memory() -> Self {
        Self::at(Place::Memory)
    }

    /// Reads a store URL: `sqlite:PATH`, also written `sqlite://PATH`.
    ///
    /// The path is taken as it stands, without percent-encoding, and with no parameters after a `?`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when it is not such a URL, or when the path is one that [`new`](Self::new) could not connect to.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = Self::from(url);
        config.location().map_err(|failure| failure.into_error(Operation::Connect))?;
        Ok(config)
    }

    /// The name of the table, `singleton_leases` by default: 1 to 63 ASCII letters, digits and underscores, not beginning with a
    /// digit nor with `sqlite_`.
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// The longest that a call may take (S12), 5 s by default, the wait for another process's write transaction included.
    pub fn operation_timeout(self, operation_timeout: Duration) -> Self {
        Self { operation_timeout, ..self }
    }

    /// Whether a missing database file is created, by default yes.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Whether the directory of the database file is created, and those above it, by default no.
    pub fn create_parent(self, create_parent: bool) -> Self {
        Self { create_parent, ..self }
    }

    /// The SQL that [`migrate`](crate::SqliteLeaseStore::migrate) runs when there is no table, for those who run it themselves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] names the field and the value.
    pub fn migration_sql(&self) -> Result<String, StoreError> {
        let settings = self.settings().map_err(|failure| failure.into_error(Operation::Migrate))?;
        Ok(Sql::new(&settings.table).migrations.concat())
    }

    fn at(place: Place) -> Self {
        let operation_timeout = Duration::from_secs(5);
        Self { place, table: DEFAULT_TABLE.into(), operation_timeout, create: true, create_parent: false }
    }

    /// Checks everything.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let location = self.location()?;
        check_table(&self.table)?;
        if self.operation_timeout.is_zero() {
            return Err(invalid("operation_timeout is 0 s: it must be longer"));
        }
        let Self { table, operation_timeout, create, create_parent, .. } = self.clone();
        Ok(Settings { location, table, operation_timeout, create, create_parent })
    }

    fn location(&self) -> Result<Location, Failure> {
        match &self.place {
            Place::Memory => Ok(Location::Memory),
            Place::Path(path) => file(path),
            Place::Url(url) => file(Path::new(path_of(url)?)),
        }
    }
}

/// Reads a store URL as [`from_url`](Self::from_url) does, but leaves its errors to
/// [`connect`](crate::SqliteLeaseStore::connect).
impl From<&str> for SqliteConfig {
    fn from(url: &str) -> Self {
        Self::at(Place::Url(url.into()))
    }
}

/// As from a `&str`.
impl From<String> for SqliteConfig {
    fn from(url: String) -> Self {
        Self::at(Place::Url(url))
    }
}

impl FromStr for SqliteConfig {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<Self, StoreError> {
        Self::from_url(url)
    }
}

/// A configuration that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) location: Location,
    pub(crate) table: String,
    pub(crate) operation_timeout: Duration,
    pub(crate) create: bool,
    pub(crate) create_parent: bool,
}

/// Where the database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// An absolute path.
    File(PathBuf),
    Memory,
}

impl Location {
    /// The file's path, if there is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Memory => None,
        }
    }
}

/// The path in a store URL. The error shows no more than the scheme, for a URL of another kind may hold a password.
fn path_of(url: &str) -> Result<&str, Failure> {
    let Some(path) = url.strip_prefix("sqlite:") else {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        return Err(invalid(format!("the store URL's scheme is {scheme:?}: it must be sqlite:PATH")));
    };
    if path.contains('?') {
        return Err(invalid(format!("store URL {url:?} has parameters: none is known")));
    }
    Ok(path.strip_prefix("//").unwrap_or(path))
}

/// Makes the path absolute, so that it leads to the same place whenever a connection is opened.
fn file(path: &Path) -> Result<Location, Failure> {
    let text = path.to_string_lossy();
    if text.is_empty() || text == ":memory:" || text.starts_with("file:") {
        return Err(invalid(format!(
            "path {text:?} gives every connection a database of its own: use a file, or `SqliteConfig::in_memory`"
        )));
    }
    if text.contains('\0') {
        return Err(invalid(format!("path {text:?} has a NUL")));
    }
    let absolute = std::path::absolute(path);
    absolute.map(Location::File).map_err(|error| invalid(format!("path {text:?} cannot be made absolute: {error}")))
}

fn check_table(table: &str) -> Result<(), Failure> {
    let is_plain = table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_well = !table.starts_with(|c: char| c.is_ascii_digit());
    let is_reserved = table.to_ascii_lowercase().starts_with("sqlite_");
    if is_plain && begins_well && !is_reserved && (1..=MAX_TABLE_LENGTH).contains(&table.len()) {
        return Ok(());
    }
    Err(invalid(format!(
        "table {table:?} is no such name: 1 to {MAX_TABLE_LENGTH} ASCII letters, digits and underscores, beginning neither with \
         a digit nor with sqlite_"
    )))
}

fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidConfig, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(config: &SqliteConfig) -> String {
        let error = config.settings().unwrap_err().into_error(Operation::Connect);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.to_string()
    }

    /// SM-08
    #[test]
    fn a_path_to_a_private_database_is_refused() {
        for path in ["", ":memory:", "file::memory:?cache=shared", "file:leases.db"] {
            assert!(refusal(&SqliteConfig::new(path)).contains("in_memory"), "{path:?}");
        }
        for url in ["sqlite:", "sqlite://", "sqlite::memory:", "sqlite://:memory:", "sqlite:file::memory:"] {
            assert!(SqliteConfig::from_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn both_forms_of_the_url_name_the_same_file() {
        let location = |url: &str| SqliteConfig::from_url(url).unwrap().location().unwrap();
        assert_eq!(location("sqlite:/var/a.db"), Location::File("/var/a.db".into()));
        assert_eq!(location("sqlite:///var/a.db"), Location::File("/var/a.db".into()));
        assert_eq!(location("sqlite://a.db"), location("sqlite:a.db"));
        assert!(location("sqlite:a.db").path().unwrap().is_absolute());
    }

    #[test]
    fn a_wrong_url_is_refused_without_showing_a_password() {
        let message = SqliteConfig::from_url("postgres://user:secret@host/db").unwrap_err().to_string();
        assert!(message.contains("postgres") && !message.contains("secret"), "{message}");
        assert!(SqliteConfig::from_url("leases.db").is_err());
        assert!(SqliteConfig::from_url("sqlite:a.db?mode=ro").is_err());
    }

    /// SM-04: quotes, and whatever they could let in, are refused; words of SQL are names like others, for the name is quoted.
    #[test]
    fn a_table_has_a_plain_name() {
        let table = |name: &str| SqliteConfig::new("a.db").table(name);
        for name in ["job_leases", "order", "_", "Table9", &"a".repeat(63)] {
            assert!(table(name).settings().is_ok(), "{name}");
        }
        for name in
            ["", "9a", "a b", "a\"b", "a; DROP TABLE b", "main.a", "sqlite_a", "SQLite_a", "é", "a\n", &"a".repeat(64)]
        {
            assert!(refusal(&table(name)).contains("no such name"), "{name}");
        }
    }

    /// S12, CF-03
    #[test]
    fn an_operation_timeout_of_zero_is_refused() {
        assert!(refusal(&SqliteConfig::in_memory().operation_timeout(Duration::ZERO)).contains("operation_timeout"));
    }
}
