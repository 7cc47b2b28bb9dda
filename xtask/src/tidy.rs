//! `cargo xtask tidy`: the rules of the house that no compiler checks, each a function from text to findings.

mod arrows;
mod cases;
mod drivers;
mod examples;
mod finding;
mod functions;
mod layout;
mod lib_file;
mod rules;
mod sql;
mod syntax;
mod text;

use std::process::ExitCode;

use crate::workspace::Workspace;

use self::finding::Finding;

/// Prints what is not tidy, and fails when there is anything.
#[expect(clippy::print_stdout, reason = "the findings are this command's output")]
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let findings = findings(&Workspace::load()?)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} found", findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many cases the conformance suite has.
pub(crate) fn case_count(workspace: &Workspace) -> anyhow::Result<usize> {
    Ok(cases::cases(&workspace.files()?).len())
}

fn findings(workspace: &Workspace) -> anyhow::Result<Vec<Finding>> {
    let files = workspace.files()?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(text::check(file));
        if file.is_rust() {
            findings.extend(syntax::check(file));
            findings.extend(sql::check_format(file));
        }
        if file.path.ends_with("src/lib.rs") {
            findings.extend(lib_file::check(file));
        }
    }
    findings.extend(arrows::check(&arrows::crates(workspace)?));
    findings.extend(drivers::check(&drivers::compiled(workspace)?));
    findings.extend(layout::check(workspace, &files)?);
    findings.extend(rules::check(&files));
    findings.extend(examples::check(&files));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let findings = findings(&Workspace::load().unwrap()).unwrap();
        let list: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(list.is_empty(), "{} found:\n{}", list.len(), list.join("\n"));
    }
}
