//! Checks that SQL stays in `.sql` files: it is reviewed there, and never put together from parts.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{
    tidy::{finding::Finding, syntax::is_attribute},
    workspace::SourceFile,
};

/// Macros that put text together.
const FORMATTERS: [&str; 6] = ["format", "format_args", "write", "writeln", "concat", "concatcp"];

/// First words of statements, as SQL is written: in capitals.
const STATEMENTS: [&str; 9] = ["SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP", "WITH"];

/// First words of statements in small letters, where one word could as well be English.
const SMALL_STATEMENTS: [&str; 6] =
    ["select * from", "insert into ", "delete from ", "create table ", "alter table ", "drop table "];

/// No statement is put together by a macro, except in a test's set-up, which names schemas and databases of its own.
pub(super) fn check_format(file: &SourceFile) -> Vec<Finding> {
    if file.path.contains("/tests/") {
        return Vec::new();
    }
    let put_together = literals(file).into_iter().filter(|literal| literal.formatted);
    findings(file, put_together, "SQL put together by a macro: move it to a `.sql` file and bind what varies")
}

/// No statement is in a provider's Rust code at all, its tests aside.
pub(super) fn check_provider(file: &SourceFile) -> Vec<Finding> {
    let in_code = literals(file).into_iter().filter(|literal| !literal.formatted && !literal.in_test);
    findings(file, in_code, "SQL in a provider's code: move it to `src/sql/<verb>.sql`")
}

fn findings(file: &SourceFile, literals: impl Iterator<Item = Literal>, message: &str) -> Vec<Finding> {
    let statements = literals.filter(|literal| is_statement(&literal.text));
    statements.map(|literal| Finding::at(&file.path, literal.line, message)).collect()
}

fn is_statement(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.split_whitespace().next().unwrap_or_default();
    let small = text.to_lowercase();
    STATEMENTS.contains(&first) || SMALL_STATEMENTS.iter().any(|statement| small.starts_with(statement))
}

/// A string in the code, which is no attribute and so no documentation.
struct Literal {
    text: String,
    line: usize,
    formatted: bool,
    in_test: bool,
}

fn literals(file: &SourceFile) -> Vec<Literal> {
    let mut literals = Vec::new();
    if let Ok(stream) = file.text.parse() {
        collect(stream, false, false, &mut literals);
    }
    literals
}

fn collect(stream: TokenStream, formatted: bool, in_test: bool, literals: &mut Vec<Literal>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut test_follows = false;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if is_attribute(&tokens, index) => {
                test_follows |= group.stream().to_string().replace(' ', "").starts_with("cfg(test)");
            }
            TokenTree::Group(group) => {
                let tested = in_test || (test_follows && group.delimiter() == Delimiter::Brace);
                collect(group.stream(), formatted || is_formatter(&tokens, index), tested, literals);
                test_follows &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Punct(punct) => test_follows &= punct.as_char() != ';',
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal.clone()) {
                    let line = literal.span().start().line;
                    literals.push(Literal { text: text.value(), line, formatted, in_test });
                }
            }
            TokenTree::Ident(_) => {}
        }
    }
}

fn is_formatter(tokens: &[TokenTree], index: usize) -> bool {
    match &tokens[..index] {
        [.., TokenTree::Ident(name), TokenTree::Punct(bang)] => {
            bang.as_char() == '!' && FORMATTERS.iter().any(|formatter| name == formatter)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    fn formatted(text: &str) -> Vec<String> {
        lines(&check_format(&SourceFile::new("a.rs", text)))
    }

    fn in_provider(text: &str) -> Vec<String> {
        lines(&check_provider(&SourceFile::new("a.rs", text)))
    }

    #[test]
    fn a_statement_put_together_by_a_macro_is_found() {
        let expected = ["a.rs:1: SQL put together by a macro: move it to a `.sql` file and bind what varies"];
        assert_eq!(formatted(r#"fn f() { format!("SELECT a FROM {t}"); }"#), expected);
        assert_eq!(formatted(r#"fn f() { write!(s, "\n  insert into {t} values (1)"); }"#), expected);
        assert_eq!(formatted(r##"const A: &str = concat!(r#"UPDATE "#, "t");"##), expected);
        assert_eq!(formatted(r#"#[cfg(test)] mod tests { fn f() { format!("DROP TABLE {t}"); } }"#), expected);
    }

    #[test]
    fn a_statement_in_a_providers_code_is_found() {
        let expected = ["a.rs:1: SQL in a provider's code: move it to `src/sql/<verb>.sql`"];
        assert_eq!(in_provider(r#"fn f() { c.execute("DELETE FROM t", ()) }"#), expected);
        assert_eq!(in_provider(r#"#[cfg(test)] mod tests; const A: &str = "WITH a AS (..)";"#), expected);
    }

    #[test]
    fn documentation_english_and_tests_are_let_through() {
        let set_up = SourceFile::new("crates/a/tests/provider.rs", r#"fn f() { format!("CREATE SCHEMA {s}"); }"#);
        assert!(check_format(&set_up).is_empty());
        assert!(formatted("/// SELECT a FROM b\nfn f() { format!(\"update of {t}\"); }").is_empty());
        assert!(in_provider("/// SELECT a FROM b\nfn f() { log(\"Selects a row\"); }").is_empty());
        assert!(in_provider(r#"#[cfg(test)] mod tests { fn f() { c.execute("DELETE FROM t", ()) } }"#).is_empty());
    }
}
