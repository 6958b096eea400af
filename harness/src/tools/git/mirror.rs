//! Where a remote repository's objects and refs come from: a local mirror that is only read, or a fetch with the git
//! program into the bare cache. It decides nothing about what to do with them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use git2::Repository;

use super::{
    command::with_user_settings,
    ids::CommitId,
    store::{Store, StoreError, refs_of},
};
use crate::tools::process::ProcessError;

/// How long a fetch may take.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// The branches and tags of a remote repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteRefs {
    /// Branches, without `refs/heads/`.
    pub branches: BTreeMap<String, CommitId>,
    /// Tags, without `refs/tags/`, each with the commit it leads to.
    pub tags: BTreeMap<String, CommitId>,
}

/// Why a remote repository cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The address is of a kind that runs programs or reads as an option.
    #[error("address `{0}` is refused")]
    Address(String),
    /// No mirror lies below the root.
    #[error("no mirror of `{repository}` below `{}`", .root.display())]
    Missing {
        /// Owner and name.
        repository: String,
        /// The mirror root.
        root: PathBuf,
    },
    /// Git could not fetch.
    #[error("cannot fetch `{address}`")]
    Fetch {
        /// The address.
        address: String,
        /// What git said.
        #[source]
        source: ProcessError,
    },
    /// The mirror cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MirrorError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Address(_) => Some("use an https, ssh, git or file address, or a plain path".to_owned()),
            Self::Missing { repository, .. } => {
                let joined = repository.replace('/', "+");
                Some(format!(
                    "looked for {joined}/repo, {joined} and {repository}.git; without --mirror-root it is fetched"
                ))
            }
            Self::Fetch { .. } => {
                Some("check the address and the network, or give a local copy with --mirror-root".to_owned())
            }
            Self::Store(error) => error.hint(),
        }
    }
}

/// The mirror of the repository at `address` below `root`, in one of the layouts `owner+name/repo`, `owner+name` and
/// `owner/name.git`.
///
/// # Errors
/// When there is none.
pub fn find_mirror(root: &Path, address: &str) -> Result<PathBuf, MirrorError> {
    let repository = owner_and_name(address).ok_or_else(|| MirrorError::Address(address.to_owned()))?;
    let joined = root.join(repository.replace('/', "+"));
    let places = [
        joined.join("repo"),
        joined.join("repo/.git"),
        joined.clone(),
        joined.join(".git"),
        root.join(format!("{repository}.git")),
    ];
    let found =
        places.into_iter().find(|place| place.join("objects").is_dir() && place.join("HEAD").is_file());
    found.ok_or_else(|| MirrorError::Missing { repository, root: root.to_owned() })
}

/// The folder with the objects of the repository that lies at `place` itself: a checkout, a worktree or a bare one.
pub fn objects_of(place: &Path) -> Option<PathBuf> {
    // A worktree's own folder has no objects.
    Some(Repository::open(place).ok()?.commondir().to_owned())
}

/// `owner/name` of an address: its last two parts, without `.git`.
pub fn owner_and_name(address: &str) -> Option<String> {
    let mut parts = address.trim_end_matches('/').rsplit(['/', ':']).filter(|part| !part.is_empty());
    let name = parts.next()?.trim_end_matches(".git");
    let owner = parts.next()?;
    let plain = |part: &str| !part.is_empty() && !part.starts_with(['-', '.']) && !part.contains('\\');
    (plain(name) && plain(owner)).then(|| format!("{owner}/{name}"))
}

/// The branches and tags of a mirror.
///
/// # Errors
/// When it cannot be read.
pub fn mirror_refs(mirror: &Path) -> Result<RemoteRefs, MirrorError> {
    let open = |path: &Path| {
        git2::Repository::open_bare(path)
            .map_err(|e| super::store::failed(format!("open the mirror `{}`", path.display()), e))
    };
    let repo = open(mirror)?;
    Ok(RemoteRefs { branches: refs_of(&repo, "refs/heads/")?, tags: refs_of(&repo, "refs/tags/")? })
}

/// Fetches branches and tags of `address` into the store, below `refs/remotes/<name>/` and `refs/tags-of/<name>/`.
///
/// # Errors
/// When the address is refused or git cannot fetch.
pub fn fetch(store: &Store, name: &str, address: &str) -> Result<RemoteRefs, MirrorError> {
    if !is_acceptable(address) {
        return Err(MirrorError::Address(address.to_owned()));
    }
    let heads = format!("refs/remotes/{name}/");
    let tags = format!("refs/tags-of/{name}/");
    with_user_settings(store.path())
        .args([
            "fetch",
            "--quiet",
            "--prune",
            "--no-tags",
            // Without it git leaves out the branches of a shallow remote, and says nothing.
            "--update-shallow",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--",
        ])
        .arg(address)
        .arg(format!("+refs/heads/*:{heads}*"))
        .arg(format!("+refs/tags/*:{tags}*"))
        .timeout(TIMEOUT)
        .run_ok()
        .map_err(|source| MirrorError::Fetch { address: address.to_owned(), source })?;
    Ok(RemoteRefs { branches: store.refs(&heads)?, tags: store.refs(&tags)? })
}

/// Whether an address is of a kind that only moves bytes.
pub fn is_acceptable(address: &str) -> bool {
    let schemes = ["https://", "ssh://", "git://", "file://", "http://"];
    let has_scheme = address.contains("://");
    let plain =
        !address.contains("::") && !address.starts_with('-') && !address.chars().any(char::is_control);
    // `ssh://-oProxyCommand=…` hands an option to ssh.
    let host = address.split("://").nth(1).unwrap_or(address);
    plain
        && !host.starts_with('-')
        && (!has_scheme || schemes.iter().any(|scheme| address.starts_with(scheme)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_run_programs_or_read_as_options_are_refused() {
        for bad in
            ["ext::sh -c x", "-u", "--upload-pack=x", "ssh://-oProxyCommand=x/y", "javascript://x", "a\nb"]
        {
            assert!(!is_acceptable(bad), "{bad}");
        }
        for good in ["https://example.org/o/n", "git@example.org:o/n.git", "/srv/o/n", "file:///srv/o/n"] {
            assert!(is_acceptable(good), "{good}");
        }
    }

    #[test]
    fn owner_and_name_are_the_last_two_parts() {
        for address in
            ["https://example.org/o/n", "https://example.org/o/n.git", "git@example.org:o/n.git", "/srv/o/n/"]
        {
            assert_eq!(owner_and_name(address).as_deref(), Some("o/n"), "{address}");
        }
        assert_eq!(owner_and_name("n"), None);
        assert_eq!(owner_and_name("/srv/../n"), None);
    }
}
