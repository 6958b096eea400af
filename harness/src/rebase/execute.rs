//! Carries a plan out: patch after patch is picked onto the target in memory and written as a commit. A conflict is
//! settled by what a person decided, by a command that makes the files, or by what was recorded for the same conflict;
//! otherwise the run stops there. The same plan and decisions give the same commits, however often it is interrupted.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    forecast::{Merge, merge_of},
    marks,
    outcome::{OutcomeError, PatchOutcome, sync_folder},
    plan::{PlannedPatch, RebasePlan},
    resolution::{ConflictKey, Resolution, ResolutionError, Resolutions, Settled, edited},
    state::{Beside, Decision, SyncState, Written},
    text::{bag, beyond, changed_lines, counted, is_binary},
};
use crate::{
    config::fork::GeneratedSpec,
    event::{Event, EventSink},
    tools::{
        git::{
            commits::{SignError, Signing},
            ids::{CommitId, PatchId, TreeId},
            merge::{Favour, MergeError, PathConflict, Pick, Picked},
            store::{
                Entry, MODE_EXECUTABLE, MODE_FILE, MODE_FOLDER, MODE_LINK, MODE_SUBMODULE, Store, StoreError,
            },
            tree_path::TreePath,
            worktree::{WorkTree, WorkTreeError},
        },
        process::{Invocation, ProcessError},
    },
};

/// How long a command that makes files may take.
const GENERATING: Duration = Duration::from_secs(1800);

/// Why a plan could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Trees could not be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// A commit could not be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The state could not be kept.
    #[error(transparent)]
    State(#[from] OutcomeError),
    /// Resolutions could not be read or kept.
    #[error(transparent)]
    Resolution(#[from] ResolutionError),
    /// A tree could not be checked out.
    #[error(transparent)]
    WorkTree(#[from] WorkTreeError),
    /// A command that makes files failed.
    #[error("cannot make the generated files anew for patch {number} `{subject}`")]
    Generate {
        /// The patch's number; 0 for the finished stack.
        number: usize,
        /// Its subject.
        subject: String,
        /// What the command said.
        #[source]
        source: Box<ProcessError>,
    },
    /// The run was ended on purpose, by [`Faults`].
    #[error("ended at a point where a test wanted it to end")]
    Ended,
}

/// Where a test ends a run: after so many of the points at which a killed process would leave something behind.
#[derive(Debug, Default)]
pub struct Faults {
    left: Option<Cell<usize>>,
}

impl Faults {
    /// A run that nobody ends.
    pub fn none() -> Self {
        Self::default()
    }

    /// A run that ends when it has passed `points` points.
    pub fn after(points: usize) -> Self {
        Self { left: Some(Cell::new(points)) }
    }

    /// One such point.
    ///
    /// # Errors
    /// [`ExecuteError::Ended`] when the run is to end here.
    pub fn pass(&self) -> Result<(), ExecuteError> {
        let Some(left) = &self.left else { return Ok(()) };
        match left.get() {
            0 => Err(ExecuteError::Ended),
            points => {
                left.set(points - 1);
                Ok(())
            }
        }
    }
}

/// One patch that was dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DonePatch {
    /// Its number.
    pub number: usize,
    /// What was done with it.
    pub outcome: PatchOutcome,
    /// Its new commit.
    pub commit: Option<CommitId>,
    /// The patch-id of its change there.
    pub patch_id: Option<PatchId>,
    /// The tree that it was picked onto.
    pub tip: TreeId,
    /// The tree that came out.
    pub tree: TreeId,
    /// Conflicts that were settled the way they had been before.
    pub replayed: Vec<Replayed>,
    /// Paths that a command made anew.
    pub regenerated: Vec<TreePath>,
    /// Paths that conflicted and that a person resolved.
    pub resolved: Vec<TreePath>,
}

/// One conflict that was settled from a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The path.
    pub path: String,
    /// The record's file.
    pub resolution: String,
    /// Lines that the patch adds and the result lacks.
    pub missing: Vec<String>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Executed {
    /// Every patch was dealt with.
    Finished(Vec<DonePatch>),
    /// A patch needs a person.
    Stopped(Stopped),
}

/// A patch that needs a person, and what it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// What was dealt with before it.
    pub done: Vec<DonePatch>,
    /// Its number.
    pub number: usize,
    /// The commit below it.
    pub parent: CommitId,
    /// The tree that it was picked onto.
    pub tip: TreeId,
    /// What is to be shown.
    pub shown: Shown,
}

