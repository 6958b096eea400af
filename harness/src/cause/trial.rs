//! What if a patch were gone? The stack without it and without what depends on it: rebased in memory, built where a build of
//! `matrices/builds.toml` uses the fork, and gated. The outcome is recorded for the next report.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::Path,
};

use super::probe;
use crate::{
    build::{self, BuildError, Layout, ProvisionError},
    config::{
        fork::{Condition, ForkSpec},
        spec::{BuildSpec, MatrixSpec},
    },
    event::{Event, EventSink},
    evidence::{
        EvidenceError,
        report::{ForkReport, PatchReport},
        report_whole,
        retirement::{Recorded, RecordedError, RecordedResult, benchmark_key, command_key, declared},
        trials::{self, TrialVerdict},
    },
    fork::{open::Source, target::Onto},
    gate::{self, GateError, GateRequest},
    judge::{Severity, throughput::Metric},
    matrix::Plan,
    rebase::{
        forecast::PatchFate,
        sync::{Forecasted, Opened, SyncError, forecast_opened, open_stack},
    },
    report::{CellReport, Report},
    tools::{clock, process::ProcessError},
    verdict::{CellStatus, Verdict},
};

/// How much of a compiler's last words is told, in characters.
const TOLD_WORDS: usize = 160;

/// What a person asked.
pub struct TrialRequest<'a> {
    /// The repository's root.
    pub root: &'a Path,
    /// Where things are built.
    pub layout: &'a Layout,
    /// The fork.
    pub spec: &'a ForkSpec,
    /// The upstream commit that the rest of the stack is rebased onto.
    pub onto: &'a Onto,
    /// Where repositories are read from.
    pub source: &'a Source,
    /// All builds; the first one with the fork's patches is tried.
    pub builds: &'a [BuildSpec],
    /// The matrix.
    pub matrix: &'a MatrixSpec,
    /// Its cells; those that measure speed run only where a retirement condition asks for their figure.
    pub plan: &'a Plan,
    /// The folder in which gates' reports are made.
    pub reports: &'a Path,
    /// Program and version, for the report.
    pub generated_by: String,
    /// The command line, as one could paste it.
    pub command: String,
}

impl TrialRequest<'_> {
    /// Gates `candidate` against `baseline` on the cells of `plan`: the report, and where its summary lies, from the root.
    pub(super) fn gated(
        &self,
        candidate: &BuildSpec,
        baseline: &BuildSpec,
        plan: &Plan,
        sink: &dyn EventSink,
    ) -> Result<(Report, String), TrialError> {
        let mut matrix = self.matrix.clone();
        (matrix.candidate, matrix.baseline) = (candidate.name.clone(), baseline.name.clone());
        let gate = GateRequest {
            layout: self.layout,
            matrix: &matrix,
            plan,
            candidate,
            baseline,
            on_failure: gate::OnFailure::GoOn,
            reports: self.reports,
            generated_by: self.generated_by.clone(),
            command: self.command.clone(),
            bundle: None,
            candidate_env: BTreeMap::new(),
        };
        let gated = gate::run(&gate, sink)
            .map_err(|source| TrialError::Gate { build: candidate.name.clone(), source: Box::new(source) })?;
        let summary = &gated.written.summary;
        let path = summary.strip_prefix(self.root).unwrap_or(summary).display().to_string();
        Ok((gated.report, path))
    }
}

/// What a trial showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The patch's number.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// The patches left out with it, because they need it.
    pub with_it: Vec<usize>,
    /// What became of the rest on the new upstream, such as `3 applied, 1 conflicted`.
    pub rest: String,
    /// The build that was tried.
    pub build: Option<String>,
    /// How it ended.
    pub verdict: TrialVerdict,
    /// What shows that.
    pub why: String,
    /// The gate's summary, below the repository's root where it lies there.
    pub report: Option<String>,
}

