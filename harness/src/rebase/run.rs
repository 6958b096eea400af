//! The story of a real rebase: open, plan, execute, stop where a person is needed, and at the end record, move the
//! result branch and export. Whatever is to change at the end is first written down as a whole, so that a run killed at
//! any point is finished by the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    execute::{
        DonePatch, ExecuteError, Executed, Executor, Faults, OpenConflict, Replayed, Stopped,
        resolutions_folder,
    },
    export::{Export, ExportError, ExportTarget, carry_out, plan_export, refuse_edited},
    marks,
    meaning::Weight,
    outcome::{
        OutcomeError, PatchOutcome, SyncResult, SyncedPatch, replace_file, sweep_half_written, sync_folder,
    },
    plan::{PlanInput, RebasePlan, plan},
    record::{ExportRecord, Observed, RunRecord},
    resolution::{Resolution, ResolutionError, Resolutions, keep, settled},
    state::{Beside, Decision, StopRecord, SyncState},
    sync::{CulpritEntry, Forecasted, NamedCommit, SyncError, forecast_whole, on_carried_base},
};
use crate::{
    config::fork::ForkSpec,
    event::{Event, EventSink, Silent},
    evidence::cost::{RecordError, SyncRecord, add_to_record, record_file},
    fork::{open::Source, target::Onto},
    tools::{
        disk,
        file::{self, Most},
        git::{
            commits::{SignError, Signing},
            ids::{CommitId, TreeId},
            merge::PathConflict,
            refs::RefMove,
            store::{Entry, MODE_FOLDER, MODE_SUBMODULE, Store, StoreError},
            tree_path::TreePath,
            worktree::{WorkTree, WorkTreeError, sweep_work_trees},
        },
        lock::{FileLock, LockError},
    },
};

/// The name in the record's `schema`.
pub const SCHEMA: &str = "sync-run";
/// The version in the record's `schema`.
pub const SCHEMA_VERSION: u32 = 1;

/// What is asked of a rebase.
pub struct SyncRequest<'a> {
    /// What `--onto` says; `None`: where the unfinished rebase goes, else `latest`.
    pub onto: Option<&'a str>,
    /// Where repositories are read from; `None`: where the unfinished rebase read them, else the network.
    pub source: Option<Source>,
    /// What to do.
    pub action: Action,
    /// Whether a person has looked at changed meanings.
    pub findings: Findings,
    /// Whether commits are signed.
    pub sign: Sign,
    /// The folder in which the run's folder is made.
    pub reports: &'a Path,
    /// Program and version, for the record.
    pub generated_by: &'a str,
    /// How the record reads for people.
    pub render: &'a dyn Fn(&RunRecord) -> String,
    /// Where a test ends the run.
    pub faults: &'a Faults,
}

/// What to do with a rebase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Begin it, or go on with it.
    Start,
    /// Take the files of the work tree as resolved, and go on.
    Continue,
    /// Leave the patch that waits out, and go on.
    Skip,
    /// Give it up; what was done is kept under a ref.
    Abort,
}

/// Whether a person has looked at what changed in meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Findings {
    /// Nobody has: they keep the stack from being exported.
    Open,
    /// Somebody has.
    Accepted,
}

/// Whether commits are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// As the user's git is configured.
    AsConfigured,
    /// Never.
    Never,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncOutcome {
    /// Every patch was dealt with.
    Finished(Box<RunRecord>),
    /// A patch waits for a person.
    Waits(Box<Waiting>),
    /// The rebase was given up.
    Aborted {
        /// The ref under which the work tree was kept, where there was one.
        kept: Option<String>,
        /// Files and folders of the run that could not be used, and where they are now.
        set_aside: Vec<PathBuf>,
    },
    /// There is nothing to rebase; the text says why.
    Nothing(String),
}

/// A patch that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The fork's name.
    pub name: String,
    /// The commit that the stack goes to.
    pub onto: NamedCommit,
    /// The patch's number.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// How many patches there are.
    pub of: usize,
    /// The work tree, relative to the repository root.
    pub worktree: PathBuf,
    /// What is to be resolved, by path in the work tree.
    pub conflicts: Vec<WaitingConflict>,
    /// Conflicts of the same patch that were settled from a record.
    pub replayed: Vec<Replayed>,
    /// Records that were tried and refused, each with the reason.
    pub refused: Vec<(String, String)>,
    /// Generated files that will be made anew.
    pub generated: Vec<String>,
    /// What became of the patches before it.
    pub done: Vec<(usize, PatchOutcome)>,
}

/// One conflict that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingConflict {
    /// The path in the work tree.
    pub path: String,
    /// Git's word for it.
    pub kind: String,
    /// How many places have markers; 0 where the file as a whole is in question.
    pub places: usize,
    /// The upstream commit since which it has conflicted.
    pub culprit: Option<CulpritEntry>,
    /// Patches that it needs and that were left out.
    pub needs: Vec<usize>,
    /// The submodule's commits before the patch, upstream and in the patch, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submodule: Option<[Option<String>; 3]>,
}

