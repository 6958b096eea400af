//! Does a patch's feature still work, and does what is declared about a build without it hold? Commands run in the fork's
//! files, cells in the gate; every result is recorded with its time and the commit that the fork sits on.

use std::collections::BTreeSet;

use super::trial::{TrialError, TrialRequest, build_of};
use crate::{
    config::fork::{Condition, Probe},
    event::{Event, EventSink},
    evidence::retirement::{Recorded, RecordedResult, declared, probe_key},
    judge::Severity,
    matrix::{Disposition, Plan},
    pin::check::run_words,
    rebase::{
        replay::{Replayed, Step},
        sync::forecast_whole,
    },
    tools::{
        archive, clock,
        git::{export, ids::TreeId, store::Store},
    },
    verdict::CellStatus,
};

/// One probe and what it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The patch's number.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// The command, or the cell.
    pub what: String,
    /// `pass`, `fail` or `inconclusive`.
    pub result: &'static str,
    /// What shows that.
    pub why: String,
}

/// Runs the declared probe of every patch of a fork, and records each result.
///
/// # Errors
/// When a probe could not be run; one that fails is a result.
pub fn run_probes(request: &TrialRequest<'_>, sink: &dyn EventSink) -> Result<Vec<Probed>, TrialError> {
    let TrialRequest { root, spec, onto, source, .. } = request;
    let whole = forecast_whole(root, (*spec).clone(), onto, source, sink)?;
    let file = Recorded::file(root, &spec.name);
    let mut probed = Vec::new();
    for step in &whole.replayed.steps {
        let Some(probe) = declared(&spec.patches, step).and_then(|declared| declared.probe.as_ref()) else {
            continue;
        };
        let (what, outcome) = match probe {
            Probe::Command(words) => {
                let head = head_of(&whole.replayed);
                let outcome = in_files(request, &whole.store, head, words, sink)?;
                (words.join(" "), outcome)
            }
            Probe::Cell(cell) => (format!("cell {cell}"), in_gate(request, cell, sink)?),
        };
        let result = RecordedResult {
            why: Some(outcome.why.clone()),
            commit: Some(whole.target.base.commit),
            report: outcome.report,
            ..RecordedResult::new(outcome.result, clock::now_utc())
        };
        Recorded::record(&file, [(probe_key(probe), result)])?;
        let Step { number, subject, .. } = step;
        let (number, subject) = (*number, subject.clone());
        probed.push(Probed { number, subject, what, result: outcome.result, why: outcome.why });
    }
    Ok(probed)
}

/// What a command or a cell showed.
pub(super) struct Outcome {
    pub(super) result: &'static str,
    pub(super) why: String,
    pub(super) report: Option<String>,
}

/// The tree of a stack's head.
pub(super) fn head_of(replayed: &Replayed) -> TreeId {
    replayed.steps.last().map_or(replayed.base, |step| step.after)
}

/// The commands that a condition wants to see pass without the patch.
pub(super) fn commands_of(condition: &Condition) -> Vec<&[String]> {
    match condition {
        Condition::Any(parts) | Condition::All(parts) => parts.iter().flat_map(commands_of).collect(),
        Condition::PassesWithout(words) => vec![words],
        _ => Vec::new(),
    }
}

/// The benchmarks whose figure a condition wants to know; each is the name of a throughput cell.
pub(super) fn benchmarks_of(condition: &Condition) -> BTreeSet<&str> {
    match condition {
        Condition::Any(parts) | Condition::All(parts) => parts.iter().flat_map(benchmarks_of).collect(),
        Condition::Benchmark { name, .. } => BTreeSet::from([name.as_str()]),
        _ => BTreeSet::new(),
    }
}

/// Runs a command in the files of a tree, unpacked into a folder of their own.
pub(super) fn in_files(
    request: &TrialRequest<'_>,
    store: &Store,
    tree: TreeId,
    words: &[String],
    sink: &dyn EventSink,
) -> Result<Outcome, TrialError> {
    let command = words.join(" ");
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| TrialError::Files {
        fork: request.spec.name.clone(),
        source,
    };
    let folder = tempfile::tempdir().map_err(|error| failed(error.into()))?;
    let packed = folder.path().join("files.tar.gz");
    let files = folder.path().join("files");
    let bytes = export::tree_tar_gz(store, tree, "files").map_err(|error| failed(error.into()))?;
    std::fs::write(&packed, bytes).map_err(|error| failed(error.into()))?;
    archive::unpack_crate(&packed, &files).map_err(|error| failed(error.into()))?;
    std::fs::create_dir_all(&files).map_err(|error| failed(error.into()))?;
    sink.emit(Event::Note(format!("running `{command}` in the files of {}", request.spec.name)));
    let log = request.layout.log(&format!("probe-{}", request.spec.name));
    let ended = run_words(words, &files, &[], &log);
    match ended.no_answer {
        Some(source) => Err(TrialError::Command { command, source }),
        None => {
            Ok(Outcome { result: if ended.passed { "pass" } else { "fail" }, why: ended.why, report: None })
        }
    }
}

/// Runs one cell of the matrix with the fork's build, against itself and the reference.
fn in_gate(request: &TrialRequest<'_>, cell: &str, sink: &dyn EventSink) -> Result<Outcome, TrialError> {
    let TrialRequest { matrix, plan, spec, .. } = request;
    let Some(build) = build_of(request.builds, matrix, &spec.name) else {
        let why = "no build of matrices/builds.toml uses the fork".to_owned();
        return Ok(Outcome { result: "inconclusive", why, report: None });
    };
    let Some(plan) = only(plan, cell) else {
        return Err(TrialError::NoCell { cell: cell.to_owned(), matrix: matrix.name.clone() });
    };
    let (report, path) = request.gated(build, build, &plan, sink)?;
    let cell = report.cells.iter().find(|found| found.id.as_str() == cell);
    let (result, why) = match cell {
        Some(cell) => {
            let error = cell.findings.iter().find(|finding| finding.severity == Severity::Error);
            let why = error.map_or(cell.reason.as_str(), |finding| finding.message.as_str());
            (result_of(cell.status), why.to_owned())
        }
        None => ("inconclusive", report.reason.clone()),
    };
    Ok(Outcome { result, why, report: Some(path) })
}

fn result_of(status: CellStatus) -> &'static str {
    match status {
        CellStatus::Pass => "pass",
        CellStatus::Fail => "fail",
        _ => "inconclusive",
    }
}

/// The plan with one cell left to run; `None` when that does not run here.
fn only(plan: &Plan, cell: &str) -> Option<Plan> {
    let mut plan = plan.clone();
    for planned in &mut plan.cells {
        if planned.cell.id.as_str() != cell && planned.disposition == Disposition::Run {
            planned.disposition = Disposition::Deselected(format!("only {cell} is asked"));
        }
    }
    (plan.runnable().count() == 1).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn commands_and_benchmarks_are_found_below_any_and_all() {
        let command = |line: &str| Condition::PassesWithout(words(line));
        let benchmark = |name: &str| Condition::Benchmark { name: name.to_owned(), at_least: 1.0 };
        let condition = Condition::Any(vec![
            command("a b"),
            Condition::All(vec![benchmark("x"), command("c"), Condition::PullRequest(1)]),
            benchmark("x"),
        ]);
        assert_eq!(commands_of(&condition), [&words("a b")[..], &words("c")[..]]);
        assert_eq!(benchmarks_of(&condition), BTreeSet::from(["x"]));
    }
}
