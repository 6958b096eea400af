//! Gets what some kinds of pin need besides a commit: archives with their hashes, crates' checksums, the versions of a
//! commit's packages, the files of a copy. It edits nothing.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use toml::de::{DeTable, DeValue};

use super::{
    edit::NewPin,
    plan::{Material, NewArchive},
};
use crate::{
    build::digest::sha256_hex,
    config::fork::PinKind,
    fork::crates::{CrateError, crate_file},
    tools::{
        disk,
        file::{self, Most},
        git::{
            export::tar_gz,
            ids::{CommitId, TreeId},
            store::{Store, StoreError},
        },
        http::download,
        process::ProcessError,
    },
};

/// How long an archive may take to come.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(900);

/// Why something that a pin needs cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// An archive cannot be fetched.
    #[error("cannot fetch `{address}`")]
    Fetch {
        /// Its address.
        address: String,
        /// What curl said.
        #[source]
        source: Box<ProcessError>,
    },
    /// An archive cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An archive cannot be made.
    #[error("cannot make an archive of {commit}")]
    Archive {
        /// The commit.
        commit: CommitId,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// The pattern names something that the pin lacks.
    #[error("`{pattern}` names the pin's {what}, and it has none")]
    Pattern {
        /// The pattern in fork.toml.
        pattern: String,
        /// `tag` or `version`.
        what: &'static str,
    },
    /// A crate is in no registry.
    #[error(transparent)]
    Crate(#[from] CrateError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MaterialError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch { .. } => Some("check the address and the network; curl is needed".to_owned()),
            Self::Pattern { .. } => Some("go to a release's tag, or use {commit} in `archive`".to_owned()),
            Self::Crate(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Read { source, .. } => disk::hint(source),
            Self::Archive { source, .. } => source.hint(),
        }
    }
}

/// Gets what `kind` needs to name `pin`, whose commit is in `from`; files of copies are put into `to`.
///
/// # Errors
/// See [`MaterialError`].
pub fn material(kind: &PinKind, pin: &NewPin, from: &Store, to: &Store) -> Result<Material, MaterialError> {
    let mut material = Material::default();
    match kind {
        PinKind::Vendored { .. } => {
            let tree = from.commit(pin.commit)?.tree;
            from.copy_tree_to(tree, to)?;
            material.tree = Some(tree);
        }
        PinKind::CmakeArchive { name, archive, .. } => {
            material.archive = Some(new_archive(name, archive, pin, from)?);
        }
        PinKind::CargoVersion { name, files } => {
            if let Some(version) = pin.version.as_ref().filter(|_| !files.is_empty()) {
                material.checksum = Some(sha256_hex(&crate_file(name, version)?));
            }
        }
        PinKind::CargoGit { .. } if from.has(pin.commit) => {
            material.versions = package_versions(from, from.commit(pin.commit)?.tree)?;
        }
        _ => {}
    }
    Ok(material)
}

fn new_archive(name: &str, pattern: &str, pin: &NewPin, from: &Store) -> Result<NewArchive, MaterialError> {
    let location = filled(pattern, pin)?;
    let bytes = if let Some(path) = location.strip_prefix("file://") {
        let path = PathBuf::from(path);
        file::bytes(&path, Most::Record).map_err(|source| MaterialError::Read { path, source })?
    } else if location.contains("://") {
        download(&location, ARCHIVE_TIMEOUT)
            .map_err(|source| MaterialError::Fetch { address: location.clone(), source })?
    } else {
        let version = pin.version.clone().unwrap_or_else(|| pin.commit.to_string());
        let made = tar_gz(from, pin.commit, &format!("{name}-{version}"));
        made.map_err(|source| MaterialError::Archive { commit: pin.commit, source: Box::new(source) })?
    };
    let sha256 = sha256_hex(&bytes);
    let carried = (!location.contains("://")).then_some(bytes);
    Ok(NewArchive { location, sha256, carried })
}