/// Why a rebase did not come to one of its ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Opening, reading or replaying.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// Picking, settling or writing commits.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The export.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A state or result file.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// The record of syncs.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another run of the same fork.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file of the run cannot be written.
    #[error("cannot read or write `{}`", .path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `--continue`, `--skip` or `--abort` without a rebase that waits.
    #[error("no rebase of `{fork}` waits for a person{}", last_text(.last.as_deref()))]
    NothingWaits {
        /// The fork.
        fork: String,
        /// The branch of its last finished rebase, if there is one.
        last: Option<String>,
    },
    /// Another rebase of the fork waits.
    #[error("a rebase of `{fork}` onto {onto} is not finished")]
    OtherWaits {
        /// The fork.
        fork: String,
        /// What it goes to.
        onto: String,
    },
    /// The patches or the target changed under an unfinished rebase.
    #[error("the patches of `{fork}`, or what they sit on, changed since its rebase onto {onto} began")]
    Changed {
        /// The fork.
        fork: String,
        /// What it goes to.
        onto: String,
    },
    /// The work tree is gone.
    #[error("the work tree `{}` is not there", .0.display())]
    NoWorkTree(PathBuf),
    /// Files hold conflict markers.
    #[error("conflict markers are left in{}", leftover_text(.0))]
    Leftover(Vec<(String, Vec<usize>)>),
    /// Files about which nobody decided.
    #[error("nobody has decided about {}", quoted_list(.0))]
    Undecided(Vec<String>),
    /// The result branch is not where this program left it.
    #[error("branch `{branch}` leads to {found}, which this program did not make")]
    ForeignBranch {
        /// The branch.
        branch: String,
        /// Where it leads to.
        found: CommitId,
    },
}

impl RunError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Sync(error) => error.hint(),
            Self::Export(error) => error.hint(),
            Self::Outcome(error) => error.hint(),
            Self::Record(error) => error.hint(),
            Self::Disk { source, .. } | Self::Lock(LockError { source, .. }) => disk::hint(source),
            Self::Execute(ExecuteError::Store(error)) => error.hint(),
            Self::Execute(ExecuteError::Merge(error)) => error.hint(),
            Self::NothingWaits { fork, .. } => Some(format!("`cargo xtask sync-upstream {fork} --onto TARGET` begins one")),
            Self::OtherWaits { fork, onto } => Some(format!(
                "finish it (`sync-upstream {fork} --onto {onto}`, then --continue or --skip) or give it up with --abort"
            )),
            Self::Changed { fork, .. } => Some(format!(
                "take the change back, or give the rebase up with `sync-upstream {fork} --abort`: what was resolved is kept"
            )),
            Self::NoWorkTree(_) => Some("run the command without --continue or --skip: it is made again".to_owned()),
            Self::Leftover(_) => Some("resolve these places, then --continue again".to_owned()),
            Self::Undecided(_) => Some(
                "in the work tree, keep a file with `git add PATH` or drop it with `git rm PATH`, then --continue".to_owned(),
            ),
            Self::ForeignBranch { branch, .. } => {
                let name = branch.trim_start_matches("refs/heads/");
                Some(format!("somebody moved it: rename it in the cache (`git branch -m {name} NEW`) and try again"))
            }
            Self::Execute(ExecuteError::Sign(SignError::Sign(_))) => {
                Some("git is configured to sign commits: check the key, or turn commit.gpgSign off".to_owned())
            }
            Self::Execute(ExecuteError::WorkTree(error)) => error.hint(),
            Self::Execute(ExecuteError::Generate { .. }) => {
                Some("run the command by hand in a checkout of the result to see what it lacks".to_owned())
            }
            _ => None,
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Sync(error) => error.is_refusal(),
            Self::Export(error) => matches!(error, ExportError::InTheWay(_) | ExportError::Edited(_)),
            Self::Execute(ExecuteError::Resolution(error)) => matches!(error, ResolutionError::Bad { .. }),
            Self::NothingWaits { .. }
            | Self::OtherWaits { .. }
            | Self::Changed { .. }
            | Self::NoWorkTree(_)
            | Self::ForeignBranch { .. } => true,
            _ => false,
        }
    }

    /// Whether a person has to go on resolving.
    pub fn waits_for_a_person(&self) -> bool {
        matches!(self, Self::Leftover(_) | Self::Undecided(_))
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Execute(error.into())
    }
}

impl From<WorkTreeError> for RunError {
    fn from(error: WorkTreeError) -> Self {
        Self::Execute(error.into())
    }
}

impl From<ResolutionError> for RunError {
    fn from(error: ResolutionError) -> Self {
        Self::Execute(error.into())
    }
}

fn leftover_text(files: &[(String, Vec<usize>)]) -> String {
    let file = |(path, lines): &(String, Vec<usize>)| {
        let shown: Vec<String> = lines.iter().take(6).map(ToString::to_string).collect();
        let more = if lines.len() > 6 { ", …" } else { "" };
        format!("`{path}` (line {}{more})", shown.join(", "))
    };
    match files {
        [one] => format!(" {}", file(one)),
        _ => files.iter().map(|one| format!("\n{}", file(one))).collect(),
    }
}

fn last_text(branch: Option<&str>) -> String {
    branch.map_or_else(String::new, |branch| format!("; the last one is finished, as `{branch}`"))
}

