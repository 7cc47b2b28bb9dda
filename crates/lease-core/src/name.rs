//! Lease names and owner ids: parsed once here, so that providers never validate.

use std::{error, fmt, str::FromStr, sync::Arc};

/// The most UTF-16 code units that a [`LeaseName`] or an [`OwnerId`] may have.
///
/// SQL Server counts `nvarchar(255)` in UTF-16 units and allows 900 bytes in a clustered key, so 255 units fit everywhere.
pub(crate) const MAX_UTF16_UNITS: usize = 255;

/// The id of a protected job.
///
/// Names are compared by code point (S9): `Job`, `job` and `jo\u{301}b` are three different leases. A clone is cheap.
///
/// # Examples
///
/// ```
/// use lease_core::LeaseName;
///
/// let name = LeaseName::new("nightly-report")?;
/// assert_eq!(name.as_str(), "nightly-report");
/// assert!(LeaseName::new("nightly-report ").is_err());
/// # Ok::<(), lease_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName(Arc<str>);

/// The id of an instance that claims a lease.
///
/// The rules are those of a [`LeaseName`]. Two instances must never share an id; the executor makes its own.
///
/// # Examples
///
/// ```
/// use lease_core::OwnerId;
///
/// let owner: OwnerId = "web-1:4711".parse()?;
/// assert_eq!(owner.to_string(), "web-1:4711");
/// # Ok::<(), lease_core::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Arc<str>);

macro_rules! identifier {
    ($type:ident, $what:literal) => {
        impl $type {
            /// Parses an id.
            ///
            /// # Errors
            ///
            /// [`NameError`] names the broken rule and the value: 1 to 255 UTF-16 units, no control characters, no leading or
            /// trailing white space (S9).
            pub fn new(value: impl AsRef<str>) -> Result<Self, NameError> {
                let value = value.as_ref();
                match broken_rule(value) {
                    None => Ok(Self(value.into())),
                    Some(rule) => Err(NameError { what: $what, rule, value: value.into() }),
                }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = NameError;

            fn try_from(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(value: String) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

identifier!(LeaseName, "lease name");
identifier!(OwnerId, "owner id");

/// The rule that a [`NameError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameRule {
    /// The value is empty.
    Empty,
    /// The value has more than 255 UTF-16 code units.
    TooLong,
    /// The value has a control character, such as a line break or NUL.
    ControlCharacter,
    /// The value begins or ends with white space, which SQL Server ignores when it compares.
    OuterWhiteSpace,
}

/// A lease name or an owner id that breaks a rule of S9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    what: &'static str,
    rule: NameRule,
    value: String,
}

impl NameError {
    /// The broken rule.
    pub fn rule(&self) -> NameRule {
        self.rule
    }

    /// The refused value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, rule, value } = self;
        match rule {
            NameRule::Empty => write!(f, "{what} \"\" is empty: it must have 1 to {MAX_UTF16_UNITS} UTF-16 units"),
            NameRule::TooLong => {
                let units = value.encode_utf16().count();
                let start: String = value.chars().take(32).collect();
                write!(f, "{what} {start:?}.. has {units} UTF-16 units: it must have 1 to {MAX_UTF16_UNITS}")
            }
            NameRule::ControlCharacter => write!(f, "{what} {value:?} has a control character: none is allowed"),
            NameRule::OuterWhiteSpace => {
                write!(f, "{what} {value:?} begins or ends with white space: neither is allowed")
            }
        }
    }
}

impl error::Error for NameError {}

fn broken_rule(value: &str) -> Option<NameRule> {
    if value.is_empty() {
        Some(NameRule::Empty)
    } else if value.encode_utf16().count() > MAX_UTF16_UNITS {
        Some(NameRule::TooLong)
    } else if value.chars().any(char::is_control) {
        Some(NameRule::ControlCharacter)
    } else if value.starts_with(char::is_whitespace) || value.ends_with(char::is_whitespace) {
        Some(NameRule::OuterWhiteSpace)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: &str) -> Option<NameRule> {
        LeaseName::new(value).err().map(|error| error.rule())
    }

    /// S9, NE-01, NE-02, NE-04, NE-06
    #[test]
    fn each_broken_rule_is_named() {
        assert_eq!(rule(""), Some(NameRule::Empty));
        for value in ["a\0b", "\0", "a\nb", "a\u{85}b", "\t", "a\u{7f}"] {
            assert_eq!(rule(value), Some(NameRule::ControlCharacter), "{value:?}");
        }
        for value in ["a ", " a", "\u{a0}a", "a\u{3000}", " "] {
            assert_eq!(rule(value), Some(NameRule::OuterWhiteSpace), "{value:?}");
        }
        assert_eq!(rule(&"a".repeat(256)), Some(NameRule::TooLong));
        assert_eq!(rule(&"😀".repeat(128)), Some(NameRule::TooLong));
    }

    /// S9, NE-04
    #[test]
    fn the_longest_names_and_inner_white_space_are_allowed() {
        for value in ["a", "a b", "ß", "'; drop table singleton_leases; --", "%s", "\u{200b}"] {
            assert_eq!(rule(value), None, "{value:?}");
        }
        assert_eq!(rule(&"a".repeat(255)), None);
        assert_eq!(rule(&format!("{}a", "😀".repeat(127))), None);
    }

    #[test]
    fn the_error_shows_the_value_escaped_and_shortened() {
        let message = |value: &str| OwnerId::new(value).unwrap_err().to_string();
        assert_eq!(message("a\nb"), r#"owner id "a\nb" has a control character: none is allowed"#);
        assert_eq!(message(""), r#"owner id "" is empty: it must have 1 to 255 UTF-16 units"#);
        assert!(message(&"x".repeat(9000)).len() < 120);
    }
}