/// A conflict as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The merged tree, markers labelled, whatever could be settled settled.
    pub tree: TreeId,
    /// What could not be settled.
    pub open: Vec<OpenConflict>,
    /// What was settled from a record.
    pub replayed: Vec<Replayed>,
    /// What a command has to make anew.
    pub generated: Vec<TreePath>,
    /// Records that were tried and did not stand the test, with the reason.
    pub refused: Vec<(String, String)>,
}

/// One conflict that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenConflict {
    /// Path, kind and entries.
    pub conflict: PathConflict,
    /// What it is.
    pub key: ConflictKey,
    /// The file with markers; `None` where the file as a whole is in question.
    pub marked: Option<Vec<u8>>,
}

/// What a plan is carried out with.
pub struct Executor<'a> {
    /// The repository root.
    pub root: &'a Path,
    /// The objects.
    pub store: &'a Store,
    /// The plan.
    pub plan: &'a RebasePlan,
    /// What was recorded for conflicts.
    pub resolutions: &'a Resolutions,
    /// What was decided in this clone before, where that holds more than the records.
    pub beside: &'a Beside,
    /// What commands make.
    pub generated: &'a [GeneratedSpec],
    /// Where to end.
    pub faults: &'a Faults,
    /// Who is told.
    pub events: &'a dyn EventSink,
}