fn quoted_list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Rebases one fork as far as it goes.
///
/// # Errors
/// See [`RunError`]; a conflict is no error.
pub fn sync_fork(
    root: &Path,
    spec: ForkSpec,
    request: &SyncRequest<'_>,
    events: &dyn EventSink,
) -> Result<SyncOutcome, RunError> {
    let name = spec.name.clone();
    let folder = sync_folder(root, &name);
    let _lock = FileLock::acquire(&folder.join("lock"), || {
        events.emit(Event::Note(format!("waiting for another run of `{name}`")));
    })?;
    sweep_work_trees(&folder);
    let resolutions = root.join(resolutions_folder(&name));
    resolutions.ancestors().take(2).chain([&*folder]).for_each(sweep_half_written);
    let (name, folder) = (name.as_str(), folder.as_path());
    if request.action == Action::Abort {
        return give_up(root, name, folder, request.faults, events);
    }
    if let Some(journal) = Journal::load(folder)? {
        let asked = journal.asked.clone();
        let record = journal.carry_out(root, folder, request.faults)?;
        events.emit(Event::Note(format!(
            "finished the rebase of `{name}` onto {asked}, which had been interrupted"
        )));
        // A person who ran the same command again, or went on, has what they wanted.
        if request.onto.is_none_or(|onto| onto == asked) {
            return Ok(SyncOutcome::Finished(Box::new(record)));
        }
    }
    let mut state = SyncState::load(root, name)?;
    // What a killed run had decided already is gone on with by asking for it again.
    let goes_on = |state: &SyncState| match request.action {
        Action::Continue => state.holds_decisions(),
        _ => state.stop.is_some(),
    };
    if request.action != Action::Start && !state.as_ref().is_some_and(goes_on) {
        let last = SyncResult::load(root, name)?.map(|last| last.branch);
        return Err(RunError::NothingWaits { fork: name.to_owned(), last });
    }
    if let Some(known) = &state
        && request.onto.is_some_and(|onto| onto != known.onto_asked)
    {
        if known.holds_decisions() {
            return Err(RunError::OtherWaits { fork: name.to_owned(), onto: known.onto_asked.clone() });
        }
        state = None;
    }
    let source = match (&request.source, &state) {
        (Some(source), _) => source.clone(),
        (None, Some(SyncState { mirrors: Some(mirrors), .. })) => Source::Mirrors(mirrors.clone()),
        _ => Source::Remotes,
    };
    let asked = match (&state, request.onto) {
        (Some(state), _) => state.onto_asked.clone(),
        (None, onto) => onto.unwrap_or("latest").to_owned(),
    };
    let onto = match &state {
        Some(state) => Onto::Named(state.onto.to_string()),
        None => Onto::from(&asked[..]),
    };
    if on_carried_base(&spec, &onto, &source).is_some() {
        return Ok(SyncOutcome::Nothing(format!(
            "`{name}` sits on {asked} already, and only the sources that its crate carries are at hand"
        )));
    }
    let mut prepared = forecast_whole(root, spec, &onto, &source, events)?;
    prepared.document.onto = asked_name(&prepared, &asked);
    let plan = planned(&prepared, name, request.sign)?;
    let digest = plan.digest();
    if let Some(known) = state.take_if(|known| known.plan != digest)
        && known.holds_decisions()
    {
        return Err(RunError::Changed { fork: name.to_owned(), onto: known.onto_asked });
    }
    let mirrors = match &source {
        Source::Mirrors(mirrors) => Some(fs::canonicalize(mirrors).unwrap_or_else(|_| mirrors.clone())),
        Source::Remotes => None,
    };
    let state = state.unwrap_or_else(|| SyncState {
        onto_asked: asked,
        onto: plan.onto.commit,
        mirrors,
        plan: digest,
        decisions: BTreeMap::new(),
        written: BTreeMap::new(),
        stop: None,
    });
    let store = &prepared.store;
    sweep_locks(store, name)?;
    let resolutions = Resolutions::read(&root.join(resolutions_folder(name)))?;
    let beside = Beside::load(root, name, &state.plan)?;
    let run = Run {
        beside: &beside,
        root,
        folder,
        name,
        request,
        events,
        prepared: &prepared,
        plan: &plan,
        resolutions: &resolutions,
    };
    run.go(state)
}

struct Run<'a> {
    root: &'a Path,
    folder: &'a Path,
    name: &'a str,
    request: &'a SyncRequest<'a>,
    events: &'a dyn EventSink,
    prepared: &'a Forecasted,
    plan: &'a RebasePlan,
    resolutions: &'a Resolutions,
    beside: &'a Beside,
}

