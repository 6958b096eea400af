//! One record of a gate run: `report.json`, what it was judged from, and `summary.md` rendered from it alone. Equal input
//! gives equal bytes: keys are sorted, and nothing here reads a clock.

mod again;
pub mod compare;
pub mod coverage;
pub mod history;
pub mod long;
pub(crate) mod markdown;
mod rebase;
mod summary;
mod throughput;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, BufWriter, ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use again::judge_again;
pub use coverage::Coverage;
pub use long::Long;
pub use rebase::{finding_text, rebase_summary, word};
pub use summary::summary;

use crate::{
    build::Provenance,
    config::spec::Thresholds,
    engine::protocol::Precision,
    judge::{
        CellObservations, Finding, ROLES, ReferenceState, Severity, Subject, diagnosis,
        free_text::{FreeText, FreeTextScoring},
        greedy::GreedyComparison,
        logits::LogitsComparison,
        role_name,
        task::TaskOutcome,
        throughput::{ThroughputJudgement, rule::Outcome, stats::holm},
    },
    matrix::{Backend, CellId, Measured, Observation, Probe, Role, observation::row_digests},
    tools::file::{self, Most, Refused},
    verdict::{Basis, CellRun, CellStatus, Change, Decision, PlannedCell, Verdict, shows_results},
};

/// The name in a report's `schema`.
pub const SCHEMA: &str = "regraft.gate-report";

/// The version in a report's `schema`.
pub const SCHEMA_VERSION: u32 = 1;

/// The record.
pub const REPORT_FILE: &str = "report.json";

/// The rendering for people.
pub const SUMMARY_FILE: &str = "summary.md";

/// Every observation in full, logits rows included: what `report.json` keeps digests of.
pub const OBSERVATIONS_FILE: &str = "observations.json.gz";

/// Most likely ids that `report.json` keeps of a scored position.
const TOP_OF_POSITION: usize = 3;
/// Most likely ids that `report.json` keeps of a generated id.
const TOP_OF_GENERATED: usize = 2;

/// What the caller knows of a run, beside its cells.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportInput {
    /// Program and version that made the report.
    pub generated_by: String,
    /// The command line of the run, as one could paste it.
    pub command: String,
    /// The matrix's name.
    pub matrix: String,
    /// Name of the build that wants to become the pin.
    pub candidate: String,
    /// Name of the build that is pinned now.
    pub baseline: String,
    /// Name of the independent implementation.
    pub reference: String,
    /// Provenance of each engine, by name.
    pub builds: BTreeMap<String, Provenance>,
    /// What the judge went by.
    pub thresholds: Thresholds,
    /// The machine: whatever comparing needs to be equal.
    pub environment: BTreeMap<String, Value>,
    /// UTC, RFC 3339.
    pub started: String,
    /// UTC, RFC 3339.
    pub finished: String,
}

/// The record of a gate run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of this shape.
    pub schema: Schema,
    /// Program and version that made the report.
    pub generated_by: String,
    /// The outcome.
    pub verdict: Verdict,
    /// One sentence on why.
    pub reason: String,
    /// What a person should read first, most important first.
    pub headline: Vec<String>,
    /// The command line of the run.
    pub command: String,
    /// The matrix's name.
    pub matrix: String,
    /// Name of the build that wants to become the pin.
    pub candidate: String,
    /// Name of the build that is pinned now.
    pub baseline: String,
    /// Name of the independent implementation.
    pub reference: String,
    /// Provenance of each engine, by name.
    pub builds: BTreeMap<String, Provenance>,
    /// What the judge went by.
    pub thresholds: Thresholds,
    /// How many cells have each status.
    pub counts: BTreeMap<CellStatus, usize>,
    /// Every planned cell, in the plan's order.
    pub cells: Vec<CellReport>,
    /// The architecture families that the run says something about.
    #[serde(default, skip_serializing_if = "Coverage::is_empty")]
    pub coverage: Coverage,
    /// What long prompts cost and how a text reads by position, where cells looked.
    #[serde(default, skip_serializing_if = "Long::is_empty")]
    pub long: Long,
    /// The machine.
    pub environment: BTreeMap<String, Value>,
    /// UTC, RFC 3339.
    pub started: String,
    /// UTC, RFC 3339.
    pub finished: String,
    /// The file beside this one that holds the observations in full.
    pub observations_file: String,
}

