//! May the pin move? [`decide`] turns the judgements of all planned cells into one verdict, by a rule that reads no clock
//! and no disk. Only this module can make a [`PassedGate`].
//!
//! The reference decides a cell. A baseline that disagrees with it is a finding about the baseline and drops out. Where no
//! reference can decide, candidate and baseline must agree, and only sameness was shown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    build::{Provenance, digest::digest_of},
    judge::{
        BUILDS, CellJudgement, CellObservations, Finding, ReferenceState, Sameness, Severity, Subject,
        diagnosis, known, task,
        throughput::{
            pace::{self, Paced},
            rule::Outcome as Speed,
        },
    },
    matrix::{
        Cell, CellId, ProcessOutcome, Role,
        throughput::{ThroughputRuns, spec_of},
    },
};

/// As many prompts of one model that fail where the reference passes make their cells fail.
pub const FAILING_PROMPTS: usize = 2;

/// One cell of the plan, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// The cell.
    pub cell: Cell,
    /// What became of it.
    pub run: CellRun,
}

/// What became of a planned cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "run", rename_all = "kebab-case")]
pub enum CellRun {
    /// It was run and judged.
    Ran {
        /// What was seen.
        seen: Box<CellObservations>,
        /// What the judge says.
        judgement: Box<CellJudgement>,
    },
    /// This platform cannot run it.
    NotApplicable {
        /// Why.
        reason: String,
    },
    /// A filter left it out.
    Deselected {
        /// Which.
        reason: String,
    },
    /// It should have run and did not.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// The outcome of the whole gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The pin may move.
    Pass,
    /// It may not.
    Fail,
    /// Nobody knows; never green.
    Inconclusive,
}

/// The outcome of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellStatus {
    /// The candidate is right here.
    Pass,
    /// The candidate is wrong here.
    Fail,
    /// It could not be told.
    Inconclusive,
    /// The model cannot do the task, in any engine.
    ModelWeak,
    /// This platform cannot run it.
    NotApplicable,
    /// A filter left it out.
    Deselected,
    /// It should have run and did not.
    Skipped,
}

/// What a passing cell has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The candidate agrees with an independent implementation.
    Reference,
    /// The candidate agrees with the baseline, and nothing more.
    Sameness,
    /// The candidate is no slower and no hungrier than the baseline, within the matrix's limits.
    Speed,
}

/// The candidate beside the baseline at one cell. Swapping the two swaps regression with fix and leaves the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Neither is wrong.
    None,
    /// The candidate is wrong where the baseline is right.
    Regression,
    /// The candidate is right where the baseline is wrong.
    Fix,
    /// Both are wrong.
    BothBroken,
    /// They differ, and nobody knows which is right.
    Differs,
    /// One of them has no result.
    Unknown,
}

/// The decision on one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellDecision {
    /// Which cell.
    pub id: CellId,
    /// The outcome.
    pub status: CellStatus,
    /// One sentence on why.
    pub reason: String,
    /// What was shown, where it passed.
    pub basis: Option<Basis>,
    /// Beside the baseline.
    pub change: Change,
    /// The judge's findings, with causes that other cells of the model told.
    pub findings: Vec<Finding>,
}

/// The decision on all cells. Only [`decide`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    verdict: Verdict,
    reason: String,
    cells: Vec<CellDecision>,
}

/// Proof that a candidate passed a matrix: what moving a pin asks for. Only [`Decision::passed_gate`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedGate {
    candidate_digest: String,
    matrix: String,
}

impl Verdict {
    /// 0, 1 or 4, as the exit codes are agreed.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Inconclusive => 4,
        }
    }
}

impl PassedGate {
    /// The digest of the provenance of the candidate that passed.
    pub fn candidate_digest(&self) -> &str {
        &self.candidate_digest
    }

    /// The matrix that it passed.
    pub fn matrix(&self) -> &str {
        &self.matrix
    }

    /// The proof that a recorded run holds, by its verdict and each cell's outcome with what it showed. None unless it passed
    /// as for [`Decision::passed_gate`], and the candidate's digest is that of its inputs: a record that was edited by hand
    /// proves nothing.
    pub fn recorded(
        verdict: Verdict,
        cells: impl Iterator<Item = (CellStatus, Option<Basis>)> + Clone,
        matrix: &str,
        candidate: &Provenance,
    ) -> Option<Self> {
        let sound = digest_of(&candidate.inputs) == candidate.digest;
        (sound && verdict == Verdict::Pass && moves_pins(cells))
            .then(|| Self { candidate_digest: candidate.digest.clone(), matrix: matrix.to_owned() })
    }
}