impl Executor<'_> {
    /// Carries the plan out as far as it goes. `state` is kept up to date on disk.
    ///
    /// # Errors
    /// See [`ExecuteError`]; a conflict is no error.
    pub fn run(&self, state: &mut SyncState) -> Result<Executed, ExecuteError> {
        let mut done: Vec<DonePatch> = Vec::new();
        let (mut tip, mut parent) = (self.plan.onto.tree, self.plan.onto.commit);
        for patch in &self.plan.patches {
            let mut made = match self.deal_with(patch, tip, state)? {
                Dealt::Done(made) => made,
                Dealt::Stopped(shown) => {
                    let number = patch.step.number;
                    return Ok(Executed::Stopped(Stopped { done, number, parent, tip, shown }));
                }
            };
            if made.outcome.is_carried() {
                let commit = self.commit(patch, made.tree, parent, state)?;
                made.patch_id = Some(self.store.patch_id(tip, made.tree)?);
                made.commit = Some(commit);
                (tip, parent) = (made.tree, commit);
            }
            done.push(made);
            self.faults.pass()?;
        }
        Ok(Executed::Finished(done))
    }

    fn deal_with(&self, patch: &PlannedPatch, tip: TreeId, state: &SyncState) -> Result<Dealt, ExecuteError> {
        let mut made = DonePatch {
            number: patch.step.number,
            outcome: PatchOutcome::Applied,
            commit: None,
            patch_id: None,
            tip,
            tree: tip,
            replayed: Vec::new(),
            regenerated: Vec::new(),
            resolved: Vec::new(),
        };
        let pick = Pick { base: patch.step.before, ours: tip, theirs: patch.step.after };
        let picked = self.store.pick(pick, Favour::Neither)?;
        if picked.conflicts.is_empty() {
            made.tree = picked.tree;
            made.outcome = match merge_of(self.store, &patch.step, tip, picked.tree)? {
                Merge::AsItStands => PatchOutcome::Applied,
                Merge::WithOtherContext => PatchOutcome::Merged,
                Merge::NothingLeft => PatchOutcome::Absorbed,
            };
            return Ok(Dealt::Done(made));
        }
        let waits =
            state.stop.as_ref().is_some_and(|stop| stop.number == patch.step.number && stop.tip == tip);
        let known = |decisions: &BTreeMap<usize, Decision>| {
            decisions.get(&patch.step.number).filter(|decision| decision.tip == tip).cloned()
        };
        let mut decided = known(&state.decisions);
        if decided.is_none()
            && !waits
            && let Some(before) = known(&self.beside.decisions)
            && before.tree.is_none_or(|tree| self.store.changes(tip, tree).is_ok())
        {
            let path = Beside::path(Path::new(""), &self.plan.fork);
            self.events.emit(Event::Note(format!(
                "patch {} `{}` is taken as it was resolved here before, changes beside its conflict included; \
                 without {} it would be resolved from the records alone",
                patch.step.number,
                patch.step.subject,
                path.display()
            )));
            decided = Some(before);
        }
        if let Some(decision) = decided {
            made.outcome = match decision.tree {
                None => PatchOutcome::Skipped,
                Some(tree) if tree == tip => PatchOutcome::Absorbed,
                Some(_) => PatchOutcome::Resolved,
            };
            made.tree = decision.tree.unwrap_or(tip);
            made.resolved = picked.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
            return Ok(Dealt::Done(made));
        }
        let shown = self.shown(patch, pick, &picked, if waits { Records::Leave } else { Records::Use })?;
        if waits || !shown.open.is_empty() {
            return Ok(Dealt::Stopped(shown));
        }
        made.tree = match shown.generated.is_empty() {
            true => shown.tree,
            false => self.regenerated(patch.step.number, &patch.step.subject, shown.tree)?,
        };
        made.outcome = match (made.tree == tip, shown.replayed.is_empty()) {
            (true, _) => PatchOutcome::Absorbed,
            (false, true) => PatchOutcome::Regenerated,
            (false, false) => PatchOutcome::Replayed,
        };
        (made.replayed, made.regenerated) = (shown.replayed, shown.generated);
        Ok(Dealt::Done(made))
    }

    /// What a person would see of a conflict, after records and commands have settled what they can.
    fn shown(
        &self,
        patch: &PlannedPatch,
        pick: Pick,
        picked: &Picked,
        records: Records,
    ) -> Result<Shown, ExecuteError> {
        let with_base = self.store.pick_showing_base(pick)?;
        let carried = self.store.carry(pick)?;
        let mut shown = Shown {
            tree: with_base.tree,
            open: Vec::new(),
            replayed: Vec::new(),
            generated: Vec::new(),
            refused: Vec::new(),
        };
        let mut edits: BTreeMap<TreePath, Option<Entry>> = BTreeMap::new();
        for conflict in &with_base.conflicts {
            if self.generated.iter().any(|made| made.makes(&conflict.path)) {
                if conflict.merged_as != conflict.path {
                    edits.insert(conflict.merged_as.clone(), None);
                }
                edits.insert(conflict.path.clone(), self.store.entry(carried, &conflict.path)?);
                shown.generated.push(conflict.path.clone());
                continue;
            }
            let merged = self.store.entry(with_base.tree, &conflict.merged_as)?;
            let marked = self.marked(merged, &pick)?;
            let plain = match self.store.entry(picked.tree, &conflict.merged_as)? {
                Some(entry) if marked.is_some() => Some(self.store.blob(entry.id)?),
                _ => None,
            };
            let key = match &marked {
                Some(marked) => ConflictKey::of_marked(marked),
                None => None,
            };
            let key = key.unwrap_or_else(|| {
                ConflictKey::of_entries(&conflict.kind, [conflict.base, conflict.ours, conflict.theirs])
            });
            let open = OpenConflict { conflict: conflict.clone(), key, marked };
            let tried = match records {
                Records::Use => self.replay(patch, &open, plain.as_deref(), &mut shown)?,
                Records::Leave => None,
            };
            match tried {
                Some(entry) => {
                    if conflict.merged_as != conflict.path {
                        edits.insert(conflict.merged_as.clone(), None);
                    }
                    edits.insert(conflict.path.clone(), entry);
                }
                None => {
                    if let (Some(marked), Some(merged)) = (&open.marked, merged) {
                        let labelled = Entry { id: self.store.write_blob(marked)?, mode: merged.mode };
                        edits.insert(conflict.merged_as.clone(), Some(labelled));
                    }
                    shown.open.push(open);
                }
            }
        }
        shown.tree = self.store.edited_tree(with_base.tree, &edits)?;
        Ok(shown)
    }

    /// The merged file with labelled markers, where it has any.
    fn marked(&self, merged: Option<Entry>, pick: &Pick) -> Result<Option<Vec<u8>>, ExecuteError> {
        let file = merged.filter(|entry| matches!(entry.mode, MODE_FILE | MODE_EXECUTABLE));
        let Some(file) = file else { return Ok(None) };
        let labelled = marks::relabelled(&self.store.blob(file.id)?, pick);
        Ok(marks::blocks(&labelled).is_some_and(|blocks| !blocks.is_empty()).then_some(labelled))
    }

    /// What a record makes of a conflict, if there is one that stands the test. `plain` is the file with git's usual
    /// markers, which is what `git rerere` has seen.
    fn replay(
        &self,
        patch: &PlannedPatch,
        open: &OpenConflict,
        plain: Option<&[u8]>,
        shown: &mut Shown,
    ) -> Result<Option<Option<Entry>>, ExecuteError> {
        let PathConflict { base, ours, theirs, .. } = &open.conflict;
        if open.marked.is_none() && [base, ours, theirs].iter().all(|entry| entry.is_none()) {
            // Nothing tells this conflict from others.
            return Ok(None);
        }
        let of_rerere = [plain, open.marked.as_deref()].into_iter().flatten().find_map(|marked| {
            let (name, found) = self.resolutions.find(&ConflictKey::of_rerere(marked)?)?;
            Some((name, found, Some(marked)))
        });
        let found =
            self.resolutions.find(&open.key).map(|(name, found)| (name, found, open.marked.as_deref()));
        let Some((name, resolution, marked)) = found.or(of_rerere) else { return Ok(None) };
        let mut refuse = |why: &str| {
            shown.refused.push((name.to_owned(), why.to_owned()));
            Ok(None)
        };
        let (mode, bytes) = match made_of(resolution, open, marked) {
            Made::Nothing => {
                let (path, resolution) = (open.conflict.path.to_string(), name.to_owned());
                shown.replayed.push(Replayed { path, resolution, missing: Vec::new() });
                return Ok(Some(None));
            }
            Made::Submodule(entry) => {
                let (path, resolution) = (open.conflict.path.to_string(), name.to_owned());
                shown.replayed.push(Replayed { path, resolution, missing: Vec::new() });
                return Ok(Some(Some(entry)));
            }
            Made::Unfit => return refuse("it does not fit the file any more"),
            Made::File { mode, bytes } => (mode, bytes),
        };
        let side = |entry: Option<Entry>| match entry {
            Some(Entry { id, mode: MODE_FILE | MODE_EXECUTABLE | MODE_LINK }) => self.store.blob(id),
            _ => Ok(Vec::new()),
        };
        let (base, ours, theirs) = (side(*base)?, side(*ours)?, side(*theirs)?);
        if !marks::leftover(&bytes, &[&ours, &theirs]).is_empty() {
            return refuse("it leaves conflict markers");
        }
        let brackets = marks::open_brackets(&ours);
        if brackets == marks::open_brackets(&theirs) && brackets != marks::open_brackets(&bytes) {
            return refuse("brackets do not balance in the result as they do on both sides");
        }
        let missing = match is_binary(&bytes) || is_binary(&theirs) {
            true => Vec::new(),
            false => beyond(&changed_lines(&base, &theirs).added, &bag(&bytes)),
        };
        self.events.emit(Event::Warning(format!(
            "patch {} `{}`: {} is settled as recorded in resolutions/{name}; look at it",
            patch.step.number, patch.step.subject, open.conflict.path
        )));
        shown.replayed.push(Replayed {
            path: open.conflict.path.to_string(),
            resolution: name.to_owned(),
            missing: missing.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect(),
        });
        Ok(Some(Some(Entry { id: self.store.write_blob(&bytes)?, mode })))
    }

    fn commit(
        &self,
        patch: &PlannedPatch,
        tree: TreeId,
        parent: CommitId,
        state: &mut SyncState,
    ) -> Result<CommitId, ExecuteError> {
        let known = state.written.get(&patch.step.number);
        if let Some(known) = known.filter(|known| known.parent == parent && known.tree == tree)
            && self.store.has(known.commit)
        {
            return Ok(known.commit);
        }
        let whole = self.whole_tree(tree)?;
        let (text, committer) = (&patch.text, &patch.committer[..]);
        let commit = match self.plan.signing {
            Signing::No => self.store.write_commit_bytes(whole, parent, text, committer)?,
            Signing::As(_) => self.store.write_signed(whole, parent, text, committer)?,
        };
        self.faults.pass()?;
        state.written.insert(patch.step.number, Written { parent, tree, commit });
        // Unsigned commits come out the same again; only a signature must not be lost.
        if self.plan.signing != Signing::No {
            state.save(self.root, &self.plan.fork)?;
        }
        Ok(commit)
    }

    /// The target's whole tree with the stack's part in it.
    ///
    /// # Errors
    /// When a tree cannot be read or written.
    pub fn whole_tree(&self, part: TreeId) -> Result<TreeId, StoreError> {
        match &self.plan.folder {
            None => Ok(part),
            Some(folder) => {
                let entry = Entry { id: part.as_entry(), mode: MODE_FOLDER };
                self.store.edited_tree(self.plan.onto_whole, &BTreeMap::from([(folder.clone(), Some(entry))]))
            }
        }
    }

    /// The stack's part of a whole tree.
    ///
    /// # Errors
    /// When a tree cannot be read.
    pub fn part_of(&self, whole: TreeId) -> Result<TreeId, StoreError> {
        match &self.plan.folder {
            None => Ok(whole),
            Some(folder) => self.store.folder(whole, folder)?.map_or_else(|| self.store.empty_tree(), Ok),
        }
    }

    /// Names the files that a work tree is without.
    pub fn tell_absent(&self, work_tree: &WorkTree) {
        let absent = work_tree.absent();
        if absent.is_empty() {
            return;
        }
        let some: Vec<String> = absent.iter().take(3).map(ToString::to_string).collect();
        let more = if absent.len() > some.len() { ", …" } else { "" };
        self.events.emit(Event::Note(format!(
            "not in the partial copy, so left out of the work tree and kept as they are: {} ({}{more})",
            counted(absent.len(), "file", "files"),
            some.join(", "),
        )));
    }

    /// `tree` with every generated file as its command makes it there.
    ///
    /// # Errors
    /// When a tree cannot be checked out or a command fails.
    pub fn regenerated(&self, number: usize, subject: &str, tree: TreeId) -> Result<TreeId, ExecuteError> {
        let folder = sync_folder(self.root, &self.plan.fork).join("generated");
        let work_tree = WorkTree::make(self.store, &folder, self.plan.onto.commit, tree, &[])?;
        self.tell_absent(&work_tree);
        let mut paths: BTreeSet<TreePath> = BTreeSet::new();
        for made in self.generated {
            let Some((program, args)) = made.command.split_first() else { continue };
            self.events.emit(Event::Note(format!("making generated files anew: {}", made.command.join(" "))));
            let command = Invocation::new(program).args(args).cwd(&folder).timeout(GENERATING);
            command.run_ok().map_err(|source| ExecuteError::Generate {
                number,
                subject: subject.to_owned(),
                source: Box::new(source),
            })?;
            paths.extend(made.paths.iter().filter(|path| work_tree.has(path)).cloned());
        }
        let paths: Vec<TreePath> = paths.into_iter().collect();
        let made = if paths.is_empty() { tree } else { work_tree.whole_tree(&paths)? };
        let gone = self.generated.iter().flat_map(|made| &made.paths).filter(|path| !work_tree.has(path));
        let gone: BTreeMap<TreePath, Option<Entry>> = gone.map(|path| (path.clone(), None)).collect();
        work_tree.remove()?;
        Ok(self.store.edited_tree(made, &gone)?)
    }
}