/// Why a trial could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The fork cannot be reported on.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The stack cannot be opened again.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// There is no such patch.
    #[error("fork `{fork}` has no patch {wanted}")]
    NoPatch {
        /// The fork.
        fork: String,
        /// What was asked for.
        wanted: String,
    },
    /// The tools are missing.
    #[error("cannot provision the tools of a trial")]
    Provision(#[source] Box<ProvisionError>),
    /// The build without the patch failed for a reason that says nothing about the patch.
    #[error("cannot build `{build}`")]
    Build {
        /// The build.
        build: String,
        /// Why.
        #[source]
        source: Box<BuildError>,
    },
    /// No verdict could be reached.
    #[error("cannot gate `{build}`")]
    Gate {
        /// The build.
        build: String,
        /// Why.
        #[source]
        source: Box<GateError>,
    },
    /// The fork's files cannot be unpacked for a command.
    #[error("cannot unpack the files of fork `{fork}`")]
    Files {
        /// The fork.
        fork: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A declared command cannot be started, or was killed.
    #[error("cannot run the declared command `{command}`")]
    Command {
        /// The command.
        command: String,
        /// Why.
        #[source]
        source: Box<ProcessError>,
    },
    /// A declared cell is not in the matrix, or does not run here.
    #[error("matrix `{matrix}` runs no cell `{cell}` here")]
    NoCell {
        /// The cell.
        cell: String,
        /// The matrix.
        matrix: String,
    },
    /// The outcome cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordedError),
}

impl TrialError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Evidence(source) => source.hint(),
            Self::Sync(source) => source.hint(),
            Self::NoPatch { fork, .. } => {
                Some(format!("`cargo xtask patch-report {fork}` lists its patches with their numbers"))
            }
            Self::Provision(source) => source.hint(),
            Self::Build { source, .. } => source.hint(),
            Self::Gate { source, .. } => source.hint(),
            Self::Files { .. } => Some("check that the disk has room".to_owned()),
            Self::Command { source, .. } => source.hint(),
            Self::NoCell { matrix, .. } => {
                Some(format!("`cargo xtask gate --matrix {matrix} --plan` lists its cells"))
            }
            Self::Record(_) => Some("check that `patches/` is writable".to_owned()),
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Evidence(source) => source.is_refusal(),
            Self::Sync(source) => source.is_refusal(),
            Self::NoPatch { .. } | Self::NoCell { .. } => true,
            _ => false,
        }
    }
}

/// Tries the stack without each of the `wanted` patches (all of them when none is named), records every outcome as it
/// comes, and gives them all.
///
/// # Errors
/// When no outcome could be found; a red gate and a failed compile are outcomes.
pub fn try_patches(
    request: &TrialRequest<'_>,
    wanted: &[String],
    sink: &dyn EventSink,
) -> Result<Vec<Trial>, TrialError> {
    let TrialRequest { root, spec, onto, source, .. } = request;
    let (whole, report) = report_whole(root, (*spec).clone(), onto, source, sink)?;
    let numbers = chosen(&report, wanted)?;
    let file = Recorded::file(root, &spec.name);
    let mut trials = Vec::new();
    for number in numbers {
        let gone = with_dependents(&report.patches, number);
        let (rest, left) = rest_without(request, &gone, sink)?;
        let declared = whole
            .replayed
            .steps
            .iter()
            .find(|step| step.number == number)
            .and_then(|step| declared(&spec.patches, step))
            .and_then(|declared| declared.retirement.as_ref());
        let results = match (declared, &left) {
            (Some(condition), Some(left)) => asked_commands(request, condition, left, sink)?,
            _ => Vec::new(),
        };
        Recorded::record(&file, results)?;
        let benchmarks = declared.map(probe::benchmarks_of).unwrap_or_default();
        let (build, outcome) = match build_of(request.builds, request.matrix, &spec.name) {
            None => (None, Outcome::only_rebased(&spec.name)),
            Some(build) => {
                let files = files_of(&report.patches, &gone);
                let outcome = match &rest {
                    Rest::DoesNotApply(why) => Outcome::without_gate(TrialVerdict::DoesNotApply, why.clone()),
                    Rest::Fates(_) => {
                        let trial = without(build, &spec.name, number, &files);
                        built_and_gated(request, build, &trial, &benchmarks, sink)?
                    }
                };
                Recorded::record(&file, outcome.figures.clone())?;
                (Some(build.name.clone()), outcome)
            }
        };
        let patch = report.patches.iter().find(|patch| patch.forecast.number == number);
        let step = whole.replayed.steps.iter().find(|step| step.number == number);
        if let (Some(patch), Some(step)) = (patch, step) {
            let result = RecordedResult {
                why: Some(outcome.why.clone()),
                commit: Some(whole.target.base.commit),
                of: Some(trials::content_of(step)),
                report: outcome.report.clone(),
                ..RecordedResult::new(outcome.verdict.word(), clock::now_utc())
            };
            Recorded::record(&file, [(trials::key(&patch.identity.key), result)])?;
            trials.push(Trial {
                number,
                subject: patch.forecast.subject.clone(),
                with_it: gone.iter().copied().filter(|other| *other != number).collect(),
                rest: rest.told(),
                build,
                verdict: outcome.verdict,
                why: outcome.why,
                report: outcome.report,
            });
        }
    }
    Ok(trials)
}