impl Run<'_> {
    fn go(&self, mut state: SyncState) -> Result<SyncOutcome, RunError> {
        let branch =
            format!("refs/heads/{}/{}", branch_prefix(self.name), label(&self.prepared.document.onto));
        let expected = self.own_branch(&branch)?;
        state.save(self.root, self.name)?;
        self.request.faults.pass()?;
        if state.stop.is_none()
            && let Some(left_behind) = WorkTree::find(&self.folder.join("worktree"))
        {
            left_behind.remove()?;
        }
        match self.request.action {
            Action::Continue if state.stop.is_some() => self.take_resolution(&mut state)?,
            Action::Skip => self.leave_out(&mut state)?,
            Action::Continue | Action::Start | Action::Abort => {}
        }
        let executor = self.executor();
        match executor.run(&mut state)? {
            Executed::Stopped(stopped) => self.stop(&executor, state, stopped),
            Executed::Finished(done) => self.finish(&executor, &state, &done, (branch, expected)),
        }
    }

    fn store(&self) -> &Store {
        &self.prepared.store
    }

    fn executor(&self) -> Executor<'_> {
        Executor {
            root: self.root,
            store: self.store(),
            plan: self.plan,
            resolutions: self.resolutions,
            beside: self.beside,
            generated: &self.prepared.spec.generated,
            faults: self.request.faults,
            events: self.events,
        }
    }

    /// Where the result branch leads to now; refused where that is nothing that this program made.
    fn own_branch(&self, branch: &str) -> Result<Option<CommitId>, RunError> {
        let Some(found) = self.store().reference(branch)? else { return Ok(None) };
        match self.store().reference(&made_ref(self.name, found))? {
            Some(_) => Ok(Some(found)),
            None => Err(RunError::ForeignBranch { branch: branch.to_owned(), found }),
        }
    }

    fn work_tree(&self) -> Result<WorkTree, RunError> {
        let place = self.folder.join("worktree");
        WorkTree::find(&place).ok_or(RunError::NoWorkTree(place))
    }

    /// What waits, as it was shown.
    fn waiting(&self, state: &mut SyncState) -> Result<Stopped, RunError> {
        let nothing = || RunError::NothingWaits { fork: self.name.to_owned(), last: None };
        // What was settled on the way is told once, when the run goes on.
        let executor = Executor { events: &Silent, ..self.executor() };
        match (executor.run(state)?, &state.stop) {
            (Executed::Stopped(stopped), Some(stop)) if stop.number == stopped.number => Ok(stopped),
            _ => Err(nothing()),
        }
    }

    fn take_resolution(&self, state: &mut SyncState) -> Result<(), RunError> {
        let work_tree = self.work_tree()?;
        let stopped = self.waiting(state)?;
        let executor = self.executor();
        let shown_whole = executor.whole_tree(stopped.shown.tree)?;
        self.refuse_unresolved(&work_tree, &stopped.shown.open, shown_whole)?;
        let whole = work_tree.tracked_tree()?;
        let mut beside = BTreeSet::new();
        let mut leftover = Vec::new();
        let in_question: BTreeSet<TreePath> = stopped
            .shown
            .open
            .iter()
            .flat_map(|open| [self.lifted(&open.conflict.path), self.lifted(&open.conflict.merged_as)])
            .collect();
        for change in self.store().changes(shown_whole, whole)? {
            if in_question.contains(&change.path) {
                continue;
            }
            let bytes = |entry: Option<Entry>| self.bytes(entry);
            let lines = marks::leftover(&bytes(change.new)?, &[&bytes(change.old)?]);
            if !lines.is_empty() {
                leftover.push((change.path.to_string(), lines));
            }
            beside.insert(change.path.to_string());
        }
        if !leftover.is_empty() {
            return Err(RunError::Leftover(leftover));
        }
        for path in &beside {
            self.events.emit(Event::Note(format!(
                "{path} was changed beside the conflict: the patch takes it along, a replay elsewhere will not repeat it"
            )));
        }
        let untracked = work_tree.untracked()?;
        if !untracked.is_empty() {
            let some: Vec<&str> = untracked.iter().take(5).map(String::as_str).collect();
            let kept = work_tree.keep(&kept_prefix(self.name), "files that were not added to a patch\n")?;
            let text = format!(
                "new files that were not added (`git add`) are left out: {}; the work tree is kept with them as {kept}",
                some.join(", ")
            );
            self.events.emit(Event::Warning(text));
        }
        let part = executor.part_of(whole)?;
        let patch =
            self.plan.patch(stopped.number).map(|patch| patch.step.subject.clone()).unwrap_or_default();
        for open in &stopped.shown.open {
            let PathConflict { path, merged_as, base, ours, theirs, .. } = &open.conflict;
            let told = open.marked.is_some() || [base, ours, theirs].iter().any(|entry| entry.is_some());
            if path != merged_as || !told {
                continue;
            }
            let entry = self.store().entry(part, path)?;
            if entry.is_some_and(|entry| entry.mode == MODE_FOLDER) {
                self.events.emit(Event::Note(format!(
                    "{path} became a folder: that is no resolution that could be recorded, and it waits again elsewhere"
                )));
                continue;
            }
            let resolution = Resolution {
                key: open.key.clone(),
                path: path.to_string(),
                patch: patch.clone(),
                onto: place(&self.prepared.document.onto),
                settled: settled(open.marked.as_deref(), entry, &self.bytes(entry)?),
            };
            let folder = resolutions_folder(self.name);
            let file = keep(&self.root.join(&folder), &resolution)?;
            self.events.emit(Event::Note(format!("recorded {}", folder.join(file).display())));
            self.request.faults.pass()?;
        }
        let mut kept = self.beside.clone();
        let decision = Decision { tip: stopped.tip, tree: Some(part) };
        match beside.is_empty() {
            true => _ = kept.decisions.remove(&stopped.number),
            false => _ = kept.decisions.insert(stopped.number, decision),
        }
        if kept != *self.beside {
            kept.save(self.root, self.name)?;
        }
        self.decide(state, stopped, Some(part), work_tree)
    }

    fn leave_out(&self, state: &mut SyncState) -> Result<(), RunError> {
        let work_tree = self.work_tree()?;
        let stopped = self.waiting(state)?;
        let kept = work_tree.keep(&kept_prefix(self.name), "work on a patch that was left out\n")?;
        self.events.emit(Event::Note(format!("what stood in the work tree is kept as {kept}")));
        self.decide(state, stopped, None, work_tree)
    }

    fn decide(
        &self,
        state: &mut SyncState,
        stopped: Stopped,
        tree: Option<TreeId>,
        work_tree: WorkTree,
    ) -> Result<(), RunError> {
        self.request.faults.pass()?;
        state.decisions.insert(stopped.number, Decision { tip: stopped.tip, tree });
        state.stop = None;
        state.save(self.root, self.name)?;
        self.request.faults.pass()?;
        Ok(work_tree.remove()?)
    }

    fn refuse_unresolved(
        &self,
        work_tree: &WorkTree,
        open: &[OpenConflict],
        shown_whole: TreeId,
    ) -> Result<(), RunError> {
        let unmerged = work_tree.unmerged()?;
        let (mut leftover, mut undecided) = (Vec::new(), Vec::new());
        for OpenConflict { conflict, marked, .. } in open {
            let path = self.lifted(&conflict.merged_as);
            let bytes = work_tree.file(&path)?;
            if marked.is_some() {
                let (ours, theirs) = (self.bytes(conflict.ours)?, self.bytes(conflict.theirs)?);
                let lines = marks::leftover(bytes.as_deref().unwrap_or_default(), &[&ours, &theirs]);
                if !lines.is_empty() {
                    leftover.push((path.to_string(), lines));
                }
                continue;
            }
            let shown = self.store().entry(shown_whole, &path)?;
            let is_file = shown.is_some_and(|entry| entry.mode != MODE_SUBMODULE);
            let untouched = match (is_file, bytes) {
                (true, Some(bytes)) => bytes == self.bytes(shown)?,
                // Links and submodules only change through the index.
                (true, None) => work_tree.has(&path),
                (false, found) => found.is_none(),
            };
            if untouched && unmerged.contains_key(&path) {
                undecided.push(path.to_string());
            }
        }
        match (leftover.is_empty(), undecided.is_empty()) {
            (false, _) => Err(RunError::Leftover(leftover)),
            (true, false) => Err(RunError::Undecided(undecided)),
            (true, true) => Ok(()),
        }
    }

    fn stop(
        &self,
        executor: &Executor<'_>,
        mut state: SyncState,
        stopped: Stopped,
    ) -> Result<SyncOutcome, RunError> {
        let place = self.folder.join("worktree");
        let record = StopRecord { number: stopped.number, tip: stopped.tip, shown: stopped.shown.tree };
        let stands =
            state.stop.as_ref().is_some_and(|stop| stop.number == record.number && stop.tip == record.tip)
                && WorkTree::find(&place).is_some();
        if !stands {
            self.request.faults.pass()?;
            let whole = executor.whole_tree(stopped.shown.tree)?;
            let lifted: Vec<PathConflict> = stopped
                .shown
                .open
                .iter()
                .map(|open| {
                    let conflict = &open.conflict;
                    PathConflict {
                        path: self.lifted(&conflict.path),
                        merged_as: self.lifted(&conflict.merged_as),
                        ..conflict.clone()
                    }
                })
                .collect();
            let work_tree = WorkTree::make(self.store(), &place, stopped.parent, whole, &lifted)?;
            executor.tell_absent(&work_tree);
            self.request.faults.pass()?;
            state.stop = Some(record);
            state.save(self.root, self.name)?;
        }
        Ok(SyncOutcome::Waits(Box::new(self.told(&stopped, &place)?)))
    }

    fn told(&self, stopped: &Stopped, place: &Path) -> Result<Waiting, RunError> {
        let forecast = &self.prepared.document;
        let own = forecast.patches.iter().find(|patch| patch.number == stopped.number);
        let skipped: BTreeSet<usize> = stopped
            .done
            .iter()
            .filter(|made| made.outcome == PatchOutcome::Skipped)
            .map(|made| made.number)
            .collect();
        let mut conflicts = Vec::new();
        for OpenConflict { conflict, marked, .. } in &stopped.shown.open {
            let known = own.and_then(|patch| {
                patch.conflicts.iter().find(|known| known.path == conflict.path.to_string())
            });
            let touches = |number: &usize| {
                let patch = self.plan.patch(*number);
                patch
                    .is_some_and(|patch| patch.step.changes.iter().any(|change| change.path == conflict.path))
            };
            let entries = [conflict.base, conflict.ours, conflict.theirs];
            let is_submodule = entries.iter().flatten().any(|entry| entry.mode == MODE_SUBMODULE);
            conflicts.push(WaitingConflict {
                path: self.lifted(&conflict.merged_as).to_string(),
                kind: conflict.kind.clone(),
                places: marked.as_deref().and_then(marks::blocks).map_or(0, |blocks| blocks.len()),
                culprit: known.and_then(|known| known.culprit.clone()),
                needs: skipped.iter().copied().filter(touches).collect(),
                submodule: is_submodule.then(|| entries.map(|entry| entry.map(|entry| entry.id.to_string()))),
            });
        }
        let worktree = place.strip_prefix(self.root).unwrap_or(place).to_owned();
        Ok(Waiting {
            name: self.name.to_owned(),
            onto: self.prepared.document.onto.clone(),
            number: stopped.number,
            subject: self
                .plan
                .patch(stopped.number)
                .map(|patch| patch.step.subject.clone())
                .unwrap_or_default(),
            of: self.plan.patches.len(),
            worktree,
            conflicts,
            replayed: stopped.shown.replayed.clone(),
            refused: stopped.shown.refused.clone(),
            generated: stopped.shown.generated.iter().map(ToString::to_string).collect(),
            done: stopped.done.iter().map(|made| (made.number, made.outcome)).collect(),
        })
    }

    fn finish(
        &self,
        executor: &Executor<'_>,
        state: &SyncState,
        done: &[DonePatch],
        (branch, expected): (String, Option<CommitId>),
    ) -> Result<SyncOutcome, RunError> {
        let (store, spec) = (self.store(), &self.prepared.spec);
        let forecast = &self.prepared.document;
        let (base, onto) = (forecast.base.clone(), forecast.onto.clone());
        let observed =
            Observed { store, history: &self.prepared.target.history, base: self.prepared.target.base.tree };
        let mut patches = observed.patches(forecast, &self.plan.patches, done)?;
        if self.request.findings == Findings::Accepted {
            patches
                .iter_mut()
                .flat_map(|patch| &mut patch.findings)
                .for_each(|finding| finding.weight = Weight::Note);
        }
        let open =
            patches.iter().flat_map(|patch| &patch.findings).filter(|finding| finding.weight == Weight::Look);
        let open_findings = open.count();
        let head = done.iter().rev().find_map(|made| made.commit).unwrap_or(self.plan.onto.commit);
        let part = done
            .iter()
            .rev()
            .find(|made| made.outcome.is_carried())
            .map_or(self.plan.onto.tree, |made| made.tree);
        let tree = executor.whole_tree(part)?;
        let stale_generated = self.stale(executor, part)?;
        let export = match open_findings {
            0 => {
                let target =
                    ExportTarget { root: self.root, tag: onto.tag.as_deref(), tree: self.plan.onto_whole };
                Some(plan_export(store, spec, self.plan, done, &target)?)
            }
            _ => None,
        };
        let relative = |path: &Path| path.strip_prefix(self.root).unwrap_or(path).to_owned();
        let report = self.request.reports.join(format!("sync-{}-{}", self.name, label(&onto)));
        let record = RunRecord {
            name: self.name.to_owned(),
            base,
            onto,
            frontier: forecast.frontier.clone(),
            branch,
            store: relative(&fs::canonicalize(store.path()).unwrap_or_else(|_| store.path().to_owned())),
            head,
            tree,
            patches,
            stale_generated,
            open_findings,
            exported: export.as_ref().map(ExportRecord::of),
        };
        let result = SyncResult {
            schema: SyncResult::current_schema(),
            fork: self.name.to_owned(),
            base: record.base.clone(),
            onto: record.onto.clone(),
            old_head: self.prepared.head,
            new_head: head,
            tree,
            store: record.store.clone(),
            branch: record.branch.clone(),
            patches: synced(self.plan, done, export.as_ref()),
            open_findings,
            report: relative(&report),
        };
        // A stack that is where it should be says nothing about what a way there costs.
        let went = export.is_some() && record.base.commit != record.onto.commit;
        let journal = Journal {
            sync: went.then(|| SyncRecord::of(self.prepared)).transpose()?,
            asked: state.onto_asked.clone(),
            files: report_files(&record, self.request),
            report,
            expected,
            result,
            export,
            // What people decided is still needed when findings are to be accepted.
            keeps_state: open_findings > 0,
            record,
        };
        self.request.faults.pass()?;
        journal.save(self.folder)?;
        Ok(SyncOutcome::Finished(Box::new(journal.carry_out(self.root, self.folder, self.request.faults)?)))
    }

    fn stale(&self, executor: &Executor<'_>, part: TreeId) -> Result<Vec<String>, RunError> {
        if executor.generated.is_empty() {
            return Ok(Vec::new());
        }
        let fresh = executor.regenerated(0, "the finished stack", part)?;
        let stale: Vec<String> =
            self.store().changes(part, fresh)?.iter().map(|change| change.path.to_string()).collect();
        for path in &stale {
            self.events
                .emit(Event::Warning(format!("{path} is not what its command makes of the rebased stack")));
        }
        Ok(stale)
    }

    fn lifted(&self, path: &TreePath) -> TreePath {
        match &self.plan.folder {
            None => path.clone(),
            Some(folder) => TreePath::new([folder.as_bytes(), b"/", path.as_bytes()].concat())
                .expect("a path below a folder is a path"),
        }
    }

    fn bytes(&self, entry: Option<Entry>) -> Result<Vec<u8>, StoreError> {
        match entry {
            Some(Entry { mode: MODE_SUBMODULE, .. }) | None => Ok(Vec::new()),
            Some(Entry { id, .. }) => self.store().blob(id),
        }
    }
}

