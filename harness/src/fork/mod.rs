//! Where upstream and fork stand: their objects in one bare store, their refs, the base that a stack sits on and the
//! commit that it is to go to. It reads no patch and changes nothing outside `target/regraft/`.

pub mod crates;
pub mod graph;
pub mod nearest;
pub mod open;
pub mod target;

use crate::tools::git::{
    ids::{CommitId, TreeId},
    mirror::MirrorError,
    store::StoreError,
};

/// An upstream commit, and the part of its tree that a stack is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milestone {
    /// The commit.
    pub commit: CommitId,
    /// Its tree, or the tree of the folder that the stack changes.
    pub tree: TreeId,
}

/// Why a fork cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The tag of the base leads to another commit than `fork.toml` says.
    #[error("tag `{tag}` has moved from {expected} to {found}, which holds {}", if *.same_tree { "the same files" } else { "other files" })]
    MovedTag {
        /// The tag.
        tag: String,
        /// The commit in `fork.toml`.
        expected: CommitId,
        /// The commit that the tag leads to now.
        found: CommitId,
        /// Whether both have the same tree.
        same_tree: bool,
    },
    /// The base's tree is not the one in `fork.toml`.
    #[error("base {commit} has the tree {found}, not {expected} as fork.toml says")]
    OtherTree {
        /// The base.
        commit: CommitId,
        /// The tree in `fork.toml`.
        expected: TreeId,
        /// The tree found.
        found: TreeId,
    },
    /// The history at hand does not hold a commit.
    #[error("commit {commit} is not in the history of `{repository}`{}", if *.shallow { ", which is shallow" } else { "" })]
    NoCommit {
        /// The commit.
        commit: String,
        /// Where it was looked for.
        repository: String,
        /// Whether that history is cut off.
        shallow: bool,
    },
    /// The branch is not there.
    #[error("`{repository}` has no branch `{branch}`")]
    NoBranch {
        /// Where it was looked for.
        repository: String,
        /// The branch.
        branch: String,
    },
    /// No tag, branch or commit has the name that was asked for.
    #[error("`{repository}` has no tag, branch or commit `{name}`")]
    NoTarget {
        /// Where it was looked for.
        repository: String,
        /// The name.
        name: String,
        /// What was perhaps meant.
        suggestion: String,
    },
    /// A commit lacks the folder that holds the vendored copy.
    #[error("commit {commit} has no folder `{folder}`")]
    NoFolder {
        /// The commit.
        commit: CommitId,
        /// The folder.
        folder: String,
    },
    /// No upstream commit holds a single file of the vendored copy.
    #[error("no commit of `{repository}` holds a file as `{folder}` has it")]
    NothingShared {
        /// The folder of the copy.
        folder: String,
        /// Upstream.
        repository: String,
    },
    /// The base is not an ancestor of the target.
    #[error("base {base} is not an ancestor of {onto}")]
    NotAncestor {
        /// The base.
        base: CommitId,
        /// The target.
        onto: CommitId,
        /// The newest commit that both have.
        merge_base: Option<CommitId>,
        /// Whether the history at hand is cut off.
        shallow: bool,
    },
    /// A remote repository cannot be had.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ForkError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let deepen = "deepen it with `git fetch --unshallow`, or leave out --mirror-root to fetch it whole";
        Some(match self {
            Self::MovedTag { same_tree: true, .. } => {
                "the files are the same: write the new commit into fork.toml's [base]".to_owned()
            }
            Self::MovedTag { .. } => {
                "find out why upstream moved it before you write the new commit into fork.toml's [base]"
                    .to_owned()
            }
            Self::OtherTree { .. } => "correct `tree` in fork.toml's [base], or drop it".to_owned(),
            Self::NoCommit { shallow: true, .. } | Self::NotAncestor { shallow: true, .. } => {
                deepen.to_owned()
            }
            Self::NoCommit { .. } => "fetch newer history, or correct the commit".to_owned(),
            Self::NoFolder { .. } => "correct `folder` or `head` in fork.toml's [stack]".to_owned(),
            Self::NothingShared { .. } => {
                "is it a copy of that repository? Give `base` in fork.toml to go without a search".to_owned()
            }
            Self::NoBranch { .. } => "correct `branch` in fork.toml".to_owned(),
            Self::NoTarget { suggestion, .. } => suggestion.clone(),
            Self::NotAncestor { merge_base: Some(shared), .. } => format!(
                "both come from {}: name a target after the base, or a base that upstream's history holds",
                shared.short()
            ),
            Self::NotAncestor { .. } => "they share no history: is it the right repository?".to_owned(),
            Self::Mirror(error) => return error.hint(),
            Self::Store(error) => return error.hint(),
        })
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Mirror(error) => matches!(error, MirrorError::Address(_)),
            Self::Store(_) => false,
            _ => true,
        }
    }
}
