//! Cases that cannot pass on one server that is like a database but is not it, each by its name and with the reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One entry of `waivers` in a provider's `[package.metadata.lease-provider]`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiver {
    /// The product that it applies to, and no other, such as `Babelfish`.
    pub(crate) server: String,
    /// The case, `theme::name`, whichever way the store is called.
    pub(crate) case: String,
    pub(crate) reason: String,
}

impl Waiver {
    /// Whether this is the server's product.
    pub(crate) fn applies_to(&self, server: &str) -> bool {
        server.split(' ').next() == Some(&self.server)
    }

    /// Whether this test, `module::theme::name`, is the case.
    fn covers(&self, test: &str) -> bool {
        test.strip_suffix(&self.case).is_some_and(|module| module.is_empty() || module.ends_with("::"))
    }
}

impl fmt::Display for Waiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waived on {}: {}: {}", self.server, self.case, self.reason)
    }
}

/// How many of the tests that failed in this output of `cargo test` are waived, and the waivers whose case has passed, which is none.
pub(crate) fn judge<'a>(output: &str, waivers: &[&'a Waiver]) -> (usize, Vec<&'a Waiver>) {
    let ended = |how: &str| -> Vec<&str> {
        let tests = output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
        tests.filter(|(_, end)| end.split(' ').next() == Some(how)).map(|(test, _)| test).collect()
    };
    let (failed, passed) = (ended("FAILED"), ended("ok"));
    let excused = failed.iter().filter(|test| waivers.iter().any(|waiver| waiver.covers(test))).count();
    let needless = waivers.iter().filter(|waiver| passed.iter().any(|test| waiver.covers(test))).copied().collect();
    (excused, needless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiver(case: &str) -> Waiver {
        Waiver { server: "Babelfish".into(), case: case.into(), reason: "it has no hints".into() }
    }

    #[test]
    fn a_waiver_is_for_one_product() {
        assert!(waiver("a::b").applies_to("Babelfish 4.3"));
        assert!(!waiver("a::b").applies_to("SQL Server 16.0"));
        assert!(!waiver("a::b").applies_to("Babelfishes 1"));
        assert!(!waiver("a::b").applies_to(""));
    }

    #[test]
    fn waived_failures_are_counted_and_needless_waivers_found() {
        let output = "test conformance::race::one ... FAILED\ntest conformance_dyn::race::one ... FAILED\n\
                      test conformance::race::phone ... FAILED\ntest conformance::race::two ... ok\n\
                      test conformance::race::three ... ignored, no lock\n";
        let (one, two, three) = (waiver("race::one"), waiver("race::two"), waiver("race::three"));
        assert_eq!(judge(output, &[&one, &three]), (2, vec![]));
        assert_eq!(judge(output, &[&one, &two]), (2, vec![&two]));
        assert_eq!(judge(output, &[&waiver("one")]).0, 2, "a name is whole words: `phone` is another case");
        assert_eq!(judge(output, &[]), (0, vec![]));
    }
}