/// Everything that changes at the end of a rebase, written down before any of it does.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    asked: String,
    report: PathBuf,
    files: BTreeMap<String, String>,
    expected: Option<CommitId>,
    result: SyncResult,
    export: Option<Export>,
    keeps_state: bool,
    record: RunRecord,
    #[serde(default)]
    sync: Option<SyncRecord>,
}

impl Journal {
    fn path(folder: &Path) -> PathBuf {
        folder.join("finish.json")
    }

    fn load(folder: &Path) -> Result<Option<Self>, RunError> {
        let path = Self::path(folder);
        match file::bytes(&path, Most::Record) {
            Ok(text) => {
                let read = serde_json::from_slice(&text);
                read.map(Some).map_err(|source| OutcomeError::Shape { path, source }.into())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RunError::Disk { path, source }),
        }
    }

    fn save(&self, folder: &Path) -> Result<(), RunError> {
        let path = Self::path(folder);
        let text = serde_json::to_vec(self).expect("a journal has text keys only");
        replace_file(&path, &text).map_err(|source| RunError::Disk { path, source })
    }

    /// Does all of it; what is done already is done again to the same end.
    fn carry_out(self, root: &Path, folder: &Path, faults: &Faults) -> Result<RunRecord, RunError> {
        let forget = || {
            let path = Self::path(folder);
            fs::remove_file(&path).map_err(|source| RunError::Disk { path, source })
        };
        if let Some(export) = &self.export {
            refuse_edited(root, export)?;
        }
        for (name, text) in &self.files {
            let path = self.report.join(name);
            replace_file(&path, text.as_bytes()).map_err(|source| RunError::Disk { path, source })?;
            faults.pass()?;
        }
        let SyncResult { fork, new_head, branch, .. } = &self.result;
        // The store borrows other repositories; opened through git alone it keeps what it borrows.
        let store = Store::open_existing(&root.join(&self.result.store))?;
        sweep_locks(&store, fork)?;
        store.move_ref(&made_ref(fork, *new_head), None, *new_head)?;
        faults.pass()?;
        if let RefMove::Elsewhere { found } = store.move_ref(branch, self.expected, *new_head)? {
            forget()?;
            return Err(RunError::ForeignBranch {
                branch: branch.clone(),
                found: found.unwrap_or(*new_head),
            });
        }
        faults.pass()?;
        if let Some(export) = &self.export {
            carry_out(root, export)?;
            faults.pass()?;
        }
        if let Some(sync) = self.sync {
            add_to_record(&record_file(root, fork), sync)?;
            faults.pass()?;
        }
        self.result.save(root)?;
        faults.pass()?;
        if !self.keeps_state {
            SyncState::clear(root, fork)?;
        }
        faults.pass()?;
        forget()?;
        Ok(self.record)
    }
}

