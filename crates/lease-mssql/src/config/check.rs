//! What a configuration's values must be.

use std::{fmt, fs, path::Path, time::Duration};

use lease_core::ErrorKind;

use crate::error::Failure;

/// The longest name that SQL Server takes, in UTF-16 units.
const MAX_NAME_LENGTH: usize = 128;

/// The longest that a login's fields may be, in UTF-16 units.
const MAX_LOGIN_LENGTH: usize = 128;

pub(super) fn time(field: &str, time: Duration) -> Result<(), Failure> {
    if time < Duration::from_millis(1) {
        return Err(invalid(format!("{field} is {time:?}: it must be at least 1 ms")));
    }
    Ok(())
}

pub(super) fn name(field: &str, name: &str) -> Result<(), Failure> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_well = !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain && begins_well && (1..=MAX_NAME_LENGTH).contains(&name.len()) {
        return Ok(());
    }
    Err(invalid(format!(
        "{field} {name:?} is no such name: 1 to {MAX_NAME_LENGTH} ASCII letters, digits and underscores, not beginning with a digit"
    )))
}

/// A host that came from a URL that was misread may be part of a password: it is not shown.
pub(super) fn host(host: &str) -> Result<(), Failure> {
    if host.is_empty() {
        return Err(invalid("the configuration names no host"));
    }
    if host.contains('\\') {
        return Err(invalid(
            "host names an instance, which has to be looked up at the server: give the instance's port",
        ));
    }
    if !host.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%')) {
        return Err(invalid("host is neither a name nor an address"));
    }
    Ok(())
}

/// The values are not shown, for one of them is the password.
pub(super) fn login(field: &str, value: &str) -> Result<(), Failure> {
    if value.encode_utf16().count() > MAX_LOGIN_LENGTH {
        return Err(invalid(format!("{field} is longer than {MAX_LOGIN_LENGTH} UTF-16 units")));
    }
    if value.contains('\0') {
        return Err(invalid(format!("{field} has a NUL in it")));
    }
    Ok(())
}

/// The certificates of a file. What is in them the driver finds out.
pub(super) fn certificates(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: &dyn fmt::Display| invalid(format!("ca {} cannot be used: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| cannot(&error))?;
    let is_pem = bytes.windows(27).any(|window| window == b"-----BEGIN CERTIFICATE-----");
    // DER is a SEQUENCE.
    if is_pem || bytes.first() == Some(&0x30) { Ok(bytes) } else { Err(cannot(&"there is no certificate in it")) }
}

pub(super) fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidConfig, detail)
}
