//! Replays a stack on its own old base, so that every patch has a tree before and a tree after it: the ancestors that
//! three-way merges need. It does not look at any other upstream.

use std::collections::BTreeMap;

use crate::{
    event::{Event, EventSink},
    stack::{
        Change, Patch, PatchStack,
        apply::{self, Misfit},
        mail::Author,
        patch_file::{Origin, PatchFile},
    },
    tools::git::{
        ids::{CommitId, EntryId, TreeId},
        merge::{Favour, MergeError, Pick},
        store::{Entry, MODE_FILE, MODE_SUBMODULE, PathChange, Person, Store, StoreError},
        tree_path::TreePath,
    },
};

/// A stack on its own base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The base's tree.
    pub base: TreeId,
    /// The patches, each with the trees around it.
    pub steps: Vec<Step>,
}

/// One patch of a replayed stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The patch's number in the stack.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// Its file's name, for a patch read from a file.
    pub file: Option<String>,
    /// The commit that it was read from, for a patch of a branch.
    pub commit: Option<CommitId>,
    /// The tree before it.
    pub before: TreeId,
    /// The tree after it.
    pub after: TreeId,
    /// What it changes.
    pub changes: Vec<PathChange>,
}

/// Why a stack does not fit its own base.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A patch does not fit what the base and the patches before it make.
    #[error("patch {number} `{subject}` does not apply to its own base: {path}")]
    Misfit {
        /// The patch's number.
        number: usize,
        /// Its subject.
        subject: String,
        /// The file that it fails on.
        path: TreePath,
        /// What does not fit.
        #[source]
        source: Misfit,
    },
    /// Trees could not be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Misfit { .. } => Some(
                "fork.toml's [base] or the order in its [stack] is not what the patches were made for"
                    .to_owned(),
            ),
            Self::Merge(error) => error.hint(),
            Self::Store(error) => error.hint(),
        }
    }
}

/// Replays `stack` on `base_tree`, the tree of `base`.
///
/// # Errors
/// When a patch does not fit. Where flattening a merge meets a conflict, the commit's own version is kept and the rest
/// comes with the merge.
pub fn replay_stack(
    store: &Store,
    base: CommitId,
    base_tree: TreeId,
    stack: &PatchStack,
    events: &dyn EventSink,
) -> Result<Replayed, ReplayError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut tree = base_tree;
    for patch in &stack.patches {
        let (after, commit) = match &patch.change {
            Change::Diff(file) => {
                for path in file.miscounted_paths() {
                    let name = patch.file.as_deref().unwrap_or(&patch.subject);
                    events.emit(Event::Note(format!(
                        "{name}: a hunk of {path} counts its lines wrong; recounted"
                    )));
                }
                (with_patch_file(store, tree, patch, file)?, None)
            }
            Change::Commit(id) => (with_commit(store, tree, *id, events)?, Some(*id)),
            Change::MergeRest(merge) => match merge_rest(store, base, tree, *merge)? {
                Some(rest) => {
                    let (id, subject) = (merge.short(), &patch.subject);
                    events.emit(Event::Note(format!("merge {id} holds changes of its own: {subject}")));
                    (rest, Some(*merge))
                }
                None => continue,
            },
        };
        let (subject, file) = (patch.subject.clone(), patch.file.clone());
        let changes = store.changes(tree, after)?;
        steps.push(Step { number: steps.len() + 1, subject, file, commit, before: tree, after, changes });
        tree = after;
    }
    Ok(Replayed { base: base_tree, steps })
}

/// Writes the replayed stack as commits over `base`; gives the ids in the stack's order. Equal stacks give equal ids.
///
/// # Errors
/// When an object cannot be written.
pub fn write_commits(
    store: &Store,
    base: CommitId,
    stack: &PatchStack,
    replayed: &Replayed,
) -> Result<Vec<CommitId>, StoreError> {
    let by_file: BTreeMap<&str, &Patch> =
        stack.patches.iter().filter_map(|patch| Some((patch.file.as_deref()?, patch))).collect();
    let mut parent = base;
    let mut commits = Vec::new();
    for step in &replayed.steps {
        let patch = step.file.as_deref().and_then(|file| by_file.get(file));
        let author = patch.and_then(|patch| patch.author.as_ref());
        let message = patch.map_or_else(|| format!("{}\n", step.subject), |patch| patch.message.clone());
        parent = store.write_commit(step.after, &[parent], &person(author), &message)?;
        commits.push(parent);
    }
    Ok(commits)
}

