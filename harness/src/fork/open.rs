//! Brings a fork's objects and refs together in one bare store below `target/regraft/`, from local mirrors or by
//! fetching, and checks that the base is what `fork.toml` says.

use std::path::{Path, PathBuf};

use super::{ForkError, Milestone, nearest::nearest};
use crate::{
    config::fork::{BaseSpec, ForkSpec, StackSpec, UpstreamSpec, VendoredCopy},
    event::{Event, EventSink},
    tools::git::{
        ids::{CommitId, TreeId},
        mirror::{self, RemoteRefs},
        store::Store,
        tree_path::TreePath,
    },
};

/// Where remote repositories are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Local mirrors below this folder.
    Mirrors(PathBuf),
    /// The network.
    Remotes,
}

/// A fork whose objects and refs are at hand.
pub struct Fork {
    /// What `fork.toml` says.
    pub spec: ForkSpec,
    /// The objects of upstream and fork.
    pub store: Store,
    /// Upstream's branches and tags.
    pub upstream: RemoteRefs,
    /// The newest commit of the fork's branch, for a stack read from a branch.
    pub head: Option<CommitId>,
    /// What the stack sits on.
    pub base: Milestone,
}

/// The objects and refs of a fork and its upstream, whether or not they share any history.
pub struct Parts {
    /// What `fork.toml` says.
    pub spec: ForkSpec,
    /// The objects of upstream and fork.
    pub store: Store,
    /// Upstream's branches and tags.
    pub upstream: RemoteRefs,
    /// The newest commit of the fork's branch, for a stack read from a branch.
    pub head: Option<CommitId>,
}

/// Opens a fork.
///
/// # Errors
/// When a repository or the base is missing, or the base is not what `fork.toml` says.
pub fn open_fork(
    root: &Path,
    spec: ForkSpec,
    source: &Source,
    events: &dyn EventSink,
) -> Result<Fork, ForkError> {
    let Parts { spec, store, upstream, head } = open_parts(root, spec, source, events)?;
    let base = match (&spec.base, head) {
        (Some(base), _) => checked_base(&store, &spec, base, &upstream)?,
        (None, head) => match (&spec.stack, head) {
            (StackSpec::Vendored(copy), Some(head)) => nearest_base(&store, &spec, copy, head, &upstream)?,
            _ => shared_base(&store, &spec, head, &upstream)?,
        },
    };
    Ok(Fork { spec, store, upstream, head, base })
}

/// Brings a fork's objects and refs together, without a look at its base.
///
/// # Errors
/// When a repository or the fork's branch is missing.
pub fn open_parts(
    root: &Path,
    spec: ForkSpec,
    source: &Source,
    events: &dyn EventSink,
) -> Result<Parts, ForkError> {
    let address = &spec.upstream.repository;
    let of_fork = match &spec.stack {
        StackSpec::Branch { repository, .. } => Some(repository),
        StackSpec::Vendored(copy) => Some(&copy.repository),
        _ => None,
    };
    let (store, upstream, fork) = match source {
        Source::Mirrors(mirrors) => {
            let upstream = mirror::find_mirror(mirrors, address)?;
            let fork = of_fork.map(|address| mirror::find_mirror(mirrors, address)).transpose()?;
            let borrow: Vec<PathBuf> = [&upstream].into_iter().chain(&fork).cloned().collect();
            let store = Store::open(&store_folder(root, &spec, "borrowed.git"), &borrow)?;
            let refs = fork.map(|fork| mirror::mirror_refs(&fork)).transpose()?;
            (store, mirror::mirror_refs(&upstream)?, refs)
        }
        Source::Remotes => {
            let store = Store::open(&store_folder(root, &spec, "git"), &[])?;
            let fetch = |name: &str, address: &str| {
                events.emit(Event::Note(format!("fetching {address}")));
                mirror::fetch(&store, name, address)
            };
            let upstream = fetch("upstream", address)?;
            let fork = of_fork.map(|address| fetch("fork", address)).transpose()?;
            (store, upstream, fork)
        }
    };
    let head = match (&spec.stack, fork) {
        (StackSpec::Branch { repository, branch, head }, Some(refs)) => {
            Some(fork_head(&store, repository, branch, *head, &refs)?)
        }
        (StackSpec::Vendored(copy), Some(refs)) => {
            Some(fork_head(&store, &copy.repository, &copy.branch, copy.head, &refs)?)
        }
        _ => None,
    };
    Ok(Parts { spec, store, upstream, head })
}

