//! The forecast: what every patch of a stack becomes on a target, alone and in the stack, which conflicts are upstream's
//! doing and which only miss an earlier patch, and how far upstream could be taken without any conflict.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    culprit::{ConflictHistory, Culprits},
    depend::{FileChange, LineOrigins},
    replay::{Replayed, Step},
};
use crate::fork::{Milestone, target::Target};
use crate::tools::git::{
    ids::{CommitId, TreeId},
    merge::{Favour, MergeError, PathConflict, Pick, Picked},
    store::{Entry, LineChange, MODE_SUBMODULE, PathChange, Store, StoreError},
    tree_path::TreePath,
};

/// How many commits the frontier's search may try with whole trees.
const FRONTIER_ROUNDS: usize = 12;

/// What becomes of a patch on a new upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchFate {
    /// It applies as it stands; only line numbers may differ.
    Applied,
    /// It merges by itself; the lines around it changed.
    Merged,
    /// Nothing of it is left to do.
    Absorbed,
    /// Upstream changed what it changes.
    Conflicted,
    /// It only misses an earlier patch, which is conflicted.
    Blocked,
}

impl PatchFate {
    /// The fate in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Merged => "merged",
            Self::Absorbed => "absorbed",
            Self::Conflicted => "conflicted",
            Self::Blocked => "blocked",
        }
    }
}

/// Whose doing a conflict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Upstream's: it is there although everything before it in the stack is carried on.
    Upstream,
    /// An earlier patch's: it is only there without the rest of the stack.
    Dependency,
}

/// One conflicting path of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: TreePath,
    /// Git's word for it, such as `contents` or `modify/delete`.
    pub kind: String,
    /// Whose doing it is.
    pub cause: Cause,
    /// The upstream commit since which the path has conflicted; `None` for a dependency.
    pub culprit: Option<CommitId>,
    /// How many places need a person.
    pub hunks: usize,
}

/// The forecast of one patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchForecast {
    /// The patch's number in the stack.
    pub number: usize,
    /// Its fate in the stack.
    pub fate: PatchFate,
    /// Its conflicting paths, in byte order.
    pub conflicts: Vec<Conflict>,
    /// The earlier patches that it needs.
    pub depends_on: Vec<usize>,
    /// Its fate without the rest of the stack.
    pub alone: PatchFate,
    /// The target's tree with the stack up to and including it, conflicts carried on.
    pub tree: TreeId,
}

/// The newest upstream commit that takes the whole stack without a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frontier {
    /// The commit; the stack's own base when no newer one does.
    pub commit: CommitId,
    /// Its position after the base, counted from 1; 0 for the base.
    pub index: usize,
    /// How many commits lie between base and target.
    pub of: usize,
}

/// The forecast of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// One for each patch, in the stack's order.
    pub patches: Vec<PatchForecast>,
    /// How far upstream can be taken as things stand.
    pub frontier: Frontier,
}

