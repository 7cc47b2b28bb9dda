//! The functions of a file with their documentation, for the checks on who names which rule.

use syn::{Attribute, Expr, Item, ItemFn, Lit, Meta, Visibility, spanned::Spanned};

use crate::workspace::SourceFile;

/// A function at the top of a file or of a module in it.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// Its documentation, as one text.
    pub(super) documentation: String,
    pub(super) is_test: bool,
    pub(super) is_public_async: bool,
}

/// Lists the functions of a file; one that is no Rust has none, and `syntax` says so.
pub(super) fn functions(file: &SourceFile) -> Vec<Function> {
    let mut found = Vec::new();
    if let Ok(parsed) = syn::parse_file(&file.text) {
        collect(&parsed.items, &mut found);
    }
    found
}

/// The ids of rules that a text cites: `prefix` and a number, as words of their own.
pub(super) fn cited(text: &str, prefix: char) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_id = |word: &&str| word.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok());
    words.filter(is_id).map(ToString::to_string).collect()
}

fn collect(items: &[Item], found: &mut Vec<Function>) {
    for item in items {
        match item {
            Item::Fn(function) => found.push(describe(function)),
            Item::Mod(module) => collect(module.content.as_ref().map_or(&[], |(_, items)| items), found),
            _ => {}
        }
    }
}

fn describe(function: &ItemFn) -> Function {
    let signature = &function.sig;
    let names_test = |attribute: &Attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test");
    Function {
        name: signature.ident.to_string(),
        line: signature.span().start().line,
        documentation: function.attrs.iter().filter_map(documentation).collect::<Vec<_>>().join("\n"),
        is_test: function.attrs.iter().any(names_test),
        is_public_async: signature.asyncness.is_some() && matches!(function.vis, Visibility::Public(_)),
    }
}

fn documentation(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().into()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_their_documentation() {
        let text = "/// S3: one\n/// line.\npub async fn a() {}\nmod m {\n    /// E2.\n    #[tokio::test]\n    async fn b() {}\n}";
        let found = functions(&SourceFile::new("a.rs", text));
        let [a, b] = &found[..] else { panic!("{found:?}") };
        assert_eq!((a.name.as_str(), a.line, a.documentation.as_str()), ("a", 3, "S3: one\nline."));
        assert!(a.is_public_async && !a.is_test);
        assert!(b.is_test && !b.is_public_async);
    }

    #[test]
    fn an_id_is_a_word_of_its_own() {
        assert_eq!(cited("S3, S14 (CS-01): SQL, ES6 and S4x", 'S'), ["S3", "S14"]);
    }
}
