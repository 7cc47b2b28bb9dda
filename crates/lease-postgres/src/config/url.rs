//! Store URLs: which keys are ours, and what goes to the driver.

use std::{path::PathBuf, time::Duration};

use super::PostgresConfig;

/// Reads a store URL. The fault never quotes more of the URL than its scheme, or a value of one of our own keys, for the rest may hold
/// a password.
pub(super) fn parse(url: &str) -> Result<PostgresConfig, String> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(format!("the store URL's scheme is {scheme:?}: it must be postgres://HOST/DATABASE"));
    }
    let (base, query) = split(url);
    let mut ours = Vec::new();
    let mut drivers = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match Key::of(key) {
            Some(key) => ours.push((key, decode(value).ok_or_else(|| format!("the value of {key:?} is not UTF-8"))?)),
            None => drivers.push(parameter),
        }
    }
    let driver = format!("{base}?{}", drivers.join("&"));
    let driver = driver.parse::<tokio_postgres::Config>().map_err(|error| {
        // The driver's fault names a key, and no value.
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("the store URL cannot be read{cause}")
    })?;
    ours.into_iter().try_fold(PostgresConfig::new(driver), |config, (key, value)| key.set(config, value))
}

/// The keys that the driver does not know, or does not know all values of.
#[derive(Clone, Copy, Debug)]
enum Key {
    SslMode,
    SslRootCert,
    Schema,
    Table,
    OperationTimeout,
    PoolSize,
}

impl Key {
    fn of(key: &str) -> Option<Self> {
        Some(match key {
            "sslmode" => Self::SslMode,
            "sslrootcert" => Self::SslRootCert,
            "schema" => Self::Schema,
            "table" => Self::Table,
            "operation_timeout" => Self::OperationTimeout,
            "pool_size" => Self::PoolSize,
            _ => return None,
        })
    }

    fn set(self, config: PostgresConfig, value: String) -> Result<PostgresConfig, String> {
        Ok(match self {
            Self::SslMode => config.ssl_mode(value.parse()?),
            Self::SslRootCert => config.ssl_root_cert(PathBuf::from(value)),
            Self::Schema => config.schema(value),
            Self::Table => config.table(value),
            Self::OperationTimeout => {
                let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                config.operation_timeout(
                    seconds.ok_or_else(|| format!("operation_timeout {value:?} is no time in seconds"))?,
                )
            }
            Self::PoolSize => {
                config.pool_size(value.parse().map_err(|_| format!("pool_size {value:?} is no whole number"))?)
            }
        })
    }
}

/// The URL up to its parameters, and those. As the driver does, the user's name and the password end at the first `@`.
fn split(url: &str) -> (&str, &str) {
    let host = url.find('@').unwrap_or_default();
    match url[host..].find('?') {
        Some(question) => (&url[..host + question], &url[host + question + 1..]),
        None => (url, ""),
    }
}

/// Undoes percent-encoding; none when the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let encoded = match tail {
            [high, low, tail @ ..] if *first == b'%' => hex(*high, *low).map(|byte| (byte, tail)),
            _ => None,
        };
        let (byte, tail) = encoded.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    #[test]
    fn our_keys_are_taken_and_the_drivers_are_passed_on() {
        let url = "postgresql://app:p%40ss@db-1:5433,db-2/service?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&schema=jobs\
                   &table=leases&connect_timeout=3&operation_timeout=0.5&pool_size=2&application_name=web";
        let config = parse(url).unwrap();
        assert_eq!(config.driver.get_hosts(), [Host::Tcp("db-1".into()), Host::Tcp("db-2".into())]);
        assert_eq!(config.driver.get_password(), Some(b"p@ss".as_slice()));
        assert_eq!(config.driver.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(config.driver.get_application_name(), Some("web"));
        assert_eq!((config.schema.as_deref(), config.table.as_str()), (Some("jobs"), "leases"));
        assert_eq!((config.operation_timeout, config.pool_size), (Duration::from_millis(500), 2));
        assert_eq!(config.ssl_root_cert, Some("/etc/ca.pem".into()));
        assert_eq!(config.ssl_mode, crate::SslMode::VerifyFull);
    }

    #[test]
    fn a_question_mark_in_the_password_begins_no_parameters() {
        let config = parse("postgres://app:what?table=x@localhost/service?table=leases").unwrap();
        assert_eq!(config.driver.get_password(), Some(b"what?table=x".as_slice()));
        assert_eq!(config.table, "leases");
    }

    #[cfg(unix)]
    #[test]
    fn a_unix_socket_is_named_by_its_directory() {
        for url in ["postgres://%2Frun%2Fpostgresql/service", "postgres:///service?host=/run/postgresql"] {
            assert_eq!(parse(url).unwrap().driver.get_hosts(), [Host::Unix("/run/postgresql".into())], "{url}");
        }
    }

    /// The fault names the key, and nothing that could be a password.
    #[test]
    fn faults_show_no_password() {
        for (url, word) in [
            ("mysql://app:secret@localhost/service", "mysql"),
            ("app:secret@localhost", "app"),
            ("postgres:secret@localhost", "postgres"),
            ("postgres://app:secret@localhost:port/service", "port"),
            ("postgres://app:secret@localhost?sslcrl=x", "sslcrl"),
            ("postgres://app:secret@localhost?sslmode=maybe", "maybe"),
            ("postgres://app:secret@localhost?pool_size=many", "many"),
            ("postgres://app:secret@localhost?operation_timeout=-1", "-1"),
            ("postgres://app:secret@localhost?connect_timeout=soon", "connect_timeout"),
            ("postgres://app:secret@localhost?table=%FF", "Table"),
            ("postgres://app:secret", "port"),
        ] {
            let fault = parse(url).unwrap_err();
            assert!(fault.contains(word) && !fault.contains("secret"), "{url}: {fault}");
            let error = PostgresConfig::from_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            assert!(!format!("{:?}", PostgresConfig::from(url)).contains("secret"));
        }
    }
}