enum Dealt {
    Done(DonePatch),
    Stopped(Shown),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    Use,
    Leave,
}

enum Made {
    Nothing,
    Submodule(Entry),
    File { mode: u32, bytes: Vec<u8> },
    Unfit,
}

fn made_of(resolution: &Resolution, open: &OpenConflict, marked: Option<&[u8]>) -> Made {
    let own_mode = || {
        let entries = [open.conflict.theirs, open.conflict.ours];
        entries.into_iter().flatten().next().map_or(MODE_FILE, |entry| entry.mode)
    };
    match &resolution.settled {
        Settled::Deleted => Made::Nothing,
        Settled::Submodule(commit) => Made::Submodule(Entry { id: *commit, mode: MODE_SUBMODULE }),
        Settled::File { mode, bytes } => Made::File { mode: *mode, bytes: bytes.clone() },
        Settled::Edited { mode, hunks } => match marked.and_then(|marked| edited(marked, hunks)) {
            Some(bytes) => Made::File { mode: *mode, bytes },
            None => Made::Unfit,
        },
        Settled::Rerere { hunks } => {
            let form = marked.and_then(marks::rerere_form);
            match form.and_then(|form| edited(&form.file, hunks)) {
                Some(bytes) => Made::File { mode: own_mode(), bytes },
                None => Made::Unfit,
            }
        }
    }
}

/// The folder of a fork's resolutions, relative to the repository root.
pub fn resolutions_folder(fork: &str) -> PathBuf {
    Path::new("patches").join(fork).join("resolutions")
}
