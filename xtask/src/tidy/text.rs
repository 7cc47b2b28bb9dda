//! Checks that need no more than a file's lines: its opening sentence, its length, unfinished work, machine paths.

use crate::{tidy::finding::Finding, workspace::SourceFile};

const MAX_LINES: usize = 400;

/// Marks of unfinished work, split so that this file does not hold them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders that exist on somebody's machine only, split for the same reason.
const MACHINE_FOLDERS: [&str; 6] = [
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "Users/"),
    concat!("/", "work/"),
    concat!("/", "tmp/"),
    concat!(r"\", r"Users\"),
];

/// Everything that this file checks.
pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = unfinished(file);
    findings.extend(machine_paths(file));
    if file.is_rust() {
        findings.extend(opening_sentence(file));
        findings.extend(length(file));
    }
    findings
}

/// A file that cannot say in a sentence what it is for has no one purpose.
fn opening_sentence(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().map_while(|line| line.strip_prefix("//!")).take_while(|line| !line.trim().is_empty());
    let paragraph: Vec<&str> = lines.map(str::trim).collect();
    let Some(last) = paragraph.last() else {
        return Some(Finding::at(&file.path, 1, "the file must open with a `//!` sentence that says what it is for"));
    };
    let ends = last.ends_with(['.', '?', '!']);
    (!ends).then(|| Finding::at(&file.path, paragraph.len(), "the opening `//!` sentence must end with a full stop"))
}

fn length(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES)
        .then(|| Finding::new(&file.path, format!("{lines} lines are more than {MAX_LINES}: split the file")))
}

fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let is_word = |line: &str, mark: &str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == mark);
    let finish = |mark: &str| format!("{mark}: finish it, or write an issue");
    each_line(file, &UNFINISHED, is_word, finish)
}

fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let names = |line: &str, folder: &str| line.contains(folder);
    let explain = |folder: &str| format!("`{folder}` exists on somebody's machine only");
    each_line(file, &MACHINE_FOLDERS, names, explain)
}

fn each_line(
    file: &SourceFile,
    needles: &[&str],
    found: impl Fn(&str, &str) -> bool,
    message: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    let hits = lines.flat_map(|(index, line)| needles.iter().map(move |needle| (index + 1, line, needle)));
    let hits = hits.filter(|(_, line, needle)| found(line, needle));
    hits.map(|(number, _, needle)| Finding::at(&file.path, number, message(needle))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&SourceFile::new("a.rs", text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_without_an_opening_sentence_is_found() {
        assert_eq!(
            found("use std::fmt;\n"),
            ["a.rs:1: the file must open with a `//!` sentence that says what it is for"]
        );
        assert_eq!(
            found("//! Formats\n//! things\n"),
            ["a.rs:2: the opening `//!` sentence must end with a full stop"]
        );
        assert!(found("//! Formats\n//! things.\n//!\n//! # Notes\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found() {
        let text = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
        assert_eq!(found(&text(401)), ["a.rs: 401 lines are more than 400: split the file"]);
        assert!(found(&text(400)).is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_files_of_any_kind() {
        for mark in UNFINISHED {
            let file = SourceFile::new("a.md", &format!("fine\n<!-- {mark}: later -->\n"));
            assert_eq!(check(&file)[0].to_string(), format!("a.md:2: {mark}: finish it, or write an issue"));
        }
        assert!(found(&format!("//! {}List is a word of its own.\n", UNFINISHED[0])).is_empty());
    }

    #[test]
    fn a_machine_path_is_found() {
        for folder in MACHINE_FOLDERS {
            let file = SourceFile::new("a.toml", &format!("path = '{folder}me/lease'\n"));
            assert_eq!(
                check(&file),
                [Finding::at("a.toml", 1, format!("`{folder}` exists on somebody's machine only"))]
            );
        }
    }
}
