//! Where faults meet the gate: sound and spoiled model folders, one engine process that plays the reference and one that
//! plays the candidate, and the judge and verdict of every gate.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::{
    SelftestError,
    checkpoint::{Checkpoint, Variant},
};
use crate::{
    build::Artifact,
    config::spec::Thresholds,
    engine::fault::{Fault, make_faulty_folder},
    judge::{
        CellObservations, ReferenceState, Subject, diagnosis,
        free_text::FreeTextScoring,
        free_texts_of, judge_cell_with,
        tier::{Tier, Tiers},
    },
    matrix::{Bench, Cell, ForcedIds, Observation, ObserveOptions, Role, Scoring, Wanted},
    verdict::{CellRun, PlannedCell, Verdict, decide},
};

/// How long one process may live: it serves many cells.
const PROCESS_TIME: Duration = Duration::from_secs(4 * 3_600);

/// Whether later cells are run once one has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    AtFirstFailure,
    Never,
}

/// How far the cause of a divergence is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Explain {
    /// By its pattern alone.
    ByPattern,
    /// Also by imitating faults, as a gate does: a dozen scorings more.
    ByImitation,
}

/// What the gate says of a candidate.
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) causes: Vec<String>,
    pub(super) largest_relative_l2: Option<f64>,
}

pub(super) struct Lab<'a> {
    root: TempDir,
    reference: Bench,
    candidate: Bench,
    /// What the reference did, by cell.
    observed: BTreeMap<String, Observation>,
    thresholds: &'a Thresholds,
    tiers: Tiers,
    folders: usize,
    pub(super) explain: Explain,
}

pub(super) fn options(log_dir: &Path) -> ObserveOptions {
    ObserveOptions { timeout: PROCESS_TIME, log_dir: log_dir.to_owned() }
}

/// The name that cells of a checkpoint carry.
pub(super) fn model_name(variant: Variant, seed: u64) -> String {
    format!("{}-{seed}", variant.name())
}

impl<'a> Lab<'a> {
    pub(super) fn new(
        artifact: &Artifact,
        log_dir: &Path,
        thresholds: &'a Thresholds,
        tiers: Tiers,
    ) -> Result<Self, SelftestError> {
        let root = tempfile::tempdir()
            .map_err(|source| SelftestError::Folder { folder: "a temporary one".to_owned(), source })?;
        let options = options(log_dir);
        Ok(Self {
            root,
            reference: Bench::new(artifact, &options),
            candidate: Bench::new(artifact, &options),
            observed: BTreeMap::new(),
            thresholds,
            tiers,
            folders: 0,
            explain: Explain::ByPattern,
        })
    }

    pub(super) fn processes(&self) -> usize {
        self.reference.processes() + self.candidate.processes()
    }

    /// The folder of a sound checkpoint.
    pub(super) fn sound(&self, variant: Variant, seed: u64) -> Result<PathBuf, SelftestError> {
        let folder = self.root.path().join(model_name(variant, seed));
        if !folder.exists() {
            variant.checkpoint(seed).write(&folder).map_err(unwritten(&folder))?;
        }
        Ok(folder)
    }

    /// A new folder with a checkpoint.
    pub(super) fn write(&mut self, checkpoint: &Checkpoint) -> Result<PathBuf, SelftestError> {
        let folder = self.new_folder();
        checkpoint.write(&folder).map_err(unwritten(&folder))?;
        Ok(folder)
    }

    /// A new folder with a sound checkpoint, which the candidate's engine runs with a fault.
    pub(super) fn with_fault(
        &mut self,
        variant: Variant,
        seed: u64,
        fault: &Fault,
    ) -> Result<PathBuf, SelftestError> {
        let (sound, folder) = (self.sound(variant, seed)?, self.new_folder());
        make_faulty_folder(&sound, &folder, fault).map_err(unwritten(&folder))?;
        Ok(folder)
    }

    /// Takes a folder away. One that stays does no harm until the end.
    pub(super) fn forget(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
    }

    /// What the gate says of the folder's model, run by the lab's engine, beside the sound checkpoint.
    pub(super) fn judge(
        &mut self,
        kind: &str,
        cells: &[Cell],
        variant: Variant,
        seed: u64,
        folder: &Path,
        stop: Stop,
    ) -> Result<Outcome, SelftestError> {
        let mut cell_runs = Vec::new();
        for cell in cells {
            let candidate = self.candidate.observe(cell, Role::Candidate, folder).map_err(Box::new)?;
            cell_runs.push(self.judged(kind, cell, variant, seed, candidate)?);
            if stop == Stop::AtFirstFailure && decide(&cell_runs).verdict() == Verdict::Fail {
                break;
            }
        }
        Ok(outcome(&cell_runs))
    }

