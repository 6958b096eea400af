//! Which upstream commit made a path conflict, and up to which commit no watched path does. Only the paths in question
//! are looked at: each upstream state of them is a small flat tree, onto which the patches that touch them are picked.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use super::replay::Step;
use crate::fork::Milestone;
use crate::tools::git::{
    attributes::Driver,
    ids::{CommitId, TreeId},
    merge::{Favour, MergeError, Pick},
    store::{Entry, MODE_FILE, Store, StoreError},
    tree_path::TreePath,
};

/// Upstream commits by patch number and conflicting path.
pub type Culprits = BTreeMap<(usize, TreePath), CommitId>;

/// The conflicts of a stack along upstream's history, looked up where they are asked for.
pub struct ConflictHistory<'a> {
    store: &'a Store,
    steps: &'a [Step],
    history: &'a [Milestone],
    groups: Vec<Group>,
}

impl<'a> ConflictHistory<'a> {
    /// A history (oldest commit first) of which no path is watched yet.
    pub fn new(store: &'a Store, steps: &'a [Step], history: &'a [Milestone]) -> Self {
        Self { store, steps, history, groups: Vec::new() }
    }

    /// Watches paths that belong together, such as the two names of a file that moved.
    ///
    /// # Errors
    /// When objects are missing.
    pub fn watch(&mut self, mut paths: BTreeSet<TreePath>) -> Result<(), MergeError> {
        if self.groups.iter().any(|group| paths.iter().all(|path| group.paths.contains(path))) {
            return Ok(());
        }
        self.groups.retain(|group| {
            let apart = group.paths.iter().all(|path| !paths.contains(path));
            if !apart {
                paths.extend(group.paths.iter().cloned());
            }
            apart
        });
        self.groups.push(Group::new(self.store, self.steps, self.history, paths)?);
        Ok(())
    }

    /// For each patch and path that conflicts at the history's end: the commit since which it has, without a break.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn culprits(&self) -> Result<Culprits, MergeError> {
        let mut culprits = BTreeMap::new();
        let mut open: Vec<Open<'_>> = self.groups.iter().filter_map(Open::at_end).collect();
        let mut stretch = 1;
        while !open.is_empty() {
            let jobs = open.iter().flat_map(|open| open.eras(stretch).map(|era| (open.group, era)));
            self.simulate(&jobs.collect::<Vec<_>>())?;
            for open in &mut open {
                for era in open.eras(stretch) {
                    open.look_at(era, |found, since| {
                        let (number, path) = found;
                        let first = open.group.eras[since].first;
                        culprits.insert((number, open.group.paths[path].clone()), self.history[first].commit);
                    });
                }
            }
            open.retain(|open| !open.is_over());
            stretch *= 2;
        }
        Ok(culprits)
    }

    /// The newest commit, as a position in the history before `end`, at which no watched path of any patch conflicts.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn newest_clean(&self, mut end: usize) -> Result<Option<usize>, MergeError> {
        while let Some(at) = end.checked_sub(1) {
            let jobs: Vec<(&Group, usize)> =
                self.groups.iter().map(|group| (group, group.era_at(at))).collect();
            self.simulate(&jobs)?;
            let conflicting = jobs.iter().filter(|(group, era)| !group.conflicts(*era).is_empty());
            match conflicting.map(|(group, era)| group.eras[*era].first).min() {
                Some(first) => end = first,
                None => return Ok(Some(at)),
            }
        }
        Ok(None)
    }

    /// Picks the patches that touch each group onto one of its states, all groups side by side.
    fn simulate(&self, jobs: &[(&Group, usize)]) -> Result<(), MergeError> {
        let mut runs = Vec::new();
        for &(group, era) in jobs {
            if !group.known.borrow().contains_key(&era) {
                let tip = flat(self.store, &group.eras[era].entries, group.drivers)?;
                runs.push((group, era, tip, BTreeMap::new()));
            }
        }
        let longest = runs.iter().map(|(group, ..)| group.picks.len()).max().unwrap_or_default();
        for turn in 0..longest {
            let mut asked = Vec::new();
            for (at, (group, _, tip, _)) in runs.iter().enumerate() {
                if let Some(&(_, base, theirs)) = group.picks.get(turn) {
                    asked.push((at, Pick { base, ours: *tip, theirs }));
                }
            }
            let picks: Vec<Pick> = asked.iter().map(|(_, pick)| *pick).collect();
            let mut unclean = Vec::new();
            for ((at, pick), outcome) in asked.into_iter().zip(self.store.pick_all(&picks, Favour::Neither)?)
            {
                let (group, _, tip, conflicts) = &mut runs[at];
                if outcome.conflicts.is_empty() {
                    *tip = outcome.tree;
                    continue;
                }
                let named = outcome.conflicts.iter().filter_map(|conflict| index_of(&conflict.path));
                conflicts.insert(group.picks[turn].0, named.collect::<BTreeSet<usize>>());
                unclean.push((at, pick));
            }
            let picks: Vec<Pick> = unclean.iter().map(|(_, pick)| *pick).collect();
            for ((at, _), tree) in unclean.into_iter().zip(self.store.carry_all(&picks)?) {
                runs[at].2 = tree;
            }
        }
        for (group, era, _, conflicts) in runs {
            group.known.borrow_mut().insert(era, conflicts);
        }
        Ok(())
    }
}

/// The positions of conflicting paths in a group, by patch number.
type Conflicts = BTreeMap<usize, BTreeSet<usize>>;