/// Gives a rebase up, whatever state it is in: what can be neither read nor finished is moved aside, so that the next run
/// begins anew.
fn give_up(
    root: &Path,
    name: &str,
    folder: &Path,
    faults: &Faults,
    events: &dyn EventSink,
) -> Result<SyncOutcome, RunError> {
    let mut set_aside = Vec::new();
    let mut aside = |path: &Path, why: &dyn std::error::Error| {
        let place = move_aside(folder, path)?;
        events.emit(Event::Warning(format!("{why}{}; it is kept as {}", causes(why), place.display())));
        set_aside.push(place);
        Ok::<(), RunError>(())
    };
    let journal = Journal::load(folder).and_then(|journal| {
        let Some(journal) = journal else { return Ok(None) };
        let asked = journal.asked.clone();
        journal.carry_out(root, folder, faults).map(|_| Some(asked))
    });
    match journal {
        Ok(None) => {}
        Ok(Some(asked)) => events.emit(Event::Note(format!(
            "finished the rebase of `{name}` onto {asked}, which had been interrupted"
        ))),
        Err(error @ RunError::Execute(ExecuteError::Ended)) => return Err(error),
        Err(error) => aside(&Journal::path(folder), &error)?,
    }
    let state = SyncState::load(root, name);
    if let Err(error) = &state {
        aside(&SyncState::path(root, name), error)?;
    }
    if let Err(error) = Beside::load(root, name, "") {
        aside(&Beside::path(root, name), &error)?;
    }
    let result = SyncResult::load(root, name);
    if let Err(error) = &result {
        aside(&SyncResult::path(root, name), error)?;
    }
    let place = folder.join("worktree");
    let mut kept = None;
    if let Some(work_tree) = WorkTree::find(&place) {
        match work_tree.keep(&kept_prefix(name), "work on a rebase that was given up\n") {
            Ok(reference) => kept = Some(reference),
            Err(error) => aside(&place, &error)?,
        }
    } else if place.symlink_metadata().is_ok() {
        aside(&place, &RunError::NoWorkTree(place.clone()))?;
    }
    if matches!(state, Ok(None)) && kept.is_none() && set_aside.is_empty() {
        let last = result.ok().flatten().map(|last| last.branch);
        return Err(RunError::NothingWaits { fork: name.to_owned(), last });
    }
    SyncState::clear(root, name)?;
    if let Some(work_tree) = WorkTree::find(&place) {
        work_tree.remove()?;
    }
    Ok(SyncOutcome::Aborted { kept, set_aside })
}