fn person(author: Option<&Author>) -> Person {
    match author {
        Some(Author { name, email, time_s, offset_min }) => Person {
            name: if name.is_empty() { email.clone() } else { name.clone() },
            email: email.clone(),
            time_s: *time_s,
            offset_min: *offset_min,
        },
        // A bare diff tells neither author nor date; fixed ones keep ids reproducible.
        None => Person { name: "unknown".to_owned(), email: "unknown".to_owned(), time_s: 0, offset_min: 0 },
    }
}

fn with_patch_file(
    store: &Store,
    tree: TreeId,
    patch: &Patch,
    file: &PatchFile,
) -> Result<TreeId, ReplayError> {
    let mut edits: BTreeMap<TreePath, Option<Entry>> = BTreeMap::new();
    for diff in &file.files {
        let named = diff.new_path.as_ref().or(diff.old_path.as_ref()).expect("a diff names a path");
        let misfit = |source| {
            let (number, subject, path) = (patch.number, patch.subject.clone(), named.clone());
            ReplayError::Misfit { number, subject, path, source }
        };
        // One file may come twice in a patch, so earlier edits of the same patch count.
        let source = diff.old_path.as_ref().unwrap_or(named);
        let old = match edits.get(source) {
            Some(edited) => *edited,
            None => store.entry(tree, source)?,
        };
        let old_bytes = match old {
            None => None,
            Some(entry) if entry.mode == MODE_SUBMODULE => Some(submodule_text(entry.id)),
            Some(entry) => Some(store.blob(entry.id)?),
        };
        let new = apply::applied(diff, old_bytes.as_deref()).map_err(misfit)?;
        if let (Some(old_path), true) =
            (&diff.old_path, diff.origin == Origin::Renamed || diff.new_path.is_none())
        {
            edits.insert(old_path.clone(), None);
        }
        if let (Some(new_path), Some(bytes)) = (&diff.new_path, new) {
            let mode = diff.new_mode.or(old.map(|entry| entry.mode)).unwrap_or(MODE_FILE);
            let id = match submodule_id(mode, &bytes) {
                Some(id) => id,
                None => store.write_blob(&bytes)?,
            };
            edits.insert(new_path.clone(), Some(Entry { id, mode }));
        }
    }
    Ok(store.edited_tree(tree, &edits)?)
}

/// What git shows of a submodule in a diff.
fn submodule_text(id: EntryId) -> Vec<u8> {
    format!("Subproject commit {id}\n").into_bytes()
}

fn submodule_id(mode: u32, bytes: &[u8]) -> Option<EntryId> {
    let text = std::str::from_utf8(bytes).ok().filter(|_| mode == MODE_SUBMODULE)?;
    text.strip_prefix("Subproject commit ")?.trim_end().parse().ok()
}

fn with_commit(
    store: &Store,
    tree: TreeId,
    id: CommitId,
    events: &dyn EventSink,
) -> Result<TreeId, ReplayError> {
    let commit = store.commit(id)?;
    let base = match commit.parents.first() {
        Some(parent) => store.commit(*parent)?.tree,
        None => store.empty_tree()?,
    };
    let pick = Pick { base, ours: tree, theirs: commit.tree };
    let picked = store.pick(pick, Favour::Neither)?;
    if picked.conflicts.is_empty() {
        return Ok(picked.tree);
    }
    events.emit(Event::Note(format!(
        "{} `{}` meets conflicts while the branch is flattened; its own version is kept",
        id.short(),
        commit.subject
    )));
    Ok(store.carry(pick)?)
}

/// What a merge commit holds beyond the changes before it; `None` for nothing, and for a merge made on an older base,
/// where that cannot be told from upstream's own changes.
fn merge_rest(
    store: &Store,
    base: CommitId,
    tree: TreeId,
    id: CommitId,
) -> Result<Option<TreeId>, ReplayError> {
    let merge = store.commit(id)?;
    Ok((merge.tree != tree && store.is_ancestor(base, id)?).then_some(merge.tree))
}
