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