/// Forecasts a replayed stack on a target.
///
/// # Errors
/// When objects are missing or git fails; conflicts are part of the forecast.
pub fn forecast(store: &Store, replayed: &Replayed, target: &Target) -> Result<Forecast, MergeError> {
    let onto = target.onto.tree;
    let alone = picks_alone(store, &replayed.steps, onto)?;
    let in_stack = carried_on(store, &replayed.steps, onto)?;
    let needs = needs(store, &replayed.steps)?;

    let mut watched = Vec::new();
    for (step, stop) in replayed.steps.iter().zip(&in_stack) {
        for conflict in &stop.conflicts {
            watched.push(watched_for(store, step, conflict)?);
        }
    }
    let (culprits, frontier) = history_of(store, replayed, target, watched)?;

    let mut patches: Vec<PatchForecast> = Vec::new();
    for (at, step) in replayed.steps.iter().enumerate() {
        let (stop, alone) = (&in_stack[at], &alone[at]);
        let mut conflicts = Vec::new();
        for conflict in &stop.conflicts {
            let culprit = culprits.get(&(step.number, conflict.path.clone())).copied();
            let hunks = store.conflict_hunks(&stop.picked, conflict)?;
            conflicts.push(named(conflict, Cause::Upstream, culprit, hunks));
        }
        let mut missed = BTreeSet::new();
        for conflict in &alone.conflicts {
            if stop.conflicts.iter().all(|other| other.path != conflict.path) {
                let hunks = store.conflict_hunks(alone, conflict)?;
                conflicts.push(named(conflict, Cause::Dependency, None, hunks));
                missed.extend(needs[at].of_path(&conflict.path, &replayed.steps[..at]));
            }
        }
        conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        let fate_of = |number: usize| patches.get(number - 1).map(|patch| patch.fate);
        let stuck = missed
            .iter()
            .any(|&number| matches!(fate_of(number), Some(PatchFate::Conflicted | PatchFate::Blocked)));
        let fate = match fate_of_pick(store, step, stop.onto, &stop.picked)? {
            PatchFate::Applied | PatchFate::Merged if stuck => PatchFate::Blocked,
            fate => fate,
        };
        let depends_on = needs[at].all().union(&missed).copied().collect();
        let alone = fate_of_pick(store, step, onto, alone)?;
        patches.push(PatchForecast {
            number: step.number,
            fate,
            conflicts,
            depends_on,
            alone,
            tree: stop.tree,
        });
    }
    Ok(Forecast { patches, frontier })
}

/// One patch picked onto the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The tree that it was picked onto.
    pub onto: TreeId,
    /// Its conflicting paths.
    pub conflicts: Vec<PathConflict>,
    /// What git made of it.
    pub picked: Picked,
    /// What the next patch is picked onto: its own version of conflicting hunks is kept.
    pub tree: TreeId,
}

fn picks_alone(store: &Store, steps: &[Step], onto: TreeId) -> Result<Vec<Picked>, MergeError> {
    let picks: Vec<Pick> =
        steps.iter().map(|step| Pick { base: step.before, ours: onto, theirs: step.after }).collect();
    store.pick_all(&picks, Favour::Neither)
}

/// Picks a stack onto a tree, patch after patch.
///
/// # Errors
/// See [`MergeError`]; a conflict stops nothing.
pub fn carried_on(store: &Store, steps: &[Step], onto: TreeId) -> Result<Vec<Stop>, MergeError> {
    let alone = |step: &Step| Pick { base: step.before, ours: onto, theirs: step.after };
    store.foresee(&steps.iter().map(alone).collect::<Vec<_>>(), Favour::Neither)?;
    let mut stops = Vec::with_capacity(steps.len());
    let mut tip = onto;
    for step in steps {
        let pick = Pick { base: step.before, ours: tip, theirs: step.after };
        let picked = store.pick(pick, Favour::Neither)?;
        let onto = tip;
        tip = if picked.conflicts.is_empty() { picked.tree } else { store.carry(pick)? };
        stops.push(Stop { onto, conflicts: picked.conflicts.clone(), picked, tree: tip });
    }
    Ok(stops)
}

fn fate_of_pick(store: &Store, step: &Step, ours: TreeId, picked: &Picked) -> Result<PatchFate, StoreError> {
    if !picked.conflicts.is_empty() {
        return Ok(PatchFate::Conflicted);
    }
    if picked.untouched {
        return Ok(PatchFate::Applied);
    }
    Ok(match merge_of(store, step, ours, picked.tree)? {
        Merge::AsItStands => PatchFate::Applied,
        Merge::WithOtherContext => PatchFate::Merged,
        Merge::NothingLeft => PatchFate::Absorbed,
    })
}

/// How a patch merges that meets no conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// Only line numbers may differ.
    AsItStands,
    /// The lines around it changed.
    WithOtherContext,
    /// Nothing of it is left to do.
    NothingLeft,
}

