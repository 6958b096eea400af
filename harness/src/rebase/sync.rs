//! The forecast of one fork from its `fork.toml` to a document: open, read the stack, replay, forecast, name what was
//! found. The shapes here are those that `--format json` prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{
    forecast::{Cause, Forecast, Frontier, PatchFate, PatchForecast, forecast},
    replay::{ReplayError, Replayed, Step, replay_stack, write_commits},
};
use crate::{
    config::fork::{BaseSpec, CrateQueue, ForkSpec, StackSpec},
    event::{Event, EventSink},
    fork::{
        ForkError, Milestone,
        open::{Fork, Source, open_fork, store_folder},
        target::{Onto, Target, resolve, target},
    },
    stack::{
        PatchStack,
        source::{CrateContents, StackError, read_stack},
    },
    tools::{
        clock,
        git::{
            attributes::Driver,
            ids::{CommitId, TreeId},
            merge::MergeError,
            store::{Person, Store, StoreError},
            tree_path::TreePath,
        },
    },
};

/// The forecast of one fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkForecast {
    /// The fork's name.
    pub name: String,
    /// The commit that the stack sits on.
    pub base: NamedCommit,
    /// The commit that it was tried on.
    pub onto: NamedCommit,
    /// The newest commit on the way that takes the whole stack without a conflict.
    pub frontier: Option<FrontierEntry>,
    /// One for each patch, in the stack's order.
    pub patches: Vec<PatchEntry>,
}

/// A commit, and the tag that names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCommit {
    /// The commit.
    pub commit: CommitId,
    /// The tag, if one leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl NamedCommit {
    /// The tag with the commit's short id, or that alone. A tag is what a remote said: printing makes it harmless.
    pub fn place(&self) -> String {
        match &self.tag {
            Some(tag) => format!("{tag} ({})", self.commit.short()),
            None => self.commit.short(),
        }
    }
}

/// The newest commit that takes the whole stack without a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontierEntry {
    /// The commit.
    pub commit: CommitId,
    /// Its position after the base, counted from 1; 0 for the base.
    pub index: usize,
    /// How many commits lie between base and target.
    pub of: usize,
    /// When it was committed, as RFC 3339 in UTC; absent where only the base's files are at hand.
    pub date: Option<String>,
}

/// One patch of a forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchEntry {
    /// Its place in the stack, counted from 1.
    pub number: usize,
    /// Its subject; for a bare diff the file's name without `.patch`.
    pub subject: String,
    /// The commit that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The file that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its fate in the stack.
    pub fate: PatchFate,
    /// Its conflicting paths.
    pub conflicts: Vec<ConflictEntry>,
    /// The earlier patches that it needs.
    pub depends_on: Vec<usize>,
    /// Its fate without the rest of the stack.
    pub alone: PatchFate,
    /// The target's tree with the stack up to and including this patch, conflicts carried on.
    pub tree: TreeId,
}

/// One conflicting path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictEntry {
    /// The path.
    pub path: String,
    /// Whose doing it is.
    pub cause: Cause,
    /// The upstream commit since which it has conflicted.
    pub culprit: Option<CulpritEntry>,
    /// How many places need a person.
    pub hunks: usize,
    /// Git's word for the conflict, such as `contents` or `modify/delete`.
    pub kind: String,
}

/// An upstream commit that made a path conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CulpritEntry {
    /// The commit.
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: String,
}

/// Why a fork could not be forecast.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// Upstream, fork, base or target.
    #[error(transparent)]
    Fork(Box<ForkError>),
    /// The stack cannot be read.
    #[error(transparent)]
    Stack(Box<StackError>),
    /// The stack does not fit its own base.
    #[error(transparent)]
    Replay(Box<ReplayError>),
    /// Trees could not be merged.
    #[error(transparent)]
    Merge(Box<MergeError>),
}

impl SyncError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Fork(error) => error.hint(),
            Self::Stack(error) => error.hint(),
            Self::Replay(error) => error.hint(),
            Self::Merge(error) => error.hint(),
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Fork(error) => error.is_refusal(),
            Self::Stack(error) => error.is_refusal(),
            Self::Replay(error) => matches!(**error, ReplayError::Misfit { .. }),
            Self::Merge(_) => false,
        }
    }
}

impl From<ForkError> for SyncError {
    fn from(error: ForkError) -> Self {
        Self::Fork(Box::new(error))
    }
}

impl From<StackError> for SyncError {
    fn from(error: StackError) -> Self {
        Self::Stack(Box::new(error))
    }
}

impl From<ReplayError> for SyncError {
    fn from(error: ReplayError) -> Self {
        Self::Replay(Box::new(error))
    }
}

