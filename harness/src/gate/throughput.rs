//! Runs a throughput cell: blocks by turns until the rule has seen enough, a fresh session where the first is red, and the
//! reference for the report. One model process at a time on the whole machine.

use std::{path::Path, time::Instant};

use crate::{
    build::Artifact,
    event::{Event, EventSink, Silent},
    judge::{
        CellObservations,
        throughput::{
            self,
            rule::{Arm, BLOCK, Next, State},
        },
    },
    matrix::{
        Backend, Cell, Observation, ObserveError, ObserveOptions, Role, observe,
        throughput::{SessionRuns, ThroughputRuns, ThroughputSpec, run_block},
    },
    tools::{
        conditions::{self, Conditions, Gpus},
        lock::{FileLock, LockError, model_lock_path},
    },
};

/// So many discarded blocks end a session: conditions that keep changing are not those of a measurement.
const MOST_DISCARDED: usize = 8;

/// Two builds at a throughput cell.
#[derive(Debug, Clone, Copy)]
pub struct Contest<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// What its probe asks for.
    pub spec: &'a ThroughputSpec,
    /// The build that wants to become the pin.
    pub candidate: &'a Artifact,
    /// The build that is pinned now.
    pub baseline: &'a Artifact,
    /// The independent implementation.
    pub reference: Option<&'a Artifact>,
    /// The model.
    pub model_dir: &'a Path,
    /// Timeout and logs.
    pub options: &'a ObserveOptions,
}

/// Why a contest could not be held.
#[derive(Debug, thiserror::Error)]
pub enum ContestError {
    /// An engine did not start.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The machine-wide lock could not be taken.
    #[error("cannot make sure that only one model runs on this machine")]
    Lock(#[from] LockError),
}

/// Holds the contest.
///
/// # Errors
/// Where an engine cannot be started at all. One that crashes, or is slow, is what a contest is there to find.
pub fn hold(contest: &Contest<'_>, sink: &dyn EventSink) -> Result<CellObservations, ContestError> {
    let step = format!("{} by turns", contest.cell.id);
    sink.emit(Event::StepStarted { step: step.clone() });
    let begun = Instant::now();
    let mut seen = CellObservations::default();
    let mut runs = ThroughputRuns::default();
    for _ in 0..2 {
        let (session, whole) = run_session(contest, &mut seen, sink)?;
        let red =
            throughput::looks(&session, contest.spec).iter().any(|(look, _)| look.state == State::Worse);
        runs.sessions.push(session);
        if !whole || !red {
            break;
        }
    }
    for _ in 0..contest.spec.reference_runs {
        let Some(reference) = contest.reference else { break };
        let outcome = locked(sink, || {
            run_block(&[Role::Reference], |role| one(contest, role, reference), || conditions_at(contest))
        })??;
        runs.reference.extend(outcome.block.runs);
        seen.reference = outcome.observations.into_iter().next_back();
    }
    seen.throughput = Some(runs);
    sink.emit(Event::StepFinished { step, outcome: "ok".to_owned(), took: begun.elapsed() });
    Ok(seen)
}

/// The machine-wide lock of whoever runs a model, for as long as the value lives.
///
/// # Errors
/// Where the lock's file can be neither made nor locked.
pub fn only_model(sink: &dyn EventSink) -> Result<FileLock, LockError> {
    FileLock::acquire(&model_lock_path(), || {
        sink.emit(Event::Note("waiting for another model on this machine to end".to_owned()));
    })
}

/// Blocks until the rule has seen enough, and whether every run gave its figures.
fn run_session(
    contest: &Contest<'_>,
    seen: &mut CellObservations,
    sink: &dyn EventSink,
) -> Result<(SessionRuns, bool), ContestError> {
    let mut session = SessionRuns::default();
    let order = BLOCK.map(|arm| match arm {
        Arm::Candidate => Role::Candidate,
        Arm::Baseline => Role::Baseline,
    });
    loop {
        let Next::RunTo(wanted) = throughput::next(&session, contest.spec) else {
            return Ok((session, true));
        };
        while session.of(Role::Candidate).count() < wanted {
            if session.blocks.iter().filter(|block| block.discarded.is_some()).count() >= MOST_DISCARDED {
                return Ok((session, true));
            }
            let outcome = locked(sink, || {
                let observe = |role| {
                    let engine = if role == Role::Candidate { contest.candidate } else { contest.baseline };
                    one(contest, role, engine)
                };
                run_block(&order, observe, || conditions_at(contest))
            })??;
            for observation in outcome.observations {
                match observation.role {
                    Role::Candidate => seen.candidate = Some(observation),
                    _ => seen.baseline = Some(observation),
                }
            }
            if let Some(why) = &outcome.block.discarded {
                sink.emit(Event::Note(format!("a block of {} does not count: {why}", contest.cell.id)));
            }
            session.blocks.push(outcome.block);
            if !outcome.whole {
                return Ok((session, false));
            }
        }
    }
}

fn one(contest: &Contest<'_>, role: Role, engine: &Artifact) -> Result<Observation, ObserveError> {
    let mut engine = engine.clone();
    if let Some(threads) = contest.spec.threads {
        engine.env.insert("OPENBLAS_NUM_THREADS".to_owned(), threads.to_string());
    }
    // The contest is one step of the run; its processes would drown it.
    observe(contest.cell, role, &engine, contest.model_dir, contest.options, &Silent)
}

/// GPUs matter where the cell runs on one of NVIDIA's.
fn conditions_at(contest: &Contest<'_>) -> Conditions {
    conditions::read(if contest.cell.backend == Backend::Cuda { Gpus::Read } else { Gpus::Leave })
}

fn locked<T>(sink: &dyn EventSink, work: impl FnOnce() -> T) -> Result<T, LockError> {
    let _lock = only_model(sink)?;
    Ok(work())
}
