//! The story of a gate: provision, build both builds, make the models, run every cell through candidate, baseline and
//! reference, judge, decide, write the report. What is right or wrong is decided by the stages, not here.

pub mod bundle;
pub mod throughput;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    panic,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    build::{self, Artifact, BuildError, Layout, ProvisionError, Toolbox},
    config::spec::{BuildSpec, Known, KnownWeight, MatrixSpec, ModelSource},
    engine::fault::make_faulty_folder,
    event::{Event, EventSink, Silent},
    judge::{self, CellObservations, diagnosis, free_text::FreeTextScoring},
    matrix::{
        Bench, Cell, Disposition, ForcedIds, Observation, ObserveError, ObserveOptions, Plan, Probe,
        ProcessOutcome, Role, Scoring, Wanted, expand::pattern_matches, observe, observe_scorings,
    },
    model::{self, ModelDir, ModelError, ModelInputs},
    report::{self, Report, ReportError, ReportInput, Written},
    tools::{clock, conditions, host},
    verdict::{self, CellRun, PassedGate, PlannedCell, Verdict},
};
use bundle::{Bundle, BundleError};
use throughput::{Contest, ContestError};

/// What a person asked the gate.
#[derive(Debug)]
pub struct GateRequest<'a> {
    /// Where things are and go.
    pub layout: &'a Layout,
    /// The matrix.
    pub matrix: &'a MatrixSpec,
    /// Its cells, expanded and filtered.
    pub plan: &'a Plan,
    /// The build that wants to become the pin.
    pub candidate: &'a BuildSpec,
    /// The build that is pinned now.
    pub baseline: &'a BuildSpec,
    /// What a failing cell means for those after it.
    pub on_failure: OnFailure,
    /// The folder in which the run's folder is made.
    pub reports: &'a Path,
    /// Program and version, for the report.
    pub generated_by: String,
    /// The command line, as one could paste it, for the report.
    pub command: String,
    /// Engines and models that are there already, instead of what would be built here.
    pub bundle: Option<&'a Bundle>,
    /// Variables of the candidate's processes only, by which a gate proves itself: a build with any is another build.
    pub candidate_env: BTreeMap<String, String>,
}

/// What a failing cell means for those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing.
    GoOn,
    /// They are skipped: the first failure decides, and cells stand in the order that finds one soonest.
    Stop,
}

/// What the gate leaves behind.
#[derive(Debug)]
pub struct GateOutcome {
    /// The record.
    pub report: Report,
    /// Where it lies.
    pub written: Written,
    /// The proof that a pin may move, when everything passed and nothing was left out.
    pub passed: Option<PassedGate>,
}

