//! Checks which crate depends on which, and what each says of itself: provider -> core <- conformance.

use cargo_metadata::DependencyKind::{Build, Development, Normal};

use crate::{providers, tidy::finding::Finding, workspace::Workspace};

const CORE: &str = "lease-core";
const CONFORMANCE: &str = "lease-conformance";

/// What the checks need to know of a crate.
#[derive(Debug, Default)]
pub(super) struct Crate {
    name: String,
    manifest: String,
    is_provider: bool,
    is_published: bool,
    has_readme: bool,
    /// Crates of the workspace that it is built with.
    normal: Vec<String>,
    /// Crates of the workspace that its tests are built with.
    dev: Vec<String>,
}

/// Reads the workspace's crates.
pub(super) fn crates(workspace: &Workspace) -> anyhow::Result<Vec<Crate>> {
    let crates = workspace.packages().iter().map(|package| {
        let folder = package.manifest_path.parent();
        let readme = package.readme.as_ref().and_then(|readme| folder.map(|folder| folder.join(readme)));
        Ok(Crate {
            name: package.name.to_string(),
            manifest: std::fs::read_to_string(&package.manifest_path)?,
            is_provider: providers::describe(package)?.is_some(),
            is_published: package.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
            has_readme: readme.is_some_and(|readme| readme.is_file()),
            normal: workspace.arrows(package, &[Normal, Build]),
            dev: workspace.arrows(package, &[Development]),
        })
    });
    crates.collect()
}

/// Everything that this file checks.
pub(super) fn check(crates: &[Crate]) -> Vec<Finding> {
    crates.iter().flat_map(|one| [arrows(one), inherited(one), readme(one)].into_iter().flatten()).collect()
}

fn arrows(one: &Crate) -> Vec<Finding> {
    let (normal, dev): (&[&str], &[&str]) = match one.name.as_str() {
        CORE => (&[], &[]),
        CONFORMANCE => (&[CORE], &[CORE]),
        _ if one.is_provider => (&[CORE], &[CORE, CONFORMANCE]),
        // A program may use any crate, but the suite is for tests.
        _ => return one.normal.iter().filter(|to| *to == CONFORMANCE).map(|to| wrong_arrow(one, to)).collect(),
    };
    let wrong_normal = one.normal.iter().filter(|to| !normal.contains(&to.as_str()));
    let wrong_dev = one.dev.iter().filter(|to| !dev.contains(&to.as_str()));
    wrong_normal.chain(wrong_dev).map(|to| wrong_arrow(one, to)).collect()
}

fn wrong_arrow(from: &Crate, to: &str) -> Finding {
    let message = format!("must not depend on {to}: provider -> core <- conformance, and the suite in tests only");
    Finding::new(&from.name, message)
}

fn inherited(one: &Crate) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !one.manifest.contains("[lints]\nworkspace = true") {
        findings.push(Finding::new(&one.name, "the manifest must say `[lints] workspace = true`"));
    }
    for field in ["version", "edition", "rust-version", "license"] {
        if !one.manifest.lines().any(|line| line == format!("{field}.workspace = true")) {
            findings.push(Finding::new(&one.name, format!("the manifest must say `{field}.workspace = true`")));
        }
    }
    findings
}

fn readme(one: &Crate) -> Vec<Finding> {
    let is_missing = one.is_published && !one.has_readme;
    is_missing.then(|| Finding::new(&one.name, "a crate that is published needs a README.md")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, normal: &[&str], dev: &[&str]) -> Crate {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Crate { name: name.into(), normal: names(normal), dev: names(dev), ..Crate::default() }
    }

    fn manifest(text: &str) -> Vec<String> {
        let one = Crate { name: "a".into(), manifest: text.into(), ..Crate::default() };
        inherited(&one).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_from_core_is_found() {
        assert_eq!(arrows(&one(CORE, &["lease-sqlite"], &[])).len(), 1);
        assert_eq!(arrows(&one(CORE, &[], &[CONFORMANCE])).len(), 1);
        assert!(arrows(&one(CORE, &[], &[])).is_empty());
    }

    #[test]
    fn a_provider_that_ships_the_suite_or_another_provider_is_found() {
        let provider = |normal: &[&str], dev: &[&str]| Crate { is_provider: true, ..one("lease-a", normal, dev) };
        assert_eq!(arrows(&provider(&[CORE, CONFORMANCE], &[])).len(), 1);
        assert_eq!(arrows(&provider(&[CORE, "lease-b"], &[])).len(), 1);
        assert!(arrows(&provider(&[CORE], &[CONFORMANCE])).is_empty());
    }

    #[test]
    fn a_suite_that_knows_a_provider_and_a_program_that_ships_the_suite_are_found() {
        assert_eq!(arrows(&one(CONFORMANCE, &[CORE], &["lease-sqlite"])).len(), 1);
        assert_eq!(arrows(&one("lease-cli", &[CORE, CONFORMANCE], &[])).len(), 1);
        assert!(arrows(&one("lease-cli", &[CORE, "lease-sqlite"], &[CONFORMANCE])).is_empty());
    }

    #[test]
    fn a_manifest_that_inherits_nothing_is_found() {
        let whole = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                     license.workspace = true\n\n[lints]\nworkspace = true\n";
        assert!(manifest(whole).is_empty());
        assert_eq!(
            manifest(&whole.replace("[lints]", "[dependencies]")),
            ["a: the manifest must say `[lints] workspace = true`"]
        );
        assert_eq!(
            manifest(&whole.replace("rust-version.workspace = true", "rust-version = \"1.80\"")),
            ["a: the manifest must say `rust-version.workspace = true`"]
        );
    }

    #[test]
    fn a_published_crate_without_a_readme_is_found() {
        assert_eq!(readme(&Crate { is_published: true, ..one("a", &[], &[]) }).len(), 1);
        assert!(readme(&one("a", &[], &[])).is_empty());
        assert!(readme(&Crate { is_published: true, has_readme: true, ..one("a", &[], &[]) }).is_empty());
    }
}