/// Whether a run that passed, of cells with these outcomes, may move a pin: nothing was filtered out, and some cell has shown
/// what the candidate computes. A matrix of speed alone says nothing about that.
fn moves_pins(cells: impl Iterator<Item = (CellStatus, Option<Basis>)> + Clone) -> bool {
    let whole = cells.clone().all(|(status, _)| status != CellStatus::Deselected);
    whole && shows_results(cells)
}

/// Whether some cell has shown what the candidate computes, and not only how fast.
pub fn shows_results(mut cells: impl Iterator<Item = (CellStatus, Option<Basis>)>) -> bool {
    cells.any(|(status, basis)| {
        status == CellStatus::Pass && matches!(basis, Some(Basis::Reference | Basis::Sameness))
    })
}

impl Decision {
    /// The outcome of the whole.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// One sentence on why.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// One decision a planned cell, in the plan's order.
    pub fn cells(&self) -> &[CellDecision] {
        &self.cells
    }

    /// The proof that this candidate passed this matrix. None unless everything passed, no filter was set, and more than
    /// speed was looked at: a part of a matrix moves no pin.
    pub fn passed_gate(&self, matrix: &str, candidate: &Provenance) -> Option<PassedGate> {
        let cells = self.cells.iter().map(|cell| (cell.status, cell.basis));
        (self.verdict == Verdict::Pass && moves_pins(cells))
            .then(|| PassedGate { candidate_digest: candidate.digest.clone(), matrix: matrix.to_owned() })
    }
}

/// Decides every cell and the whole.
pub fn decide(cells: &[PlannedCell]) -> Decision {
    let failing: BTreeMap<Role, BTreeMap<&str, BTreeSet<&CellId>>> =
        BUILDS.into_iter().map(|role| (role, failing_prompts(cells, role))).collect();
    let diagnoses = diagnoses(cells);
    let timed: Vec<(&Cell, &ThroughputRuns)> = cells
        .iter()
        .filter_map(|planned| match &planned.run {
            CellRun::Ran { seen, .. } => Some((&planned.cell, seen.throughput.as_ref()?)),
            _ => None,
        })
        .collect();
    let blamed = whole_prefills(cells);
    let broken_models: BTreeSet<&str> = cells
        .iter()
        .filter(|p| matches!(&p.run, CellRun::Ran { judgement, .. } if errors(judgement, Role::Baseline).next().is_some()))
        .map(|p| p.cell.model.as_str())
        .collect();
    let decisions = cells
        .iter()
        .map(|planned| {
            let CellRun::Ran { seen, judgement } = &planned.run else { return undecided(planned) };
            let of_task = |role: Role| {
                failing[&role].get(planned.cell.model.as_str()).filter(|ids| ids.contains(&planned.cell.id))
            };
            let (mut status, mut reason, mut basis) = status(
                seen,
                judgement,
                of_task(Role::Candidate).map_or(0, BTreeSet::len),
                broken_models.contains(planned.cell.model.as_str()),
            );
            let mut findings = judgement.findings.clone();
            for finding in &mut findings {
                if let Some(blame) = blamed.get(&(&planned.cell.id, finding.subject)) {
                    blame.write(finding);
                }
                if let Some((diagnosis, at)) = diagnoses.get(&(planned.cell.model.as_str(), finding.subject))
                    && at.as_str() != planned.cell.id.as_str()
                {
                    diagnosis::borrow(finding, diagnosis, at.as_str());
                }
            }
            for Paced { outcome, finding } in paces(&planned.cell, &timed) {
                match outcome {
                    Some(Speed::Worse) if status != CellStatus::Fail => {
                        (status, reason, basis) = (CellStatus::Fail, finding.message.clone(), None);
                    }
                    Some(Speed::Inconclusive) if status == CellStatus::Pass => {
                        (status, reason, basis) = (CellStatus::Inconclusive, finding.message.clone(), None);
                    }
                    _ => {}
                }
                findings.push(finding);
            }
            CellDecision {
                id: planned.cell.id.clone(),
                status,
                reason,
                basis,
                change: change(judgement, BUILDS.map(|role| of_task(role).is_some())),
                findings,
            }
        })
        .collect::<Vec<_>>();
    let (verdict, reason) = overall(&decisions);
    Decision { verdict, reason, cells: decisions }
}