/// Why a gate could not reach a verdict.
#[derive(Debug, Error)]
pub enum GateError {
    /// A tool or download is missing.
    #[error("cannot provision the tools of the gate")]
    Provision(#[source] Box<ProvisionError>),
    /// A build did not come about.
    #[error("cannot build `{name}`, the {role}")]
    Build {
        /// The build.
        name: String,
        /// Its part in the comparison.
        role: &'static str,
        /// Why.
        #[source]
        source: Box<BuildError>,
    },
    /// A model did not come about.
    #[error("cannot prepare model `{name}`")]
    Model {
        /// The model.
        name: String,
        /// Why.
        #[source]
        source: Box<ModelError>,
    },
    /// A cell names a model that the matrix does not have.
    #[error("cell `{cell}` names model `{model}`, which matrix `{matrix}` does not declare")]
    NoModel {
        /// The cell.
        cell: String,
        /// The model.
        model: String,
        /// The matrix.
        matrix: String,
    },
    /// An engine could not be started at all.
    #[error("cannot run matrix `{matrix}`")]
    Observe {
        /// The matrix.
        matrix: String,
        /// Why.
        #[source]
        source: Box<ObserveError>,
    },
    /// Builds could not be run by turns.
    #[error("cannot compare the speed of two builds at cell `{cell}`")]
    Contest {
        /// The cell.
        cell: String,
        /// Why.
        #[source]
        source: Box<ContestError>,
    },
    /// The bundle lacks something.
    #[error("cannot run from the bundle")]
    Bundle(#[source] Box<BundleError>),
    /// The report could not be written.
    #[error("cannot write the report")]
    Report(#[source] Box<ReportError>),
}

impl GateError {
    /// What a person can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Provision(source) => source.hint(),
            Self::Build { source, .. } => source.hint(),
            Self::Model { source, .. } => source.hint(),
            Self::NoModel { .. } => Some("declare it with a `[[model]]` of that name".to_owned()),
            Self::Observe { source, .. } => Some(source.hint().to_owned()),
            Self::Contest { source, .. } => match source.as_ref() {
                ContestError::Observe(source) => Some(source.hint().to_owned()),
                ContestError::Lock(_) => {
                    Some("check that the folder of the lock file is writable".to_owned())
                }
            },
            Self::Bundle(source) => source.hint(),
            Self::Report(source) => Some(source.hint().to_owned()),
        }
    }
}

/// Runs the gate.
///
/// # Errors
/// Where no verdict could be reached. A build that behaves badly is not an error: that is what the verdict says.
pub fn run(request: &GateRequest<'_>, sink: &dyn EventSink) -> Result<GateOutcome, GateError> {
    let started = clock::now_utc();
    let matrix = request.matrix;
    let folder = report::new_folder(request.reports, &started, &request.candidate.name)
        .map_err(|source| GateError::Report(Box::new(source)))?;
    let (engines, models) = match request.bundle {
        Some(bundle) => {
            carried(request, bundle, sink).map_err(|source| GateError::Bundle(Box::new(source)))?
        }
        None => made_here(request, sink)?,
    };

    let options = ObserveOptions { timeout: matrix.cell_timeout, log_dir: folder.join("logs") };
    let steps = request
        .plan
        .runnable()
        .map(|cell| if matches!(cell.probe, Probe::Throughput(_)) { 1 } else { 3 })
        .sum();
    let builds = [request.candidate, request.baseline];
    let course = Course { matrix, builds, engines: &engines, models: &models, options: &options, sink };
    let mut held = Held { imitated: BTreeSet::new(), reference: Bench::new(&engines.reference, &options) };
    let mut failed: Option<String> = None;
    let begun = Instant::now();
    let cells = phase(sink, "run", Some(steps), || {
        request
            .plan
            .cells
            .iter()
            .map(|planned| {
                let run = match &planned.disposition {
                    Disposition::NotApplicable(reason) => CellRun::NotApplicable { reason: reason.clone() },
                    Disposition::Deselected(reason) => CellRun::Deselected { reason: reason.clone() },
                    Disposition::Run => {
                        match why_skipped(request.on_failure, failed.as_deref(), matrix.budget, begun) {
                            Some(reason) => CellRun::Skipped { reason },
                            None => course.run_cell(&planned.cell, &mut held)?,
                        }
                    }
                };
                let planned = PlannedCell { cell: planned.cell.clone(), run };
                if failed.is_none()
                    && verdict::decide(std::slice::from_ref(&planned)).verdict() == Verdict::Fail
                {
                    failed = Some(planned.cell.id.to_string());
                }
                Ok(planned)
            })
            .collect::<Result<Vec<_>, GateError>>()
    })?;

    let decision = verdict::decide(&cells);
    let input = ReportInput {
        generated_by: request.generated_by.clone(),
        command: request.command.clone(),
        matrix: matrix.name.clone(),
        candidate: engines.candidate.name.clone(),
        baseline: engines.baseline.name.clone(),
        reference: engines.reference.name.clone(),
        builds: engines.all().map(|engine| (engine.name.clone(), engine.provenance.clone())).collect(),
        thresholds: matrix.thresholds.clone(),
        environment: environment(request.bundle),
        started,
        finished: clock::now_utc(),
    };
    let report = Report::new(input, &cells, &decision);
    let written =
        report::write(&folder, &report, &cells).map_err(|source| GateError::Report(Box::new(source)))?;
    report::history::append(request.reports, &report)
        .map_err(|source| GateError::Report(Box::new(source)))?;
    sink.emit(Event::Note(format!("report: {}", written.summary.display())));
    let passed = decision.passed_gate(&matrix.name, &engines.candidate.provenance);
    Ok(GateOutcome { report, written, passed })
}

/// Why a cell is not begun, if it is not.
fn why_skipped(
    on_failure: OnFailure,
    failed: Option<&str>,
    budget: Option<std::time::Duration>,
    begun: Instant,
) -> Option<String> {
    match (on_failure, failed, budget) {
        (OnFailure::Stop, Some(cell), _) => {
            Some(format!("cell {cell} failed, and the run stops at a failure"))
        }
        (_, _, Some(budget)) if begun.elapsed() > budget => {
            Some(format!("the {} s that all cells together may take were spent", budget.as_secs()))
        }
        _ => None,
    }
}

/// Looks whether the packages are known that the matrix takes models from, before minutes are spent on the builds.
///
/// # Errors
/// When a lock has not what is asked for, or cannot be read.
pub fn check_packages(matrix: &MatrixSpec, layout: &Layout) -> Result<(), ProvisionError> {
    matrix.models.iter().try_for_each(|model| match &model.source {
        ModelSource::Package { package } => build::check_package(package, layout),
        _ => Ok(()),
    })
}

/// Provisions, builds, and makes the models.
fn made_here(
    request: &GateRequest<'_>,
    sink: &dyn EventSink,
) -> Result<(Engines, BTreeMap<String, ModelDir>), GateError> {
    let GateRequest { layout, matrix, .. } = request;
    check_packages(matrix, layout).map_err(|source| GateError::Provision(Box::new(source)))?;
    for (spec, role) in [(request.baseline, "baseline"), (request.candidate, "candidate")] {
        build::check_recipe(spec, layout).map_err(|source| build_error(spec, role, source))?;
    }
    let toolbox = build::provision(layout, sink).map_err(|source| GateError::Provision(Box::new(source)))?;
    let engines = Engines::prepare(request, &toolbox, sink)?;
    let package_file = |package: &str| {
        let file = build::package_file(package, layout, &toolbox, sink);
        file.map(Some).map_err(|source| GateError::Provision(Box::new(source)))
    };
    let failed = |name: &str, source| GateError::Model { name: name.to_owned(), source };
    let (needed, root) = (needed_models(request.plan), layout.work.join("models"));
    let models =
        phase(sink, "models", None, || prepare_models((matrix, &needed), &root, package_file, failed, sink))?;
    Ok((engines, models))
}

/// Takes engines, and what models are made from, out of a bundle.
fn carried(
    request: &GateRequest<'_>,
    bundle: &Bundle,
    sink: &dyn EventSink,
) -> Result<(Engines, BTreeMap<String, ModelDir>), BundleError> {
    let (candidate, candidate_mlx) = bundle.engine(&request.candidate.name)?;
    let (baseline, baseline_mlx) = bundle.engine(&request.baseline.name)?;
    let (reference, reference_mlx) = bundle.reference()?;
    let engines = Engines {
        candidate: with_env(candidate, &request.candidate_env),
        baseline,
        faulty: bundle.faulty(&reference),
        reference,
        claimed_mlx: BTreeMap::from([
            (Role::Candidate, candidate_mlx),
            (Role::Baseline, baseline_mlx),
            (Role::Reference, reference_mlx),
        ]),
    };
    let needed = needed_models(request.plan);
    let models = phase(sink, "models", None, || bundle.models(request.matrix, &needed, sink))?;
    Ok((engines, models))
}

/// The engine with more variables; it is another build then, so that what it passes vouches for nothing else.
fn with_env(mut engine: Artifact, env: &BTreeMap<String, String>) -> Artifact {
    if !env.is_empty() {
        engine.provenance.inputs["env"] = json!(env);
        engine.provenance.digest = build::digest::digest_of(&engine.provenance.inputs);
        engine.env.extend(env.clone());
    }
    engine
}

fn build_error(spec: &BuildSpec, role: &'static str, source: BuildError) -> GateError {
    GateError::Build { name: spec.name.clone(), role, source: Box::new(source) }
}

/// The three engines of a run.
struct Engines {
    candidate: Artifact,
    baseline: Artifact,
    reference: Artifact,
    /// The reference's library behind a program that can be asked for faults.
    faulty: Artifact,
    /// The MLX version that each was built against.
    claimed_mlx: BTreeMap<Role, String>,
}

impl Engines {
    fn prepare(
        request: &GateRequest<'_>,
        toolbox: &Toolbox,
        sink: &dyn EventSink,
    ) -> Result<Self, GateError> {
        let one = |spec: &BuildSpec, role: &'static str| {
            build::build(spec, request.layout, toolbox, sink)
                .map_err(|source| build_error(spec, role, source))
        };
        let baseline = one(request.baseline, "baseline")?;
        let candidate = match request.candidate == request.baseline {
            true => baseline.clone(),
            false => one(request.candidate, "candidate")?,
        };
        let candidate = with_env(candidate, &request.candidate_env);
        let reference =
            build::reference_artifact(request.layout, toolbox).map_err(|source| GateError::Build {
                name: request.matrix.reference.clone(),
                role: "reference",
                source: Box::new(source),
            })?;
        let faulty = build::faulty_reference(&reference, request.layout);
        let claimed_mlx = [
            (Role::Candidate, request.candidate.mlx.version()),
            (Role::Baseline, request.baseline.mlx.version()),
            (Role::Reference, toolbox.version_of("mlx")),
        ]
        .into_iter()
        .filter_map(|(role, version)| Some((role, version?.to_owned())))
        .collect();
        Ok(Self { candidate, baseline, reference, faulty, claimed_mlx })
    }

