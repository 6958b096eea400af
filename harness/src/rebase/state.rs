//! What a rebase remembers between two runs: where it goes, what people decided, which commits it made, and the patch
//! that waits. The file is replaced by rename, so that a run killed at any moment leaves the old or the new one.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::outcome::{OutcomeError, replace_file, sync_folder};
use crate::tools::{
    file::{self, Most},
    git::ids::{CommitId, TreeId},
};

/// An unfinished rebase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncState {
    /// What `--onto` asked for.
    pub onto_asked: String,
    /// The commit that it meant then; it stays the target until the rebase is over.
    pub onto: CommitId,
    /// The mirror root that repositories were read from; `None` for the network.
    pub mirrors: Option<PathBuf>,
    /// [`super::plan::RebasePlan::digest`] of the plan.
    pub plan: String,
    /// What people decided, by patch number.
    pub decisions: BTreeMap<usize, Decision>,
    /// The commits made, by patch number: a signature may differ each time, a commit must not.
    pub written: BTreeMap<usize, Written>,
    /// The patch that waits for a person.
    pub stop: Option<StopRecord>,
}

/// What a person decided about a patch. It holds only where the patch meets the tree that the person saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The tree that the patch was picked onto.
    pub tip: TreeId,
    /// The tree that the person made of it; `None` when the patch is left out.
    pub tree: Option<TreeId>,
}

/// A commit made for a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its parent.
    pub parent: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// The commit.
    pub commit: CommitId,
}

/// The patch that waits, and what was shown to the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Its number.
    pub number: usize,
    /// The tree that it was picked onto.
    pub tip: TreeId,
    /// The tree that was checked out.
    pub shown: TreeId,
}

/// Decisions of this clone that hold more than their conflicts' records do: what a person changed beside a conflict.
/// They outlive the rebase, so that the same plan comes to the same stack again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// [`super::plan::RebasePlan::digest`] of the plan.
    pub plan: String,
    /// The decisions, by patch number.
    pub decisions: BTreeMap<usize, Decision>,
}

impl Beside {
    /// What this clone knows about a plan.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn load(root: &Path, fork: &str, plan: &str) -> Result<Self, OutcomeError> {
        let known: Option<Self> = read_json(Self::path(root, fork))?;
        let known = known.filter(|known| known.plan == plan);
        Ok(known.unwrap_or_else(|| Self { plan: plan.to_owned(), decisions: BTreeMap::new() }))
    }

    /// Keeps it, in place of what was known about another plan.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, root: &Path, fork: &str) -> Result<(), OutcomeError> {
        let path = Self::path(root, fork);
        let text = serde_json::to_vec_pretty(self).expect("decisions have text keys only");
        replace_file(&path, &text).map_err(|source| OutcomeError::Disk { path, source })
    }

    /// The file of a fork.
    pub fn path(root: &Path, fork: &str) -> PathBuf {
        sync_folder(root, fork).join("beside.json")
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: PathBuf) -> Result<Option<T>, OutcomeError> {
    match file::bytes(&path, Most::Record) {
        Ok(text) => {
            serde_json::from_slice(&text).map(Some).map_err(|source| OutcomeError::Shape { path, source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OutcomeError::Disk { path, source }),
    }
}

impl SyncState {
    /// The state of a fork's unfinished rebase, if there is one.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn load(root: &Path, fork: &str) -> Result<Option<Self>, OutcomeError> {
        read_json(Self::path(root, fork))
    }

    /// Keeps the state.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, root: &Path, fork: &str) -> Result<(), OutcomeError> {
        let path = Self::path(root, fork);
        let text = serde_json::to_vec_pretty(self).expect("a state has text keys only");
        replace_file(&path, &text).map_err(|source| OutcomeError::Disk { path, source })
    }

    /// Forgets the state.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn clear(root: &Path, fork: &str) -> Result<(), OutcomeError> {
        let path = Self::path(root, fork);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OutcomeError::Disk { path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Whether a person has put anything into it that starting anew would lose.
    pub fn holds_decisions(&self) -> bool {
        self.stop.is_some() || !self.decisions.is_empty()
    }

    /// The file of a fork.
    pub fn path(root: &Path, fork: &str) -> PathBuf {
        sync_folder(root, fork).join("state.json")
    }
}