struct Outcome {
    verdict: TrialVerdict,
    why: String,
    report: Option<String>,
    /// What declared benchmarks measured, under the keys of their records.
    figures: Vec<(String, RecordedResult)>,
}

impl Outcome {
    fn without_gate(verdict: TrialVerdict, why: String) -> Self {
        Self { verdict, why, report: None, figures: Vec::new() }
    }

    fn only_rebased(fork: &str) -> Self {
        let why = format!("no build of matrices/builds.toml takes its patches from `{fork}`");
        Self::without_gate(TrialVerdict::OnlyRebased, why)
    }
}

/// Whether the commands that a condition names pass in the files without the patch.
fn asked_commands(
    request: &TrialRequest<'_>,
    condition: &Condition,
    left: &Forecasted,
    sink: &dyn EventSink,
) -> Result<Vec<(String, RecordedResult)>, TrialError> {
    let mut results = Vec::new();
    for words in probe::commands_of(condition) {
        let seen = probe::in_files(request, &left.store, probe::head_of(&left.replayed), words, sink)?;
        let result = RecordedResult {
            why: Some(seen.why),
            commit: Some(left.target.base.commit),
            ..RecordedResult::new(seen.result, clock::now_utc())
        };
        results.push((command_key(words), result));
    }
    Ok(results)
}

/// What becomes of a stack without some patches.
enum Rest {
    Fates(Vec<PatchFate>),
    DoesNotApply(String),
}

impl Rest {
    fn told(&self) -> String {
        match self {
            Self::DoesNotApply(why) => why.clone(),
            Self::Fates(fates) if fates.is_empty() => "nothing is left of the stack".to_owned(),
            Self::Fates(fates) => {
                let all = [
                    PatchFate::Applied,
                    PatchFate::Merged,
                    PatchFate::Absorbed,
                    PatchFate::Conflicted,
                    PatchFate::Blocked,
                ];
                let count = |fate: &PatchFate| fates.iter().filter(|other| *other == fate).count();
                let told = all.iter().filter(|fate| count(fate) > 0);
                told.map(|fate| format!("{} {}", count(fate), fate.word())).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// The numbers of the patches that are meant, in the stack's order.
fn chosen(report: &ForkReport, wanted: &[String]) -> Result<BTreeSet<usize>, TrialError> {
    if wanted.is_empty() {
        return Ok(report.patches.iter().map(|patch| patch.forecast.number).collect());
    }
    let mut numbers = BTreeSet::new();
    for name in wanted {
        let meant = report.patches.iter().find(|patch| {
            let forecast = &patch.forecast;
            name.parse() == Ok(forecast.number)
                || forecast.file.as_deref() == Some(name)
                || forecast.subject == *name
                || forecast
                    .commit
                    .is_some_and(|commit| name.len() >= 7 && commit.to_string().starts_with(name))
        });
        let meant =
            meant.ok_or_else(|| TrialError::NoPatch { fork: report.name.clone(), wanted: name.clone() })?;
        numbers.insert(meant.forecast.number);
    }
    Ok(numbers)
}

/// A patch and every later one that needs it, directly or through others.
fn with_dependents(patches: &[PatchReport], number: usize) -> BTreeSet<usize> {
    let edges = patches.iter().map(|patch| (patch.forecast.number, patch.forecast.depends_on.as_slice()));
    closure(edges, number)
}

fn closure<'e>(edges: impl Iterator<Item = (usize, &'e [usize])>, number: usize) -> BTreeSet<usize> {
    let mut gone = BTreeSet::from([number]);
    // A patch needs earlier ones only, so that one pass in the stack's order finds all.
    for (later, needs) in edges {
        if needs.iter().any(|need| gone.contains(need)) {
            gone.insert(later);
        }
    }
    gone
}

fn files_of(patches: &[PatchReport], gone: &BTreeSet<usize>) -> Vec<String> {
    let gone = patches.iter().filter(|patch| gone.contains(&patch.forecast.number));
    gone.filter_map(|patch| patch.forecast.file.clone()).collect()
}

/// Rebases, in memory, what is left of the stack; also gives the forecast, where there is one.
fn rest_without(
    request: &TrialRequest<'_>,
    gone: &BTreeSet<usize>,
    sink: &dyn EventSink,
) -> Result<(Rest, Option<Forecasted>), TrialError> {
    let TrialRequest { root, spec, onto, source, .. } = request;
    let mut opened = match open_stack(root, (*spec).clone(), onto, source, sink)? {
        Opened::Here(opened) => *opened,
        // The sources that the crate carries are all there is: there is nothing to go to.
        Opened::Forecasted(_) => return Ok((Rest::Fates(Vec::new()), None)),
    };
    opened.stack.patches.retain(|patch| !gone.contains(&patch.number));
    match forecast_opened(opened, onto, sink) {
        Ok(whole) => {
            let fates = whole.document.patches.iter().map(|patch| patch.fate).collect();
            Ok((Rest::Fates(fates), Some(whole)))
        }
        Err(SyncError::Replay(source)) => Ok((Rest::DoesNotApply(chain(&*source)), None)),
        Err(other) => Err(other.into()),
    }
}

/// The build that a trial changes: the matrix's candidate if it has the fork's patches, else the first that has.
pub(super) fn build_of<'b>(
    builds: &'b [BuildSpec],
    matrix: &MatrixSpec,
    fork: &str,
) -> Option<&'b BuildSpec> {
    let uses = |build: &&BuildSpec| build.crates.values().any(|krate| krate.patches.as_deref() == Some(fork));
    let candidate = builds.iter().find(|build| build.name == matrix.candidate).filter(uses);
    candidate.or_else(|| builds.iter().find(uses))
}

