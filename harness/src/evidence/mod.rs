//! Is each patch still needed? Statements with their proof, from the strongest (the same change is upstream) down to
//! declared conditions, and what follows from them. It reads forecasts and objects; it changes no fork.

pub mod agreement;
pub mod below;
pub mod cache;
pub mod content;
pub mod cost;
pub mod declarations;
pub mod edits;
pub mod forge;
pub mod fork_level;
pub mod handover;
pub mod identity;
pub mod inside;
pub mod inventory;
pub mod landed;
pub mod limits;
pub mod origins;
pub mod page;
pub mod provenance;
pub mod public_items;
pub mod recommend;
pub mod render;
pub mod report;
pub mod retirement;
pub mod reverts;
pub mod superseded;
pub mod supply_chain;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod trials;
pub mod upstream;
pub mod upstream_fixes;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use rayon::prelude::*;

use crate::{
    config::fork::{ForkSpec, StackSpec},
    event::{Event, EventSink},
    fork::{
        ForkError, Milestone,
        open::{Source, open_parts},
        target::Onto,
    },
    rebase::{
        replay::Step,
        sync::{Forecasted, Opened, PatchEntry, SyncError, forecast_opened, forecast_whole, open_stack},
    },
    tools::{
        clock,
        git::{
            ids::CommitId,
            merge::MergeError,
            store::{MODE_SUBMODULE, PathChange, Store, StoreError},
            tree_path::TreePath,
        },
    },
};
use content::Contained;
use cost::{RecordError, SyncRecord};
use edits::{FileEdit, edits_of};
use forge::Asked;
use limits::Depth;
use recommend::{Case, Deletes, History, Place};
use report::{Cost, FirstConflict, ForkReport, PatchReport, Recommendation, Span};
use retirement::{Facts, Recorded, RecordedError};
use superseded::Overtaken;
use tokens::Language;
use upstream::{Texts, Upstream};

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The fork cannot be opened or forecast.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The record of past syncs cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recorded results cannot be used.
    #[error(transparent)]
    Results(#[from] RecordedError),
}

impl EvidenceError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Sync(error) => error.hint(),
            Self::Record(error) => error.hint(),
            Self::Results(_) => Some(
                "it holds an object: `{\"pull-request 12\": {\"result\": \"merged\", \"at\": \"2026-01-31\"}}`".to_owned(),
            ),
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Sync(error) => error.is_refusal(),
            Self::Record(error) => matches!(error, RecordError::Line { .. }),
            Self::Results(error) => matches!(error, RecordedError::Form { .. }),
        }
    }
}

/// What was recorded about a fork outside of git.
#[derive(Debug, Default)]
pub struct Records {
    /// Past syncs.
    pub syncs: Vec<SyncRecord>,
    /// Results of probes, commands and benchmarks, and states of pull requests.
    pub results: Recorded,
    /// What the forge says about pull requests now.
    pub asked: Asked,
}

impl Records {
    /// Reads the records of a fork below the repository root, and asks its forge where a token is set.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(root: &Path, fork: &ForkSpec) -> Result<Self, EvidenceError> {
        let syncs = cost::read_record(&cost::record_file(root, &fork.name))?;
        let results = Recorded::read(&Recorded::file(root, &fork.name))?;
        Ok(Self { syncs, results, asked: forge::asked(fork) })
    }
}