/// Name and version of a document's shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The name.
    pub name: String,
    /// Raised when a key changes meaning or goes.
    pub version: u32,
}

/// One cell of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Its stable name.
    pub id: CellId,
    /// The model's name.
    pub model: String,
    /// The number format of the weights.
    pub precision: Precision,
    /// Prompt length in tokens; 0 where the probe brings its own.
    pub context: usize,
    /// The probe's name.
    pub probe: String,
    /// What the probe does.
    pub probe_spec: Probe,
    /// Where it runs.
    pub backend: Backend,
    /// Whose outcome `status` is: always the candidate's.
    pub engine_role: Role,
    /// The outcome.
    pub status: CellStatus,
    /// One sentence on why.
    pub reason: String,
    /// What was shown, where it passed.
    pub basis: Option<Basis>,
    /// Beside the baseline.
    pub change: Change,
    /// Every statement.
    pub findings: Vec<Finding>,
    /// Whether the reference could decide, where the cell ran.
    pub reference_state: Option<ReferenceState>,
    /// Figures of teacher-forced comparisons.
    pub logits: Vec<LogitsComparison>,
    /// Figures of greedy comparisons.
    pub greedy: Vec<GreedyComparison>,
    /// Figures of texts that builds chose by themselves, where they differ from the reference's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_texts: Vec<FreeText>,
    /// How each role answered a task.
    pub tasks: BTreeMap<Role, TaskOutcome>,
    /// What a throughput cell says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<ThroughputJudgement>,
    /// What was seen, without logits rows and with shorter lists of likely ids.
    pub observations: Option<CellObservations>,
    /// SHA-256 of each logits row as it travelled, by engine run and position; the rows are in the observations file.
    pub row_digests: BTreeMap<String, BTreeMap<usize, String>>,
}

/// Where a report was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The record.
    pub report: PathBuf,
    /// The rendering for people.
    pub summary: PathBuf,
    /// The observations in full.
    pub observations: PathBuf,
}

/// Why a report could not be written or read.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The disk said no.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a report, or not whole.
    #[error("cannot make sense of `{}`", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Where it stops being one.
        #[source]
        source: serde_json::Error,
    },
    /// The file is a document of another kind or version.
    #[error("`{}` has schema `{name}` version {version}, and `{SCHEMA}` version {SCHEMA_VERSION} is read here", path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// Its schema's name.
        name: String,
        /// Its schema's version.
        version: u32,
    },
    /// The observations are those of other cells than the report's.
    #[error("the observations in `{}` are not those of its report: {why}", path.display())]
    Foreign {
        /// The observations' file.
        path: PathBuf,
        /// Where they part.
        why: String,
    },
}

impl ReportError {
    /// What a person can try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { path, source, .. } => {
                file::refusal(source).map_or_else(|| io_hint(path, source.kind()), Refused::hint)
            }
            Self::Foreign { .. } => {
                "a run's files belong together: take both from one run, or run the gate again"
            }
            Self::Malformed { path, .. } if path.ends_with(OBSERVATIONS_FILE) => {
                "the file is damaged: take it from where the run was made, or run the gate again"
            }
            Self::Malformed { .. } => "name the report.json of a finished run, or run the gate again",
            Self::Schema { .. } => "use the version of xtask that wrote the report, or run the gate again",
        }
    }
}

fn io_hint(path: &Path, kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound if path.ends_with(OBSERVATIONS_FILE) => {
            "this run has no observations that could be judged: they lie beside its report.json, or run the gate again"
        }
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            "the file is damaged or cut short: take another copy of the run, or run the gate again"
        }
        _ => "check that the folder exists, is writable and that the disk has room",
    }
}