fn filled(pattern: &str, pin: &NewPin) -> Result<String, MaterialError> {
    let mut text = pattern.replace("{commit}", &pin.commit.to_string());
    for (what, value) in [("tag", &pin.tag), ("version", &pin.version)] {
        let key = format!("{{{what}}}");
        if text.contains(&key) {
            let value = value.as_ref();
            let value = value.ok_or_else(|| MaterialError::Pattern { pattern: pattern.to_owned(), what })?;
            text = text.replace(&key, value);
        }
    }
    Ok(text)
}

/// The version of every package whose manifest lies in a tree; a version that is the workspace's comes from the root.
///
/// # Errors
/// When objects are missing.
fn package_versions(store: &Store, tree: TreeId) -> Result<BTreeMap<String, String>, StoreError> {
    let mut manifests = Vec::new();
    for file in store.changes(store.empty_tree()?, tree)? {
        let path = file.path.as_bytes();
        let is_manifest = path == b"Cargo.toml" || path.ends_with(b"/Cargo.toml");
        if let Some(entry) = file.new.filter(|_| is_manifest) {
            manifests
                .push((path == b"Cargo.toml", String::from_utf8_lossy(&store.blob(entry.id)?).into_owned()));
        }
    }
    let mut of_workspace = None;
    let mut versions = BTreeMap::new();
    let mut inheriting = Vec::new();
    for (is_root, text) in &manifests {
        let Ok(document) = DeTable::parse(text) else { continue };
        let text_at = |way: &[&str]| {
            let mut table = document.get_ref();
            let (last, folders) = way.split_last()?;
            for key in folders {
                match table.get(*key)?.get_ref() {
                    DeValue::Table(inner) => table = inner,
                    _ => return None,
                }
            }
            match table.get(*last)?.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            }
        };
        if *is_root {
            of_workspace = text_at(&["workspace", "package", "version"]);
        }
        match (text_at(&["package", "name"]), text_at(&["package", "version"])) {
            (Some(name), Some(version)) => drop(versions.insert(name, version)),
            (Some(name), None) => inheriting.push(name),
            _ => {}
        }
    }
    if let Some(version) = of_workspace {
        versions.extend(inheriting.into_iter().map(|name| (name, version.clone())));
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    fn pin(commit: CommitId) -> NewPin {
        NewPin {
            repository: "https://example.org/o/n".to_owned(),
            commit,
            tag: Some("v2.0".to_owned()),
            version: None,
        }
    }

    #[test]
    fn an_archive_of_a_commit_is_the_same_each_time_and_named_by_the_pattern() {
        let fixture = ForkFixture::new(&[("f", "f\n")]);
        let made = || new_archive("n", "vendor/n-{tag}.tar.gz", &pin(fixture.base), &fixture.store).unwrap();
        let archive = made();
        assert_eq!(archive, made());
        assert_eq!(archive.location, "vendor/n-v2.0.tar.gz");
        let files = crate::stack::archive::unpacked(&archive.carried.unwrap()).unwrap();
        assert_eq!(files.keys().map(|path| path.to_string()).collect::<Vec<_>>(), ["f"]);
        let lacking = filled("n-{version}.zip", &pin(fixture.base)).unwrap_err();
        assert!(lacking.to_string().contains("version"), "{lacking}");
    }

    #[test]
    fn versions_come_from_manifests_and_the_workspace() {
        let fixture = ForkFixture::new(&[
            ("Cargo.toml", "[workspace]\nmembers = []\n[workspace.package]\nversion = \"1.2.3\"\n"),
            ("a/Cargo.toml", "[package]\nname = \"a\"\nversion.workspace = true\n"),
            ("b/Cargo.toml", "[package]\nname = \"b\"\nversion = \"0.1.0\"\n"),
            ("c/Cargo.toml", "[package\n"),
        ]);
        let tree = fixture.store.commit(fixture.base).unwrap().tree;
        let versions = package_versions(&fixture.store, tree).unwrap();
        let expected = [("a", "1.2.3"), ("b", "0.1.0")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(versions, BTreeMap::from(expected));
    }
}
