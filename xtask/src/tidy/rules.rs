//! Checks that the contract and its tests agree: no rule without a test, no case without a rule, no rule that does not exist.

use std::collections::BTreeSet;

use crate::{
    tidy::{
        cases::{self, Case},
        finding::Finding,
        functions::{Function, cited, functions},
    },
    workspace::SourceFile,
};

/// The documents whose list items, `- **S1 exclusion.** ..`, are the rules.
const STORE: &str = "crates/lease-core/src/store.rs";
const EXECUTOR: &str = "crates/lease-core/src/executor.rs";

/// The room whose tests show the executor's rules.
const CORE: &str = "crates/lease-core/";

/// Everything that this file checks.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let core = files.iter().filter(|file| file.is_rust() && file.path.starts_with(CORE));

    let cases = cases::cases(files);
    let tests = core.flat_map(functions).filter(|function| function.is_test).collect::<Vec<_>>();
    let mut findings = check_cases(&rules(text(STORE), 'S'), &cases);
    findings.extend(cases::check(files, &cases));
    findings.extend(check_executor(&rules(text(EXECUTOR), 'E'), &tests));
    findings
}

/// The ids of the rules that a document lists.
fn rules(text: &str, prefix: char) -> BTreeSet<String> {
    let items = text.lines().filter_map(|line| line.trim_start_matches(['/', '!', ' ']).strip_prefix("- **"));
    items.filter_map(|item| cited(item.split(' ').next()?, prefix).pop()).collect()
}

fn check_cases(rules: &BTreeSet<String>, cases: &[Case]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut shown = BTreeSet::new();
    for case in cases {
        let function = &case.function;
        let named = cited(&function.documentation, 'S');
        if !named.first().is_some_and(|first| function.documentation.starts_with(first)) {
            let message = format!("the documentation of case `{}` must start with its rule's number", function.name);
            findings.push(case.finding(message));
        }
        let unknown = named.iter().filter(|rule| !rules.contains(*rule));
        findings.extend(unknown.map(|rule| case.finding(format!("there is no rule {rule}"))));
        shown.extend(named);
    }
    findings.extend(without_test(STORE, rules, &shown, "conformance case"));
    findings
}

fn check_executor(rules: &BTreeSet<String>, tests: &[Function]) -> Vec<Finding> {
    let shown = tests.iter().flat_map(|test| cited(&test.documentation, 'E')).collect();
    without_test(EXECUTOR, rules, &shown, "test")
}

fn without_test(document: &str, rules: &BTreeSet<String>, shown: &BTreeSet<String>, kind: &str) -> Vec<Finding> {
    if rules.is_empty() {
        return vec![Finding::new(
            document,
            "lists no rule, `- **S1 name.** ..`, so that nothing can be checked against it",
        )];
    }
    let bare = rules.difference(shown);
    bare.map(|rule| Finding::new(document, format!("no {kind} names rule {rule}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str =
        "/// - **S1 exclusion.** At most one.\n///   More.\n/// - **S2 clock.** The database's.\n/// - **not a rule**";

    fn case(text: &str) -> Vec<Case> {
        cases::cases_of(&SourceFile::new("cases/a.rs", text))
    }

    fn lines(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_rules_are_read_from_the_document() {
        assert_eq!(rules(DOCUMENT, 'S').into_iter().collect::<Vec<_>>(), ["S1", "S2"]);
        assert_eq!(rules("//! - **E12 stand back.** ..", 'E').into_iter().collect::<Vec<_>>(), ["E12"]);
    }

    #[test]
    fn a_rule_without_a_case_is_found() {
        let found = check_cases(&rules(DOCUMENT, 'S'), &case("/// S1: one.\npub async fn a() {}"));
        assert_eq!(lines(&found), [format!("{STORE}: no conformance case names rule S2")]);
    }

    #[test]
    fn a_case_without_a_rule_or_with_an_unknown_one_is_found() {
        let found = check_cases(
            &rules(DOCUMENT, 'S'),
            &case(
                "/// S1, S2: fine.\npub async fn a() {}\n/// By S1.\npub async fn b() {}\n/// S9: none.\npub async fn c() {}",
            ),
        );
        let expected = [
            "cases/a.rs:4: the documentation of case `b` must start with its rule's number",
            "cases/a.rs:6: there is no rule S9",
        ];
        assert_eq!(lines(&found), expected);
    }

    #[test]
    fn an_executor_rule_without_a_test_is_found() {
        let document = rules("//! - **E1 off.** ..\n//! - **E2 deadline.** ..", 'E');
        let tests = functions(&SourceFile::new("a.rs", "/// E1, CF-01\n#[test]\nfn a() {}"));
        assert_eq!(lines(&check_executor(&document, &tests)), [format!("{EXECUTOR}: no test names rule E2")]);
    }

    #[test]
    fn a_document_without_rules_is_found() {
        assert_eq!(check_cases(&BTreeSet::new(), &[]).len(), 1);
        assert_eq!(check_executor(&BTreeSet::new(), &[]).len(), 1);
    }
}
