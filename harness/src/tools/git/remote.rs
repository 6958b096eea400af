//! What a remote repository has, and what is sent to it, always with the git program: heads, whether a commit can be had,
//! pushes with an explicit lease. It decides nothing about what may be pushed.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::{
    command::{git_command, with_user_settings},
    ids::CommitId,
    mirror::is_acceptable,
    store::{Store, StoreError},
};
use crate::tools::process::ProcessError;

/// How long one conversation with a remote may take.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Why a remote gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address is of a kind that runs programs or reads as an option.
    #[error("address `{0}` is refused")]
    Address(String),
    /// Git failed.
    #[error("cannot {doing} `{address}`")]
    Git {
        /// What was being done, up to the address.
        doing: &'static str,
        /// The address.
        address: String,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// Objects or refs could not be read or written here.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A scratch repository could not be made.
    #[error("cannot make a scratch repository")]
    Scratch(#[source] std::io::Error),
}

impl RemoteError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Address(_) => Some("use an https, ssh, git or file address, or a plain path".to_owned()),
            Self::Git { .. } => Some("check the address, your access to it, and the network".to_owned()),
            Self::Store(error) => error.hint(),
            Self::Scratch(_) => None,
        }
    }
}

/// One ref to move on a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The ref's full name.
    pub name: String,
    /// Where it must be for the update to happen; `None`: it must not be there.
    pub expected: Option<CommitId>,
    /// Where it goes.
    pub new: CommitId,
}

/// What a remote did with a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushAnswer {
    /// Every ref is where it should be.
    Done,
    /// A ref was not where it was expected, and nothing was changed.
    Stale,
    /// The remote refused, and nothing was changed; git's words.
    Refused(String),
}

/// The refs of a remote whose full names match one of `patterns` (as `git ls-remote` matches them), peeled.
///
/// # Errors
/// When the remote gives no answer.
pub fn remote_refs(
    store: &Store,
    address: &str,
    patterns: &[&str],
) -> Result<BTreeMap<String, CommitId>, RemoteError> {
    let listed = git(store.path(), address)?
        .args(["ls-remote", "--quiet", "--"])
        .arg(address)
        .args(patterns)
        .timeout(TIMEOUT)
        .run_ok()
        .map_err(|source| RemoteError::Git {
            doing: "list the refs of",
            address: address.to_owned(),
            source: Box::new(source),
        })?;
    let mut refs = BTreeMap::new();
    for line in listed.stdout.lines() {
        let Some((id, name)) = line.split_once('\t') else { continue };
        let Ok(id) = id.parse::<CommitId>() else { continue };
        // The peeled entry of a tag follows the tag's own, and takes its place.
        refs.insert(name.trim_end_matches("^{}").to_owned(), id);
    }
    Ok(refs)
}

/// Where one ref of a remote is.
///
/// # Errors
/// When the remote gives no answer.
pub fn remote_ref(store: &Store, address: &str, name: &str) -> Result<Option<CommitId>, RemoteError> {
    Ok(remote_refs(store, address, &[name])?.remove(name))
}

/// Whether a branch or tag of the remote leads to `commit` or past it. That the remote hands the commit out is not enough:
/// a host gives any object of a whole network of forks to whoever names it, until it is swept away.
///
/// # Errors
/// When the remote gives no answer.
pub fn serves(store: &Store, address: &str, commit: CommitId) -> Result<bool, RemoteError> {
    let tips = remote_refs(store, address, &["refs/heads/*", "refs/tags/*"])?;
    let leads_there = |tip: &CommitId| {
        *tip == commit || (store.has(*tip) && store.is_ancestor(commit, *tip).unwrap_or(false))
    };
    if tips.values().any(leads_there) {
        return Ok(true);
    }
    let unknown = tips.values().any(|tip| !store.has(*tip));
    if !unknown {
        return Ok(false);
    }
    let scratch = tempfile::tempdir().map_err(RemoteError::Scratch)?;
    let history = Store::open(scratch.path(), &[])?;
    git(history.path(), address)?
        .args(["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--update-shallow"])
        .args(["--no-recurse-submodules", "--no-write-fetch-head", "--"])
        .arg(address)
        .args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
        .timeout(TIMEOUT)
        .run_ok()
        .map_err(|source| RemoteError::Git {
            doing: "fetch the history of",
            address: address.to_owned(),
            source: Box::new(source),
        })?;
    local_serves(scratch.path(), commit)
}

