//! Checks that the conformance suite runs each of its cases, and says of each what its documentation says.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{
    tidy::{
        finding::Finding,
        functions::{Function, functions},
        syntax::walk,
    },
    workspace::SourceFile,
};

/// The list that the suite's tests are made from: `theme { case "S1, RC-01" [hooks]; .. }`.
const LIST: &str = "crates/lease-conformance/src/list.rs";

/// One file of cases for each theme.
const CASES: &str = "crates/lease-conformance/src/cases/";

/// A conformance case, as its file has it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) path: String,
    pub(super) function: Function,
}

impl Case {
    fn theme(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// The ids that its documentation starts with.
    fn ids(&self) -> &str {
        self.function.documentation.split(':').next().unwrap_or_default()
    }

    pub(super) fn finding(&self, message: impl Into<String>) -> Finding {
        Finding::at(&self.path, self.function.line, message)
    }
}

/// The cases in all files.
pub(super) fn cases(files: &[SourceFile]) -> Vec<Case> {
    files.iter().filter(|file| file.path.starts_with(CASES)).flat_map(cases_of).collect()
}

/// The cases in one file: its public asynchronous functions.
pub(super) fn cases_of(file: &SourceFile) -> Vec<Case> {
    let public = functions(file).into_iter().filter(|function| function.is_public_async);
    public.map(|function| Case { path: file.path.clone(), function }).collect()
}

/// Everything that this file checks.
pub(super) fn check(files: &[SourceFile], cases: &[Case]) -> Vec<Finding> {
    match files.iter().find(|file| file.path == LIST) {
        Some(list) => check_list(&list.text, cases),
        None => vec![Finding::new(LIST, "is missing, so that nobody knows which cases run")],
    }
}

fn check_list(list: &str, cases: &[Case]) -> Vec<Finding> {
    let entries = list.parse().map(entries).unwrap_or_default();
    let check = |case: &Case| {
        let name = &case.function.name;
        let Some(entry) = entries.iter().find(|entry| entry.case == *name && entry.theme == case.theme()) else {
            return Some(case.finding(format!("case `{name}` is left out of {LIST} and never runs")));
        };
        let message =
            format!("the documentation of case `{name}` starts with \"{}\", {LIST} says \"{}\"", case.ids(), entry.ids);
        (entry.ids != case.ids()).then(|| case.finding(message))
    };
    cases.iter().filter_map(check).collect()
}

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    theme: String,
    case: String,
    ids: String,
}

fn entries(list: TokenStream) -> Vec<Entry> {
    let mut entries = Vec::new();
    walk(list, &mut |tokens| {
        for window in tokens.windows(2) {
            if let [TokenTree::Ident(theme), TokenTree::Group(group)] = window
                && group.delimiter() == Delimiter::Brace
            {
                entries.extend(entries_of(&theme.to_string(), group.stream()));
            }
        }
    });
    entries
}

fn entries_of(theme: &str, lines: TokenStream) -> Vec<Entry> {
    let tokens: Vec<TokenTree> = lines.into_iter().collect();
    let lines = tokens.windows(3).filter_map(|window| match window {
        [TokenTree::Ident(case), TokenTree::Literal(ids), TokenTree::Group(hooks)]
            if hooks.delimiter() == Delimiter::Bracket =>
        {
            let ids = ids.to_string().trim_matches('"').to_string();
            Some(Entry { theme: theme.into(), case: case.to_string(), ids })
        }
        _ => None,
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "macro_rules! cases { () => { go! { acquire { a \"S1\" []; b \"S2, RC-01\" [row]; } renew { c \"S4\" []; } } } }";

    fn found(path: &str, text: &str) -> Vec<String> {
        let cases = cases_of(&SourceFile::new(path, text));
        check_list(LISTED, &cases).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_case_that_is_listed_is_let_through() {
        let text = "/// S1: one.\npub async fn a() {}\n/// S2, RC-01: two.\npub async fn b() {}\nasync fn helper() {}";
        assert!(found("cases/acquire.rs", text).is_empty());
    }

    #[test]
    fn a_case_that_is_left_out_is_found() {
        let expected = [format!("cases/acquire.rs:2: case `d` is left out of {LIST} and never runs")];
        assert_eq!(found("cases/acquire.rs", "/// S1: one.\npub async fn d() {}"), expected);
        let expected = [format!("cases/renew.rs:2: case `a` is left out of {LIST} and never runs")];
        assert_eq!(found("cases/renew.rs", "/// S1: one.\npub async fn a() {}"), expected);
    }

    #[test]
    fn a_case_that_says_another_rule_than_the_list_is_found() {
        let message = format!("the documentation of case `c` starts with \"S5\", {LIST} says \"S4\"");
        assert_eq!(
            found("cases/renew.rs", "/// S5: one.\npub async fn c() {}"),
            [format!("cases/renew.rs:2: {message}")]
        );
    }

    #[test]
    fn a_missing_list_is_found() {
        assert_eq!(check(&[], &[]).len(), 1);
    }
}