/// Reports on a fork below the repository root.
///
/// # Errors
/// See [`EvidenceError`]; whatever is found out is part of the report.
pub fn report_fork(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<ForkReport, EvidenceError> {
    let records = Records::read(root, &spec)?;
    let below = below::forks_below(root, &spec, source, events);
    let opened = match open_stack(root, spec.clone(), onto, source, events) {
        Err(SyncError::Fork(error)) if shares_nothing(&error) => {
            let parts = open_parts(root, spec, source, events).map_err(SyncError::from)?;
            return Ok(limits::unrelated(&parts).map_err(SyncError::from)?);
        }
        opened => opened?,
    };
    let (whole, file) = match opened {
        Opened::Forecasted(whole) => (*whole, None),
        Opened::Here(opened) => {
            let file = cache::file(
                root,
                &opened.fork,
                &opened.stack,
                (onto, opened.onto),
                (source, &records, &below),
            );
            if let Some(report) = file.as_deref().and_then(cache::read) {
                return Ok(report);
            }
            (forecast_opened(*opened, onto, events)?, file)
        }
    };
    events.emit(Event::StepStarted { step: format!("weigh the evidence on {}", whole.spec.name) });
    let mut report = weighed(&whole, &records).map_err(SyncError::from)?;
    let (sections, unknown) =
        fork_level::sections(root, &whole, (source, &below), &report.patches).map_err(SyncError::from)?;
    report.sections = sections;
    // What a remote did not give may be there the next time; mirrors are part of what a report is kept by.
    let lasts = unknown.is_empty() || matches!(source, Source::Mirrors(_));
    report.unknown.extend(unknown);
    if let (Some(file), true) = (file, lasts) {
        cache::keep(&file, &report);
    }
    Ok(report)
}

/// The evidence on every patch, with the forecast that it was weighed from: nothing kept from before is used, and the
/// sections on the fork as a whole are left out.
///
/// # Errors
/// See [`EvidenceError`].
pub fn report_whole(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<(Forecasted, ForkReport), EvidenceError> {
    let records = Records::read(root, &spec)?;
    let whole = forecast_whole(root, spec, onto, source, events)?;
    let report = weighed(&whole, &records).map_err(SyncError::from)?;
    Ok((whole, report))
}

fn shares_nothing(error: &ForkError) -> bool {
    matches!(error, ForkError::NotAncestor { merge_base: None, shallow: false, .. })
}

/// Weighs the evidence on every patch of a forecast stack.
///
/// # Errors
/// When an object is missing.
pub fn weighed(whole: &Forecasted, records: &Records) -> Result<ForkReport, MergeError> {
    let Forecasted { store, replayed, target, document, .. } = whole;
    let steps = &replayed.steps;
    let (base, onto) = (target.base, target.onto);
    let history = match store.has(base.commit) && store.has(onto.commit) {
        true => History::AtHand,
        false => History::OnlyFiles,
    };
    let now_s = match history {
        History::AtHand => Some(store.commit(onto.commit)?.committed_s),
        History::OnlyFiles => None,
    };
    let numbers: Vec<usize> = steps.iter().map(|step| step.number).collect();
    let edits: Vec<Vec<FileEdit>> =
        steps.iter().map(|step| edits_of(store, &step.changes)).collect::<Result<_, StoreError>>()?;

    let changes = relevant(store.changes(base.tree, onto.tree)?, steps);
    let touching = landed::touching(store, base.tree, &target.history, steps, &changes)?;
    let same = landed::by_patch_id(store, steps, &touching)?;
    let texts = Texts::default();
    let upstream = Upstream::new(&texts, changes, &touching);

    let before_base = match history {
        History::AtHand => milestones_back(whole, base.commit)?,
        History::OnlyFiles => Vec::new(),
    };
    let origins = origins::origins(store, &numbers, &edits, &before_base)?;
    let liveness = inside::liveness(store, steps, &edits, &origins)?;
    let undoes = inside::undone(store, steps)?;

    let tag_prefix = &whole.spec.upstream.tag_prefix;
    let facts = Facts::new(store, target, &whole.tags, tag_prefix, (&records.results, &records.asked));

    let fixups: Vec<Option<report::Fixup>> =
        edits.iter().zip(&origins.deleted).map(|(edits, deleted)| inside::fixup(edits, deleted)).collect();

    // What reads most is done on every core, each with its own way to the objects.
    let (store_path, base_tree) = (store.path(), base.tree);
    let weigh = |store: &Store, at: usize| -> Result<Weighed, StoreError> {
        let (step, edits, deleted) = (&steps[at], &edits[at], &origins.deleted[at]);
        let (contained, overtaken) = match same[at] {
            Some(_) => (Contained::default(), Overtaken::default()),
            None => (
                content::contained(store, &upstream, edits)?,
                superseded::superseded(store, &upstream, edits, step.before, base_tree)?,
            ),
        };
        let reverts = reverts::reverts(store, edits, deleted, &origins, &steps[at + 1..])?;
        let mut churn = (0, 0);
        for edit in edits {
            churn.0 += upstream.churn(store, &edit.path)?;
            churn.1 += upstream.churn_beside(store, edit)?;
        }
        Ok(Weighed { contained, overtaken, reverts, churn })
    };
    let open = || Store::open_existing(store_path);
    let weighed = (0..steps.len()).into_par_iter().map_init(open, |store, at| match store {
        Ok(store) => weigh(store, at),
        Err(_) => weigh(&Store::open_existing(store_path)?, at),
    });
    let weighed: Vec<Weighed> = weighed.collect::<Result<_, _>>()?;

    let positions: BTreeMap<CommitId, usize> =
        target.history.iter().map(|milestone| milestone.commit).zip(1..).collect();
    let mut patches = Vec::new();
    for (at, ((step, entry), weighed)) in steps.iter().zip(&document.patches).zip(weighed).enumerate() {
        let (edits, deleted) = (&edits[at], &origins.deleted[at]);
        let Weighed { contained, overtaken, reverts, churn: (churn_lines, churn_beside_lines) } = weighed;
        let identity = identity::identity(store, &whole.stack, step, edits, now_s)?;
        let fixup = fixups[at];
        let repairs = |other: &usize| fixups[*other].is_some_and(|fixup| fixup.of == step.number);
        let repaired_by: Vec<usize> = (0..steps.len()).filter(repairs).map(|other| numbers[other]).collect();
        let declared = retirement::declared(&whole.spec.patches, step);
        let condition = declared.and_then(|declared| declared.retirement.as_ref());
        let retirement = condition.map(|condition| facts.judge(condition)).transpose()?.unwrap_or_default();
        let probe = declared.and_then(|declared| declared.probe.as_ref()).map(|probe| facts.probe(probe));
        let (past_syncs, past_conflicts) = cost::past(&records.syncs, &identity.key);
        let first_conflict = first_conflict(store, entry, &positions)?;
        let case = Case {
            entry,
            first_conflict: first_conflict.as_ref(),
            files: edits.len(),
            same: same[at].as_ref(),
            contained: &contained,
            superseded_by: &overtaken.by,
            names: (overtaken.coined, overtaken.met),
            reverts: &reverts,
            fixup,
            undoes: undoes[at],
            undone_by: undoes.iter().position(|undoes| *undoes == Some(step.number)).map(|by| numbers[by]),
            repaired_by: &repaired_by,
            liveness: liveness[at],
            deletes: if deleted.is_empty() { Deletes::Nothing } else { Deletes::Lines },
            unfit_for_upstream: recommend::unfit_for_upstream(edits, place(whole, edits)?),
            retirement: &retirement,
            history,
        };
        let trial = trials::trial_of(&records.results, &identity.key, step);
        let (state, recommendation, reason) = trials::weigh(recommend::decide(&case), trial.as_ref());
        let landed = same[at].clone().map_or(contained.landed, |same| vec![same]);
        let left = if landed.is_empty() { Vec::new() } else { contained.left };
        let upstream_branch = match recommendation {
            Recommendation::Upstream => handover::upstream_branch(whole, step)?,
            _ => None,
        };
        patches.push(PatchReport {
            forecast: entry.clone(),
            identity,
            state,
            recommendation,
            reason,
            landed,
            left,
            superseded_by: overtaken.by,
            reverts,
            fixup_of: fixup.map(|fixup| fixup.of),
            fixup,
            undoes: undoes[at],
            first_conflict,
            liveness: liveness[at],
            retirement,
            probe,
            trial,
            cost: Cost { past_conflicts, past_syncs, churn_lines, churn_beside_lines },
            upstream_branch,
        });
    }
    let condition = whole.spec.retirement.as_ref();
    let retirement = condition.map(|condition| facts.judge(condition)).transpose()?.unwrap_or_default();
    let residue = recommend::residue(&patches);
    let depth = match history {
        History::OnlyFiles => Depth::OnlyFiles,
        History::AtHand if store.is_shallow() => Depth::Shallow,
        History::AtHand => Depth::Whole,
    };
    let unknown = limits::unknowns(depth, &patches);
    Ok(ForkReport {
        name: document.name.clone(),
        base: Some(document.base.clone()),
        onto: Some(document.onto.clone()),
        frontier: document.frontier.clone(),
        span: match history {
            History::AtHand => {
                Some(Span { from: day_of(store, base.commit)?, to: day_of(store, onto.commit)? })
            }
            History::OnlyFiles => None,
        },
        patches,
        residue,
        retirement,
        unknown,
        sections: Vec::new(),
    })
}

/// Where upstream first meets a patch: the earliest of its conflicts' culprits.
fn first_conflict(
    store: &Store,
    entry: &PatchEntry,
    positions: &BTreeMap<CommitId, usize>,
) -> Result<Option<FirstConflict>, StoreError> {
    let culprits = entry.conflicts.iter().filter_map(|conflict| conflict.culprit.as_ref());
    let placed = culprits.filter_map(|culprit| Some((*positions.get(&culprit.commit)?, culprit)));
    let Some((index, culprit)) = placed.min_by_key(|(index, _)| *index) else { return Ok(None) };
    let (commit, subject) = (culprit.commit, culprit.subject.clone());
    Ok(Some(FirstConflict { commit, subject, index, date: day_of(store, commit)? }))
}

/// When a commit was committed, as RFC 3339 in UTC.
fn day_of(store: &Store, commit: CommitId) -> Result<String, StoreError> {
    let seconds = u64::try_from(store.commit(commit)?.committed_s).unwrap_or_default();
    Ok(clock::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// What is found out about one patch by reading much.
struct Weighed {
    contained: Contained,
    overtaken: Overtaken,
    reverts: Vec<report::AccidentalRevert>,
    /// Lines that upstream changed in its files, and those of them beside its own.
    churn: (usize, usize),
}

/// A branch's new files may be a feature for upstream; those of a vendored copy belong to the copy.
fn place(whole: &Forecasted, edits: &[FileEdit]) -> Result<Place, StoreError> {
    if !matches!(whole.spec.stack, StackSpec::Vendored(_)) {
        return Ok(Place::Shared);
    }
    for tree in [whole.target.base.tree, whole.target.onto.tree] {
        for edit in edits {
            if whole.store.entry(tree, &edit.path)?.is_some() {
                return Ok(Place::Shared);
            }
        }
    }
    Ok(Place::CopyOnly)
}

/// The changes from base to target that can say something about the stack: those of its own paths, and those in
/// languages of its own in folders near its own, where names and moved files are looked for.
fn relevant(changes: Vec<PathChange>, steps: &[Step]) -> Vec<PathChange> {
    let own: BTreeSet<&TreePath> =
        steps.iter().flat_map(|step| step.changes.iter().map(|change| &change.path)).collect();
    let scopes: BTreeSet<(&[u8], Language)> =
        own.iter().filter_map(|path| Some((path.parent(), Language::of(path)?))).collect();
    let is_file = |change: &PathChange| change.new.is_none_or(|entry| entry.mode != MODE_SUBMODULE);
    let near = |path: &TreePath| {
        let language = Language::of(path);
        scopes
            .iter()
            .any(|(folder, other)| language == Some(*other) && superseded::is_near(path.parent(), folder))
    };
    changes
        .into_iter()
        .filter(|change| is_file(change) && (own.contains(&change.path) || near(&change.path)))
        .collect()
}

/// The commits from the base back, the base first, each with the part of its tree that the stack is about.
fn milestones_back(whole: &Forecasted, base: CommitId) -> Result<Vec<Milestone>, StoreError> {
    let commits = whole.store.first_parents(base)?;
    let folder = whole.spec.upstream.folder.as_deref().and_then(|folder| TreePath::new(folder).ok());
    commits
        .into_iter()
        .map(|commit| {
            let tree = whole.store.commit(commit)?.tree;
            let tree = match &folder {
                Some(folder) => {
                    whole.store.folder(tree, folder)?.map_or_else(|| whole.store.empty_tree(), Ok)?
                }
                None => tree,
            };
            Ok(Milestone { commit, tree })
        })
        .collect()
}
