//! How much of a patch upstream's own commits hold by now, line by line, whoever wrote them and in however many
//! commits: squashed, split, shifted or moved to another file.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    edits::FileEdit,
    report::{LandedHow, Landing, Left},
    upstream::{CodeLine, Drift, Upstream},
};
use crate::tools::git::{
    history::LineBlock,
    ids::CommitId,
    store::{Store, StoreError},
    tree_path::TreePath,
};

/// From this share on a patch counts as landed: what is missing is less than one line in twenty.
pub const LANDED_SHARE: f64 = 0.95;
/// From this share of a run of lines on, the run counts as found in one place.
const RUN_SHARE: f64 = 0.7;
/// A line that says less than this many words is everywhere and proves nothing.
const TELLING_WORDS: usize = 2;
/// A run of lines proves something when they say this many words together.
const TELLING_RUN_WORDS: usize = 6;
/// A run that is to be found in another file needs this many telling lines, and this share of them there.
const MOVED_LINES: usize = 3;
const MOVED_SHARE: f64 = 0.9;
/// Commits that hold less of a patch than this are not named.
const NAMED_SHARE: f64 = 0.02;

/// What upstream holds of a patch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contained {
    /// The commits that hold it.
    pub landed: Vec<Landing>,
    /// The share of its telling lines that upstream holds, 0 to 1; `None` when it has none.
    pub share: Option<f64>,
    /// Whether upstream holds at least one whole run of telling lines.
    pub whole_run: bool,
    /// Whether the patch brings telling lines at all; one that only takes away may be moot for other reasons.
    pub brings: bool,
    /// What it does not hold, by path.
    pub left: Vec<Left>,
}

/// What upstream holds of one patch.
///
/// # Errors
/// When an object is missing.
pub fn contained(
    store: &Store,
    upstream: &Upstream<'_>,
    edits: &[FileEdit],
) -> Result<Contained, StoreError> {
    let (mut total, mut held) = (0, 0);
    let (mut whole_run, mut brings) = (false, false);
    let mut left = Vec::new();
    let mut by_commit: BTreeMap<CommitId, usize> = BTreeMap::new();
    let mut spent = Spent::default();
    for edit in edits {
        if !upstream.can_hold(&edit.path) {
            // Upstream did nothing that could hold this; not worth lexing, and vendored trees are large.
            let lines = edit.added() + edit.removed();
            total += lines;
            brings |= edit.added() > 0;
            if lines > 0 {
                left.push(Left { path: edit.path.to_string(), lines });
            }
            continue;
        }
        let (old, new) = (
            upstream.texts.code(store, &edit.path, edit.old)?,
            upstream.texts.code(store, &edit.path, edit.new)?,
        );
        let mut missing = 0;
        for block in &edit.blocks {
            let run = Run::of(block, &old, &new);
            let found = upstream.find(store, &edit.path, &run, &mut spent)?;
            let (count, hits) =
                (run.added.len() + run.removed.len(), found.added.len() + found.removed.len());
            total += count;
            brings |= !run.added.is_empty();
            held += hits;
            missing += count - hits;
            whole_run |= hits == count && run.words() >= TELLING_RUN_WORDS;
            if let Some(path) = &found.path {
                for (commit, lines) in upstream.bringers(store, path, &found.added, &found.removed)? {
                    *by_commit.entry(commit).or_default() += lines;
                }
            }
        }
        if missing > 0 {
            left.push(Left { path: edit.path.to_string(), lines: missing });
        }
    }
    let share = (total > 0).then(|| rounded(held as f64 / total as f64));
    let landed = named(store, by_commit, total)?;
    Ok(Contained { landed, share, whole_run, brings, left })
}

fn named(
    store: &Store,
    by_commit: BTreeMap<CommitId, usize>,
    total: usize,
) -> Result<Vec<Landing>, StoreError> {
    let mut shares: Vec<(CommitId, f64)> = by_commit
        .into_iter()
        .map(|(commit, lines)| (commit, rounded((lines.min(total)) as f64 / total as f64)))
        .filter(|(_, share)| *share >= NAMED_SHARE)
        .collect();
    shares.sort_by(|(one, one_share), (other, other_share)| {
        other_share.total_cmp(one_share).then(one.cmp(other))
    });
    let how = if shares.len() > 1 { LandedHow::Split } else { LandedHow::Content };
    shares
        .into_iter()
        .map(|(commit, share)| Ok(Landing { commit, subject: store.commit(commit)?.subject, how, share }))
        .collect()
}

/// The telling lines of one run of changed lines.
struct Run {
    added: Vec<CodeLine>,
    removed: Vec<CodeLine>,
}