impl From<MergeError> for SyncError {
    fn from(error: MergeError) -> Self {
        Self::Merge(Box::new(error))
    }
}

impl From<StoreError> for SyncError {
    fn from(error: StoreError) -> Self {
        Self::from(ForkError::Store(error))
    }
}

/// Forecasts a fork below the repository root.
///
/// # Errors
/// See [`SyncError`]; conflicts are part of the forecast.
pub fn forecast_fork(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<ForkForecast, SyncError> {
    Ok(forecast_whole(root, spec, onto, source, events)?.document)
}

/// A forecast with everything that it was made from, for the stages that go on from it.
pub struct Forecasted {
    /// What `fork.toml` says.
    pub spec: ForkSpec,
    /// The objects of upstream and fork.
    pub store: Store,
    /// Upstream's tags.
    pub tags: BTreeMap<String, CommitId>,
    /// The newest commit of the fork's branch, for a stack read from a branch.
    pub head: Option<CommitId>,
    /// The stack as it was read.
    pub stack: PatchStack,
    /// The stack on its own base.
    pub replayed: Replayed,
    /// The way to the new upstream commit.
    pub target: Target,
    /// What becomes of every patch there.
    pub forecast: Forecast,
    /// The same for people and programs.
    pub document: ForkForecast,
}

/// [`forecast_fork`], with everything that the forecast was made from.
///
/// # Errors
/// See [`SyncError`]; conflicts are part of the forecast.
pub fn forecast_whole(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<Forecasted, SyncError> {
    match open_stack(root, spec, onto, source, events)? {
        Opened::Here(opened) => forecast_opened(*opened, onto, events),
        Opened::Forecasted(whole) => Ok(*whole),
    }
}

/// A fork with its stack, opened but not yet forecast.
pub struct OpenedStack {
    /// The fork.
    pub fork: Fork,
    /// Its stack.
    pub stack: PatchStack,
    /// The commit to go to; for [`Onto::Frontier`] the one from which the frontier is looked for.
    pub onto: CommitId,
}

/// What opening a fork gives.
pub enum Opened {
    /// A stack to be forecast.
    Here(Box<OpenedStack>),
    /// A queue on the sources that its crate carries: there is nothing to go to, so the forecast is done.
    Forecasted(Box<Forecasted>),
}

/// Opens a fork and reads its stack.
///
/// # Errors
/// See [`SyncError`].
pub fn open_stack(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<Opened, SyncError> {
    events.emit(Event::StepStarted { step: format!("forecast {}", spec.name) });
    if let Some((queue, base)) = on_carried_base(&spec, onto, source) {
        let (queue, base) = (queue.clone(), base.clone());
        let whole = forecast_on_carried_base(root, spec, &base, &queue, events)?;
        return Ok(Opened::Forecasted(Box::new(whole)));
    }
    let fork = open_fork(root, spec, source, events)?;
    let stack = read_stack(root, &fork)?;
    let onto = resolve(&fork, onto)?;
    Ok(Opened::Here(Box::new(OpenedStack { fork, stack, onto })))
}

/// Forecasts an opened stack.
///
/// # Errors
/// See [`SyncError`]; conflicts are part of the forecast.
pub fn forecast_opened(
    opened: OpenedStack,
    onto: &Onto,
    events: &dyn EventSink,
) -> Result<Forecasted, SyncError> {
    let OpenedStack { fork, stack, onto: commit } = opened;
    let replayed = replay_stack(&fork.store, fork.base.commit, fork.base.tree, &stack, events)?;
    let mut way = target(&fork, commit)?;
    warn_of_drivers(&fork, &replayed, &way, events)?;
    let mut outcome = forecast(&fork.store, &replayed, &way)?;
    if *onto == Onto::Frontier && outcome.frontier.commit != way.onto.commit {
        way = target(&fork, outcome.frontier.commit)?;
        outcome = forecast(&fork.store, &replayed, &way)?;
    }
    let Fork { spec, store, upstream, head, .. } = fork;
    let asked = match onto {
        Onto::Named(name) => Some(name.as_str()),
        _ => None,
    };
    let named = |commit| NamedCommit {
        commit,
        tag: tag_of(&upstream.tags, commit, asked, &spec.upstream.tag_prefix),
    };
    let document =
        document(&store, &spec, &replayed, &outcome, (named(way.base.commit), named(way.onto.commit)))?;
    let tags = upstream.tags;
    Ok(Forecasted { spec, store, tags, head, stack, replayed, target: way, forecast: outcome, document })
}

/// Tells of files that git, in the user's own clone, may merge in another way than it is done here.
fn warn_of_drivers(
    fork: &Fork,
    replayed: &Replayed,
    way: &Target,
    events: &dyn EventSink,
) -> Result<(), MergeError> {
    let store = &fork.store;
    let paths: BTreeSet<TreePath> =
        replayed.steps.iter().flat_map(|step| &step.changes).map(|change| change.path.clone()).collect();
    let drivers = store.merge_drivers(way.onto.tree, &paths)?;
    for (path, driver) in &drivers {
        if let Driver::Own(name) = driver {
            events.emit(Event::Warning(format!(
                "{path}: .gitattributes names the merge driver `{name}`; a git that has it set up runs it, here the \
                 file is merged line by line"
            )));
        }
    }
    let Some(folder) = &fork.spec.upstream.folder else { return Ok(()) };
    let whole = store.commit(way.onto.commit)?.tree;
    let lifted = |path: &TreePath| TreePath::new([folder.as_bytes(), b"/", path.as_bytes()].concat()).ok();
    let above = store.merge_drivers(whole, &paths.iter().filter_map(lifted).collect())?;
    for path in paths.iter().filter(|path| !drivers.contains_key(*path)) {
        if lifted(path).is_some_and(|path| above.contains_key(&path)) {
            events.emit(Event::Warning(format!(
                "{path}: a .gitattributes above `{folder}` says how it is merged; that is not known inside the folder, \
                 and it is merged line by line"
            )));
        }
    }
    Ok(())
}

/// The queue and base of a stack that a crate alone can give, because its target is the base that the crate carries.
pub(super) fn on_carried_base<'s>(
    spec: &'s ForkSpec,
    onto: &Onto,
    source: &Source,
) -> Option<(&'s CrateQueue, &'s BaseSpec)> {
    match (&spec.stack, &spec.base, source) {
        (StackSpec::CrateQueue(queue), Some(base), Source::Remotes) if names_base(base, onto) => {
            Some((queue, base))
        }
        _ => None,
    }
}

/// Replays a crate's queue on the sources that the crate itself carries: no upstream is needed for that.
fn forecast_on_carried_base(
    root: &Path,
    spec: ForkSpec,
    base: &BaseSpec,
    queue: &CrateQueue,
    events: &dyn EventSink,
) -> Result<Forecasted, SyncError> {
    let store = Store::open(&store_folder(root, &spec, "carried.git"), &[])?;
    let contents = CrateContents::read(queue)?;
    let tree = contents.base_tree(queue, &store)?;
    let (commit, tag) = (base.commit, base.tag.clone());
    if let Some(expected) = base.tree.filter(|expected| *expected != tree) {
        return Err(ForkError::OtherTree { commit, expected, found: tree }.into());
    }
    let base = Milestone { commit, tree };
    let stack = contents.stack(queue)?;
    let replayed = replay_stack(&store, commit, tree, &stack, events)?;
    // Upstream's own commit is not at hand; one that holds the same files stands in as the parent.
    let author = Person { name: "unknown".to_owned(), email: "unknown".to_owned(), time_s: 0, offset_min: 0 };
    let parent = store.write_commit(tree, &[], &author, &format!("files of {commit}\n"))?;
    if let Some(head) = write_commits(&store, parent, &stack, &replayed)?.last() {
        events.emit(Event::Note(format!(
            "{} patches replayed; head {head} in {}",
            replayed.steps.len(),
            store.path().display()
        )));
    }
    let target = Target { base, onto: base, history: Vec::new() };
    let outcome = forecast(&store, &replayed, &target)?;
    let named = NamedCommit { commit, tag };
    let document = document(&store, &spec, &replayed, &outcome, (named.clone(), named))?;
    let tags = BTreeMap::new();
    Ok(Forecasted { spec, store, tags, head: None, stack, replayed, target, forecast: outcome, document })
}

fn names_base(base: &BaseSpec, onto: &Onto) -> bool {
    let Onto::Named(name) = onto else { return false };
    let commit = base.commit.to_string();
    name == "base"
        || Some(name) == base.tag.as_ref()
        || (name.len() >= 7 && commit.starts_with(name.as_str()))
}

fn tag_of(
    tags: &BTreeMap<String, CommitId>,
    commit: CommitId,
    asked: Option<&str>,
    prefix: &str,
) -> Option<String> {
    let leading = || tags.iter().filter(|(_, leads_to)| **leads_to == commit).map(|(tag, _)| tag);
    let asked = leading().find(|tag| Some(tag.as_str()) == asked);
    asked.or_else(|| leading().find(|tag| tag.starts_with(prefix))).cloned()
}

fn document(
    store: &Store,
    spec: &ForkSpec,
    replayed: &Replayed,
    outcome: &Forecast,
    (base, onto): (NamedCommit, NamedCommit),
) -> Result<ForkForecast, SyncError> {
    let patches = replayed.steps.iter().zip(&outcome.patches);
    let patches = patches.map(|(step, patch)| entry(store, step, patch)).collect::<Result<_, _>>()?;
    let Frontier { commit, index, of } = outcome.frontier;
    let date = match store.has(commit) {
        true => u64::try_from(store.commit(commit)?.committed_s).ok(),
        false => None,
    };
    let date = date.map(|seconds| clock::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)));
    let frontier = Some(FrontierEntry { commit, index, of, date });
    Ok(ForkForecast { name: spec.name.clone(), base, onto, frontier, patches })
}

