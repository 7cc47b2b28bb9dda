//! What the commands know of the workspace: its crates, as cargo describes them, and the text of its files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// The workspace that this program was built from.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    packages: Vec<Package>,
}

impl Workspace {
    /// Asks cargo for the crates. Dependencies outside the workspace are not resolved, so this needs no network.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let metadata =
            MetadataCommand::new().manifest_path(manifest).no_deps().exec().context("cargo metadata failed")?;
        let mut packages = metadata.packages;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root: metadata.workspace_root.into_std_path_buf(), packages })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The package's folder, relative to the root, with `/` on every system.
    pub(crate) fn folder(&self, package: &Package) -> String {
        let folder = package.manifest_path.parent().map_or(self.root(), |folder| folder.as_std_path());
        relative(&self.root, folder)
    }

    /// Names of the workspace's crates that `package` depends on by one of `kinds`.
    pub(crate) fn arrows(&self, package: &Package, kinds: &[DependencyKind]) -> Vec<String> {
        let ours = |name: &str| self.packages.iter().any(|member| member.name.as_str() == name);
        let dependencies = package.dependencies.iter();
        dependencies
            .filter(|dependency| kinds.contains(&dependency.kind) && ours(&dependency.name))
            .map(|dependency| dependency.name.clone())
            .collect()
    }

    /// Every text file of the checkout, except what a build or git put there.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<SourceFile>> {
        let mut files = Vec::new();
        collect(&self.root, &self.root, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

/// A text file: its path, relative to the root and with `/` on every system, and what it says.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && !is_foreign(&path) {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            // What is no text, such as a database that a test left behind, has no line to check.
            if let Ok(text) = fs::read_to_string(&path) {
                files.push(SourceFile { path: relative(root, &path), text });
            }
        }
    }
    Ok(())
}

fn is_foreign(folder: &Path) -> bool {
    // Every target folder, wherever a build was told to put it, carries this tag.
    folder.ends_with(".git") || folder.join("CACHEDIR.TAG").exists()
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