impl Run {
    fn of(block: &LineBlock, old: &Arc<Vec<CodeLine>>, new: &Arc<Vec<CodeLine>>) -> Self {
        let telling = |lines: &[CodeLine], range: std::ops::Range<usize>| {
            let lines = lines.get(range).unwrap_or_default();
            lines.iter().filter(|line| line.weight >= TELLING_WORDS).copied().collect()
        };
        Self { added: telling(new, block.new.clone()), removed: telling(old, block.old.clone()) }
    }

    fn words(&self) -> usize {
        self.added.iter().chain(&self.removed).map(|line| line.weight).sum()
    }
}

/// Where a run was found.
#[derive(Default)]
struct Found {
    path: Option<TreePath>,
    added: Vec<u64>,
    removed: Vec<u64>,
}

/// Lines of upstream's that are already taken for another run of the same patch.
#[derive(Default)]
struct Spent {
    added: HashMap<TreePath, HashMap<u64, usize>>,
    removed: HashMap<TreePath, HashMap<u64, usize>>,
}

impl Upstream<'_> {
    /// Whether upstream touched a path since the base, or made a file of its kind.
    fn can_hold(&self, path: &TreePath) -> bool {
        self.touches(path) || self.has_newcomers(path)
    }

    /// Finds a run in the drift of its own path, else in a file that upstream made since the base.
    fn find(
        &self,
        store: &Store,
        path: &TreePath,
        run: &Run,
        spent: &mut Spent,
    ) -> Result<Found, StoreError> {
        let own = self.drift(store, path)?.map(|drift| matched(path, &drift, run, spent));
        // What both took away proves nothing where they brought different things.
        let enough = |found: &Found| {
            let (found, wanted) = match run.added.is_empty() {
                true => (found.removed.len(), run.removed.len()),
                false => (found.added.len(), run.added.len()),
            };
            found > 0 && found as f64 >= RUN_SHARE * wanted as f64
        };
        let mut best = own.filter(enough);
        // A run that was moved shows in what came elsewhere; it must say something of its own.
        if best.is_none() && run.added.len() >= MOVED_LINES && run.words() >= 2 * TELLING_RUN_WORDS {
            let alone = Run { added: run.added.clone(), removed: Vec::new() };
            let newcomers = self.newcomers(store, path)?;
            let mut hits = vec![0_usize; newcomers.paths.len()];
            for file in run.added.iter().filter_map(|line| newcomers.holders.get(&line.key)).flatten() {
                hits[*file] += 1;
            }
            // A file that does not even hold enough of the lines need not be searched for them in their order.
            let holds_enough = |at: &usize| hits[*at] as f64 >= MOVED_SHARE * run.added.len() as f64;
            for other in (0..hits.len()).filter(holds_enough).map(|at| &newcomers.paths[at]) {
                if other == path {
                    continue;
                }
                let Some(drift) = self.drift(store, other)? else { continue };
                let found = matched(other, &drift, &alone, spent);
                let better = best.as_ref().is_none_or(|best| found.added.len() > best.added.len());
                if better && found.added.len() as f64 >= MOVED_SHARE * run.added.len() as f64 {
                    best = Some(found);
                }
            }
        }
        let Some(found) = best else { return Ok(Found::default()) };
        let Some(path) = found.path.clone() else { return Ok(found) };
        for (spent, keys) in [(&mut spent.added, &found.added), (&mut spent.removed, &found.removed)] {
            let spent = spent.entry(path.clone()).or_default();
            for key in keys {
                *spent.entry(*key).or_default() += 1;
            }
        }
        Ok(found)
    }
}

/// The lines of a run that came and went in one file, in their order. A line that stood there often enough already
/// proves nothing.
fn matched(path: &TreePath, drift: &Drift, run: &Run, spent: &Spent) -> Found {
    let free = |all: &HashMap<TreePath, HashMap<u64, usize>>, key: u64, have: usize| {
        have > all.get(path).and_then(|spent| spent.get(&key)).copied().unwrap_or(0)
    };
    let mut added = Vec::new();
    let mut last = 0;
    for line in &run.added {
        let Some(at) = drift.added.get(&line.key) else { continue };
        if !free(&spent.added, line.key, at.len()) {
            continue;
        }
        // In order, so that a line alone does not drag others along.
        if let Some(place) = at.iter().find(|place| **place >= last) {
            last = place + 1;
            added.push(line.key);
        }
    }
    let mut removed = Vec::new();
    let mut taken: HashMap<u64, usize> = HashMap::new();
    for line in &run.removed {
        let have = drift.removed.get(&line.key).copied().unwrap_or(0);
        let count = taken.entry(line.key).or_default();
        if free(&spent.removed, line.key, have.saturating_sub(*count)) {
            *count += 1;
            removed.push(line.key);
        }
    }
    let distinct = added.iter().chain(&removed).any(|key| drift.at_base.get(key).copied().unwrap_or(0) <= 1);
    match distinct {
        true => Found { path: Some(path.clone()), added, removed },
        false => Found::default(),
    }
}

/// To three digits, as reports show it.
pub fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