/// How a patch made `tree` of `ours` without a conflict.
///
/// # Errors
/// When an object is missing.
pub(super) fn merge_of(store: &Store, step: &Step, ours: TreeId, tree: TreeId) -> Result<Merge, StoreError> {
    if step.before == step.after {
        return Ok(Merge::AsItStands);
    }
    if tree == ours {
        return Ok(Merge::NothingLeft);
    }
    let same = is_same_change(store, &step.changes, &store.changes(ours, tree)?)?;
    Ok(if same { Merge::AsItStands } else { Merge::WithOtherContext })
}

/// Whether two changes differ in nothing but line numbers and white space. What is equal to the byte in both is not
/// looked into.
fn is_same_change(store: &Store, one: &[PathChange], other: &[PathChange]) -> Result<bool, StoreError> {
    if !one.iter().map(|change| &change.path).eq(other.iter().map(|change| &change.path)) {
        return Ok(false);
    }
    let (mut old_one, mut new_one) = (BTreeMap::new(), BTreeMap::new());
    let (mut old_other, mut new_other) = (BTreeMap::new(), BTreeMap::new());
    for (one, other) in one.iter().zip(other).filter(|(one, other)| one != other) {
        old_one.insert(one.path.clone(), one.old);
        new_one.insert(one.path.clone(), one.new);
        old_other.insert(other.path.clone(), other.old);
        new_other.insert(other.path.clone(), other.new);
    }
    if old_one.is_empty() {
        return Ok(true);
    }
    let tree = |entries| store.edited_tree(store.empty_tree()?, entries);
    let one = store.patch_id(tree(&old_one)?, tree(&new_one)?)?;
    Ok(one == store.patch_id(tree(&old_other)?, tree(&new_other)?)?)
}

fn named(conflict: &PathConflict, cause: Cause, culprit: Option<CommitId>, hunks: usize) -> Conflict {
    Conflict { path: conflict.path.clone(), kind: conflict.kind.clone(), cause, culprit, hunks }
}

/// The paths whose history tells about a conflict: its own, and the one that a renamed file had before.
fn watched_for(
    store: &Store,
    step: &Step,
    conflict: &PathConflict,
) -> Result<BTreeSet<TreePath>, StoreError> {
    let mut paths = BTreeSet::from([conflict.path.clone()]);
    if store.entry(step.before, &conflict.path)?.is_none() {
        let same =
            |entry: Option<Entry>| entry.is_some() && entry.map(|e| e.id) == conflict.base.map(|e| e.id);
        let origins = step.changes.iter().filter(|change| same(change.old)).map(|change| change.path.clone());
        paths.extend(origins);
    }
    Ok(paths)
}

/// The culprits of the conflicts at the target, and the frontier. `watched` holds, for each conflict, its paths.
fn history_of(
    store: &Store,
    replayed: &Replayed,
    target: &Target,
    watched: Vec<BTreeSet<TreePath>>,
) -> Result<(Culprits, Frontier), MergeError> {
    let of = target.history.len();
    if watched.is_empty() || of == 0 {
        return Ok((BTreeMap::new(), Frontier { commit: target.onto.commit, index: of, of }));
    }
    let mut conflicts = ConflictHistory::new(store, &replayed.steps, &target.history);
    for paths in watched {
        conflicts.watch(paths)?;
    }
    let culprits = conflicts.culprits()?;
    let mut end = of;
    for _ in 0..FRONTIER_ROUNDS {
        let Some(candidate) = conflicts.newest_clean(end)? else { break };
        let Milestone { commit, tree } = target.history[candidate];
        // Only whole trees prove it: a path that does not conflict at the target may do so half-way.
        let stops = carried_on(store, &replayed.steps, tree)?;
        if stops.iter().all(|stop| stop.conflicts.is_empty()) {
            return Ok((culprits, Frontier { commit, index: candidate + 1, of }));
        }
        end = candidate;
        for (step, stop) in replayed.steps.iter().zip(&stops) {
            for conflict in &stop.conflicts {
                conflicts.watch(watched_for(store, step, conflict)?)?;
            }
        }
    }
    Ok((culprits, Frontier { commit: target.base.commit, index: 0, of }))
}