/// Moves a file or folder of a run into the folder beside it in which nothing is read, under a name that is free.
fn move_aside(folder: &Path, path: &Path) -> Result<PathBuf, RunError> {
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| RunError::Disk { path, source }
    };
    let kept = folder.join("kept");
    fs::create_dir_all(&kept).map_err(disk(&kept))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let free = (1..).map(|number| kept.join(format!("{name}-{number}")));
    let free = free.into_iter().find(|place| place.symlink_metadata().is_err());
    let place = free.expect("a folder never holds every number");
    match fs::rename(path, &place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk(path)(error)),
        _ => Ok(place),
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let next = std::iter::successors(error.source(), |cause| cause.source());
    next.map(|cause| format!(": {cause}")).collect()
}

fn planned(prepared: &Forecasted, name: &str, sign: Sign) -> Result<RebasePlan, RunError> {
    let store = &prepared.store;
    let mut texts = BTreeMap::new();
    for commit in prepared.replayed.steps.iter().filter_map(|step| step.commit) {
        texts.insert(commit, store.commit_bytes(commit)?);
    }
    let onto = store.commit(prepared.target.onto.commit)?;
    let signing = match sign {
        Sign::Never => Signing::No,
        Sign::AsConfigured => store.signing().map_err(ExecuteError::from)?,
    };
    let folder = prepared.spec.upstream.folder.as_deref();
    let input = PlanInput {
        fork: name,
        base: prepared.target.base,
        onto: prepared.target.onto,
        onto_whole: onto.tree,
        onto_committed_s: onto.committed_s,
        folder: folder.and_then(|folder| TreePath::new(folder).ok()),
        texts: &texts,
        signing,
    };
    Ok(plan(&prepared.stack, &prepared.replayed, input))
}