/// What the paces of a cell come to, if it states any.
fn paces(cell: &Cell, timed: &[(&Cell, &ThroughputRuns)]) -> Vec<Paced> {
    spec_of(cell).map(|spec| pace::check(cell, spec, timed)).unwrap_or_default()
}

fn errors(judgement: &CellJudgement, role: Role) -> impl Iterator<Item = &Finding> {
    let subject = Subject::from(role);
    judgement.findings.iter().filter(move |f| f.subject == subject && f.severity == Severity::Error)
}

/// By model: the cells whose task or text alarms are about this role, where there are enough of them to decide.
fn failing_prompts(cells: &[PlannedCell], role: Role) -> BTreeMap<&str, BTreeSet<&CellId>> {
    let subject = Subject::from(role);
    let mut by_model: BTreeMap<&str, BTreeSet<&CellId>> = BTreeMap::new();
    for planned in cells {
        if let CellRun::Ran { judgement, .. } = &planned.run
            && judgement.findings.iter().any(|f| f.subject == subject && task::is_alarm(f))
        {
            by_model.entry(&planned.cell.model).or_default().insert(&planned.cell.id);
        }
    }
    by_model.retain(|_, ids| ids.len() >= FAILING_PROMPTS);
    by_model
}

/// By model and subject: the first diagnosis that a cell told, and the cell.
fn diagnoses(cells: &[PlannedCell]) -> BTreeMap<(&str, Subject), (String, &CellId)> {
    let mut out = BTreeMap::new();
    for planned in cells {
        let CellRun::Ran { judgement, .. } = &planned.run else { continue };
        for finding in &judgement.findings {
            if let Some(name) = diagnosis::named(finding) {
                out.entry((planned.cell.model.as_str(), finding.subject))
                    .or_insert_with(|| (name.to_owned(), &planned.cell.id));
            }
        }
    }
    out
}

/// A cell that shows what a neighbour ran out of memory for.
struct Blame<'c> {
    /// The neighbour that went through.
    by: &'c CellId,
    chunk: usize,
    peak_bytes: Option<u64>,
}

impl Blame<'_> {
    fn write(&self, finding: &mut Finding) {
        if finding.code != "out-of-memory" {
            return;
        }
        let peak =
            self.peak_bytes.map_or_else(String::new, |b| format!(" with {:.0} MiB", b as f64 / 1_048_576.0));
        finding.message.push_str(&format!(
            "; it is the prefill in one piece that needs the memory: in pieces of {} the same prompt goes through{peak} ({})",
            self.chunk, self.by
        ));
        if let serde_json::Value::Object(evidence) = &mut finding.evidence {
            evidence.insert("diagnosis".into(), diagnosis::WHOLE_PREFILL.into());
            evidence.insert("seen_at".into(), self.by.as_str().into());
        }
    }
}

/// Cells at which a build ran out of memory with its prefill in one piece, beside a cell of the same model and length where
/// it did not in pieces.
fn whole_prefills(cells: &[PlannedCell]) -> BTreeMap<(&CellId, Subject), Blame<'_>> {
    let runs = |role: Role| {
        cells.iter().filter_map(move |planned| {
            let CellRun::Ran { seen, .. } = &planned.run else { return None };
            Some((&planned.cell, seen.of(role)?))
        })
    };
    let mut out = BTreeMap::new();
    for role in BUILDS {
        for (whole, _) in runs(role).filter(|(cell, o)| {
            matches!(o.exit, ProcessOutcome::OutOfMemory { .. })
                && cell.stretch().is_none_or(|stretch| stretch.chunk.is_none())
        }) {
            let beside = runs(role).find_map(|(cell, o)| {
                let chunk = cell.stretch()?.chunk?;
                let alike = cell.model == whole.model
                    && cell.context == whole.context
                    && cell.backend == whole.backend;
                let Some(crate::matrix::Measured::Logits { scored, .. }) = &o.measured else { return None };
                alike.then_some(Blame { by: &cell.id, chunk, peak_bytes: scored.peak_bytes })
            });
            if let Some(blame) = beside {
                out.insert((&whole.id, Subject::from(role)), blame);
            }
        }
    }
    out
}

