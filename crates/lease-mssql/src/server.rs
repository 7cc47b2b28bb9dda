//! What a server and a database can do, and which of them will not do.

use lease_core::ErrorKind;
use tiberius::Row;

use crate::{error::Failure, sql::number};

/// SQL Server 2017.
const OLDEST_VERSION: u32 = 14;

/// The edition's numbers of Azure SQL Database and Azure SQL Managed Instance, whose version's number has stood still since 2014.
const AZURE: [i32; 2] = [5, 8];

/// The first compatibility level that knows every word of the statements but OPENJSON.
const OLDEST_LEVEL: i32 = 110;

/// The first compatibility level that knows OPENJSON. Babelfish knows it at every level.
const JSON_LEVEL: i32 = 130;

/// A database's setting `DELAYED_DURABILITY`.
const ALLOWED: i32 = 1;
const FORCED: i32 = 2;

/// What the statements may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Whether a commit may ask not to wait for the disk.
    pub(crate) delays: bool,
    pub(crate) knows_json: bool,
}

/// The row of `server.sql`.
#[derive(Clone, Debug)]
struct Server {
    version: String,
    edition: i32,
    is_babelfish: bool,
    level: i32,
    durability: i32,
}

impl Abilities {
    /// Reads the row of `server.sql`, and refuses a server or a database that cannot hold the contract.
    pub(crate) fn read(rows: &[Row]) -> Result<Self, Failure> {
        let none = || Failure::new(ErrorKind::Unexpected, "the server does not say what it is");
        let row = rows.first().ok_or_else(none)?;
        Server {
            version: row.try_get::<&str, _>(0)?.unwrap_or_default().into(),
            edition: number(row, 1)?,
            is_babelfish: number(row, 2)? == 1,
            level: number(row, 3)?,
            durability: number(row, 4)?,
        }
        .abilities()
    }
}

impl Server {
    /// OV-08
    fn abilities(self) -> Result<Abilities, Failure> {
        let unsupported = |detail: String| Err(Failure::new(ErrorKind::Unsupported, detail));
        let major = self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0_u32);
        if major < OLDEST_VERSION && !AZURE.contains(&self.edition) && !self.is_babelfish {
            return unsupported(format!(
                "the server's version is {}: it must be SQL Server 2017 or later",
                self.version
            ));
        }
        if self.level < OLDEST_LEVEL {
            return unsupported(format!(
                "the database's compatibility level is {}: it must be {OLDEST_LEVEL} or higher",
                self.level
            ));
        }
        if self.durability == FORCED {
            let forced =
                "the database's DELAYED_DURABILITY is FORCED: it must be DISABLED or ALLOWED, or a crash loses grants";
            return unsupported(forced.into());
        }
        Ok(Abilities {
            delays: self.durability == ALLOWED && !self.is_babelfish,
            knows_json: self.level >= JSON_LEVEL || self.is_babelfish,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lease_core::Operation;

    fn server() -> Server {
        let version = "14.0.3456.2".into();
        Server { version, edition: 3, is_babelfish: false, level: 140, durability: 0 }
    }

    fn refusal(server: Server) -> String {
        let error = server.abilities().unwrap_err().into_error(Operation::Connect);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    }

    /// OV-08
    #[test]
    fn an_old_server_is_refused_by_its_version() {
        assert!(server().abilities().is_ok());
        let old = || Server { version: "13.0.7000.253".into(), ..server() };
        assert!(refusal(old()).contains("version is 13.0.7000.253"));
        assert!(refusal(Server { level: 100, ..server() }).contains("level is 100"));
        for edition in AZURE {
            assert!(Server { version: "12.0.2000.8".into(), edition, ..server() }.abilities().is_ok());
        }
        assert!(Server { is_babelfish: true, ..old() }.abilities().is_ok());
    }

    /// S4: where OPENJSON is not known, many are renewed one by one.
    #[test]
    fn openjson_is_a_matter_of_the_level() {
        assert!(server().abilities().unwrap().knows_json);
        assert!(!Server { level: 120, ..server() }.abilities().unwrap().knows_json);
        assert!(Server { level: 120, is_babelfish: true, ..server() }.abilities().unwrap().knows_json);
    }

    /// S1: a database whose commits never wait for the disk can forget a grant.
    #[test]
    fn forced_delayed_durability_is_refused() {
        assert!(refusal(Server { durability: FORCED, ..server() }).contains("FORCED"));
        assert!(Server { durability: ALLOWED, ..server() }.abilities().unwrap().delays);
        assert!(!server().abilities().unwrap().delays);
        assert!(!Server { durability: ALLOWED, is_babelfish: true, ..server() }.abilities().unwrap().delays);
    }
}