/// The build without the files of a fork's stack.
fn without(build: &BuildSpec, fork: &str, number: usize, files: &[String]) -> BuildSpec {
    let mut trial = build.clone();
    trial.name = format!("{}-without-{fork}-{number}", build.name);
    for krate in trial.crates.values_mut().filter(|krate| krate.patches.as_deref() == Some(fork)) {
        krate.leave_out = files.to_vec();
    }
    trial
}

fn built_and_gated(
    request: &TrialRequest<'_>,
    build: &BuildSpec,
    trial: &BuildSpec,
    benchmarks: &BTreeSet<&str>,
    sink: &dyn EventSink,
) -> Result<Outcome, TrialError> {
    let toolbox =
        build::provision(request.layout, sink).map_err(|source| TrialError::Provision(Box::new(source)))?;
    match build::build(trial, request.layout, &toolbox, sink) {
        Ok(_) => {}
        Err(source @ BuildError::Patch { .. }) => {
            return Ok(Outcome::without_gate(TrialVerdict::DoesNotApply, chain(&source)));
        }
        Err(ref error @ BuildError::Compile { ref source, .. }) if !error.is_about_the_machine() => {
            let why = format!("`{}`: {}", build.name, compiler_words(source.stderr_tail()));
            sink.emit(Event::Note(format!("`{}` is not built: {source}", trial.name)));
            return Ok(Outcome::without_gate(TrialVerdict::DoesNotBuild, why));
        }
        Err(source) => {
            return Err(TrialError::Build { build: trial.name.clone(), source: Box::new(source) });
        }
    }
    let plan = request.plan.clone().without_speed(benchmarks);
    let (report, path) = request.gated(trial, build, &plan, sink)?;
    Ok(Outcome {
        verdict: match report.verdict {
            Verdict::Pass => TrialVerdict::Passes,
            Verdict::Fail => TrialVerdict::Fails,
            Verdict::Inconclusive => TrialVerdict::Inconclusive,
        },
        why: gate_words(&report),
        figures: figures(&report, benchmarks),
        report: Some(path),
    })
}

