//! Owner ids: `<label>:<uuid>:<n>`, each for one contention and at most one term (E7).

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::{OwnerId, executor::consistency::OptionsError, executor::options::SingletonOptions, name::MAX_UTF16_UNITS};

/// The UTF-16 units kept free behind the label: two colons, a UUID and the longest counter.
const SUFFIX_UNITS: usize = 2 + 36 + 20;

/// Makes the owner ids of one executor. No id is ever made twice.
#[derive(Debug)]
pub(crate) struct OwnerMint {
    prefix: String,
    next: AtomicU64,
}

impl OwnerMint {
    pub(crate) fn new(options: &SingletonOptions) -> Result<Self, OptionsError> {
        let label = match options.label.as_deref() {
            Some(label) => OwnerId::new(shortened(label))?.to_string(),
            None => default_label(),
        };
        Ok(Self { prefix: format!("{label}:{}", Uuid::new_v4()), next: AtomicU64::new(1) })
    }

    /// An id that was never used before.
    pub(crate) fn mint(&self) -> OwnerId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        OwnerId::new(format!("{}:{number}", self.prefix)).expect("the label was checked and leaves room for the rest")
    }
}

/// `host:pid`, without what an owner id may not hold.
fn default_label() -> String {
    let host: String = host_name().chars().filter(|c| !c.is_control()).collect();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    let process = std::process::id().to_string();
    format!("{}:{process}", cut(host, MAX_UTF16_UNITS - SUFFIX_UNITS - 1 - process.len()))
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The start of a label that fits, without the white space that cutting may have laid bare.
fn shortened(label: &str) -> &str {
    let start = cut(label, MAX_UTF16_UNITS - SUFFIX_UNITS);
    if start.len() < label.len() { start.trim_end() } else { start }
}

/// The longest start of `text` that has at most `units` UTF-16 units.
fn cut(text: &str, units: usize) -> &str {
    let mut used = 0;
    for (index, c) in text.char_indices() {
        used += c.len_utf16();
        if used > units {
            return &text[..index];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mint(label: &str) -> Result<OwnerMint, OptionsError> {
        OwnerMint::new(&SingletonOptions::enabled().label(label))
    }

    /// E7, RC-09: two executors on one host never share an id, and one executor never repeats one.
    #[test]
    fn ids_are_never_repeated() {
        let options = SingletonOptions::enabled();
        let (a, b) = (OwnerMint::new(&options).unwrap(), OwnerMint::new(&options).unwrap());
        let ids: std::collections::HashSet<_> = (0..100).flat_map(|_| [a.mint(), b.mint()]).collect();
        assert_eq!(ids.len(), 200);
    }

    /// E7
    #[test]
    fn an_id_starts_with_its_label() {
        let id = mint("web-1").unwrap().mint().to_string();
        assert!(id.starts_with("web-1:") && id.ends_with(":1"), "{id}");
        let default = OwnerMint::new(&SingletonOptions::enabled()).unwrap().mint().to_string();
        assert!(default.contains(&format!(":{}:", std::process::id())), "{default}");
        assert!(default.starts_with(cut(host_name().trim(), 60)), "{default}");
    }

    /// E7, S9: a label that is too long is shortened between characters; one with forbidden characters is refused.
    #[test]
    fn a_long_label_is_shortened_and_a_bad_one_refused() {
        for label in ["x".repeat(1000), "😀".repeat(500), format!("{} {}", "y".repeat(196), "z".repeat(90))] {
            let mint = mint(&label).unwrap();
            mint.next.store(u64::MAX, Ordering::Relaxed);
            assert!(mint.mint().as_str().encode_utf16().count() <= MAX_UTF16_UNITS);
        }
        for label in ["", "a\nb", " a", "a "] {
            assert!(mint(label).unwrap_err().to_string().starts_with("label: "), "{label:?}");
        }
    }
}
