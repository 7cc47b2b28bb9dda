//! Checks that every provider has the same rooms, so that who knows one knows all.

use std::fs;

use crate::{
    providers,
    tidy::{finding::Finding, sql},
    workspace::{SourceFile, Workspace},
};

/// What every provider has, relative to its crate.
const REQUIRED: [&str; 11] = [
    "src/lib.rs",
    "src/config.rs",
    "src/store.rs",
    "src/error.rs",
    "src/sql.rs",
    "src/sql/acquire.sql",
    "src/sql/renew.sql",
    "src/sql/release.sql",
    "src/sql/release_after.sql",
    "tests/conformance.rs",
    "tests/provider.rs",
];

/// The suite is called, not configured: a longer file hides exceptions.
const MAX_CONFORMANCE_LINES: usize = 40;

/// Everything that this file checks.
pub(super) fn check(workspace: &Workspace, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in workspace.packages() {
        let Some(description) = providers::describe(package)? else { continue };
        let folder = format!("{}/", workspace.folder(package));
        let provider = Provider { name: &description.name, package: &package.name, folder: &folder };
        let own: Vec<&SourceFile> = files.iter().filter(|file| file.path.starts_with(&folder)).collect();
        let link = fs::read_link(workspace.root().join("migrations").join(&description.name)).ok();
        findings.extend(rooms(&provider, &own));
        findings.extend(link_to_migrations(&provider, link.as_deref().and_then(|target| target.to_str())));
        let source = own.iter().filter(|file| file.is_rust() && file.path.starts_with(&format!("{folder}src/")));
        findings.extend(source.flat_map(|file| sql::check_provider(file)));
    }
    Ok(findings)
}

struct Provider<'a> {
    name: &'a str,
    package: &'a str,
    /// The crate's folder, with a slash at its end.
    folder: &'a str,
}

fn rooms(provider: &Provider<'_>, own: &[&SourceFile]) -> Vec<Finding> {
    let Provider { name, package, folder } = provider;
    let find = |path: &str| own.iter().find(|file| file.path.strip_prefix(folder) == Some(path));
    // A long test has its parts in a folder of its own.
    let in_parts = |path: &str| find(&path.replace(".rs", "/main.rs")).is_some();
    let missing =
        REQUIRED.iter().filter(|path| find(path).is_none() && !(path.starts_with("tests/") && in_parts(path)));
    let mut findings: Vec<_> = missing.map(|path| Finding::new(*package, format!("{path} is missing"))).collect();
    if package.strip_prefix("lease-") != Some(name) {
        findings.push(Finding::new(*package, format!("the crate of provider `{name}` must be called `lease-{name}`")));
    }
    let lines = find("tests/conformance.rs").map_or(0, |file| file.text.lines().count());
    if lines > MAX_CONFORMANCE_LINES {
        let message = format!("tests/conformance.rs has {lines} lines, more than {MAX_CONFORMANCE_LINES}");
        findings.push(Finding::new(*package, message));
    }
    if !own.iter().any(|file| file.path.starts_with(&format!("{folder}migrations/"))) {
        findings.push(Finding::new(*package, "migrations/ is missing or empty"));
    }
    findings
}

/// An include from a crate to the repository's root would break `cargo package`, so the files are in the crate and the root links.
fn link_to_migrations(provider: &Provider<'_>, target: Option<&str>) -> Option<Finding> {
    let Provider { name, folder, .. } = provider;
    let expected = format!("../{folder}migrations");
    let is_right = target.is_some_and(|target| target.trim_end_matches('/') == expected);
    (!is_right).then(|| Finding::new(format!("migrations/{name}"), format!("must be a link to {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROVIDER: Provider<'_> = Provider { name: "a", package: "lease-a", folder: "crates/lease-a/" };

    fn files() -> Vec<SourceFile> {
        let paths = REQUIRED.iter().chain(&["migrations/V1__lease.sql"]);
        paths.map(|path| SourceFile::new(&format!("crates/lease-a/{path}"), "")).collect()
    }

    fn found(files: &[SourceFile]) -> Vec<String> {
        rooms(&PROVIDER, &files.iter().collect::<Vec<_>>()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_missing_room_is_found() {
        assert!(found(&files()).is_empty());
        for path in REQUIRED {
            let mut files = files();
            files.retain(|file| file.path != format!("crates/lease-a/{path}"));
            assert_eq!(found(&files), [format!("lease-a: {path} is missing")]);
        }
        assert_eq!(found(&files()[..REQUIRED.len()]), ["lease-a: migrations/ is missing or empty"]);
    }

    #[test]
    fn a_test_in_parts_is_no_missing_room() {
        let mut files = files();
        files.retain(|file| file.path != "crates/lease-a/tests/provider.rs");
        files.push(SourceFile::new("crates/lease-a/tests/provider/main.rs", ""));
        assert!(found(&files).is_empty());
    }

    #[test]
    fn a_crate_with_another_name_is_found() {
        let files = files();
        let provider = Provider { package: "lease-b", ..PROVIDER };
        assert_eq!(rooms(&provider, &files.iter().collect::<Vec<_>>()).len(), 1);
    }

    #[test]
    fn a_long_conformance_test_is_found() {
        let mut files = files();
        for file in &mut files {
            file.text = "\n".repeat(41);
        }
        assert_eq!(found(&files), ["lease-a: tests/conformance.rs has 41 lines, more than 40"]);
    }

    #[test]
    fn a_missing_or_wrong_link_is_found() {
        let expected = Some(Finding::new("migrations/a", "must be a link to ../crates/lease-a/migrations"));
        assert_eq!(link_to_migrations(&PROVIDER, None), expected);
        assert_eq!(link_to_migrations(&PROVIDER, Some("../crates/lease-b/migrations")), expected);
        assert_eq!(link_to_migrations(&PROVIDER, Some("../crates/lease-a/migrations")), None);
    }
}