/// The target's name: where a run goes on, only the commit was looked up, and the tag that was asked for is found again.
fn asked_name(prepared: &Forecasted, asked: &str) -> NamedCommit {
    let found = &prepared.document.onto;
    let tag = prepared.tags.get(asked).filter(|commit| **commit == found.commit).map(|_| asked.to_owned());
    NamedCommit { commit: found.commit, tag: tag.or_else(|| found.tag.clone()) }
}

fn synced(plan: &RebasePlan, done: &[DonePatch], export: Option<&Export>) -> Vec<SyncedPatch> {
    let patch = |made: &DonePatch| {
        let patch = plan.patch(made.number)?;
        let file = export.and_then(|export| Some(export.folder.join(export.files.get(&made.number)?)));
        Some(SyncedPatch {
            number: made.number,
            subject: patch.step.subject.clone(),
            old_commit: patch.step.commit,
            file: patch.step.file.clone(),
            outcome: made.outcome,
            new_commit: made.commit,
            patch_id: made.patch_id,
            exported: file,
        })
    };
    done.iter().filter_map(patch).collect()
}

#[derive(Serialize)]
struct Document<'a> {
    schema: Schema,
    generated_by: &'a str,
    forks: [&'a RunRecord; 1],
}

#[derive(Serialize)]
struct Schema {
    name: &'static str,
    version: u32,
}

fn report_files(record: &RunRecord, request: &SyncRequest<'_>) -> BTreeMap<String, String> {
    let schema = Schema { name: SCHEMA, version: SCHEMA_VERSION };
    let document = Document { schema, generated_by: request.generated_by, forks: [record] };
    let mut json = serde_json::to_string_pretty(&document).expect("a record has text keys only");
    json.push('\n');
    BTreeMap::from([("sync.json".to_owned(), json), ("summary.md".to_owned(), (request.render)(record))])
}

fn label(onto: &NamedCommit) -> String {
    onto.tag.clone().map_or_else(|| onto.commit.short(), |tag| tag.replace('/', "-"))
}

fn place(onto: &NamedCommit) -> String {
    match &onto.tag {
        Some(tag) => format!("{} ({tag})", onto.commit),
        None => onto.commit.to_string(),
    }
}

fn branch_prefix(fork: &str) -> String {
    format!("regraft/{fork}")
}

fn kept_prefix(fork: &str) -> String {
    format!("refs/regraft/{fork}/kept")
}

fn made_prefix(fork: &str) -> String {
    format!("refs/regraft/{fork}/made")
}

/// The ref that keeps a finished result, and proves that this program made it.
fn made_ref(fork: &str, head: CommitId) -> String {
    format!("{}/{head}", made_prefix(fork))
}

/// Takes away the locks that a killed run left on refs which only a run under the fork's lock moves.
fn sweep_locks(store: &Store, fork: &str) -> Result<(), RunError> {
    for prefix in [format!("refs/heads/{}", branch_prefix(fork)), kept_prefix(fork), made_prefix(fork)] {
        let swept = store.sweep_ref_locks(&prefix);
        swept.map_err(|source| RunError::Disk { path: store.path().join(&prefix), source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