impl Report {
    /// Puts the record together; `cells` and `decision` must come from the same plan.
    pub fn new(input: ReportInput, cells: &[PlannedCell], decision: &Decision) -> Self {
        let reports: Vec<CellReport> = cells
            .iter()
            .zip(decision.cells())
            .map(|(planned, decided)| cell_report(planned, decided))
            .collect();
        let mut counts = BTreeMap::new();
        for cell in &reports {
            *counts.entry(cell.status).or_insert(0) += 1;
        }
        let mut report = Self {
            schema: Schema { name: SCHEMA.to_owned(), version: SCHEMA_VERSION },
            generated_by: input.generated_by,
            verdict: decision.verdict(),
            reason: decision.reason().to_owned(),
            headline: Vec::new(),
            command: input.command,
            matrix: input.matrix,
            candidate: input.candidate,
            baseline: input.baseline,
            reference: input.reference,
            builds: input.builds,
            thresholds: input.thresholds,
            counts,
            long: Long::of(&reports),
            coverage: Coverage::of(&reports),
            cells: reports,
            environment: input.environment,
            started: input.started,
            finished: input.finished,
            observations_file: OBSERVATIONS_FILE.to_owned(),
        };
        report.headline = headline(&report);
        report
    }

    /// The record as text: sorted keys, indented by one space for its size's sake, one newline at the end.
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a report has string keys and finite numbers");
        value.sort_all_objects();
        let mut bytes = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        value
            .serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))
            .expect("a value is always text");
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }
}

/// Makes the folder of a run below `reports`, named by the time it started and the candidate, with a number where two runs
/// start in the same second: no run writes into another's.
pub fn new_folder(reports: &Path, started: &str, candidate: &str) -> Result<PathBuf, ReportError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Io { action: "create the folder", path, source }
    };
    fs::create_dir_all(reports).map_err(io(reports))?;
    let name = format!("{}-{candidate}", started.replace(':', ""));
    let mut folder = reports.join(&name);
    let mut number = 1_u32;
    loop {
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                number += 1;
                folder = reports.join(format!("{name}-{number}"));
            }
            Err(e) => return Err(io(&folder)(e)),
        }
    }
}

/// Writes record, rendering and observations into the run's folder, each by rename, the record last: a folder with a
/// `report.json` is whole.
pub fn write(folder: &Path, report: &Report, cells: &[PlannedCell]) -> Result<Written, ReportError> {
    fs::create_dir_all(folder).map_err(|source| ReportError::Io {
        action: "create the folder",
        path: folder.to_owned(),
        source,
    })?;
    let written = Written {
        report: folder.join(REPORT_FILE),
        summary: folder.join(SUMMARY_FILE),
        observations: folder.join(OBSERVATIONS_FILE),
    };
    replace(&written.observations, |file| {
        // No file name and no time go into the header, so that equal observations give equal bytes.
        let mut encoder = GzEncoder::new(BufWriter::new(file), Compression::fast());
        serde_json::to_writer(&mut encoder, cells)?;
        encoder.finish()?.flush()
    })?;
    replace(&written.summary, |mut file| file.write_all(summary(report).as_bytes()))?;
    replace(&written.report, |mut file| file.write_all(report.to_json().as_bytes()))?;
    Ok(written)
}