/// What the candidate decoded in each declared benchmark, in tokens a second.
fn figures(report: &Report, benchmarks: &BTreeSet<&str>) -> Vec<(String, RecordedResult)> {
    let figure = |cell: &CellReport| {
        let metrics = &cell.throughput.as_ref()?.metrics;
        let decode = metrics.iter().find(|entry| entry.metric == Metric::Decode)?;
        let result = RecordedResult::new(format!("{:.2}", decode.candidate.median), report.finished.clone());
        Some((benchmark_key(cell.id.as_str()), result))
    };
    report.cells.iter().filter(|cell| benchmarks.contains(cell.id.as_str())).filter_map(figure).collect()
}

/// What a gate's report comes to: how many cells fail, and the first of them with its first error.
fn gate_words(report: &Report) -> String {
    let ran = |status: CellStatus| report.counts.get(&status).copied().unwrap_or_default();
    let (passed, failed) = (ran(CellStatus::Pass), ran(CellStatus::Fail));
    let told = format!("{failed} of {} cells of matrix {} fail", passed + failed, report.matrix);
    let first = report.cells.iter().find(|cell| cell.status == CellStatus::Fail);
    let Some(first) = first else { return told };
    let error = first.findings.iter().find(|finding| finding.severity == Severity::Error);
    let error = error.map_or(first.reason.as_str(), |finding| finding.message.as_str());
    format!("{told}, first {}: {error}", first.id)
}

/// The line in which a compiler or linker says what is wrong.
fn compiler_words(stderr: &str) -> String {
    let telling = |line: &&str| {
        let line = line.trim_start();
        ["undefined reference", "undefined symbol", "cannot find", "ld: ", "error["]
            .iter()
            .any(|words| line.contains(words))
    };
    let lines = || stderr.lines().filter(|line| !line.trim().is_empty());
    let line = lines()
        .find(telling)
        .or_else(|| lines().find(|line| line.contains("error")))
        .or_else(|| lines().next_back());
    line.unwrap_or("the compiler said nothing").trim().chars().take(TOLD_WORDS).collect()
}

fn chain(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told += &format!(": {error}");
        cause = error.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::spec::{CrateSource, MlxSource};

    #[test]
    fn what_needs_a_patch_goes_with_it_through_others() {
        let edges: [(usize, &[usize]); 5] = [(1, &[]), (2, &[1]), (3, &[]), (4, &[2]), (5, &[3])];
        let gone = |number| closure(edges.into_iter(), number).into_iter().collect::<Vec<_>>();
        assert_eq!(gone(1), [1, 2, 4]);
        assert_eq!(gone(3), [3, 5]);
        assert_eq!(gone(5), [5]);
    }

    #[test]
    fn a_trial_changes_only_the_crate_with_the_forks_patches() {
        let krate = |patches: Option<&str>| CrateSource {
            version: "1.0.0".into(),
            folder: None,
            patches: patches.map(str::to_owned),
            leave_out: Vec::new(),
        };
        let build = BuildSpec {
            name: "patched".into(),
            summary: String::new(),
            dialect: "d".into(),
            mlx: MlxSource::Wheel("0.1.0".into()),
            git: None,
            crates: BTreeMap::from([("a".into(), krate(Some("f"))), ("b".into(), krate(Some("g")))]),
        };
        let trial = without(&build, "f", 2, &["0002-x.patch".to_owned()]);
        assert_eq!(trial.name, "patched-without-f-2");
        assert_eq!(trial.crates["a"].leave_out, ["0002-x.patch"]);
        assert!(trial.crates["b"].leave_out.is_empty());
    }

    #[test]
    fn a_linkers_words_are_told_before_cargos() {
        let stderr = "error: linking with `cc` failed: exit status: 1\n  = note: rust-lld: error: unable to find library -lc++\n\
                      error: could not compile `x`\n";
        assert!(compiler_words(stderr).ends_with("unable to find library -lc++"));
        assert_eq!(
            compiler_words("a\n  undefined reference to `f'\nerror: b\n"),
            "undefined reference to `f'"
        );
        assert_eq!(compiler_words(""), "the compiler said nothing");
    }

    #[test]
    fn the_rest_of_a_stack_is_told_by_fates() {
        let fates = vec![PatchFate::Applied, PatchFate::Conflicted, PatchFate::Applied];
        assert_eq!(Rest::Fates(fates).told(), "2 applied, 1 conflicted");
        assert_eq!(Rest::Fates(Vec::new()).told(), "nothing is left of the stack");
    }
}
