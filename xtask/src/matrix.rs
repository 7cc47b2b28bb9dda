//! `cargo xtask matrix`: the one suite on every provider and every server version that is asked for, as a table.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    cargo::cargo,
    providers::{Description, described},
    server::Server,
    tidy,
    waivers::{Waiver, judge},
    workspace::Workspace,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only this provider; may be repeated.
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// Run on a container of this image, in place of whatever server is to be had; may be repeated.
    #[arg(long = "image", value_name = "NAME:TAG")]
    images: Vec<String>,
    /// Write the table to this file as JSON too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail when one of these providers was not run: names, or `all`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    require: Vec<String>,
}

/// One run of the suite.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
struct Row {
    provider: String,
    /// The product and its version; empty when nothing ran.
    server: String,
    /// Where the server came from, or why there was none.
    source: String,
    passed: usize,
    failed: usize,
    /// Those that failed, and that the provider says cannot pass on this server.
    waived: usize,
    ignored: usize,
    seconds: u64,
    /// Waivers for this server.
    waivers: Vec<Waiver>,
    /// Those of them whose cases pass.
    needless: Vec<Waiver>,
}

/// What the suite says of its server, through the file that `LEASE_MATRIX_REPORT` names.
#[derive(Deserialize)]
struct Report {
    server: String,
    source: String,
}

/// Runs the suite everywhere, prints the table, and fails when a case failed, when fewer cases ran than exist, or when something that is
/// required was not run.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    let providers = described(&workspace)?;
    let known: BTreeSet<_> = providers.iter().map(|provider| provider.name.as_str()).collect();
    for name in arguments.providers.iter().chain(&arguments.require) {
        anyhow::ensure!(known.contains(name.as_str()) || name == "all", "there is no provider {name:?}: {known:?}");
    }
    let mut rows = Vec::new();
    for provider in &providers {
        if arguments.providers.is_empty() || arguments.providers.contains(&provider.name) {
            for image in images_of(provider, &arguments.images) {
                rows.push(run_on(&workspace, provider, image)?);
            }
        }
    }
    let faults = faults(&rows, tidy::case_count(&workspace)?, &required(&arguments.require, &known));
    print(&rows, &faults)?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&rows)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The images to run this provider on; none stands for whatever server is to be had.
fn images_of<'a>(provider: &Description, images: &'a [String]) -> Vec<Option<&'a str>> {
    let product = |image: &str| {
        let path = image.rsplit_once(':').map_or(image, |(path, _)| path);
        path.rsplit('/').next().unwrap_or(path).to_owned()
    };
    let own: BTreeSet<_> = provider.servers.iter().map(|image| product(image)).collect();
    let chosen: Vec<_> =
        images.iter().filter(|image| own.contains(&product(image))).map(|image| Some(image.as_str())).collect();
    if chosen.is_empty() { vec![None] } else { chosen }
}

fn run_on(workspace: &Workspace, provider: &Description, image: Option<&str>) -> anyhow::Result<Row> {
    let mut suite = cargo(workspace);
    suite.args(["test", "--package", &provider.package(), "--all-features", "--test", "conformance"]);
    let mut server = None;
    if let Some(url_env) = &provider.url_env {
        match Server::find(workspace, &provider.name, image)? {
            Ok(found) => server = Some(found),
            Err(reason) => return Ok(Row::nothing(&provider.name, reason)),
        }
        suite.envs(server.as_ref().map(|server| (url_env, &server.url)));
    }
    let report = workspace.root().join("target").join(format!("lease-matrix-{}.json", provider.name));
    drop(fs::remove_file(&report));
    fs::create_dir_all(report.parent().unwrap_or(&report))?;
    let start = started();
    let output = suite.env("LEASE_MATRIX_REPORT", &report).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed, ignored) = counts(&text);
    let told = read_report(&report);
    let product = told.as_ref().map(|told| told.server.clone()).unwrap_or_default();
    let waivers: Vec<_> = provider.waivers.iter().filter(|waiver| waiver.applies_to(&product)).collect();
    let (waived, needless) = judge(&text, &waivers);
    if failed > waived || !output.status.success() && failed == 0 {
        std::io::stderr().write_all(&output.stdout)?;
        std::io::stderr().write_all(&output.stderr)?;
    }
    let source = server.map(|server| server.source.clone());
    Ok(Row {
        provider: provider.name.clone(),
        server: product,
        source: source.or(told.map(|told| told.source)).unwrap_or_default(),
        passed,
        failed: failed.saturating_sub(waived),
        waived,
        ignored,
        seconds: start.elapsed().as_secs(),
        needless: needless.into_iter().cloned().collect(),
        waivers: waivers.into_iter().cloned().collect(),
    })
}

#[expect(clippy::disallowed_methods, reason = "how long a run of tests took is for people to read")]
fn started() -> Instant {
    Instant::now()
}

fn read_report(path: &Path) -> Option<Report> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// What the closing lines of `cargo test` count, added up.
fn counts(output: &str) -> (usize, usize, usize) {
    let count = |line: &str, what: &str| {
        let mut words = line.split([' ', ';']).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            if words.peek() == Some(&what) {
                return word.parse().unwrap_or(0);
            }
        }
        0
    };
    let closing = output.lines().filter(|line| line.starts_with("test result: "));
    closing.fold((0, 0, 0), |(passed, failed, ignored), line| {
        (passed + count(line, "passed"), failed + count(line, "failed"), ignored + count(line, "ignored"))
    })
}