    /// The same with a candidate engine of one's own.
    pub(super) fn judge_with(
        &mut self,
        bench: &mut Bench,
        kind: &str,
        cells: &[Cell],
        variant: Variant,
        seed: u64,
        folder: &Path,
    ) -> Result<Outcome, SelftestError> {
        std::mem::swap(&mut self.candidate, bench);
        let outcome = self.judge(kind, cells, variant, seed, folder, Stop::Never);
        std::mem::swap(&mut self.candidate, bench);
        outcome
    }

    fn judged(
        &mut self,
        kind: &str,
        cell: &Cell,
        variant: Variant,
        seed: u64,
        candidate: Observation,
    ) -> Result<PlannedCell, SelftestError> {
        let sound = self.sound(variant, seed)?;
        let reference = match self.observed.get(cell.id.as_str()) {
            Some(seen) => seen.clone(),
            None => {
                let seen = self.reference.observe(cell, Role::Reference, &sound).map_err(Box::new)?;
                self.observed.insert(cell.id.to_string(), seen.clone());
                seen
            }
        };
        let thresholds = &match variant {
            Variant::BFloat => self.thresholds.for_half_precision(),
            _ => self.thresholds.clone(),
        };
        let mut seen = CellObservations {
            candidate: Some(candidate),
            reference: Some(reference),
            ..CellObservations::default()
        };
        if self.tiers.has(Tier::FreeText) {
            for (of, by) in free_texts_of(cell, &seen, thresholds) {
                let Some(forced) = seen.of(of).and_then(|o| o.measured.as_ref()).map(ForcedIds::of) else {
                    continue;
                };
                let scoring = Scoring { forced: &forced, want: Wanted::Likelihood };
                let observation = self.reference.score(cell, by, &sound, &scoring).map_err(Box::new)?;
                seen.free_texts.push(FreeTextScoring { of, by, observation });
            }
        }
        if self.explain == Explain::ByImitation && diagnosis::wants_imitations(cell, &seen, thresholds) {
            let forced = seen.reference.as_ref().and_then(|o| o.measured.as_ref()).map(ForcedIds::of);
            for (name, fault) in diagnosis::imitations() {
                let Some(forced) = &forced else { break };
                let folder = self.with_fault(variant, seed, &fault)?;
                let scoring = Scoring { forced, want: Wanted::Rows };
                let imitation =
                    self.reference.score(cell, Role::Reference, &folder, &scoring).map_err(Box::new)?;
                self.forget(&folder);
                if imitation.measured.is_some() {
                    seen.imitations.insert(name.to_owned(), imitation);
                }
            }
        }
        let judgement = judge_cell_with(cell, &seen, thresholds, &self.tiers);
        if judgement.reference != ReferenceState::Usable {
            return Err(SelftestError::Unsound {
                kind: kind.to_owned(),
                reason: format!("{:?} at {}", judgement.reference, cell.id),
            });
        }
        let run = CellRun::Ran { seen: Box::new(seen), judgement: Box::new(judgement) };
        Ok(PlannedCell { cell: cell.clone(), run })
    }

    fn new_folder(&mut self) -> PathBuf {
        self.folders += 1;
        self.root.path().join(format!("spoiled-{}", self.folders))
    }
}

pub(super) fn unwritten(folder: &Path) -> impl FnOnce(std::io::Error) -> SelftestError {
    let folder = folder.display().to_string();
    move |source| SelftestError::Folder { folder, source }
}

fn outcome(cells: &[PlannedCell]) -> Outcome {
    let decision = decide(cells);
    let mut causes: Vec<String> = decision
        .cells()
        .iter()
        .flat_map(|c| &c.findings)
        .filter(|f| f.subject == Subject::Candidate)
        .filter_map(|f| diagnosis::named(f).map(str::to_owned))
        .collect();
    causes.sort();
    causes.dedup();
    let largest_relative_l2 = cells
        .iter()
        .filter_map(|c| match &c.run {
            CellRun::Ran { judgement, .. } => Some(&judgement.logits),
            _ => None,
        })
        .flatten()
        .flat_map(|comparison| &comparison.rows)
        .map(|row| row.relative_l2)
        .reduce(f64::max);
    let why = decision.cells().iter().find(|c| c.status != crate::verdict::CellStatus::Pass);
    Outcome {
        verdict: decision.verdict(),
        reason: why.map_or_else(String::new, |c| format!("{}: {}", c.id, c.reason)),
        causes,
        largest_relative_l2,
    }
}