fn undecided(planned: &PlannedCell) -> CellDecision {
    let (status, reason) = match &planned.run {
        CellRun::NotApplicable { reason } => (CellStatus::NotApplicable, reason),
        CellRun::Deselected { reason } => (CellStatus::Deselected, reason),
        CellRun::Skipped { reason } => (CellStatus::Skipped, reason),
        CellRun::Ran { .. } => unreachable!("cells that ran are decided by their judgement"),
    };
    CellDecision {
        id: planned.cell.id.clone(),
        status,
        reason: reason.clone(),
        basis: None,
        change: Change::Unknown,
        findings: Vec::new(),
    }
}

fn class(outcome: &ProcessOutcome) -> String {
    match outcome {
        ProcessOutcome::Clean | ProcessOutcome::AbortAtExit { .. } => "answered".into(),
        ProcessOutcome::Refused { kind, .. } => format!("refused ({kind})"),
        ProcessOutcome::Crashed { .. } => "crashed".into(),
        ProcessOutcome::OutOfMemory { .. } => "ran out of memory".into(),
        ProcessOutcome::Watchdog { .. } => "was ended by a watchdog".into(),
        ProcessOutcome::TimedOut { .. } => "timed out".into(),
        ProcessOutcome::Garbled { .. } => "garbled".into(),
    }
}

fn status(
    seen: &CellObservations,
    judgement: &CellJudgement,
    failing_prompts: usize,
    baseline_is_broken_for_model: bool,
) -> (CellStatus, String, Option<Basis>) {
    let Some(candidate) = &seen.candidate else {
        return (CellStatus::Skipped, "the candidate was not run".into(), None);
    };
    if let Some(f) =
        judgement.findings.iter().find(|f| f.subject == Subject::Harness && f.severity == Severity::Error)
    {
        return (CellStatus::Inconclusive, f.message.clone(), None);
    }
    if let Some(first) = errors(judgement, Role::Candidate).next() {
        // A model file that nobody can read, or a machine too small for all, says nothing about the candidate.
        if candidate.measured.is_none()
            && let Some(reference) = seen.reference.as_ref().filter(|r| r.measured.is_none())
            && class(&candidate.exit) == class(&reference.exit)
        {
            let reason =
                format!("candidate and reference both {}: {}", class(&candidate.exit), first.message);
            return (CellStatus::Inconclusive, reason, None);
        }
        return (CellStatus::Fail, first.message.clone(), None);
    }
    if failing_prompts > 0 {
        let reason = format!("{failing_prompts} prompts of this model fail where the peer passes");
        return (CellStatus::Fail, reason, None);
    }
    if let Some(speed) = &judgement.throughput {
        return match speed.outcome {
            Speed::Pass => (CellStatus::Pass, speed.reason.clone(), Some(Basis::Speed)),
            Speed::Worse => (CellStatus::Fail, speed.reason.clone(), None),
            Speed::Inconclusive => (CellStatus::Inconclusive, speed.reason.clone(), None),
        };
    }
    // Neither right nor a reason to stay with a baseline that is no better: nothing was shown.
    if let Some(limit) =
        judgement.findings.iter().find(|f| f.subject == Subject::Candidate && known::is_limit(f))
    {
        return (CellStatus::Pass, format!("a known limit: {}", limit.message), None);
    }
    let unable = match &judgement.reference {
        ReferenceState::Usable => return by_reference(judgement),
        ReferenceState::NotPossible { reason } => format!("no reference decides ({reason})"),
        ReferenceState::Failed { reason } => format!("the reference failed ({reason})"),
    };
    match (&judgement.sameness, &judgement.reference) {
        (Sameness::Agree, _) if baseline_is_broken_for_model => (
            CellStatus::Inconclusive,
            format!(
                "{unable}, and the baseline with which the candidate agrees is broken elsewhere for this model"
            ),
            None,
        ),
        (Sameness::Agree, _) => match weak_everywhere(judgement) {
            true => (CellStatus::ModelWeak, format!("{unable}, and both builds fail the task"), None),
            false => (
                CellStatus::Pass,
                format!("{unable}; candidate and baseline agree, and only that was shown"),
                Some(Basis::Sameness),
            ),
        },
        (Sameness::Differ, ReferenceState::NotPossible { .. }) => {
            (CellStatus::Fail, format!("{unable}, and candidate and baseline do not agree"), None)
        }
        (Sameness::Differ, _) => {
            (CellStatus::Inconclusive, format!("{unable}, and candidate and baseline do not agree"), None)
        }
        (Sameness::Unknown { reason }, _) => (CellStatus::Inconclusive, format!("{unable}; {reason}"), None),
        (Sameness::NotNeeded, _) => (CellStatus::Inconclusive, unable, None),
    }
}