fn required<'a>(names: &'a [String], known: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    if names.iter().any(|name| name == "all") { known.clone() } else { names.iter().map(String::as_str).collect() }
}

/// Why the matrix fails. The suite is run twice by each provider: plain, and behind `Arc<dyn LeaseStore>`.
fn faults(rows: &[Row], cases: usize, required: &BTreeSet<&str>) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows.iter().filter(|row| row.has_run()) {
        let Row { provider, server, passed, failed, waived, ignored, needless, .. } = row;
        if *failed > 0 {
            faults.push(format!("{provider} on {server}: {failed} cases failed"));
        }
        for waiver in needless {
            faults.push(format!("{provider} on {server}: {} is waived, and passes", waiver.case));
        }
        let ran = passed + failed + waived + ignored;
        if ran < 2 * cases {
            faults.push(format!("{provider} on {server}: {ran} cases of {} were there", 2 * cases));
        }
    }
    for name in required {
        if !rows.iter().any(|row| row.provider == *name && row.passed > 0) {
            faults.push(format!("{name} is required, and was not run"));
        }
    }
    faults
}

impl Row {
    /// A provider that could not be run, and why.
    fn nothing(provider: &str, reason: String) -> Self {
        let provider = provider.to_owned();
        Self { provider, source: reason, ..Self::default() }
    }

    fn has_run(&self) -> bool {
        !self.server.is_empty() || self.passed + self.failed > 0
    }
}

#[expect(clippy::print_stdout, reason = "the table is this command's output")]
fn print(rows: &[Row], faults: &[String]) -> anyhow::Result<()> {
    println!(
        "{:<10} {:<28} {:>6} {:>6} {:>6} {:>7} {:>7}  source",
        "provider", "server", "passed", "failed", "waived", "ignored", "seconds"
    );
    for Row { provider, server, source, passed, failed, waived, ignored, seconds, .. } in rows {
        let server = if server.is_empty() { "not run" } else { server };
        println!("{provider:<10} {server:<28} {passed:>6} {failed:>6} {waived:>6} {ignored:>7} {seconds:>7}  {source}");
    }
    for waiver in rows.iter().flat_map(|row| &row.waivers) {
        println!("{waiver}");
    }
    for fault in faults {
        println!("matrix: {fault}");
    }
    std::io::stdout().flush().context("cannot print")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(provider: &str, passed: usize, failed: usize, ignored: usize) -> Row {
        let (provider, server, source) = (provider.to_owned(), "a 1".to_owned(), "b".to_owned());
        Row { provider, server, source, passed, failed, ignored, ..Row::default() }
    }

    #[test]
    fn a_full_table_has_no_fault() {
        let rows = [row("a", 18, 0, 2), row("b", 20, 0, 0), Row::nothing("c", "no server".into())];
        assert_eq!(faults(&rows, 10, &BTreeSet::from(["a", "b"])), Vec::<String>::new());
    }

    #[test]
    fn a_failure_a_missing_case_and_a_missing_provider_are_faults() {
        assert_eq!(faults(&[row("a", 19, 1, 0)], 10, &BTreeSet::new()), ["a on a 1: 1 cases failed"]);
        assert_eq!(faults(&[row("a", 19, 0, 0)], 10, &BTreeSet::new()), ["a on a 1: 19 cases of 20 were there"]);
        let nothing = [Row::nothing("c", "no server".into())];
        assert_eq!(faults(&nothing, 10, &BTreeSet::from(["c"])), ["c is required, and was not run"]);
        assert_eq!(faults(&[row("a", 0, 0, 20)], 10, &BTreeSet::from(["a"])), ["a is required, and was not run"]);
    }

    /// A waived failure is none, and a waiver that is not needed is one.
    #[test]
    fn waivers_are_counted_and_must_be_needed() {
        let waiver = Waiver { server: "a".into(), case: "b::c".into(), reason: "d".into() };
        let excused = Row { waived: 2, ..row("a", 18, 0, 0) };
        assert_eq!(faults(&[excused], 10, &BTreeSet::new()), Vec::<String>::new());
        let needless = Row { needless: vec![waiver], ..row("a", 20, 0, 0) };
        assert_eq!(faults(&[needless], 10, &BTreeSet::new()), ["a on a 1: b::c is waived, and passes"]);
    }

    #[test]
    fn closing_lines_are_added_up() {
        let output = "running 3 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: FAILED. 4 passed; 5 failed; 6 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(counts(output), (6, 5, 7));
        assert_eq!(counts("error: could not compile"), (0, 0, 0));
    }

    #[test]
    fn an_image_goes_to_the_provider_of_its_product() {
        let description = |servers: &[&str]| Description {
            name: "a".into(),
            driver: "b".into(),
            schemes: vec![],
            url_env: Some("LEASE_A_URL".into()),
            servers: servers.iter().map(ToString::to_string).collect(),
            compose_url: None,
            waivers: vec![],
        };
        let images = ["postgres:15-local".to_owned(), "registry.example/postgres:16".to_owned()];
        assert_eq!(
            images_of(&description(&["postgres:14"]), &images),
            [Some(images[0].as_str()), Some(images[1].as_str())]
        );
        assert_eq!(images_of(&description(&["mcr.example/mssql/server:2022"]), &images), [None]);
    }
}