    fn all(&self) -> impl Iterator<Item = &Artifact> {
        [&self.candidate, &self.baseline, &self.reference].into_iter()
    }
}

/// The models that cells of the plan need.
fn needed_models(plan: &Plan) -> BTreeSet<&str> {
    plan.runnable().map(|cell| cell.model.as_str()).collect()
}

/// Makes, or finds, the models of a matrix that are needed, and no others; `package_file` gives the file of a package.
fn prepare_models<E>(
    (matrix, needed): (&MatrixSpec, &BTreeSet<&str>),
    root: &Path,
    package_file: impl Fn(&str) -> Result<Option<PathBuf>, E>,
    failed: impl Fn(&str, Box<ModelError>) -> E,
    sink: &dyn EventSink,
) -> Result<BTreeMap<String, ModelDir>, E> {
    matrix
        .models
        .iter()
        .filter(|spec| needed.contains(spec.name.as_str()))
        .map(|spec| {
            let package_file = match &spec.source {
                ModelSource::Synthetic(_) => None,
                ModelSource::Package { package } => package_file(package)?,
            };
            let inputs =
                ModelInputs { root, package_file: package_file.as_deref(), check: model::Check::Hashes };
            let model =
                model::prepare(spec, inputs, sink).map_err(|source| failed(&spec.name, Box::new(source)))?;
            Ok((spec.name.clone(), model))
        })
        .collect()
}