fn by_reference(judgement: &CellJudgement) -> (CellStatus, String, Option<Basis>) {
    match judgement.tasks.get(&Role::Reference) {
        Some(task) if !task.passed() => {
            (CellStatus::ModelWeak, "the reference fails this task too: the model cannot do it".into(), None)
        }
        _ => (CellStatus::Pass, "the candidate agrees with the reference".into(), Some(Basis::Reference)),
    }
}

fn weak_everywhere(judgement: &CellJudgement) -> bool {
    !judgement.tasks.is_empty() && judgement.tasks.values().all(|t| !t.passed())
}

fn change(judgement: &CellJudgement, by_tasks: [bool; 2]) -> Change {
    if !BUILDS.iter().all(|role| judgement.ran.contains(role)) {
        return Change::Unknown;
    }
    let candidate = by_tasks[0] || errors(judgement, Role::Candidate).next().is_some();
    let baseline = by_tasks[1] || errors(judgement, Role::Baseline).next().is_some();
    match (candidate, baseline) {
        (true, true) => Change::BothBroken,
        (true, false) => Change::Regression,
        (false, true) => Change::Fix,
        (false, false) if judgement.sameness == Sameness::Differ => Change::Differs,
        (false, false) => Change::None,
    }
}

fn overall(cells: &[CellDecision]) -> (Verdict, String) {
    let count = |status: CellStatus| cells.iter().filter(|c| c.status == status).count();
    let (pass, fail, weak) = (count(CellStatus::Pass), count(CellStatus::Fail), count(CellStatus::ModelWeak));
    let (unknown, skipped) = (count(CellStatus::Inconclusive), count(CellStatus::Skipped));
    // A cell that ended as a limit says that it would passes and shows nothing.
    let limited = cells.iter().filter(|c| c.status == CellStatus::Pass && c.basis.is_none()).count();
    if fail > 0 {
        (Verdict::Fail, format!("the candidate fails {}", cells_word(fail)))
    } else if unknown + skipped > 0 {
        let reason = format!("{} inconclusive, {} skipped", cells_word(unknown), cells_word(skipped));
        (Verdict::Inconclusive, reason)
    } else if pass == 0 && weak > 0 {
        (Verdict::Inconclusive, "no cell showed anything: the models fail their tasks in every engine".into())
    } else if pass == 0 {
        (Verdict::Inconclusive, "no cell was run".into())
    } else if pass == limited {
        let reason = "no cell showed anything: each that ran ended at a limit that the matrix states";
        (Verdict::Inconclusive, reason.into())
    } else {
        let stated = match limited {
            0 => String::new(),
            n => format!(", {n} of them at a limit that the matrix states"),
        };
        (Verdict::Pass, format!("the candidate passes {}{stated}", cells_word(pass)))
    }
}