fn entry(store: &Store, step: &Step, patch: &PatchForecast) -> Result<PatchEntry, StoreError> {
    let mut conflicts = Vec::new();
    for conflict in &patch.conflicts {
        let culprit = match conflict.culprit {
            Some(commit) => Some(CulpritEntry { commit, subject: store.commit(commit)?.subject }),
            None => None,
        };
        let (path, kind) = (conflict.path.to_string(), conflict.kind.clone());
        conflicts.push(ConflictEntry { path, cause: conflict.cause, culprit, hunks: conflict.hunks, kind });
    }
    Ok(PatchEntry {
        number: step.number,
        subject: step.subject.clone(),
        commit: step.commit,
        file: step.file.clone(),
        fate: patch.fate,
        conflicts,
        depends_on: patch.depends_on.clone(),
        alone: patch.alone,
        tree: patch.tree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::fork::parse_fork, event::Silent, tools::git::fixture::ForkFixture};

    fn fixture() -> ForkFixture {
        let fixture = ForkFixture::new(&[("f", "a\nb\nc\n"), ("g", "a\n")])
            .patch("patch", &[("f", Some("a\nB\nc\n"))])
            .advance("elsewhere", &[("g", Some("b\n"))])
            .advance("culprit", &[("f", Some("a\nbb\nc\n"))]);
        fixture.name("refs/tags/v1.0", fixture.base);
        fixture.name("refs/tags/v1.1", fixture.upstream[1]);
        fixture.name("refs/heads/main", fixture.onto());
        fixture.name("refs/heads/fork", fixture.head());
        fixture
    }

    fn forecast_onto(fixture: &ForkFixture, base: CommitId, onto: &str) -> Result<ForkForecast, SyncError> {
        let text = format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
             tag-prefix = \"v\"\n[base]\ncommit = \"{base}\"\ntag = \"v1.0\"\n[stack]\nkind = \"branch\"\n\
             repository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n"
        );
        let spec = parse_fork("fork", "fork.toml", &text).unwrap();
        let source = Source::Mirrors(fixture.mirror_root().to_owned());
        forecast_fork(fixture.mirror_root(), spec, &Onto::from(onto), &source, &Silent)
    }

    #[test]
    fn every_kind_of_target_is_found_in_a_mirror() {
        let fixture = fixture();
        for (onto, commit, fate) in [
            ("latest", fixture.onto(), PatchFate::Conflicted),
            ("latest-tag", fixture.upstream[1], PatchFate::Applied),
            ("frontier", fixture.upstream[1], PatchFate::Applied),
            ("v1.1", fixture.upstream[1], PatchFate::Applied),
            ("base", fixture.base, PatchFate::Applied),
            (&fixture.onto().to_string()[..8], fixture.onto(), PatchFate::Conflicted),
        ] {
            let forecast = forecast_onto(&fixture, fixture.base, onto).unwrap();
            assert_eq!((forecast.onto.commit, forecast.patches[0].fate), (commit, fate), "{onto}");
            assert_eq!(forecast.base.tag.as_deref(), Some("v1.0"));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_hint() {
        let fixture = fixture();
        let refused = |base, onto| {
            let error = forecast_onto(&fixture, base, onto).unwrap_err();
            assert!(error.is_refusal() && error.hint().is_some(), "{error}");
            error.to_string()
        };
        assert!(refused(fixture.base, "nowhere").contains("no tag, branch or commit `nowhere`"));
        let moved = refused(fixture.upstream[1], "latest");
        assert!(moved.contains("tag `v1.0` has moved") && moved.ends_with("other files"), "{moved}");
        fixture.name("refs/tags/v1.0", fixture.upstream[1]);
        assert!(refused(fixture.upstream[1], &fixture.base.to_string()).contains("is not an ancestor of"));
    }
}