/// What is known of builds at a cell: what the matrix states, and that a release refuses a family that it does not serve.
fn known_at(matrix: &MatrixSpec, cell: &Cell, builds: [&BuildSpec; 2]) -> Vec<Known> {
    let stated = matrix.known.iter().filter(|known| pattern_matches(&known.cells, &cell.id)).cloned();
    let [candidate, baseline] = builds;
    let different = [candidate].into_iter().chain((candidate.name != baseline.name).then_some(baseline));
    stated.chain(different.filter_map(|build| refusal_of(build, matrix, &cell.model))).collect()
}

/// That a build refuses a model, where its crates are released ones of a dialect that does not serve the family. Of a
/// revision nobody knows: it may serve more.
fn refusal_of(build: &BuildSpec, matrix: &MatrixSpec, model: &str) -> Option<Known> {
    let released = build.git.is_none() && build.crates.values().all(|source| source.folder.is_none());
    let ModelSource::Synthetic(spec) = &matrix.models.iter().find(|m| m.name == model)?.source else {
        return None;
    };
    let family = spec.architecture.name();
    (released && model::family::is_refused_by(family, &build.dialect)).then(|| Known {
        build: build.name.clone(),
        cells: format!("{model}/*"),
        codes: vec!["refused".to_owned()],
        why: format!("the released library of `{}` serves no {family}", build.dialect),
        weight: KnownWeight::Limit,
        up_to: None,
    })
}

