//! Store URLs.

use super::{DEFAULT_PORT, MssqlConfig, key::Key};

const SCHEMES: [&str; 2] = ["mssql", "sqlserver"];

/// Whether it is meant for a URL, rather than for a connection string.
pub(super) fn is_url(text: &str) -> bool {
    let key = text.find(['=', ';']).unwrap_or(text.len());
    !text.contains('=') || text[..key].contains("://")
}

/// Reads a store URL. The fault never quotes more of the URL than its scheme, a key, or a value of one of our own keys, for the rest may
/// hold a password, or a part of one that was not encoded.
pub(super) fn parse(url: &str) -> Result<MssqlConfig, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(
            "the store is neither a URL, mssql://USER:PASSWORD@HOST/DATABASE, nor a connection string, Server=.."
                .into(),
        );
    };
    if !SCHEMES.contains(&scheme) {
        return Err(format!("the store URL's scheme is {scheme:?}: it must be mssql://HOST/DATABASE"));
    }
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if rest.contains('@') {
        return Err("the store URL has an `@` behind a `/`, `?` or `#`: write these as %40, %2F, %3F and %23 in a password and in \
                    values"
            .into());
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.contains('#') || query.contains('#') {
        return Err("the store URL has a `#`: write it as %23".into());
    }
    // In a password, an `@` that was left as it is does no harm: no host has one.
    let (login, host) = authority.rsplit_once('@').map_or((None, authority), |(login, host)| (Some(login), host));
    let (host, port) = split_port(host)?;
    let mut config = MssqlConfig::new(host).port(port);
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        config = config.login(decode("the user", user)?, decode("the password", password)?);
    }
    let database = path.strip_prefix('/').unwrap_or(path);
    if database.contains('/') {
        return Err("the store URL names more than a database behind the host".into());
    }
    if !database.is_empty() {
        config = config.database(decode("the database", database)?);
    }
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let key = Key::of(name).ok_or_else(|| unknown(name))?;
        config = key.set(config, &decode(&format!("{key:?}"), value)?)?;
    }
    Ok(config)
}

/// A key that looks like one is named.
fn unknown(name: &str) -> String {
    let is_plain = name.len() <= 40 && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let key = if is_plain { format!("{name:?}") } else { "of its own".into() };
    format!("the store URL has a key {key}, which is none of {}", Key::NAMES)
}

/// The host, and the port behind it. What stands there may be a password whose host is missing: it is not shown.
fn split_port(host: &str) -> Result<(&str, u16), String> {
    let fault = || "the store URL's port is no number from 1 to 65535".to_owned();
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or("the store URL's address has no `]`")?;
            (address, port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(fault)?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(fault()),
    };
    Ok((host, port))
}