/// The earlier patches that one patch needs, by path.
#[derive(Debug, Default)]
struct Needs {
    by_path: BTreeMap<TreePath, BTreeSet<usize>>,
}

impl Needs {
    fn all(&self) -> BTreeSet<usize> {
        self.by_path.values().flatten().copied().collect()
    }

    /// The patches that a path needs; where no line tells, every earlier patch that changes the path.
    fn of_path(&self, path: &TreePath, earlier: &[Step]) -> BTreeSet<usize> {
        match self.by_path.get(path) {
            Some(needed) if !needed.is_empty() => needed.clone(),
            _ => earlier
                .iter()
                .filter(|step| step.changes.iter().any(|change| change.path == *path))
                .map(|step| step.number)
                .collect(),
        }
    }
}

fn needs(store: &Store, steps: &[Step]) -> Result<Vec<Needs>, StoreError> {
    let mut origins = LineOrigins::default();
    let often = changed_often(steps);
    let mut needs = Vec::with_capacity(steps.len());
    for step in steps {
        let mut own = Needs::default();
        for PathChange { path, old, new } in &step.changes {
            let places = match (old, new) {
                (Some(old), Some(new)) if often.contains(path) => places(store, *old, *new)?,
                _ => Vec::new(),
            };
            let change = match (old, new) {
                (None, _) => FileChange::Made,
                (_, None) => FileChange::Deleted,
                _ => FileChange::Edited(&places),
            };
            own.by_path.insert(path.clone(), origins.record(step.number, path, change));
        }
        needs.push(own);
    }
    Ok(needs)
}

/// The paths that more than one patch changes.
fn changed_often(steps: &[Step]) -> BTreeSet<&TreePath> {
    let mut seen = BTreeSet::new();
    let paths = steps.iter().flat_map(|step| &step.changes).map(|change| &change.path);
    paths.filter(|path| !seen.insert(*path)).collect()
}

