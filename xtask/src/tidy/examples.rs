//! Checks that the README's Rust code compiles, by finding each example in a crate's documentation, where it is a test.

use crate::{tidy::finding::Finding, workspace::SourceFile};

const README: &str = "README.md";

/// Finds every block of Rust in the README that no crate's documentation holds word for word.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let Some(readme) = files.iter().find(|file| file.path == README) else {
        return vec![Finding::new(README, "is missing")];
    };
    let documentation: Vec<String> =
        files.iter().filter(|file| file.path.ends_with("src/lib.rs")).map(documentation).collect();
    let untested =
        blocks(&readme.text).into_iter().filter(|(_, block)| !documentation.iter().any(|text| text.contains(block)));
    let message = "this example is in no crate's `lib.rs`, so that nobody knows whether it compiles";
    untested.map(|(line, _)| Finding::at(README, line, message)).collect()
}

/// The blocks fenced as `rust`, each with the number of its first line.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if line == "```rust" {
            let block = lines.by_ref().map_while(|(line, _)| (line != "```").then_some([line, "\n"]));
            blocks.push((number, block.flatten().collect()));
        }
    }
    blocks
}

/// The file's own documentation, without the hidden lines of its examples.
fn documentation(file: &SourceFile) -> String {
    let lines = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.filter(|line| *line != "#" && !line.starts_with("# ")).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str, documentation: &str) -> Vec<Finding> {
        check(&[SourceFile::new(README, readme), SourceFile::new("crates/a/src/lib.rs", documentation)])
    }

    #[test]
    fn an_example_that_no_crate_tests_is_found() {
        let readme = "# Words\n\n```rust\nlet a = f();\n```\n";
        let message = "this example is in no crate's `lib.rs`, so that nobody knows whether it compiles";
        assert_eq!(found(readme, "//! ```\n//! let a = g();\n//! ```\n"), [Finding::at(README, 3, message)]);
        assert!(found(readme, "//! ```\n//! # fn main() {\n//! let a = f();\n//! # }\n//! ```\n").is_empty());
    }

    #[test]
    fn other_blocks_are_no_examples() {
        assert!(found("```sh\ncargo test\n```\n", "//! Words.\n").is_empty());
    }

    #[test]
    fn a_missing_readme_is_found() {
        assert_eq!(check(&[]).len(), 1);
    }
}