fn cells_word(n: usize) -> String {
    format!("{n} {}", if n == 1 { "cell" } else { "cells" })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::judge::{
        judge_cell,
        toy::{Fault, answer, greedy_cell, logits_cell, seen, task_cell, thresholds},
    };

    const SOUND: Option<Fault> = Some(Fault::None);
    const LOST: Option<Fault> = Some(Fault::NoHistory);

    fn ran(cell: Cell, seen: CellObservations) -> PlannedCell {
        let judgement = Box::new(judge_cell(&cell, &seen, &thresholds()));
        PlannedCell { cell, run: CellRun::Ran { seen: Box::new(seen), judgement } }
    }

    fn crash(o: &mut Option<crate::matrix::Observation>) {
        let o = o.as_mut().unwrap();
        o.measured = None;
        o.exit = ProcessOutcome::Crashed { code: None, signal: Some(11), last_lines: vec![] };
    }

    fn at(cells: &[PlannedCell], i: usize) -> (CellStatus, Change) {
        let d = decide(cells);
        (d.cells()[i].status, d.cells()[i].change)
    }

    #[test]
    fn the_rule_case_by_case() {
        use CellStatus as S;
        // candidate, baseline, reference → status, change
        let cases = [
            (SOUND, SOUND, SOUND, S::Pass, Change::None),
            (LOST, SOUND, SOUND, S::Fail, Change::Regression),
            (SOUND, LOST, SOUND, S::Pass, Change::Fix),
            (LOST, LOST, SOUND, S::Fail, Change::BothBroken),
            (SOUND, None, SOUND, S::Pass, Change::Unknown),
            (LOST, None, SOUND, S::Fail, Change::Unknown),
            (None, SOUND, SOUND, S::Skipped, Change::Unknown),
            (SOUND, SOUND, None, S::Pass, Change::None),
            (LOST, SOUND, None, S::Fail, Change::Differs),
            (SOUND, None, None, S::Inconclusive, Change::Unknown),
        ];
        for cell in [logits_cell("m"), greedy_cell("m")] {
            for (candidate, baseline, reference, status, change) in cases {
                let found = at(&[ran(cell.clone(), seen(&cell, candidate, baseline, reference))], 0);
                assert_eq!(found, (status, change), "{} {candidate:?} {baseline:?} {reference:?}", cell.id);
            }
        }
    }

    #[test]
    fn a_model_that_must_keep_up_with_another_fails_or_is_open_where_it_does_not() {
        use crate::judge::throughput::tests::{Build, SOUND as EVEN, cell_of, session, spec};
        use crate::matrix::throughput::{Pace, ThroughputSpec};
        let timed = |model: &str, slow: f64, spec: &ThroughputSpec| {
            let cell = cell_of(model, spec);
            let build = Build { slow, ..EVEN };
            let runs = ThroughputRuns { sessions: vec![session(build, build, 12, 0.005)], reference: vec![] };
            let base = seen(&greedy_cell(model), SOUND, SOUND, SOUND);
            ran(cell, CellObservations { throughput: Some(runs), ..base })
        };
        let pace = Pace {
            model: "full".into(),
            precision: crate::engine::protocol::Precision::Source,
            max_loss: 0.1,
        };
        let paced = ThroughputSpec { no_slower_than: vec![pace], ..spec() };
        for (slow, status) in
            [(0.7, CellStatus::Pass), (1.3, CellStatus::Fail), (1.12, CellStatus::Inconclusive)]
        {
            let decided = decide(&[timed("quantized", slow, &paced), timed("full", 1.0, &spec())]);
            let told = &decided.cells()[0];
            assert_eq!(told.status, status, "{slow}: {}", told.reason);
            assert_eq!(told.findings.len(), 1);
            assert_eq!(decided.cells()[1].status, CellStatus::Pass);
        }
        let alone = decide(&[timed("quantized", 1.3, &paced)]);
        assert_eq!(alone.verdict(), Verdict::Pass);
        assert!(alone.cells()[0].findings[0].message.starts_with("not applicable"));
    }

    #[test]
    fn sameness_is_all_that_is_shown_without_a_reference() {
        let cell = logits_cell("m");
        let d = decide(&[ran(cell.clone(), seen(&cell, SOUND, SOUND, None))]);
        assert_eq!(d.cells()[0].basis, Some(Basis::Sameness));
        assert!(d.cells()[0].reason.contains("only that was shown"), "{}", d.cells()[0].reason);
        let d = decide(&[ran(cell.clone(), seen(&cell, SOUND, SOUND, SOUND))]);
        assert_eq!(d.cells()[0].basis, Some(Basis::Reference));
    }

    #[test]
    fn a_crashed_reference_leaves_sameness_or_nothing() {
        let cell = logits_cell("m");
        for (candidate, status) in [(SOUND, CellStatus::Pass), (LOST, CellStatus::Inconclusive)] {
            let mut s = seen(&cell, candidate, SOUND, SOUND);
            crash(&mut s.reference);
            assert_eq!(at(&[ran(cell.clone(), s)], 0).0, status);
        }
    }

    #[test]
    fn a_build_beside_itself_shows_nothing_without_a_reference() {
        let cell = logits_cell("m");
        let mut s = seen(&cell, LOST, LOST, None);
        s.candidate.as_mut().unwrap().engine = "published".into();
        assert_eq!(at(&[ran(cell, s)], 0).0, CellStatus::Inconclusive);
    }

    #[test]
    fn agreeing_with_a_baseline_that_is_broken_elsewhere_shows_nothing() {
        let (decided, open) = (logits_cell("m"), greedy_cell("m"));
        let cells = [
            ran(decided.clone(), seen(&decided, SOUND, LOST, SOUND)),
            ran(open.clone(), seen(&open, SOUND, SOUND, None)),
        ];
        assert_eq!(at(&cells, 1).0, CellStatus::Inconclusive);
    }

    #[test]
    fn what_candidate_and_reference_both_refuse_says_nothing_about_the_candidate() {
        let cell = logits_cell("m");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        crash(&mut s.candidate);
        assert_eq!(at(&[ran(cell.clone(), s.clone())], 0).0, CellStatus::Fail);
        crash(&mut s.reference);
        assert_eq!(at(&[ran(cell, s)], 0).0, CellStatus::Inconclusive);
    }

    #[test]
    fn swapping_the_builds_swaps_regression_and_fix_and_no_more() {
        let faults =
            [SOUND, LOST, Some(Fault::OffByOne), Some(Fault::Rounding), Some(Fault::SwappedLogits), None];
        for cell in [logits_cell("m"), greedy_cell("m"), task_cell("m", "capital")] {
            for reference in [SOUND, None] {
                for (a, b) in faults.iter().flat_map(|a| faults.map(|b| (*a, b))) {
                    let change = |a, b| at(&[ran(cell.clone(), seen(&cell, a, b, reference))], 0).1;
                    let expected = match change(a, b) {
                        Change::Regression => Change::Fix,
                        Change::Fix => Change::Regression,
                        other => other,
                    };
                    assert_eq!(change(b, a), expected, "{} {a:?} {b:?} {reference:?}", cell.id);
                }
            }
        }
    }

    #[test]
    fn a_against_a_never_flags() {
        for fault in [Fault::None, Fault::Rounding] {
            for reference in [SOUND, None] {
                let cells: Vec<_> = [logits_cell("m"), greedy_cell("m"), task_cell("m", "capital")]
                    .into_iter()
                    .map(|c| ran(c.clone(), seen(&c, Some(fault), Some(fault), reference)))
                    .collect();
                let d = decide(&cells);
                assert_eq!(d.verdict(), Verdict::Pass, "{:?}", d.cells());
                assert!(d.cells().iter().all(|c| c.findings.is_empty() && c.change == Change::None));
            }
        }
    }

    /// A task cell where each role's answer reads as given. All ids agree, so only the text tells.
    fn told(name: &str, candidate: &str, baseline: &str, reference: &str) -> PlannedCell {
        let cell = task_cell("m", name);
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        for (o, text) in
            [(&mut s.candidate, candidate), (&mut s.baseline, baseline), (&mut s.reference, reference)]
        {
            o.as_mut().unwrap().measured = Some(answer(text, &[9, 4, 7, 1]));
        }
        ran(cell, s)
    }

    #[test]
    fn one_failing_prompt_warns_and_two_fail() {
        let one = [told("a", "Lyon", "Paris", "Paris"), told("b", "Paris", "Paris", "Paris")];
        assert_eq!(decide(&one).verdict(), Verdict::Pass);
        let two = [one[0].clone(), told("b", "Lyon", "Paris", "Paris"), told("c", "Paris", "Paris", "Paris")];
        let d = decide(&two);
        assert_eq!(d.verdict(), Verdict::Fail);
        let statuses: Vec<_> = d.cells().iter().map(|c| c.status).collect();
        assert_eq!(statuses, [CellStatus::Fail, CellStatus::Fail, CellStatus::Pass]);
        assert_eq!(d.cells()[0].change, Change::Regression);
    }

    #[test]
    fn a_model_that_fails_in_every_engine_is_weak_and_not_a_pass() {
        let weak = [told("a", "Lyon", "Lyon", "Lyon"), told("b", "Nice", "Nice", "Nice")];
        let d = decide(&weak);
        assert!(d.cells().iter().all(|c| c.status == CellStatus::ModelWeak));
        assert_eq!(d.verdict(), Verdict::Inconclusive);
        let d = decide(&[weak[0].clone(), told("b", "Paris", "Paris", "Paris")]);
        assert_eq!(d.verdict(), Verdict::Pass);
    }

    #[test]
    fn greedy_ids_of_a_real_model_decide_alone() {
        let cell = task_cell("m", "capital");
        let d = decide(&[ran(cell.clone(), seen(&cell, LOST, SOUND, SOUND))]);
        assert_eq!(d.verdict(), Verdict::Fail);
    }

    #[test]
    fn cells_that_did_not_run_count_as_agreed() {
        let cell = logits_cell("m");
        let pass = ran(cell.clone(), seen(&cell, SOUND, SOUND, SOUND));
        let fail = ran(cell.clone(), seen(&cell, LOST, SOUND, SOUND));
        let skipped = PlannedCell { cell: cell.clone(), run: CellRun::Skipped { reason: "no time".into() } };
        let other =
            PlannedCell { cell: cell.clone(), run: CellRun::Deselected { reason: "--filter".into() } };
        let cannot = PlannedCell { cell, run: CellRun::NotApplicable { reason: "no Metal".into() } };
        let cases: [(&[&PlannedCell], Verdict, u8); 7] = [
            (&[&pass], Verdict::Pass, 0),
            (&[&pass, &other, &cannot], Verdict::Pass, 0),
            (&[&pass, &skipped], Verdict::Inconclusive, 4),
            (&[&fail, &skipped], Verdict::Fail, 1),
            (&[&other, &cannot], Verdict::Inconclusive, 4),
            (&[], Verdict::Inconclusive, 4),
            (&[&pass, &fail], Verdict::Fail, 1),
        ];
        for (cells, verdict, code) in cases {
            let cells: Vec<_> = cells.iter().map(|c| (*c).clone()).collect();
            let d = decide(&cells);
            assert_eq!((d.verdict(), d.verdict().exit_code()), (verdict, code), "{}", d.reason());
        }
    }

    #[test]
    fn only_a_whole_passed_matrix_moves_a_pin() {
        let provenance = Provenance { digest: "abc".into(), inputs: Value::Null, log: Value::Null };
        let cell = logits_cell("m");
        let pass = ran(cell.clone(), seen(&cell, SOUND, SOUND, SOUND));
        let gate = decide(std::slice::from_ref(&pass)).passed_gate("smoke", &provenance).unwrap();
        assert_eq!((gate.candidate_digest(), gate.matrix()), ("abc", "smoke"));
        let other =
            PlannedCell { cell: cell.clone(), run: CellRun::Deselected { reason: "--filter".into() } };
        assert_eq!(decide(&[pass, other]).passed_gate("smoke", &provenance), None);
        let fail = ran(cell.clone(), seen(&cell, LOST, SOUND, SOUND));
        assert_eq!(decide(&[fail]).passed_gate("smoke", &provenance), None);
    }

    #[test]
    fn what_shows_nothing_of_the_results_moves_no_pin() {
        use CellStatus as S;
        let shown = |cells: &[(CellStatus, Option<Basis>)]| moves_pins(cells.iter().copied());
        assert!(shown(&[(S::Pass, Some(Basis::Reference)), (S::Pass, Some(Basis::Speed)), (S::Pass, None)]));
        assert!(shown(&[(S::Pass, Some(Basis::Sameness)), (S::NotApplicable, None)]));
        assert!(!shown(&[(S::Pass, Some(Basis::Speed))]), "as fast, whatever it says");
        assert!(!shown(&[(S::Pass, None)]), "a limit");
        assert!(!shown(&[(S::Pass, Some(Basis::Reference)), (S::Deselected, None)]), "a part");
        assert!(!shown(&[]));
    }

    #[test]
    fn cells_at_a_stated_limit_are_told_apart_and_alone_are_not_green() {
        let decided = |status, basis| CellDecision {
            id: logits_cell("m").id,
            status,
            reason: String::new(),
            basis,
            change: Change::None,
            findings: Vec::new(),
        };
        let (right, limit) =
            (decided(CellStatus::Pass, Some(Basis::Reference)), decided(CellStatus::Pass, None));
        assert_eq!(overall(&[right.clone(), right.clone()]).1, "the candidate passes 2 cells");
        assert_eq!(
            overall(&[right, limit.clone()]),
            (
                Verdict::Pass,
                "the candidate passes 2 cells, 1 of them at a limit that the matrix states".to_owned()
            )
        );
        assert_eq!(overall(&[limit]).0, Verdict::Inconclusive);
    }

    #[test]
    fn a_diagnosis_of_one_cell_is_the_likely_cause_at_another() {
        let (a, b) = (logits_cell("qwen3"), greedy_cell("qwen3"));
        let cells =
            [ran(a.clone(), seen(&a, LOST, SOUND, SOUND)), ran(b.clone(), seen(&b, LOST, SOUND, SOUND))];
        let d = decide(&cells);
        let borrowed = &d.cells()[1].findings[0].evidence["likely_cause"];
        assert_eq!(borrowed["diagnosis"], serde_json::json!("no-kv-cache"));
        assert_eq!(borrowed["seen_at"], serde_json::json!(a.id.as_str()));
    }
}
