//! Which upstream commit made a path conflict, and up to which commit the whole stack fits. Only the paths in question
//! are looked at: each upstream state of them is a small flat tree, and the stack is picked onto all of them at once.

use std::collections::{BTreeMap, BTreeSet};

use super::replay::Step;
use crate::fork::Milestone;
use crate::tools::git::{
    ids::{CommitId, TreeId},
    merge::{Favour, MergeError, Pick},
    store::{Entry, Store, StoreError},
    tree_path::TreePath,
};

/// Upstream commits by patch number and conflicting path.
pub type Culprits = BTreeMap<(usize, TreePath), CommitId>;

/// Where a patch conflicts along upstream's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictHistory {
    /// For each patch number and path: the commit since which the path has conflicted without a break up to the target.
    pub culprits: Culprits,
    /// The commits, as positions in the history, at which no watched path of any patch conflicts.
    pub clean: BTreeSet<usize>,
}

/// Picks the stack onto every state that the watched `paths` had along `history` (oldest commit first).
///
/// # Errors
/// See [`MergeError`].
pub fn conflict_history(
    store: &Store,
    steps: &[Step],
    history: &[Milestone],
    paths: &BTreeSet<TreePath>,
) -> Result<ConflictHistory, MergeError> {
    let watched: Vec<&TreePath> = paths.iter().collect();
    let mut flats = Flats { store, watched: &watched, known: BTreeMap::new() };
    let eras = eras(history, &mut flats)?;
    let mut tips: Vec<TreeId> = eras.iter().map(|era| era.tree).collect();
    let mut conflicts: Vec<BTreeMap<usize, BTreeSet<usize>>> = vec![BTreeMap::new(); eras.len()];
    for step in steps.iter().filter(|step| step.changes.iter().any(|change| paths.contains(&change.path))) {
        let (base, theirs) = (flats.flat(step.before)?, flats.flat(step.after)?);
        let picks: Vec<Pick> = tips.iter().map(|&ours| Pick { base, ours, theirs }).collect();
        let outcomes = store.pick_all(&picks, Favour::Neither)?;
        let mut unclean = Vec::new();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            if outcome.conflicts.is_empty() {
                tips[at] = outcome.tree;
                continue;
            }
            unclean.push(at);
            let named = outcome.conflicts.iter().filter_map(|conflict| index_of(&conflict.path));
            conflicts[at].insert(step.number, named.collect());
        }
        let picks: Vec<Pick> = unclean.iter().map(|&at| picks[at]).collect();
        for (at, tree) in unclean.into_iter().zip(store.carry_all(&picks)?) {
            tips[at] = tree;
        }
    }
    Ok(ConflictHistory {
        culprits: culprits(&eras, &conflicts, history, &watched),
        clean: eras
            .iter()
            .zip(&conflicts)
            .filter(|(_, conflicts)| conflicts.is_empty())
            .flat_map(|(era, _)| era.first..era.end)
            .collect(),
    })
}

/// A run of commits that leave the watched paths alone, after the first.
struct Era {
    first: usize,
    end: usize,
    tree: TreeId,
}

fn eras(history: &[Milestone], flats: &mut Flats<'_>) -> Result<Vec<Era>, StoreError> {
    let mut eras: Vec<Era> = Vec::new();
    for (at, milestone) in history.iter().enumerate() {
        let tree = flats.flat(milestone.tree)?;
        match eras.last_mut() {
            Some(era) if era.tree == tree => era.end = at + 1,
            _ => eras.push(Era { first: at, end: at + 1, tree }),
        }
    }
    Ok(eras)
}

fn culprits(
    eras: &[Era],
    conflicts: &[BTreeMap<usize, BTreeSet<usize>>],
    history: &[Milestone],
    watched: &[&TreePath],
) -> Culprits {
    let conflicting = |era: usize, number: usize, path: usize| {
        conflicts[era].get(&number).is_some_and(|paths| paths.contains(&path))
    };
    let at_target = conflicts.last().into_iter().flatten();
    at_target
        .flat_map(|(&number, paths)| paths.iter().map(move |&path| (number, path)))
        .map(|(number, path)| {
            let run = (0..eras.len()).rev().take_while(|&era| conflicting(era, number, path));
            let first = run.last().expect("the run holds at least the target");
            ((number, watched[path].clone()), history[eras[first].first].commit)
        })
        .collect()
}

/// Flat trees of the watched paths, named by their place in the list.
struct Flats<'s> {
    store: &'s Store,
    watched: &'s [&'s TreePath],
    known: BTreeMap<Vec<Option<Entry>>, TreeId>,
}

impl Flats<'_> {
    fn flat(&mut self, tree: TreeId) -> Result<TreeId, StoreError> {
        let entries: Vec<Option<Entry>> =
            self.watched.iter().map(|path| self.store.entry(tree, path)).collect::<Result<_, _>>()?;
        if let Some(&known) = self.known.get(&entries) {
            return Ok(known);
        }
        let named = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (TreePath::new(format!("{at:05}")).expect("digits are a path"), *entry));
        let flat = self.store.edited_tree(self.store.empty_tree()?, &named.collect())?;
        self.known.insert(entries, flat);
        Ok(flat)
    }
}

fn index_of(path: &TreePath) -> Option<usize> {
    std::str::from_utf8(path.as_bytes().get(..5)?).ok()?.parse().ok()
}