/// Reads the record of a finished run.
pub fn read(path: &Path) -> Result<Report, ReportError> {
    let text = file::text(path, Most::Record).map_err(|source| ReportError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    /// The part that every version has.
    #[derive(Deserialize)]
    struct Head {
        schema: Schema,
    }
    let malformed = |source| ReportError::Malformed { path: path.to_owned(), source };
    let Head { schema } = serde_json::from_str(&text).map_err(malformed)?;
    if schema.name != SCHEMA || schema.version != SCHEMA_VERSION {
        return Err(ReportError::Schema {
            path: path.to_owned(),
            name: schema.name,
            version: schema.version,
        });
    }
    serde_json::from_str(&text).map_err(malformed)
}

/// Reads the observations in full, so that a finished run can be judged again.
pub fn read_observations(path: &Path) -> Result<Vec<PlannedCell>, ReportError> {
    let io = |source| ReportError::Io { action: "read", path: path.to_owned(), source };
    let packed = BufReader::new(file::open(path).map_err(io)?);
    let text = file::text_from(GzDecoder::new(packed), Most::Record).map_err(io)?;
    serde_json::from_str(&text).map_err(|source| ReportError::Malformed { path: path.to_owned(), source })
}

/// The observations of a report, which lies in `folder`.
///
/// # Errors
/// When they cannot be read, or are not those of the report's cells, one by one: what is missing would count as never planned.
pub fn observations_of(report: &Report, folder: &Path) -> Result<Vec<PlannedCell>, ReportError> {
    let path = folder.join(&report.observations_file);
    let cells = read_observations(&path)?;
    let foreign = |why: String| Err(ReportError::Foreign { path: path.clone(), why });
    for (planned, reported) in cells.iter().zip(&report.cells) {
        if planned.cell.id != reported.id {
            return foreign(format!("{} stands where the report has {}", planned.cell.id, reported.id));
        }
    }
    match cells.len() == report.cells.len() {
        true => Ok(cells),
        false => foreign(format!("{} cells, and the report has {}", cells.len(), report.cells.len())),
    }
}

fn replace(path: &Path, fill: impl FnOnce(&File) -> std::io::Result<()>) -> Result<(), ReportError> {
    let io = |action| move |source| ReportError::Io { action, path: path.to_owned(), source };
    let folder = path.parent().expect("a report's file lies in a folder");
    // A temporary file is its owner's alone by default; a report is for everybody who may read the folder.
    let temporary = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .map_err(io("create a file beside"))?;
    fill(temporary.as_file()).and_then(|()| temporary.as_file().sync_all()).map_err(io("write"))?;
    temporary.persist(path).map_err(|e| io("replace")(e.error))?;
    Ok(())
}

fn cell_report(planned: &PlannedCell, decided: &crate::verdict::CellDecision) -> CellReport {
    let cell = &planned.cell;
    let mut report = CellReport {
        id: cell.id.clone(),
        model: cell.model.clone(),
        precision: cell.precision,
        context: cell.context,
        probe: cell.probe_name.clone(),
        probe_spec: cell.probe.clone(),
        backend: cell.backend,
        engine_role: Role::Candidate,
        status: decided.status,
        reason: decided.reason.clone(),
        basis: decided.basis,
        change: decided.change,
        findings: decided.findings.clone(),
        reference_state: None,
        logits: Vec::new(),
        greedy: Vec::new(),
        free_texts: Vec::new(),
        tasks: BTreeMap::new(),
        throughput: None,
        observations: None,
        row_digests: BTreeMap::new(),
    };
    if let CellRun::Ran { seen, judgement } = &planned.run {
        report.reference_state = Some(judgement.reference.clone());
        report.logits.clone_from(&judgement.logits);
        report.greedy.clone_from(&judgement.greedy);
        report.free_texts.clone_from(&judgement.free_texts);
        report.throughput.clone_from(&judgement.throughput);
        report.tasks.clone_from(&judgement.tasks);
        let runs = ROLES
            .iter()
            .map(|role| (role_name(*role), seen.of(*role)))
            .chain([("reference-without-history", seen.reference_without_history.as_ref())]);
        for (name, observation) in runs {
            let digests = match observation.and_then(|o| o.measured.as_ref()) {
                Some(Measured::Logits { scored, .. }) => row_digests(scored),
                _ => BTreeMap::new(),
            };
            if !digests.is_empty() {
                report.row_digests.insert(name.to_owned(), digests);
            }
        }
        let slim = |o: &Option<Observation>| o.as_ref().map(without_rows);
        report.observations = Some(CellObservations {
            candidate: slim(&seen.candidate),
            baseline: slim(&seen.baseline),
            reference: slim(&seen.reference),
            reference_without_history: slim(&seen.reference_without_history),
            free_texts: seen
                .free_texts
                .iter()
                .map(|f| FreeTextScoring { observation: without_rows(&f.observation), ..f.clone() })
                .collect(),
            // What they show is in the findings; the observations file has them in full.
            imitations: BTreeMap::new(),
            throughput: seen.throughput.clone(),
            cache_bytes_per_token: seen.cache_bytes_per_token,
            known: seen.known.clone(),
            claimed_mlx_versions: seen.claimed_mlx_versions.clone(),
        });
    }
    report
}

fn without_rows(observation: &Observation) -> Observation {
    let mut slim = Observation { measured: None, ..observation.clone() };
    slim.measured = observation.measured.clone().map(|mut measured| {
        match &mut measured {
            Measured::Logits { scored, .. } => {
                for position in &mut scored.positions {
                    position.logits_f32 = None;
                    position.top.truncate(TOP_OF_POSITION);
                }
            }
            Measured::Generation { generated, .. } => {
                generated.top.iter_mut().for_each(|top| top.truncate(TOP_OF_GENERATED));
            }
            Measured::Perplexity { .. } | Measured::Op { .. } => {}
            // The figures of every run stand beside; these are one run's again.
            Measured::Throughput { requests, .. } => requests.clear(),
        }
        measured
    });
    slim
}

/// The models that a subject fails at, each with the error that says most: one that carries a diagnosis, else the first.
pub(crate) fn broken_models(report: &Report, subject: Subject) -> BTreeMap<&str, (&CellReport, &Finding)> {
    let mut broken: BTreeMap<&str, (&CellReport, &Finding)> = BTreeMap::new();
    // Where candidate and reference fail alike, the model or the machine is at fault and the cell is not decided.
    for cell in report.cells.iter().filter(|c| c.status != CellStatus::Inconclusive) {
        for finding in cell.findings.iter().filter(|f| f.subject == subject && f.severity == Severity::Error)
        {
            let better = diagnosis::named(finding).is_some();
            broken
                .entry(&cell.model)
                .and_modify(|held| {
                    if better && diagnosis::named(held.1).is_none() {
                        *held = (cell, finding);
                    }
                })
                .or_insert((cell, finding));
        }
    }
    broken
}

/// How a fault looks, in a line: the diagnosis and where it begins, where there is one; else the finding's own words.
fn how(finding: &Finding) -> String {
    match (diagnosis::named(finding), &finding.evidence["first_position"], &finding.evidence["index"]) {
        (Some(diagnosis::NO_KV_CACHE), Value::Number(position), _) => {
            format!(
                "{}; decoding leaves the reference at position {position}",
                diagnosis::NO_KV_CACHE_SENTENCE
            )
        }
        (Some(diagnosis::NO_KV_CACHE), _, Value::Number(index)) => {
            format!("{}; greedy ids leave the reference's at index {index}", diagnosis::NO_KV_CACHE_SENTENCE)
        }
        _ => finding.message.clone(),
    }
}

fn headline(report: &Report) -> Vec<String> {
    let mut lines = vec![match report.verdict {
        Verdict::Pass if report.counts.contains_key(&CellStatus::Deselected) => format!(
            "`{}` is good as far as was looked: {}; a part of a matrix moves no pin",
            report.candidate, report.reason
        ),
        Verdict::Pass if !shows_results(report.cells.iter().map(|cell| (cell.status, cell.basis))) => {
            format!("`{}` is fast enough: {}; speed alone moves no pin", report.candidate, report.reason)
        }
        Verdict::Pass => format!("`{}` may become the pin: {}", report.candidate, report.reason),
        Verdict::Fail => format!("`{}` must not become the pin: {}", report.candidate, report.reason),
        Verdict::Inconclusive => {
            format!("`{}` is not shown to be fit as the pin: {}", report.candidate, report.reason)
        }
    }];
    let same = report.candidate == report.baseline;
    if same {
        lines.push(format!("candidate and baseline are the same build, `{}`", report.candidate));
    }
    for (subject, name) in [(Subject::Baseline, &report.baseline), (Subject::Candidate, &report.candidate)] {
        if same && subject == Subject::Baseline {
            continue;
        }
        let who = if subject == Subject::Baseline { "baseline" } else { "candidate" };
        for (model, (cell, finding)) in broken_models(report, subject) {
            lines.push(format!("the {who} `{name}` is broken for {model}: {} ({})", how(finding), cell.id));
        }
    }
    lines.extend(report.coverage.sentence());
    lines.extend(speed_line(report));
    let only_same = report.cells.iter().filter(|c| c.basis == Some(Basis::Sameness)).count();
    if only_same > 0 {
        lines.push(format!(
            "no reference decided {only_same} of the passing cells: there only sameness with `{}` was shown",
            report.baseline
        ));
    }
    lines
}

/// One sentence on all throughput cells together. Holm's correction holds the chance of a single false word in it, which is
/// what matters where one red cell keeps a pin from moving; a false discovery rate would let some of many be wrong. It costs
/// nothing here: the p value of a confirmed cell is at most 4e-4 after Bonferroni, .05 over 125 cells.
fn speed_line(report: &Report) -> Option<String> {
    let judged: Vec<_> =
        report.cells.iter().filter_map(|cell| Some((cell, cell.throughput.as_ref()?))).collect();
    // Of the gated figures of a cell the one that is worst speaks for it, after Bonferroni among them.
    let p_of = |judgement: &ThroughputJudgement| {
        let gated: Vec<f64> = judgement.metrics.iter().filter_map(|m| m.p).collect();
        gated.iter().copied().fold(1.0, f64::min).min(1.0) * gated.len() as f64
    };
    let p_values: Vec<f64> = judged.iter().map(|(_, judgement)| p_of(judgement).min(1.0)).collect();
    let worse: Vec<String> = judged
        .iter()
        .zip(holm(&p_values))
        .filter(|((cell, _), _)| cell.status == CellStatus::Fail)
        .map(|((cell, judgement), p)| match judgement.outcome {
            Outcome::Worse => format!("{} ({}; adjusted p {p:.1e})", cell.id, judgement.reason),
            // A bound, a leak or a pace.
            _ => format!("{} ({})", cell.id, cell.reason),
        })
        .collect();
    // A loss that is known of the candidate and weighs nothing.
    let stated: Vec<String> = judged
        .iter()
        .filter(|(cell, judgement)| {
            cell.status == CellStatus::Pass
                && judgement.metrics.iter().any(|m| m.outcome == Some(Outcome::Worse))
        })
        .map(|(cell, judgement)| format!("{} ({})", cell.id, judgement.reason))
        .collect();
    let cells = if judged.len() == 1 { "cell" } else { "cells" };
    match (judged.len(), worse.is_empty()) {
        (0, _) => None,
        (_, true) if !stated.is_empty() => Some(format!("throughput: {}", stated.join("; "))),
        (n, true) => Some(format!("throughput: no {cells} of {n} got worse in two sessions")),
        (_, false) => Some(format!("throughput got worse: {}", worse.join("; "))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        judge::{
            judge_cell,
            toy::{Fault, greedy_cell, logits_cell, seen, task_cell, thresholds},
        },
        matrix::{Cell, ProcessOutcome},
        verdict::decide,
    };

    const SOUND: Option<Fault> = Some(Fault::None);
    const LOST: Option<Fault> = Some(Fault::NoHistory);

    pub(crate) fn input(candidate: &str) -> ReportInput {
        let provenance = |digest: &str| Provenance {
            digest: digest.repeat(8),
            inputs: json!({ "z": 1, "a": { "version": "0.4.1" } }),
            log: json!({ "took_s": 62.5 }),
        };
        ReportInput {
            generated_by: "regraft 0.1.0".into(),
            command: format!("cargo xtask gate --candidate {candidate}"),
            matrix: "smoke".into(),
            candidate: candidate.into(),
            baseline: "published".into(),
            reference: "mlx-lm".into(),
            builds: [("patched", "0a"), ("published", "1b"), ("mlx-lm", "2c")]
                .map(|(name, digest)| (name.to_owned(), provenance(digest)))
                .into(),
            thresholds: thresholds(),
            environment: [("os".to_owned(), json!("Linux 6.1")), ("cores".to_owned(), json!(2))].into(),
            started: "2026-01-02T03:04:05Z".into(),
            finished: "2026-01-02T03:08:05Z".into(),
        }
    }

    fn ran(cell: Cell, seen: CellObservations) -> PlannedCell {
        let judgement = Box::new(judge_cell(&cell, &seen, &thresholds()));
        PlannedCell { cell, run: CellRun::Ran { seen: Box::new(seen), judgement } }
    }

    /// Qwen3 in two probes with these faults, and a sound model that answers.
    fn plan(candidate: Option<Fault>, baseline: Option<Fault>, candidate_name: &str) -> Vec<PlannedCell> {
        let named = |mut s: CellObservations| {
            s.candidate.iter_mut().for_each(|o| o.engine = candidate_name.into());
            s
        };
        let (a, b, c) = (logits_cell("qwen3"), greedy_cell("qwen3"), task_cell("smollm2", "capital"));
        vec![
            ran(a.clone(), named(seen(&a, candidate, baseline, SOUND))),
            ran(b.clone(), named(seen(&b, candidate, baseline, SOUND))),
            ran(c.clone(), named(seen(&c, SOUND, SOUND, SOUND))),
        ]
    }

    pub(crate) fn passing() -> (Report, Vec<PlannedCell>) {
        let cells = plan(SOUND, LOST, "patched");
        (Report::new(input("patched"), &cells, &decide(&cells)), cells)
    }

    #[test]
    fn a_pass_says_first_that_the_baseline_is_broken_and_how() {
        let (report, _) = passing();
        assert_eq!(report.verdict, Verdict::Pass);
        assert!(report.headline[1].contains("`published` is broken for qwen3"), "{:?}", report.headline);
        assert!(report.headline[1].contains("as if it saw only the last token"), "{:?}", report.headline);
        insta::assert_snapshot!("pass_with_broken_baseline", summary(&report));
    }

    #[test]
    fn a_pass_of_some_cells_does_not_say_that_the_pin_may_move() {
        let mut cells = plan(SOUND, SOUND, "patched");
        cells[1].run = CellRun::Deselected { reason: "--filter logits".into() };
        let report = Report::new(input("patched"), &cells, &decide(&cells));
        assert_eq!(report.verdict, Verdict::Pass);
        assert!(report.headline[0].contains("a part of a matrix moves no pin"), "{:?}", report.headline);
    }

    #[test]
    fn runs_that_start_in_the_same_second_have_folders_of_their_own() {
        let reports = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| new_folder(reports.path(), "2026-01-02T03:04:05Z", "patched").unwrap())
            .map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let first = "2026-01-02T030405Z-patched";
        assert_eq!(names, [first.to_owned(), format!("{first}-2"), format!("{first}-3")]);
    }

    #[test]
    fn a_fail_names_cells_positions_and_both_texts() {
        let cells = plan(LOST, LOST, "published");
        let report = Report::new(input("published"), &cells, &decide(&cells));
        assert_eq!(report.verdict, Verdict::Fail);
        insta::assert_snapshot!("fail", summary(&report));
    }

    #[test]
    fn an_inconclusive_report_says_what_is_open() {
        let cell = logits_cell("qwen3");
        let mut s = seen(&cell, LOST, SOUND, SOUND);
        let reference = s.reference.as_mut().unwrap();
        reference.measured = None;
        reference.exit = ProcessOutcome::Crashed {
            code: None,
            signal: Some(11),
            last_lines: vec!["Segmentation `fault` <here>\u{1b}[0m".into()],
        };
        let other = greedy_cell("qwen3");
        let cells = [
            ran(cell, s),
            PlannedCell { cell: other, run: CellRun::Skipped { reason: "time ran out".into() } },
            PlannedCell {
                cell: task_cell("smollm2", "capital"),
                run: CellRun::Deselected { reason: "--filter qwen3".into() },
            },
        ];
        let report = Report::new(input("patched"), &cells, &decide(&cells));
        assert_eq!(report.verdict, Verdict::Inconclusive);
        insta::assert_snapshot!("inconclusive", summary(&report));
    }

    #[test]
    fn the_record_reads_back_the_same_and_has_the_agreed_keys() {
        let (report, _) = passing();
        let text = report.to_json();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(back, report);
        assert_eq!(back.to_json(), text);
        assert_eq!(summary(&back), summary(&report));
        let value: Value = serde_json::from_str(&text).unwrap();
        for key in [
            "schema",
            "generated_by",
            "verdict",
            "candidate",
            "baseline",
            "reference",
            "builds",
            "cells",
            "environment",
            "started",
            "finished",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        for key in
            ["id", "model", "precision", "context", "probe", "backend", "engine_role", "status", "findings"]
        {
            assert!(value["cells"][0].get(key).is_some(), "cells[].{key}");
        }
        assert_eq!(value["cells"][0]["engine_role"], json!("candidate"));
        let keys: Vec<_> = value.as_object().unwrap().keys().collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn what_is_written_can_be_read_and_judged_again() {
        let (report, cells) = passing();
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let written = write(&run, &report, &cells).unwrap();
        assert_eq!(read(&written.report).unwrap(), report);
        let again: Vec<PlannedCell> = read_observations(&written.observations)
            .unwrap()
            .into_iter()
            .map(|p| match p.run {
                CellRun::Ran { seen, .. } => ran(p.cell, *seen),
                run => PlannedCell { run, ..p },
            })
            .collect();
        assert_eq!(Report::new(input("patched"), &again, &decide(&again)).to_json(), report.to_json());

        let bytes = fs::read(&written.observations).unwrap();
        write(&run, &report, &cells).unwrap();
        assert_eq!(fs::read(&written.observations).unwrap(), bytes, "equal input, equal bytes");
        assert_eq!(fs::read_dir(&run).unwrap().count(), 3, "no temporary file stays");
    }

    #[test]
    fn rows_stay_out_of_the_record_and_their_digests_in() {
        let (report, cells) = passing();
        assert!(!report.to_json().contains("logits_f32"));
        let CellRun::Ran { seen, .. } = &cells[0].run else { unreachable!() };
        let Some(Measured::Logits { scored, .. }) = &seen.reference.as_ref().unwrap().measured else {
            unreachable!()
        };
        let row = scored.positions[0].logits_f32.as_ref().unwrap();
        let digest = &report.cells[0].row_digests["reference"][&scored.positions[0].position];
        assert_eq!(*digest, base16ct::lower::encode_string(&<sha2::Sha256 as sha2::Digest>::digest(row)));
    }

    #[test]
    fn a_record_of_forty_cells_with_real_rows_stays_small() {
        let cell = logits_cell("qwen3");
        let mut s = seen(&cell, SOUND, LOST, SOUND);
        // The rows of a vocabulary of 49,152; the judge's work on them is not what is asked here.
        let row = "A".repeat(49_152 * 4 * 4 / 3);
        let judgement = judge_cell(&cell, &s, &thresholds());
        for o in [&mut s.candidate, &mut s.baseline, &mut s.reference].into_iter().flatten() {
            let Some(Measured::Logits { scored, .. }) = &mut o.measured else { unreachable!() };
            scored.positions.iter_mut().for_each(|p| p.logits_f32 = Some(row.clone()));
        }
        let run = CellRun::Ran { seen: Box::new(s), judgement: Box::new(judgement) };
        let one = [PlannedCell { cell, run }];
        let report = Report::new(input("patched"), &one, &decide(&one));
        let bytes = report.to_json().len();
        assert!(bytes * 40 < 2_000_000, "{bytes} bytes a cell");
    }

    #[test]
    fn another_document_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(REPORT_FILE);
        fs::write(&path, r#"{"schema":{"name":"regraft.patch-report","version":3}}"#).unwrap();
        assert!(matches!(read(&path), Err(ReportError::Schema { version: 3, .. })));
        fs::write(&path, r#"{"schema":"#).unwrap();
        assert!(matches!(read(&path), Err(ReportError::Malformed { .. })));
        assert!(matches!(read(&folder.path().join("none")), Err(ReportError::Io { .. })));
    }
}
