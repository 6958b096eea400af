//! Which upstream commits hold a patch: those that make the very same change.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::report::{LandedHow, Landing};
use crate::{
    fork::Milestone,
    rebase::replay::Step,
    tools::git::{
        history::Watch,
        ids::{CommitId, TreeId},
        store::{PathChange, Store, StoreError},
        tree_path::TreePath,
    },
};

/// An upstream commit that touches watched paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touching {
    /// The commit.
    pub commit: CommitId,
    /// The tree before it.
    pub before: TreeId,
    /// The tree after it.
    pub after: TreeId,
    /// What it does to the watched paths.
    pub changes: Vec<PathChange>,
}

/// The commits of `history` (oldest first, `base` before the first) that touch a path which the stack touches, or one of
/// `also`.
///
/// # Errors
/// When a tree is missing.
pub fn touching(
    store: &Store,
    base: TreeId,
    history: &[Milestone],
    steps: &[Step],
    also: &[PathChange],
) -> Result<Vec<Touching>, StoreError> {
    let paths = steps.iter().flat_map(|step| &step.changes).chain(also).map(|change| &change.path);
    let watch: Watch = paths.collect();
    let befores = [base].into_iter().chain(history.iter().map(|milestone| milestone.tree));
    let steps: Vec<(TreeId, &Milestone)> = befores.zip(history).collect();
    let look = |store: &Store, (before, milestone): (TreeId, &Milestone)| -> Result<_, StoreError> {
        let (commit, after) = (milestone.commit, milestone.tree);
        let changes = store.changes_among(before, after, &watch)?;
        Ok((!changes.is_empty()).then_some(Touching { commit, before, after, changes }))
    };
    let path = store.path();
    // To open a repository once more takes as long as to look at some dozens of commits.
    let looked = steps.par_iter().with_min_len(COMMITS_A_TASK).map_init(
        || Store::open_existing(path),
        |store, step| match store {
            Ok(store) => look(store, *step),
            Err(_) => look(&Store::open_existing(path)?, *step),
        },
    );
    Ok(looked.collect::<Result<Vec<_>, StoreError>>()?.into_iter().flatten().collect())
}

/// How many commits one thread looks at before another may take over.
const COMMITS_A_TASK: usize = 128;

/// For each patch the first upstream commit that makes the same change. Contents are only looked at where the touched
/// paths are the same.
///
/// # Errors
/// When an object is missing.
pub fn by_patch_id(
    store: &Store,
    steps: &[Step],
    touching: &[Touching],
) -> Result<Vec<Option<Landing>>, StoreError> {
    let mut landed = vec![None; steps.len()];
    let paths = |changes: &[PathChange]| -> BTreeSet<TreePath> {
        changes.iter().map(|change| change.path.clone()).collect()
    };
    let mut own = vec![None; steps.len()];
    let touched: Vec<BTreeSet<TreePath>> = steps.iter().map(|step| paths(&step.changes)).collect();
    for commit in touching {
        let theirs = paths(&commit.changes);
        let alike = |at: &usize| landed[*at].is_none() && touched[*at] == theirs && !theirs.is_empty();
        let candidates: Vec<usize> = (0..steps.len()).filter(alike).collect();
        if candidates.is_empty() || store.changes(commit.before, commit.after)?.len() != theirs.len() {
            continue;
        }
        let id = store.patch_id(commit.before, commit.after)?;
        for at in candidates {
            let own = match own[at] {
                Some(known) => known,
                None => *own[at].insert(store.patch_id(steps[at].before, steps[at].after)?),
            };
            if own == id {
                let subject = store.commit(commit.commit)?.subject;
                let how = LandedHow::PatchId;
                landed[at] = Some(Landing { commit: commit.commit, subject, how, share: 1.0 });
            }
        }
    }
    Ok(landed)
}