/// Fetches one ref, or one commit by its id, with all of its history into `target`.
///
/// # Errors
/// When it cannot be fetched.
pub fn fetch_ref(store: &Store, address: &str, source: &str, target: &str) -> Result<(), RemoteError> {
    git(store.path(), address)?
        .args(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--"])
        .arg(address)
        .arg(format!("+{source}:{target}"))
        .timeout(TIMEOUT)
        .run_ok()
        .map(drop)
        .map_err(|source| RemoteError::Git {
            doing: "fetch from",
            address: address.to_owned(),
            source: Box::new(source),
        })
}

/// Moves refs of a remote, all or none, each only from where it is expected.
///
/// # Errors
/// When the remote gives no answer that can be understood; what happened is then not known.
pub fn push(store: &Store, address: &str, updates: &[RefUpdate]) -> Result<PushAnswer, RemoteError> {
    let mut command = git(store.path(), address)?.args(["push", "--porcelain", "--no-follow-tags"]);
    if updates.len() > 1 {
        command = command.arg("--atomic");
    }
    for RefUpdate { name, expected, .. } in updates {
        // An empty value says that the ref must not be there.
        let expected = expected.map(|id| id.to_string()).unwrap_or_default();
        command = command.arg(format!("--force-with-lease={name}:{expected}"));
    }
    command = command.arg("--").arg(address);
    command = command.args(updates.iter().map(|update| format!("{}:{}", update.new, update.name)));
    let failed =
        |source| RemoteError::Git { doing: "push to", address: address.to_owned(), source: Box::new(source) };
    let command = command.timeout(TIMEOUT);
    let completed = command.run().map_err(failed)?;
    if completed.status.success() {
        return Ok(PushAnswer::Done);
    }
    let rejected: Vec<&str> =
        completed.stdout.lines().filter_map(|line| line.strip_prefix("!\t")?.split('\t').nth(1)).collect();
    if rejected.is_empty() {
        return Err(failed(command.failure(&completed)));
    }
    // Some servers compare the lease a second time when they lock the ref.
    let stale = |reason: &&str| {
        ["stale info", "cannot lock ref", "failed to lock"].iter().any(|w| reason.contains(w))
    };
    Ok(match rejected.iter().any(stale) {
        true => PushAnswer::Stale,
        false => PushAnswer::Refused(format!("{}\n{}", rejected.join("; "), completed.stderr_tail.trim())),
    })
}

fn git(repository: &Path, address: &str) -> Result<crate::tools::process::Invocation, RemoteError> {
    match is_acceptable(address) {
        true => Ok(with_user_settings(repository)),
        false => Err(RemoteError::Address(address.to_owned())),
    }
}

/// Whether a branch or tag of the repository at `path` leads to `commit` or past it.
///
/// # Errors
/// When the repository cannot be read.
pub fn local_serves(path: &Path, commit: CommitId) -> Result<bool, RemoteError> {
    let store = Store::open_existing(path)?;
    if !store.has(commit) {
        return Ok(false);
    }
    let address = || path.display().to_string();
    git_command(path)
        .args(["for-each-ref", "--count=1", "--format=%(refname)", "--contains"])
        .arg(commit.to_string())
        .args(["refs/heads", "refs/tags"])
        .timeout(TIMEOUT)
        .run_ok()
        .map(|listed| !listed.stdout.trim().is_empty())
        .map_err(|source| RemoteError::Git {
            doing: "list the refs of",
            address: address(),
            source: Box::new(source),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn a_commit_that_no_branch_or_tag_leads_to_is_not_served() {
        let fixture = ForkFixture::new(&[("a", "a\n")])
            .advance("one", &[("a", Some("b\n"))])
            .advance("two", &[("a", Some("c\n"))])
            .patch("mine", &[("a", Some("d\n"))]);
        let remote = &fixture.store;
        fixture.name("refs/heads/main", fixture.onto());
        // What a host keeps of other forks' branches, and hands out to whoever asks by the commit's name.
        fixture.name("refs/pull/1/head", fixture.head());
        git_command(remote.path())
            .args(["config", "uploadpack.allowAnySHA1InWant", "true"])
            .run_ok()
            .unwrap();
        let address = format!("file://{}", remote.path().display());
        let scratch = tempfile::tempdir().unwrap();
        let knows_nothing = Store::open(&scratch.path().join("empty"), &[]).unwrap();
        let knows_all = Store::open(&scratch.path().join("full"), &[remote.path().to_owned()]).unwrap();
        for store in [&knows_nothing, &knows_all] {
            let served = |commit| serves(store, &address, commit).unwrap();
            assert!(served(fixture.onto()) && served(fixture.upstream[1]) && served(fixture.base));
            assert!(!served(fixture.head()));
        }
        fixture.name("refs/tags/mine", fixture.head());
        assert!(serves(&knows_nothing, &address, fixture.head()).unwrap());
    }
}
