//! The README's examples are those of the crate's documentation, where they are compiled and run.

const README: &str = include_str!("../../README.md");
const LIBRARY: &str = include_str!("../../src/lib.rs");

#[test]
fn every_example_of_the_readme_is_one_of_the_documentation() {
    let documentation: String = LIBRARY
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        // The hidden lines of an example.
        .filter(|line| *line != "#" && !line.starts_with("# "))
        .flat_map(|line| [line, "\n"])
        .collect();
    let examples: Vec<&str> =
        README.split("```rust\n").skip(1).filter_map(|text| Some(text.split_once("```")?.0)).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        assert!(documentation.contains(&format!("```\n{example}```")), "only the README has this example:\n{example}");
    }
}
