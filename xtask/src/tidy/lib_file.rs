//! Checks that a crate's `lib.rs` is its table of contents: documentation, modules and what they export.

use syn::{Item, Visibility, spanned::Spanned};

use crate::{tidy::finding::Finding, workspace::SourceFile};

/// Finds every item that is neither `mod name;` nor `pub use`.
pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let parsed = match syn::parse_file(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => return vec![Finding::new(&file.path, format!("cannot be read as Rust: {error}"))],
    };
    let others = parsed.items.iter().filter(|item| !belongs(item));
    let message = "`lib.rs` holds documentation, `mod name;` and `pub use` only: move this to a module";
    others.map(|item| Finding::at(&file.path, item.span().start().line, message)).collect()
}

fn belongs(item: &Item) -> bool {
    match item {
        Item::Mod(module) => module.content.is_none(),
        Item::Use(import) => matches!(import.vis, Visibility::Public(_)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&SourceFile::new("src/lib.rs", text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn anything_but_a_table_of_contents_is_found() {
        let message = "`lib.rs` holds documentation, `mod name;` and `pub use` only: move this to a module";
        for item in ["fn f() {}", "struct A;", "mod a { fn f() {} }", "use std::fmt;", "macro_rules! a { () => {} }"] {
            assert_eq!(found(&format!("//! Docs.\n\n{item}")), [format!("src/lib.rs:3: {message}")], "{item}");
        }
    }

    #[test]
    fn documentation_modules_and_exports_are_let_through() {
        assert!(
            found("//! Docs.\n#![doc = \"more\"]\npub mod a;\nmod b;\n#[cfg(unix)]\nmod c;\npub use b::B;").is_empty()
        );
    }
}