/// Undoes percent-encoding. The fault names the part, and not the text.
fn decode(part: &str, text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match tail {
            [high, low, tail @ ..] if *first == b'%' => (hex(*high, *low), tail),
            _ => (Some(*first).filter(|byte| *byte != b'%'), tail),
        };
        bytes.push(byte.ok_or_else(|| {
            format!("{part} of the store URL has a `%` without two hexadecimal digits: write it as %25")
        })?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| format!("{part} of the store URL is not UTF-8"))
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Encrypt;

    #[test]
    fn everything_has_its_place() {
        let url = "mssql://ap%70:p%40ss%2F%3f%25@db-1:1444/ser%20vice?encrypt=strict&ca=%2Fetc%2Fca.pem&schema=jobs&table=leases\
                   &connect_timeout=3&operation_timeout=0.5&pool_size=2&application_name=web&hostname_in_certificate=db";
        let config = parse(url).unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database.as_deref()), ("db-1", 1444, Some("ser vice")));
        assert_eq!((config.user.as_str(), config.password.as_str()), ("app", "p@ss/?%"));
        assert_eq!((config.encrypt, config.trust_cert), (Encrypt::Strict, false));
        assert_eq!((config.schema.as_deref(), config.table.as_str()), (Some("jobs"), "leases"));
        assert_eq!(
            (config.connect_timeout, config.operation_timeout),
            (Duration::from_secs(3), Duration::from_millis(500))
        );
        assert_eq!((config.pool_size, config.application_name.as_str()), (2, "web"));
        assert_eq!(config.ca, Some("/etc/ca.pem".into()));
        assert_eq!(config.hostname_in_certificate.as_deref(), Some("db"));
        assert!(config.settings().is_err(), "there is no such file");
    }

    /// Encryption is on, and certificates are looked at, unless it was asked otherwise.
    #[test]
    fn what_is_not_said_is_safe() {
        let config = parse("sqlserver://app:secret@[::1]").unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database.as_deref()), ("::1", 1433, None));
        assert_eq!((config.encrypt, config.trust_cert), (Encrypt::Mandatory, false));
        assert!(config.settings().is_ok());
        assert!(parse("mssql://app:secret@db/?trust_cert=true").unwrap().trust_cert);
        for (word, encrypt) in [
            ("true", Encrypt::Mandatory),
            ("mandatory", Encrypt::Mandatory),
            ("False", Encrypt::Optional),
            ("optional", Encrypt::Optional),
            ("never", Encrypt::Never),
        ] {
            assert_eq!(parse(&format!("mssql://app:secret@db?encrypt={word}")).unwrap().encrypt, encrypt);
        }
    }

    /// An `@` or a `:` that was left as it is in a password cannot be misread.
    #[test]
    fn a_password_ends_at_the_last_at_sign() {
        let config = parse("mssql://app:p@ss:word@db/service").unwrap();
        assert_eq!((config.user.as_str(), config.password.as_str(), config.host.as_str()), ("app", "p@ss:word", "db"));
    }

    /// The fault names the rule, and nothing that could be a password.
    #[test]
    fn faults_show_no_password() {
        for (url, word) in [
            ("mysql://app:secret@localhost/service", "mysql"),
            ("app:secret@localhost", "mssql://"),
            ("mssql:secret@localhost", "mssql://"),
            ("mssql://app:secret@localhost:port/service", "port"),
            ("mssql://app:secret@localhost:0/service", "port"),
            ("mssql://app:secret@localhost:65536", "port"),
            ("mssql://app:secret@[::1", "]"),
            ("mssql://app:secret@[::1]x", "port"),
            ("mssql://app:secret", "port"),
            ("mssql://app:x/secret@localhost", "%2F"),
            ("mssql://app:x?secret@localhost", "%3F"),
            ("mssql://app:x#secret@localhost", "%23"),
            ("mssql://me@corp?secret=x@localhost", "%40"),
            ("mssql://app:%secret@localhost", "%25"),
            ("mssql://app:secret%@localhost", "the password"),
            ("mssql://app:secret%FF@localhost", "UTF-8"),
            ("mssql://%FF:secret@localhost", "the user"),
            ("mssql://app:secret@localhost/a/b", "database"),
            ("mssql://app:secret@localhost/a#b", "%23"),
            ("mssql://app:secret@localhost/%FF", "the database"),
            ("mssql://localhost?user=app;password=secret", "\"user\""),
            ("mssql://app@localhost?password=secret", "\"password\""),
            ("mssql://app@localhost?password:secret", "of its own"),
            ("mssql://app:secret@localhost?sslmode=require", "sslmode"),
            ("mssql://app:secret@localhost?encrypt=maybe", "maybe"),
            ("mssql://app:secret@localhost?trust_cert=1", "trust_cert \"1\""),
            ("mssql://app:secret@localhost?pool_size=many", "many"),
            ("mssql://app:secret@localhost?operation_timeout=-1", "-1"),
            ("mssql://app:secret@localhost?connect_timeout=soon", "soon"),
            ("mssql://app:secret@localhost?table=%FF", "Table"),
        ] {
            let fault = parse(url).unwrap_err();
            assert!(fault.contains(word) && !fault.contains("secret"), "{url}: {fault}");
            let error = MssqlConfig::from_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            assert!(!format!("{:?}", MssqlConfig::from(url)).contains("secret"));
        }
        // What is read, and refused later.
        for url in
            ["mssql://localhost;user=app;password=secret", "mssql://a\\secret:1@localhost\\sql", "mssql://:secret@db"]
        {
            let config = parse(url).unwrap();
            let error = config.settings().err().unwrap().into_error(lease_core::Operation::Connect);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }
}
