//! What a report cannot say, and why: no shared history, only the base's files, a history that is cut off or squashed.

use super::report::{ForkReport, LandedHow, PatchReport, Residue, Unknown};
use crate::{
    fork::open::Parts,
    rebase::sync::NamedCommit,
    tools::git::{
        ids::{CommitId, TreeId},
        store::{Store, StoreError},
    },
};

/// A patch that touches this many files and holds lines of this many upstream commits is taken for a squashed history.
const SQUASHED_FILES: usize = 8;
const SQUASHED_COMMITS: usize = 3;

/// How much of upstream's history is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All of it.
    Whole,
    /// It is cut off somewhere.
    Shallow,
    /// Only the base's files, without a commit.
    OnlyFiles,
}

/// What cannot be said about a stack.
pub fn unknowns(depth: Depth, patches: &[PatchReport]) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    match depth {
        Depth::Whole => {}
        Depth::Shallow => unknown.push(Unknown {
            what: "where the oldest lines that patches delete come from, so that reverts may be missed".to_owned(),
            why: "upstream's history at hand is shallow: fetch it whole".to_owned(),
        }),
        Depth::OnlyFiles => unknown.push(Unknown {
            what: "whether anything landed, was superseded, or undoes upstream's work".to_owned(),
            why: "only the base's files are at hand and no commit of upstream's: name a newer target with --onto"
                .to_owned(),
        }),
    }
    for patch in patches.iter().filter(|patch| is_squashed(patch)) {
        let (number, landed) = (patch.forecast.number, &patch.landed);
        let left: usize = patch.left.iter().map(|left| left.lines).sum();
        let first = landed.first().map(|landing| landing.commit.short()).unwrap_or_default();
        unknown.push(Unknown {
            what: format!("which lines of patch {number} are the fork's own work"),
            why: format!(
                "it holds lines of {} upstream commits ({first} most of all) beside {left} that upstream does not have: a \
                 squashed history has no commits to tell them apart by, so take the fork's newer commits one by one",
                landed.len()
            ),
        });
    }
    unknown
}

fn is_squashed(patch: &PatchReport) -> bool {
    let split = patch.landed.iter().filter(|landing| landing.how == LandedHow::Split).count();
    patch.identity.files >= SQUASHED_FILES && split >= SQUASHED_COMMITS && !patch.left.is_empty()
}

/// The report of a fork that shares no commit with upstream.
///
/// # Errors
/// When an object is missing.
pub fn unrelated(parts: &Parts) -> Result<ForkReport, StoreError> {
    let Parts { spec, store, upstream, head } = parts;
    let tip = upstream.branches.get(&spec.upstream.branch).copied();
    let mut why = "the fork's head and upstream's branch share no commit".to_owned();
    if let Some(first) =
        head.map(|head| store.first_parents(head)).transpose()?.and_then(|all| all.last().copied())
    {
        let tree = store.commit(first)?.tree;
        let named = upstream.tags.iter().map(|(tag, commit)| (tag.clone(), *commit));
        let states = named.chain(tip.map(|tip| (spec.upstream.branch.clone(), tip)));
        if let Some(nearest) = nearest(store, tree, states)? {
            why += &format!(
                "; its first commit {} is closest to {} ({} of {} files are the same): state that commit as [base] in \
                 fork.toml, with the fork's changes as patch files",
                first.short(),
                nearest.name,
                nearest.same,
                nearest.of
            );
        }
    }
    let what = "what the fork changed, commit by commit, and so whether any of it landed, was superseded, or undoes \
                upstream's work";
    Ok(ForkReport {
        name: spec.name.clone(),
        base: None,
        onto: tip.map(|commit| NamedCommit { commit, tag: None }),
        frontier: None,
        span: None,
        patches: Vec::new(),
        residue: Residue::default(),
        retirement: Vec::new(),
        unknown: vec![Unknown { what: what.to_owned(), why }],
        sections: Vec::new(),
    })
}

struct Nearest {
    name: String,
    same: usize,
    of: usize,
}

/// The named state that has most files of a tree unchanged; the first by name of several.
fn nearest(
    store: &Store,
    tree: TreeId,
    states: impl Iterator<Item = (String, CommitId)>,
) -> Result<Option<Nearest>, StoreError> {
    let files = store.files(tree)?;
    let mut best: Option<Nearest> = None;
    for (name, commit) in states.filter(|(_, commit)| store.has(*commit)) {
        let theirs = store.files(store.commit(commit)?.tree)?;
        let same = files
            .iter()
            .filter(|(path, entry)| theirs.get(*path).is_some_and(|other| other.id == entry.id))
            .count();
        if same > 0 && best.as_ref().is_none_or(|best| same > best.same) {
            best = Some(Nearest { name, same, of: files.len() });
        }
    }
    Ok(best)
}
