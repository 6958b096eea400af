//! The crates of a build that come from a git revision: the commit's files, unpacked below `target/regraft/sources`, and the
//! lock that goes with them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    build::{
        compile::BuildError,
        digest::sha256_hex,
        layout::Layout,
        store::{self, StoreError},
    },
    config::spec::GitSource,
    event::{Event, EventSink},
    tools::{
        archive,
        git::{
            export,
            ids::CommitId,
            mirror,
            mirror::MirrorError,
            store::{Store, StoreError as ObjectsError},
        },
        process::ProcessError,
    },
};

/// Where MLX's sources are.
pub(super) const MLX: &str = "https://github.com/ml-explore/mlx";

/// How many digits of a commit's id name its files.
const NAMED_BY: usize = 9;

/// Why the files of a git revision are not at hand.
#[derive(Debug, thiserror::Error)]
pub enum GitSourceError {
    /// The repository cannot be reached.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The objects cannot be read.
    #[error(transparent)]
    Store(#[from] ObjectsError),
    /// The repository does not hold the commit.
    #[error("`{repository}` does not hold the commit {commit}")]
    NoCommit {
        /// The repository.
        repository: String,
        /// The commit.
        commit: String,
    },
    /// A path leads to no repository.
    #[error("`{}` is no git repository", .path.display())]
    NotHere {
        /// The whole path.
        path: PathBuf,
    },
    /// Git cannot write the files.
    #[error("cannot read the files of the commit")]
    Archive(#[from] ProcessError),
}

/// The lock that a build of this revision is made with: what the revision's crates need differs from what the released
/// ones need.
pub fn lock_file(source: &GitSource, layout: &Layout) -> PathBuf {
    layout.provision().join(format!("runner-{}.lock", short(source)))
}

/// The revision that a tag of a repository leads to, in a mirror or fetched.
///
/// # Errors
/// When neither a mirror nor the network has it.
pub fn tagged(
    repository: &str,
    tag: &str,
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<GitSource, BuildError> {
    let failed = |error: GitSourceError| BuildError::GitSource {
        repository: repository.to_owned(),
        source: Box::new(error),
    };
    let found = || -> Result<Option<CommitId>, GitSourceError> {
        let refs = match &layout.mirrors {
            Some(mirrors) => mirror::mirror_refs(&mirror::find_mirror(mirrors, repository)?)?,
            None => {
                let (store, _) = objects(repository, layout)?;
                sink.emit(Event::Note(format!("fetching {repository}")));
                mirror::fetch(&store, "upstream", repository)?
            }
        };
        Ok(refs.tags.get(tag).copied())
    };
    let commit = found().map_err(failed)?;
    let missing = || GitSourceError::NoCommit { repository: repository.to_owned(), commit: tag.to_owned() };
    Ok(GitSource { repository: repository.to_owned(), commit: commit.ok_or_else(|| failed(missing()))? })
}

/// The folder with the commit's files, fetched and unpacked once.
///
/// # Errors
/// When neither a mirror nor the network has the commit, or it cannot be unpacked.
pub fn checkout(source: &GitSource, layout: &Layout, sink: &dyn EventSink) -> Result<PathBuf, BuildError> {
    let folder = layout.work.join("sources").join(format!("git-{}", short(source)));
    store::folder_once::<BuildError>(&folder, |staging| unpack(source, layout, staging, sink))?;
    Ok(folder)
}

/// Unpacks the commit's files into an empty folder.
///
/// # Errors
/// As for [`checkout`].
pub fn unpack(
    source: &GitSource,
    layout: &Layout,
    target: &Path,
    sink: &dyn EventSink,
) -> Result<(), BuildError> {
    let failed = |error: GitSourceError| BuildError::GitSource {
        repository: source.repository.clone(),
        source: Box::new(error),
    };
    let bytes = archived(source, layout, sink).map_err(failed)?;
    let file = layout.work.join("sources").join(format!("git-{}.tar.gz", short(source)));
    store::write_whole(&file, &bytes)?;
    let unpacked = archive::unpack_crate(&file, target).map_err(|error| BuildError::Unpack {
        package: source.repository.clone(),
        version: source.commit.short(),
        source: Box::new(error),
    });
    fs::remove_file(&file).map_err(StoreError::at("clear away", &file))?;
    unpacked
}

fn archived(source: &GitSource, layout: &Layout, sink: &dyn EventSink) -> Result<Vec<u8>, GitSourceError> {
    let (store, from) = objects(&source.repository, layout)?;
    if from == From::Network && !store.has(source.commit) {
        sink.emit(Event::Note(format!("fetching {}", source.repository)));
        mirror::fetch(&store, "upstream", &source.repository)?;
    }
    if !store.has(source.commit) {
        let (repository, commit) = (source.repository.clone(), source.commit.to_string());
        return Err(GitSourceError::NoCommit { repository, commit });
    }
    Ok(export::tar_gz(&store, source.commit, "source")?)
}

/// Where a repository's objects come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// A mirror, which is only read.
    Mirror,
    /// What was fetched, or is to be.
    Network,
}

/// The objects of a repository, as far as they are here.
fn objects(repository: &str, layout: &Layout) -> Result<(Store, From), GitSourceError> {
    let home = layout.root.join("target/regraft/git");
    if let Some(own) = local(repository, &layout.root)? {
        let name = sha256_hex(own.to_string_lossy().as_bytes());
        return Ok((
            Store::open(&home.join(format!("local-{}.borrowed.git", &name[..12])), &[own])?,
            From::Mirror,
        ));
    }
    let name = mirror::owner_and_name(repository)
        .ok_or_else(|| MirrorError::Address(repository.to_owned()))?
        .replace('/', "+");
    match &layout.mirrors {
        Some(mirrors) => {
            let mirror = mirror::find_mirror(mirrors, repository)?;
            Ok((Store::open(&home.join(format!("{name}.borrowed.git")), &[mirror])?, From::Mirror))
        }
        None => Ok((Store::open(&home.join(format!("{name}.git")), &[])?, From::Network)),
    }
}

/// The git directory of a repository on this machine, given by its path: absolute, from our own root on, or as `file://`;
/// `None` for an address.
fn local(repository: &str, root: &Path) -> Result<Option<PathBuf>, GitSourceError> {
    let path = match repository.split_once("://") {
        Some(("file", path)) => path,
        Some(_) => return Ok(None),
        // `host:path` is an address, too.
        None if repository.contains(':') && !repository.starts_with(['.', '/']) => return Ok(None),
        None => repository,
    };
    let path = root.join(path);
    mirror::objects_of(&path).map(Some).ok_or(GitSourceError::NotHere { path })
}

fn short(source: &GitSource) -> String {
    source.commit.to_string()[..NAMED_BY].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Silent, tools::git::fixture::ForkFixture};

    #[test]
    fn the_files_of_a_commit_are_unpacked_from_a_mirror_and_another_commit_is_refused() {
        let fixture = ForkFixture::new(&[("a/Cargo.toml", "[package]\n"), ("README", "x\n")]);
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            root: dir.path().to_owned(),
            work: dir.path().join("work"),
            cache: dir.path().join("cache"),
            mirrors: Some(fixture.mirror_root().to_owned()),
        };
        let source = GitSource { repository: "https://example.org/owner/name".into(), commit: fixture.base };
        let folder = checkout(&source, &layout, &Silent).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a/Cargo.toml")).unwrap(), "[package]\n");
        assert_eq!(checkout(&source, &layout, &Silent).unwrap(), folder, "unpacked once");

        let from_path = |repository: String| {
            let source = GitSource { repository, ..source.clone() };
            let layout = Layout { work: dir.path().join("w3"), mirrors: None, ..layout.clone() };
            let target = tempfile::tempdir().unwrap();
            unpack(&source, &layout, target.path(), &Silent)
                .map(|()| fs::read(target.path().join("README")).unwrap())
        };
        let mirror = mirror::find_mirror(fixture.mirror_root(), &source.repository).unwrap();
        assert_eq!(from_path(mirror.display().to_string()).unwrap(), b"x\n", "a checkout on this machine");
        assert_eq!(from_path(format!("file://{}", mirror.display())).unwrap(), b"x\n");

        let nowhere = from_path("../nowhere".to_owned()).unwrap_err();
        let cause = std::error::Error::source(&nowhere).unwrap().to_string();
        assert!(cause.ends_with("/../nowhere` is no git repository"), "{cause}");
        assert!(nowhere.hint().unwrap().contains("from this repository's root"), "{nowhere}");

        let unknown = GitSource { commit: "1".repeat(40).parse().unwrap(), ..source.clone() };
        let error = checkout(&unknown, &layout, &Silent).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("does not hold the commit 1111"), "{error}: {cause}");
        let elsewhere = GitSource { repository: "https://example.org/owner/other".into(), ..source };
        let error =
            checkout(&elsewhere, &Layout { work: dir.path().join("w2"), ..layout }, &Silent).unwrap_err();
        assert!(error.hint().unwrap().contains("--mirror-root"), "{error}");
    }
}