/// What every cell of a run is run with.
struct Course<'g> {
    matrix: &'g MatrixSpec,
    /// What the candidate and the baseline are made of.
    builds: [&'g BuildSpec; 2],
    engines: &'g Engines,
    models: &'g BTreeMap<String, ModelDir>,
    options: &'g ObserveOptions,
    sink: &'g dyn EventSink,
}

/// What goes on from cell to cell.
struct Held {
    /// The models whose candidate has been compared with imitated faults already.
    imitated: BTreeSet<String>,
    /// One process of the reference for all cells that run side by side: Python takes ten times as long to start on a
    /// machine with a GPU as such a cell takes to compute. It ends before any other cell, which wants the device for itself.
    reference: Bench,
}

impl Course<'_> {
    /// Runs one cell in all three engines, and the reference once more where that could name a cause or decide what
    /// follows the first difference.
    fn run_cell(&self, cell: &Cell, held: &mut Held) -> Result<CellRun, GateError> {
        let Self { matrix, engines, options, sink, .. } = *self;
        let model = self.models.get(&cell.model).ok_or_else(|| GateError::NoModel {
            cell: cell.id.to_string(),
            model: cell.model.clone(),
            matrix: matrix.name.clone(),
        })?;
        if !cell.runs_side_by_side() {
            held.reference.finish();
        }
        if let Probe::Throughput(spec) = &cell.probe {
            let contest = Contest {
                cell,
                spec,
                candidate: &engines.candidate,
                baseline: &engines.baseline,
                reference: Some(&engines.reference),
                model_dir: &model.path,
                options,
            };
            let mut seen = throughput::hold(&contest, sink).map_err(|source| GateError::Contest {
                cell: cell.id.to_string(),
                source: Box::new(source),
            })?;
            seen.claimed_mlx_versions = engines.claimed_mlx.clone();
            seen.known = known_at(matrix, cell, self.builds);
            let judgement = judge::judge_cell(cell, &seen, &matrix.thresholds);
            return Ok(CellRun::Ran { seen: Box::new(seen), judgement: Box::new(judgement) });
        }
        // Who measures speed on this machine must not find another model beside his, so correctness waits, too.
        let _lock = throughput::only_model(sink).map_err(|source| GateError::Contest {
            cell: cell.id.to_string(),
            source: Box::new(source.into()),
        })?;
        let failed = |source| GateError::Observe { matrix: matrix.name.clone(), source: Box::new(source) };
        let one = |role, engine| observe(cell, role, engine, &model.path, options, sink).map_err(failed);

        let (reference, baseline, candidate) = if cell.runs_side_by_side() {
            thread::scope(|scope| {
                let reference = scope.spawn(|| {
                    let step = format!("{} with {}", cell.id, engines.reference.name);
                    sink.emit(Event::StepStarted { step: step.clone() });
                    let seen = held.reference.observe(cell, Role::Reference, &model.path).map_err(failed)?;
                    let (outcome, took) =
                        (seen.exit.label().to_owned(), Duration::from_secs_f64(seen.wall_s));
                    sink.emit(Event::StepFinished { step, outcome, took });
                    Ok(seen)
                });
                let baseline = scope.spawn(|| one(Role::Baseline, &engines.baseline));
                let candidate = one(Role::Candidate, &engines.candidate);
                let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
                    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
                };
                Ok::<_, GateError>((joined(reference)?, joined(baseline)?, candidate?))
            })?
        } else {
            (
                one(Role::Reference, &engines.reference)?,
                one(Role::Baseline, &engines.baseline)?,
                one(Role::Candidate, &engines.candidate)?,
            )
        };
        let mut seen = CellObservations {
            claimed_mlx_versions: engines.claimed_mlx.clone(),
            candidate: Some(candidate),
            baseline: Some(baseline),
            reference: Some(reference),
            cache_bytes_per_token: cell.stretch().and_then(|_| model::cache_bytes_per_token(&model.path)),
            known: known_at(matrix, cell, self.builds),
            ..CellObservations::default()
        };
        self.score_again(cell, &mut seen, model, &mut held.reference).map_err(failed)?;
        if diagnosis::wants_imitations(cell, &seen, &matrix.thresholds)
            && held.imitated.insert(cell.model.clone())
        {
            self.imitate(cell, &mut seen, model).map_err(failed)?;
        }
        let judgement = judge::judge_cell(cell, &seen, &matrix.thresholds);
        Ok(CellRun::Ran { seen: Box::new(seen), judgement: Box::new(judgement) })
    }

    /// Scores what the judge asks for: the reference without history, and texts that builds chose by themselves.
    fn score_again(
        &self,
        cell: &Cell,
        seen: &mut CellObservations,
        model: &ModelDir,
        kept: &mut Bench,
    ) -> Result<(), ObserveError> {
        let Self { matrix, engines, options, sink, .. } = *self;
        let along = |seen: &CellObservations, role: Role| {
            seen.of(role).and_then(|o| o.measured.as_ref()).map(ForcedIds::of)
        };
        let texts: Vec<(Role, Role, ForcedIds)> = judge::free_texts_of(cell, seen, &matrix.thresholds)
            .into_iter()
            .filter_map(|(of, by)| Some((of, by, along(seen, of)?)))
            .collect();
        let lost =
            judge::counterfactual_of(cell, seen, &matrix.thresholds).and_then(|role| along(seen, role));
        for (by, engine) in [(Role::Reference, &engines.reference), (Role::Baseline, &engines.baseline)] {
            let mut scorings: Vec<Scoring<'_>> = texts
                .iter()
                .filter(|text| text.1 == by)
                .map(|text| Scoring { forced: &text.2, want: Wanted::Likelihood })
                .collect();
            let lost = lost.as_ref().filter(|_| by == Role::Reference);
            scorings.extend(lost.map(|forced| Scoring { forced, want: Wanted::RowsWithoutHistory }));
            if scorings.is_empty() {
                continue;
            }
            // Not one of the announced steps, whose total must not be overrun.
            let scored = if by == Role::Reference && cell.runs_side_by_side() {
                scorings
                    .iter()
                    .map(|scoring| kept.score(cell, by, &model.path, scoring))
                    .collect::<Result<Vec<_>, _>>()?
            } else {
                observe_scorings(cell, by, &scorings, engine, &model.path, options, &Silent)?
            };
            let mut scored = scored.into_iter();
            for (of, by, _) in texts.iter().filter(|text| text.1 == by) {
                if let Some(observation) = scored.next() {
                    seen.free_texts.push(FreeTextScoring { of: *of, by: *by, observation });
                }
            }
            match (lost, scored.next()) {
                (None, _) => {}
                (Some(_), Some(observation)) if observation.exit == ProcessOutcome::Clean => {
                    seen.reference_without_history = Some(observation);
                }
                (Some(_), _) => sink.emit(Event::Warning(format!(
                    "the reference without history did not answer at {}: the cause of the difference stays unnamed",
                    cell.id
                ))),
            }
        }
        Ok(())
    }

    /// Runs the faulty reference along the cell's ids, once with each fault that a cause is known for.
    fn imitate(
        &self,
        cell: &Cell,
        seen: &mut CellObservations,
        model: &ModelDir,
    ) -> Result<(), ObserveError> {
        let Some(forced) = seen.reference.as_ref().and_then(|o| o.measured.as_ref()).map(ForcedIds::of)
        else {
            return Ok(());
        };
        let unnamed = |why: std::io::Error| {
            self.sink.emit(Event::Warning(format!(
                "no fault is imitated at {}, so the cause is guessed: {why}",
                cell.id
            )));
        };
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(why) => {
                unnamed(why);
                return Ok(());
            }
        };
        let mut bench = Bench::new(&self.engines.faulty, self.options);
        for (name, fault) in diagnosis::imitations() {
            let faulty = folder.path().join(name);
            if let Err(why) = make_faulty_folder(&model.path, &faulty, &fault) {
                unnamed(why);
                return Ok(());
            }
            let scoring = Scoring { forced: &forced, want: Wanted::Rows };
            let imitation: Observation = bench.score(cell, Role::Reference, &faulty, &scoring)?;
            if imitation.measured.is_some() {
                seen.imitations.insert(name.to_owned(), imitation);
            }
        }
        Ok(())
    }
}