/// The folder of a fork's object store.
pub fn store_folder(root: &Path, spec: &ForkSpec, ending: &str) -> PathBuf {
    root.join("target/regraft/forks").join(format!("{}.{ending}", spec.name))
}

impl Fork {
    /// The part of a commit's tree that the stack is about.
    ///
    /// # Errors
    /// When objects are missing.
    pub fn milestone(&self, commit: CommitId) -> Result<Milestone, ForkError> {
        milestone(&self.store, &self.spec, commit)
    }
}

fn milestone(store: &Store, spec: &ForkSpec, commit: CommitId) -> Result<Milestone, ForkError> {
    let whole = store.commit(commit)?.tree;
    let tree = match spec.upstream.folder.as_deref().and_then(|folder| TreePath::new(folder).ok()) {
        Some(folder) => store.folder(whole, &folder)?.map_or_else(|| store.empty_tree(), Ok)?,
        None => whole,
    };
    Ok(Milestone { commit, tree })
}

/// The tree of a vendored copy.
///
/// # Errors
/// When the commit has no such folder.
pub fn vendored_tree(store: &Store, copy: &VendoredCopy, head: CommitId) -> Result<TreeId, ForkError> {
    let folder = store.folder(store.commit(head)?.tree, &copy.folder)?;
    folder.ok_or_else(|| ForkError::NoFolder { commit: head, folder: copy.folder.to_string() })
}

/// The upstream commit nearest to a vendored copy.
fn nearest_base(
    store: &Store,
    spec: &ForkSpec,
    copy: &VendoredCopy,
    head: CommitId,
    upstream: &RemoteRefs,
) -> Result<Milestone, ForkError> {
    let folder = vendored_tree(store, copy, head)?;
    let found = nearest(store, folder, upstream_tip(spec, upstream)?)?;
    let found = found.ok_or_else(|| ForkError::NothingShared {
        folder: copy.folder.to_string(),
        repository: spec.upstream.repository.clone(),
    })?;
    milestone(store, spec, found.commit)
}

fn upstream_tip(spec: &ForkSpec, upstream: &RemoteRefs) -> Result<CommitId, ForkError> {
    let UpstreamSpec { repository, branch, .. } = &spec.upstream;
    let no_branch = || ForkError::NoBranch { repository: repository.clone(), branch: branch.clone() };
    upstream.branches.get(branch).copied().ok_or_else(no_branch)
}

/// The newest commit that a fork's head shares with upstream's branch.
fn shared_base(
    store: &Store,
    spec: &ForkSpec,
    head: Option<CommitId>,
    upstream: &RemoteRefs,
) -> Result<Milestone, ForkError> {
    let tip = upstream_tip(spec, upstream)?;
    let head = head.unwrap_or(tip);
    match store.merge_base(head, tip)? {
        Some(base) => milestone(store, spec, base),
        None => Err(ForkError::NotAncestor {
            base: head,
            onto: tip,
            merge_base: None,
            shallow: store.is_shallow(),
        }),
    }
}

fn checked_base(
    store: &Store,
    spec: &ForkSpec,
    base: &BaseSpec,
    upstream: &RemoteRefs,
) -> Result<Milestone, ForkError> {
    let expected = base.commit;
    let there = store.has(expected);
    if let Some((tag, &found)) = base.tag.as_ref().and_then(|tag| upstream.tags.get_key_value(tag))
        && found != expected
    {
        let tree = if there { Some(store.commit(expected)?.tree) } else { base.tree };
        let same_tree = tree == Some(store.commit(found)?.tree);
        return Err(ForkError::MovedTag { tag: tag.clone(), expected, found, same_tree });
    }
    if !there {
        return Err(no_commit(store, &spec.upstream.repository, expected));
    }
    let found = store.commit(expected)?.tree;
    match base.tree {
        Some(tree) if tree != found => Err(ForkError::OtherTree { commit: expected, expected: tree, found }),
        _ => milestone(store, spec, expected),
    }
}

fn fork_head(
    store: &Store,
    repository: &str,
    branch: &str,
    head: Option<CommitId>,
    refs: &RemoteRefs,
) -> Result<CommitId, ForkError> {
    match head {
        Some(head) if store.has(head) => Ok(head),
        Some(head) => Err(no_commit(store, repository, head)),
        None => refs.branches.get(branch).copied().ok_or_else(|| ForkError::NoBranch {
            repository: repository.to_owned(),
            branch: branch.to_owned(),
        }),
    }
}

fn no_commit(store: &Store, repository: &str, commit: CommitId) -> ForkError {
    let shallow = store.is_shallow();
    ForkError::NoCommit { commit: commit.to_string(), repository: repository.to_owned(), shallow }
}