fn places(store: &Store, old: Entry, new: Entry) -> Result<Vec<LineChange>, StoreError> {
    match old.id == new.id {
        true => Ok(Vec::new()),
        // Git shows a submodule as one line.
        false if [old.mode, new.mode].contains(&MODE_SUBMODULE) => {
            Ok(vec![LineChange { old: 0..1, new: 0..1 }])
        }
        false => store.line_changes(old.id, new.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Silent,
        rebase::replay::replay_stack,
        stack::branch::read_branch,
        tools::git::fixture::{Edit, ForkFixture},
    };

    const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

    fn ten(changes: &[(usize, &str)]) -> String {
        let mut lines: Vec<String> = TEN.lines().map(str::to_owned).collect();
        for &(number, text) in changes {
            lines[number - 1] = text.to_owned();
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn forecast_of(fixture: &ForkFixture) -> Forecast {
        let ForkFixture { store, base, .. } = fixture;
        let stack = read_branch(store, *base, fixture.head(), &[fixture.onto()]).unwrap();
        let tree = store.commit(*base).unwrap().tree;
        let replayed = replay_stack(store, *base, tree, &stack, &Silent).unwrap();
        let milestone = |commit| Milestone { commit, tree: store.commit(commit).unwrap().tree };
        let history = store.mainline(*base, fixture.onto()).unwrap().into_iter().map(milestone).collect();
        let target = Target { base: milestone(*base), onto: milestone(fixture.onto()), history };
        forecast(store, &replayed, &target).unwrap()
    }

    fn told(fixture: &ForkFixture) -> String {
        let forecast = forecast_of(fixture);
        let subject = |commit| fixture.store.commit(commit).unwrap().subject;
        let mut text = String::new();
        for patch in &forecast.patches {
            text.push_str(&format!("{} {:?}, alone {:?}", patch.number, patch.fate, patch.alone));
            if !patch.depends_on.is_empty() {
                text.push_str(&format!(", needs {:?}", patch.depends_on));
            }
            text.push('\n');
            for conflict in &patch.conflicts {
                let culprit = conflict.culprit.map_or_else(|| "nobody".to_owned(), subject);
                let Conflict { path, kind, cause, hunks, .. } = conflict;
                text.push_str(&format!("  {path}: {cause:?} ({kind}, {hunks}), by {culprit}\n"));
            }
        }
        let Frontier { commit, index, of } = forecast.frontier;
        text + &format!("frontier {} {index}/{of}", subject(commit))
    }

    #[test]
    fn every_fate_is_told_apart() {
        let fixture = ForkFixture::new(&[("f", TEN), ("g", TEN), ("h", TEN)])
            .patch("applies with other line numbers", &[("f", Some(&ten(&[(9, "nine")])))])
            .patch("merges as a line beside it changed", &[("g", Some(&ten(&[(5, "five")])))])
            .patch("is upstream already", &[("h", Some(&ten(&[(2, "two")])))])
            .advance("adds a head", &[("f", Some(&format!("0\n{TEN}")))])
            .advance("changes line 7", &[("g", Some(&ten(&[(7, "seven")])))])
            .advance("does the same", &[("h", Some(&ten(&[(2, "two")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Applied, alone Applied
        2 Merged, alone Merged
        3 Absorbed, alone Absorbed
        frontier does the same 3/3
        ");
    }

    #[test]
    fn a_conflict_names_its_first_culprit_and_hides_nothing_after_it() {
        let fixture = ForkFixture::new(&[("f", TEN), ("g", TEN)])
            .patch("conflicts", &[("f", Some(&ten(&[(3, "three"), (9, "nine")])))])
            .patch("is clean", &[("g", Some(&ten(&[(1, "one")])))])
            .advance("far away", &[("f", Some(&ten(&[(6, "SIX")])))])
            .advance("culprit", &[("f", Some(&ten(&[(3, "THREE"), (6, "SIX")])))])
            .advance("later, same line", &[("f", Some(&ten(&[(3, "3!"), (6, "SIX")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Conflicted, alone Conflicted
          f: Upstream (contents, 1), by culprit
        2 Applied, alone Applied
        frontier far away 1/3
        ");
        // Carried on: the patch's own version of the hunk, upstream's version of everything else.
        let tree = forecast_of(&fixture).patches[1].tree;
        assert_eq!(fixture.text(tree, "f").unwrap(), ten(&[(3, "three"), (6, "SIX"), (9, "nine")]));
    }

    #[test]
    fn a_conflict_that_went_away_and_came_back_is_blamed_on_its_return() {
        let fixture = ForkFixture::new(&[("f", TEN)])
            .patch("conflicts", &[("f", Some(&ten(&[(3, "three")])))])
            .advance("first", &[("f", Some(&ten(&[(3, "THREE")])))])
            .advance("reverted", &[("f", Some(TEN))])
            .advance("again", &[("f", Some(&ten(&[(3, "III")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Conflicted, alone Conflicted
          f: Upstream (contents, 1), by again
        frontier reverted 2/3
        ");
    }

    #[test]
    fn dependencies_are_told_from_upstream_conflicts() {
        let changed: &[Edit<'_>] = &[("f", Some(&ten(&[(3, "three")])))];
        let again: &[Edit<'_>] = &[("f", Some(&ten(&[(3, "drei")])))];
        let both: &[Edit<'_>] = &[("f", Some(&ten(&[(3, "drei"), (8, "eight")])))];
        let fixture = ForkFixture::new(&[("f", TEN), ("g", TEN)])
            .patch("1 conflicts", changed)
            .patch("2 changes the same line again", again)
            .patch("3 changes another line", both)
            .patch("4 makes a file", &[("made", Some("a\nb\n"))])
            .patch("5 changes that file", &[("made", Some("a\nB\n"))])
            .advance("culprit", &[("f", Some(&ten(&[(3, "THREE")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Conflicted, alone Conflicted
          f: Upstream (contents, 1), by culprit
        2 Blocked, alone Conflicted, needs [1]
          f: Dependency (contents, 1), by nobody
        3 Applied, alone Applied
        4 Applied, alone Applied
        5 Applied, alone Conflicted, needs [4]
          made: Dependency (modify/delete, 1), by nobody
        frontier base 0/1
        ");
    }

    #[test]
    fn a_patch_may_conflict_with_upstream_and_miss_an_earlier_patch_at_once() {
        let fixture = ForkFixture::new(&[("f", TEN), ("g", TEN)])
            .patch("1 makes a file", &[("made", Some("a\nb\n"))])
            .patch("2 changes it and g", &[("made", Some("a\nB\n")), ("g", Some(&ten(&[(4, "four")])))])
            .advance("culprit", &[("g", Some(&ten(&[(4, "FOUR")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Applied, alone Applied
        2 Conflicted, alone Conflicted, needs [1]
          g: Upstream (contents, 1), by culprit
          made: Dependency (modify/delete, 1), by nobody
        frontier base 0/1
        ");
    }

    #[test]
    fn renames_deletions_and_folders_in_the_way_have_culprits_too() {
        let (gone, changed) = ("a\nb\nc\nd\n", "a\nB\nc\nd\n");
        let fixture = ForkFixture::new(&[("old/f", TEN), ("gone", gone), ("place", "x\n")])
            .patch("changes a file that moved", &[("old/f", Some(&ten(&[(2, "two"), (5, "five")])))])
            .patch("changes a file that went", &[("gone", Some(changed))])
            .patch("puts a folder where a file is", &[("place", None), ("place/a", Some("a\n"))])
            .patch("changes what it put there", &[("place/a", Some("A\n"))])
            .advance("moves", &[("old/f", None), ("new/f", Some(&ten(&[(9, "nine")])))])
            .advance("changes", &[("new/f", Some(&ten(&[(5, "FIVE"), (9, "nine")])))])
            .advance("deletes", &[("gone", None)])
            .advance("edits the file in the way", &[("place", Some("y\n"))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Conflicted, alone Conflicted
          new/f: Upstream (contents, 1), by changes
        2 Conflicted, alone Conflicted
          gone: Upstream (modify/delete, 1), by deletes
        3 Conflicted, alone Conflicted
          place: Upstream (file/directory, 1), by edits the file in the way
        4 Blocked, alone Conflicted, needs [3]
          place: Dependency (file/directory, 1), by nobody
          place/a: Dependency (modify/delete, 1), by nobody
        frontier moves 1/4
        ");
        let tree = forecast_of(&fixture).patches[3].tree;
        assert_eq!(fixture.text(tree, "place/a").as_deref(), Some("A\n"));
        assert_eq!(fixture.text(tree, "gone").as_deref(), Some(changed));
    }

    #[test]
    fn a_merge_inside_a_stack_is_flattened_with_what_only_it_held() {
        let mut fixture = ForkFixture::new(&[("f", TEN), ("g", TEN)]);
        let base = fixture.base;
        let one = fixture.commit(&[base], "one", &[("f", Some(&ten(&[(2, "two")])))]);
        let side = fixture.commit(&[base], "side", &[("f", Some(&ten(&[(2, "TWO")])))]);
        let merge = fixture.commit(&[one, side], "merge side", &[("f", Some(&ten(&[(2, "both")])))]);
        fixture.fork.push(merge);
        let fixture = fixture.advance("elsewhere", &[("g", Some(&ten(&[(2, "two")])))]);
        insta::assert_snapshot!(told(&fixture), @r"
        1 Applied, alone Applied
        2 Applied, alone Conflicted, needs [1]
          f: Dependency (contents, 1), by nobody
        3 Applied, alone Conflicted, needs [1, 2]
          f: Dependency (contents, 1), by nobody
        frontier elsewhere 1/1
        ");
        let tree = forecast_of(&fixture).patches[2].tree;
        assert_eq!(fixture.text(tree, "f"), Some(ten(&[(2, "both")])));
    }
}