/// Paths that are looked at together, and the states that upstream's history gave them.
struct Group {
    paths: Vec<TreePath>,
    eras: Vec<Era>,
    /// The patches that touch the paths: number, and the paths before and after.
    picks: Vec<(usize, TreeId, TreeId)>,
    /// The `.gitattributes` that gives the numbers what it gives the paths at the history's end.
    drivers: Option<Entry>,
    known: RefCell<BTreeMap<usize, Conflicts>>,
}

/// A run of commits that leave the paths alone, after the first.
struct Era {
    first: usize,
    end: usize,
    entries: Vec<Option<Entry>>,
}

impl Group {
    fn new(
        store: &Store,
        steps: &[Step],
        history: &[Milestone],
        paths: BTreeSet<TreePath>,
    ) -> Result<Self, MergeError> {
        let mut eras: Vec<Era> = Vec::new();
        for (at, milestone) in history.iter().enumerate() {
            let entries = entries(store, milestone.tree, &paths)?;
            match eras.last_mut() {
                Some(era) if era.entries == entries => era.end = at + 1,
                _ => eras.push(Era { first: at, end: at + 1, entries }),
            }
        }
        let drivers = match history.last() {
            Some(last) => numbered_drivers(store, &store.merge_drivers(last.tree, &paths)?, &paths)?,
            None => None,
        };
        let mut picks = Vec::new();
        for step in steps {
            if step.changes.iter().any(|change| paths.contains(&change.path)) {
                let before = flat(store, &entries(store, step.before, &paths)?, drivers)?;
                let after = flat(store, &entries(store, step.after, &paths)?, drivers)?;
                picks.push((step.number, before, after));
            }
        }
        Ok(Self { paths: paths.into_iter().collect(), eras, picks, drivers, known: RefCell::default() })
    }

    fn era_at(&self, position: usize) -> usize {
        self.eras.partition_point(|era| era.end <= position)
    }

    fn conflicts(&self, era: usize) -> Conflicts {
        self.known.borrow().get(&era).cloned().unwrap_or_default()
    }
}

/// The conflicts of a group at the history's end that are followed back.
struct Open<'g> {
    group: &'g Group,
    /// The eras before this one are still to be looked at.
    end: usize,
    /// Those that have gone on so far; `None` before the first look.
    going_on: Option<BTreeSet<(usize, usize)>>,
}

impl<'g> Open<'g> {
    fn at_end(group: &'g Group) -> Option<Self> {
        (!group.eras.is_empty()).then_some(Self { group, end: group.eras.len(), going_on: None })
    }

    /// The next eras to look at, newest first.
    fn eras(&self, stretch: usize) -> impl Iterator<Item = usize> + use<> {
        (self.end.saturating_sub(stretch)..self.end).rev()
    }

    /// Takes in the conflicts of the next older era; tells which ones began with the era after it.
    fn look_at(&mut self, era: usize, mut began: impl FnMut((usize, usize), usize)) {
        let conflicts = self.group.conflicts(era);
        let here =
            conflicts.iter().flat_map(|(&number, paths)| paths.iter().map(move |&path| (number, path)));
        let here: BTreeSet<(usize, usize)> = here.collect();
        let before = self.going_on.take().unwrap_or_else(|| here.clone());
        before.difference(&here).for_each(|found| began(*found, era + 1));
        let on: BTreeSet<(usize, usize)> = before.intersection(&here).copied().collect();
        if era == 0 {
            on.iter().for_each(|found| began(*found, 0));
        }
        self.end = era;
        self.going_on = Some(on);
    }

    fn is_over(&self) -> bool {
        self.end == 0 || self.going_on.as_ref().is_some_and(BTreeSet::is_empty)
    }
}

fn entries(
    store: &Store,
    tree: TreeId,
    paths: &BTreeSet<TreePath>,
) -> Result<Vec<Option<Entry>>, StoreError> {
    paths.iter().map(|path| store.entry(tree, path)).collect()
}

/// A tree that holds entries under their positions.
fn flat(store: &Store, entries: &[Option<Entry>], drivers: Option<Entry>) -> Result<TreeId, StoreError> {
    let named = entries.iter().enumerate().map(|(at, entry)| (format!("{at:05}"), *entry));
    let named = named.chain(drivers.map(|file| (".gitattributes".to_owned(), Some(file))));
    let named = named.map(|(name, entry)| (TreePath::new(name).expect("digits are a path"), entry));
    store.edited_tree(store.empty_tree()?, &named.collect())
}

fn numbered_drivers(
    store: &Store,
    drivers: &BTreeMap<TreePath, Driver>,
    paths: &BTreeSet<TreePath>,
) -> Result<Option<Entry>, StoreError> {
    let rule = |(at, path): (usize, &TreePath)| match drivers.get(path)? {
        Driver::Union => Some(format!("{at:05} merge=union\n")),
        Driver::Binary => Some(format!("{at:05} -merge\n")),
        Driver::Own(_) => None,
    };
    let rules: String = paths.iter().enumerate().filter_map(rule).collect();
    match rules.is_empty() {
        true => Ok(None),
        false => Ok(Some(Entry { id: store.write_blob(rules.as_bytes())?, mode: MODE_FILE })),
    }
}

fn index_of(path: &TreePath) -> Option<usize> {
    std::str::from_utf8(path.as_bytes().get(..5)?).ok()?.parse().ok()
}
