//! The settings that a URL and an ADO.NET connection string name alike.

use std::time::Duration;

use super::MssqlConfig;

/// A setting, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Encrypt,
    TrustCert,
    Ca,
    HostnameInCertificate,
    ApplicationName,
    ConnectTimeout,
    Schema,
    Table,
    OperationTimeout,
    PoolSize,
}

impl Key {
    pub(super) const NAMES: &str = "encrypt, trust_cert, ca, hostname_in_certificate, application_name, connect_timeout, schema, \
                                    table, operation_timeout and pool_size";

    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "encrypt" => Self::Encrypt,
            "trust_cert" => Self::TrustCert,
            "ca" => Self::Ca,
            "hostname_in_certificate" => Self::HostnameInCertificate,
            "application_name" => Self::ApplicationName,
            "connect_timeout" => Self::ConnectTimeout,
            "schema" => Self::Schema,
            "table" => Self::Table,
            "operation_timeout" => Self::OperationTimeout,
            "pool_size" => Self::PoolSize,
            _ => return None,
        })
    }

    /// Sets it; the fault names the key and the value.
    pub(super) fn set(self, config: MssqlConfig, value: &str) -> Result<MssqlConfig, String> {
        Ok(match self {
            Self::Encrypt => config.encrypt(value.parse()?),
            Self::TrustCert => {
                let trusts = truth(value).ok_or_else(|| format!("trust_cert {value:?} is neither true nor false"))?;
                config.trust_cert(trusts)
            }
            Self::Ca => config.ca(value),
            Self::HostnameInCertificate => config.hostname_in_certificate(value),
            Self::ApplicationName => config.application_name(value),
            Self::ConnectTimeout => config.connect_timeout(seconds("connect_timeout", value)?),
            Self::Schema => config.schema(value),
            Self::Table => config.table(value),
            Self::OperationTimeout => config.operation_timeout(seconds("operation_timeout", value)?),
            Self::PoolSize => {
                config.pool_size(value.parse().map_err(|_| format!("pool_size {value:?} is no whole number"))?)
            }
        })
    }
}

pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" => Some(true),
        "false" | "no" => Some(false),
        _ => None,
    }
}

fn seconds(key: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("{key} {value:?} is no time in seconds"))
}
