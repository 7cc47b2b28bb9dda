//! How connections are encrypted.

use std::str::FromStr;

use tiberius::EncryptionLevel;

/// How a connection is encrypted, in the words of Microsoft's own drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encrypt {
    /// TLS before anything else, as TDS 8 has it: SQL Server 2022 and later, and Azure SQL. An older server does not answer at all, so
    /// that connecting to it ends with [`connect_timeout`](crate::MssqlConfig::connect_timeout).
    Strict,
    /// TLS from the login on. A server without it is refused. The default.
    #[default]
    Mandatory,
    /// TLS for the login, and for the rest when the server demands it. It protects the password from whoever only listens, and nothing
    /// else.
    Optional,
    /// No TLS, unless the server demands it: the password and the rest can be read on the way.
    Never,
}

impl Encrypt {
    pub(super) fn level(self) -> EncryptionLevel {
        match self {
            Self::Strict => EncryptionLevel::Strict,
            Self::Mandatory => EncryptionLevel::Required,
            Self::Optional => EncryptionLevel::Off,
            Self::Never => EncryptionLevel::NotSupported,
        }
    }
}

impl FromStr for Encrypt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "strict" => Ok(Self::Strict),
            "mandatory" | "true" | "yes" => Ok(Self::Mandatory),
            "optional" | "false" | "no" => Ok(Self::Optional),
            "never" => Ok(Self::Never),
            _ => Err(format!("encrypt {text:?} is none of strict, mandatory, true, optional, false and never")),
        }
    }
}
