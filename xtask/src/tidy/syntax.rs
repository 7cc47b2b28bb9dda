//! Checks on Rust's tokens, so that a comment or a string is never taken for code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{tidy::finding::Finding, workspace::SourceFile};

/// Everything that this file checks.
pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let stream = match file.text.parse() {
        Ok(stream) => stream,
        Err(error) => return vec![Finding::new(&file.path, format!("cannot be read as Rust: {error}"))],
    };
    let mut findings = Vec::new();
    walk(stream, &mut |tokens| findings.extend(allow_attribute(&file.path, tokens)));
    findings
}

/// Calls `visit` with every group's tokens, the outermost first.
pub(super) fn walk(stream: TokenStream, visit: &mut impl FnMut(&[TokenTree])) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    visit(&tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            walk(group.stream(), visit);
        }
    }
}

/// `#[allow]` stays when its cause is gone; `#[expect]` tells.
fn allow_attribute(path: &str, tokens: &[TokenTree]) -> Vec<Finding> {
    let attributes = tokens.iter().enumerate().filter_map(|(index, token)| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_attribute(tokens, index) => {
            Some(group)
        }
        _ => None,
    });
    let allows = attributes.filter(|group| names_allow(group.stream()));
    let message = "suppress a lint with `#[expect(lint, reason = \"..\")]` only";
    allows.map(|group| Finding::at(path, group.span_open().start().line, message)).collect()
}

/// Whether this is `allow(..)`, or `cfg_attr(.., allow(..))`.
fn names_allow(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    let is = |token: &TokenTree, name: &str| matches!(token, TokenTree::Ident(ident) if ident == name);
    match &tokens[..] {
        [name, TokenTree::Group(arguments)] if is(name, "cfg_attr") => {
            arguments.stream().into_iter().any(|token| is(&token, "allow"))
        }
        [name, ..] => is(name, "allow"),
        [] => false,
    }
}

/// Whether the group at `index` is the bracket of `#[..]` or `#![..]`.
pub(super) fn is_attribute(tokens: &[TokenTree], index: usize) -> bool {
    let is = |offset: usize, sign: char| {
        let token = index.checked_sub(offset).and_then(|index| tokens.get(index));
        matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
    };
    is(1, '#') || (is(1, '!') && is(2, '#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&SourceFile::new("a.rs", text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_allow_attribute_is_found_wherever_it_is() {
        let message = "suppress a lint with `#[expect(lint, reason = \"..\")]` only";
        assert_eq!(found("#![allow(dead_code)]"), [format!("a.rs:1: {message}")]);
        assert_eq!(found("fn f() {\n    #[allow(unused)]\n    let a = 1;\n}"), [format!("a.rs:2: {message}")]);
        assert_eq!(found("#[cfg_attr(test, allow(unused))] fn f() {}"), [format!("a.rs:1: {message}")]);
    }

    #[test]
    fn a_mention_of_an_allow_attribute_is_no_attribute() {
        assert!(found("// #[allow(dead_code)]\nconst A: &str = \"#[allow(dead_code)]\";\n").is_empty());
        assert!(found("#[expect(dead_code, reason = \"..\")] fn allow() { allow() }").is_empty());
    }

    #[test]
    fn a_file_that_is_no_rust_is_found() {
        assert!(found("fn f( {")[0].starts_with("a.rs: cannot be read as Rust"));
    }
}
