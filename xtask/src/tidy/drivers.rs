//! Checks that a user of one provider compiles its driver and no other's, by what `cargo tree` says.

use anyhow::Context;

use crate::{
    cargo::cargo,
    providers::{Description, described},
    tidy::finding::Finding,
    workspace::Workspace,
};

/// A provider, and the crates that its users compile.
#[derive(Debug)]
pub(super) struct Compiled {
    provider: Description,
    crates: Vec<String>,
}

/// Asks cargo for what each provider is built from, with all of its features, on every system.
pub(super) fn compiled(workspace: &Workspace) -> anyhow::Result<Vec<Compiled>> {
    let trees = described(workspace)?.into_iter().map(|provider| {
        let mut tree = cargo(workspace);
        tree.args(["tree", "--locked", "--package", &provider.package(), "--all-features", "--target", "all"]);
        tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
        let output = tree.output().context("cannot start cargo")?;
        anyhow::ensure!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Compiled { crates: names(&String::from_utf8(output.stdout)?), provider })
    });
    trees.collect()
}

/// The first word of each line, such as `rusqlite` of `rusqlite v0.43.0`.
fn names(tree: &str) -> Vec<String> {
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Everything that this file checks.
pub(super) fn check(all: &[Compiled]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Compiled { provider, crates } in all {
        let place = provider.package();
        if !crates.contains(&provider.driver) {
            findings.push(Finding::new(&place, format!("is not built on {}, its driver", provider.driver)));
        }
        for other in all.iter().map(|other| &other.provider).filter(|other| other.name != provider.name) {
            for foreign in [&other.driver, &other.package()] {
                if crates.contains(foreign) {
                    findings.push(Finding::new(
                        &place,
                        format!("makes its users compile {foreign}, which is {}'s", other.name),
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, driver: &str, tree: &str) -> Compiled {
        let provider = serde_json::json!({ "name": name, "driver": driver, "schemes": [] });
        Compiled { provider: serde_json::from_value(provider).unwrap(), crates: names(tree) }
    }

    #[test]
    fn each_on_its_own_driver_is_tidy() {
        let a = one("a", "a-driver", "lease-a v0.1.0 (/somewhere)\na-driver v1.0.0\nlease-core v0.1.0");
        let b = one("b", "b-driver", "lease-b v0.1.0\nb-driver v1.0.0\nb-driver v1.0.0 (*)\nlease-core v0.1.0");
        assert_eq!(check(&[a, b]), []);
    }

    #[test]
    fn anothers_driver_another_provider_and_a_driver_of_another_name_are_found() {
        let a = one("a", "a-driver", "lease-a v0.1.0\na-driver v1.0.0");
        assert_eq!(check(&[one("b", "b-driver", "lease-b v0.1.0\nb-driver v1.0.0\na-driver v1.0.0"), a]).len(), 1);
        let a = one("a", "a-driver", "lease-a v0.1.0\na-driver v1.0.0");
        assert_eq!(check(&[a, one("b", "b-driver", "b-driver v1.0.0\nlease-a v0.1.0")]).len(), 1);
        assert_eq!(check(&[one("a", "a-driver", "lease-a v0.1.0\nrenamed v1.0.0")]).len(), 1);
    }
}