/// What figures of this run depend on, beside the builds.
fn environment(bundle: Option<&Bundle>) -> BTreeMap<String, Value> {
    let mut environment: BTreeMap<String, Value> = match json!(host::host_facts()) {
        Value::Object(facts) => facts.into_iter().collect(),
        other => BTreeMap::from([("host".to_owned(), other)]),
    };
    // Each of these changes what MLX computes, or how fast.
    let variables = host::variables("MLX_");
    if !variables.is_empty() {
        environment.insert("mlx_variables".to_owned(), json!(variables));
    }
    if bundle.is_some() {
        let gpus: Vec<String> =
            conditions::read(conditions::Gpus::Read).gpus.into_values().map(|g| g.name).collect();
        environment.insert("gpus".to_owned(), json!(gpus));
    }
    environment
}

/// Announces a phase, does it, and says how long it took.
fn phase<T, E: Error>(
    sink: &dyn EventSink,
    name: &str,
    steps: Option<u64>,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    sink.emit(Event::PhaseStarted { phase: name.to_owned(), steps });
    let begun = Instant::now();
    let done = work()?;
    sink.emit(Event::PhaseFinished { phase: name.to_owned(), took: begun.elapsed() });
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{find_build, load_builds, load_matrix};

    #[test]
    fn a_release_is_known_to_refuse_what_its_dialect_does_not_serve_and_a_revision_is_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let builds = load_builds(root).unwrap();
        let matrix = load_matrix(root, "families", &builds).unwrap();
        for (build, model, refused) in [
            ("published", "mistral", true),
            ("patched", "qwen3-5", true),
            ("patched", "qwen3-5-moe", false),
            ("mlx-source", "deepseek-v3", true),
            ("git-4e53c5e", "mistral", false),
            ("eredu", "mistral", false),
            ("published", "no such model", false),
        ] {
            let known = refusal_of(find_build(&builds, build).unwrap(), &matrix, model);
            assert_eq!(known.is_some(), refused, "{build} {model}");
            assert!(known.is_none_or(|known| known.is_about(build) && known.weight == KnownWeight::Limit));
        }
    }
}
