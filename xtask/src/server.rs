//! A database server for a run of tests, kept by a helper process of its own: `examples/servers.rs` of lease-conformance.
//!
//! It is a process and not a call, so that these commands compile no container client for those who only list or tidy.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Stdio},
};

use anyhow::Context;
use serde::Deserialize;

use crate::{cargo::cargo, workspace::Workspace};

/// A server that lasts until this is dropped, or until this process ends.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    /// Where it came from.
    pub(crate) source: String,
    keeper: Child,
    hold: Option<ChildStdin>,
}

#[derive(Deserialize)]
struct Found {
    url: String,
    source: String,
}

impl Server {
    /// Finds or starts a server of this database, in a container of this image if one is given; the inner error says why there is none.
    pub(crate) fn find(
        workspace: &Workspace,
        database: &str,
        image: Option<&str>,
    ) -> anyhow::Result<Result<Self, String>> {
        let helper = ["--quiet", "--package", "lease-conformance", "--features", "servers", "--example", "servers"];
        let built = cargo(workspace).arg("build").args(helper).status().context("cannot start cargo")?;
        anyhow::ensure!(built.success(), "the helper that finds a server does not compile");
        let mut keeper = cargo(workspace)
            .arg("run")
            .args(helper)
            .args(["--", database])
            .args(image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start cargo")?;
        let hold = keeper.stdin.take();
        let mut line = String::new();
        let output = keeper.stdout.take().context("the helper has no output")?;
        BufReader::new(output).read_line(&mut line).context("cannot read the helper's answer")?;
        if let Ok(Found { url, source }) = serde_json::from_str(&line) {
            return Ok(Ok(Self { url, source, keeper, hold }));
        }
        let mut reason = String::new();
        keeper.stderr.take().context("the helper says nothing")?.read_to_string(&mut reason)?;
        keeper.wait()?;
        Ok(Err(reason.trim().trim_start_matches("Error: ").to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hold = None;
        drop(self.keeper.wait());
    }
}
