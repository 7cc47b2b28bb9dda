//! `cargo xtask providers`: the databases, as their crates describe themselves.

use std::process::ExitCode;

use anyhow::Context;
use cargo_metadata::Package;
use serde::{Deserialize, Serialize};

use crate::{waivers::Waiver, workspace::Workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print a JSON array, for the matrix of a CI job.
    #[arg(long)]
    json: bool,
}

/// The table `[package.metadata.lease-provider]` of a provider's manifest.
#[derive(Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    /// The database's one word: the crate is `lease-<name>`, its migrations are in `migrations/<name>`.
    pub(crate) name: String,
    /// The crate that talks to the database, which nobody compiles who uses another one.
    pub(crate) driver: String,
    /// The schemes of its store URLs, such as `sqlite` in `sqlite:PATH`.
    pub(crate) schemes: Vec<String>,
    /// The variable that names a server to test against; none where the database is embedded.
    #[serde(default)]
    pub(crate) url_env: Option<String>,
    /// The servers to test against, as container images; none where the database is embedded.
    #[serde(default)]
    pub(crate) servers: Vec<String>,
    /// The URL of the server that `docker-compose.yml` starts; none where the database is embedded.
    #[serde(default)]
    pub(crate) compose_url: Option<String>,
    /// Cases that cannot pass on a server that only resembles the database.
    #[serde(default, skip_serializing)]
    pub(crate) waivers: Vec<Waiver>,
}

impl Description {
    /// The name of its crate.
    pub(crate) fn package(&self) -> String {
        format!("lease-{}", self.name)
    }
}

/// A provider, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Provider<'a> {
    #[serde(rename = "crate")]
    package: &'a str,
    #[serde(flatten)]
    description: Description,
}

/// Prints the providers, one a line or as JSON.
#[expect(clippy::print_stdout, reason = "the list is this command's output")]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let providers = providers(&workspace)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&providers)?);
    } else {
        for Provider { package, description } in &providers {
            let Description { name, schemes, url_env, servers, .. } = description;
            let url_env = url_env.as_deref().unwrap_or("-");
            println!(
                "{name}  crate {package}  schemes {}  variable {url_env}  servers {}",
                list(schemes),
                list(servers)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the package says of itself, when it is a provider.
pub(crate) fn describe(package: &Package) -> anyhow::Result<Option<Description>> {
    let Some(table) = package.metadata.get("lease-provider") else {
        return Ok(None);
    };
    let description = serde_json::from_value(table.clone());
    description.map(Some).with_context(|| format!("[package.metadata.lease-provider] of {} is wrong", package.name))
}

/// The descriptions of all providers.
pub(crate) fn described(workspace: &Workspace) -> anyhow::Result<Vec<Description>> {
    Ok(providers(workspace)?.into_iter().map(|provider| provider.description).collect())
}

fn providers(workspace: &Workspace) -> anyhow::Result<Vec<Provider<'_>>> {
    let described = workspace.packages().iter().map(|package| {
        let description = describe(package)?;
        Ok(description.map(|description| Provider { package: package.name.as_str(), description }))
    });
    described.filter_map(Result::transpose).collect()
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "-".into() } else { words.join(",") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_embedded_database_needs_no_server() {
        let description: Description =
            serde_json::from_value(json!({ "name": "a", "driver": "b", "schemes": ["a"] })).unwrap();
        assert_eq!((description.url_env, description.servers), (None, vec![]));
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let table = json!({ "name": "a", "driver": "b", "schemes": ["a"], "url-env": "LEASE_A_URL" });
        assert!(serde_json::from_value::<Description>(table).is_err());
    }

    #[test]
    fn json_names_the_crate_beside_the_description() {
        let description = Description {
            name: "a".into(),
            driver: "b".into(),
            schemes: vec![],
            url_env: None,
            servers: vec![],
            compose_url: None,
            waivers: vec![],
        };
        let text = serde_json::to_value(Provider { package: "lease-a", description }).unwrap();
        assert_eq!(
            text,
            json!({ "crate": "lease-a", "name": "a", "driver": "b", "schemes": [], "url_env": null, "servers": [], "compose_url": null })
        );
    }
}
