//! How far apart are two runs of one build, and how far is a sound build from the reference, on this machine? A gate of a
//! build against itself, several times over: its rows give the noise that thresholds must clear, and whatever it does not
//! pass is a false alarm. Nothing is rebuilt for it: two clean builds of one recipe make the same program, byte for byte
//! (`cargo xtask build --clean` compares them), so a rebuild would be the same file.

use serde::Serialize;
use thiserror::Error;

use crate::{
    config::spec::Thresholds,
    event::{Event, EventSink},
    gate::{self, GateError, GateRequest},
    judge::{
        Against,
        logits::{self, LogitsComparison},
        scored,
    },
    matrix::Role,
    report::{self, ReportError},
    verdict::{CellRun, CellStatus, PlannedCell},
};

/// A threshold lies at least so many times above the noise.
pub const CLEARANCE: f64 = 10.0;

/// No distance below this is worth a threshold: f32 resolves about 6e-8.
const FLOOR: f64 = 1e-6;

/// The largest distances of many comparisons.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Noise {
    /// How many rows were compared.
    pub rows: usize,
    /// Largest mean KL of one cell's phase, in nats.
    pub mean_kl: f64,
    /// Largest 99th percentile of one cell's phase, in nats.
    pub p99_kl: f64,
    /// Largest relative L2 of a row.
    pub relative_l2: f64,
    /// Largest 1 − cosine of a row.
    pub one_minus_cosine: f64,
    /// Largest gap of one logit, in standard deviations.
    pub max_logit_gap: f64,
    /// Rows with a margin whose most likely ids differ.
    pub top1_lost: usize,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The build.
    pub build: String,
    /// The matrix whose cells were run.
    pub matrix: String,
    /// SHA-256 of the build's program, in hexadecimal: candidate and baseline are this file.
    pub program_sha256: String,
    /// How many gates of the build against itself were run.
    pub gates: usize,
    /// Those that did not pass, each with its reason.
    pub false_alarms: Vec<String>,
    /// The build against itself.
    pub against_itself: Noise,
    /// The build against the reference.
    pub against_reference: Noise,
    /// The thresholds that the matrix has.
    pub given: Thresholds,
    /// Thresholds that clear the noise of this machine ten times, and no more.
    pub measured: Thresholds,
    /// Given over the larger noise: how often the noise fits into each threshold. Infinite where there is no noise.
    pub headroom: Vec<(&'static str, f64)>,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// A gate could not be run.
    #[error("cannot run gate {number} of the build against itself")]
    Gate {
        /// Counts from 1.
        number: usize,
        /// Why.
        #[source]
        source: Box<GateError>,
    },
    /// What a gate saw cannot be read.
    #[error("cannot read what gate {number} saw")]
    Report {
        /// Counts from 1.
        number: usize,
        /// Why.
        #[source]
        source: Box<ReportError>,
    },
    /// No cell compares rows.
    #[error("no cell of the plan compares rows of logits, so that there is no noise to measure")]
    NoRows,
}

impl CalibrateError {
    /// What a person can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Gate { source, .. } => source.hint(),
            Self::Report { source, .. } => Some(source.hint().to_owned()),
            Self::NoRows => Some("choose a matrix or a filter with cells of a logits probe".to_owned()),
        }
    }
}

/// Runs `gates` gates; candidate and baseline of the request must be one build.
///
/// # Errors
/// Where a gate could not be run or read. A gate that fails is counted.
pub fn run(
    request: &GateRequest<'_>,
    gates: usize,
    sink: &dyn EventSink,
) -> Result<Calibration, CalibrateError> {
    let (mut itself, mut reference) = (Noise::default(), Noise::default());
    let mut false_alarms = Vec::new();
    let mut program_sha256 = String::new();
    for number in 1..=gates {
        sink.emit(Event::Note(format!(
            "gate {number} of {gates}, {} against itself",
            request.candidate.name
        )));
        let outcome = gate::run(request, sink)
            .map_err(|source| CalibrateError::Gate { number, source: Box::new(source) })?;
        let cells = report::read_observations(&outcome.written.observations)
            .map_err(|source| CalibrateError::Report { number, source: Box::new(source) })?;
        for cell in &outcome.report.cells {
            if matches!(cell.status, CellStatus::Fail | CellStatus::Inconclusive) {
                false_alarms.push(format!("gate {number}, {}: {}", cell.id, cell.reason));
            }
        }
        if let Some(provenance) = outcome.report.builds.get(&outcome.report.candidate) {
            program_sha256 = provenance.log["program_sha256"].as_str().unwrap_or_default().to_owned();
        }
        add(&cells, request.matrix.thresholds.margin, &mut itself, &mut reference);
    }
    if itself.rows + reference.rows == 0 {
        return Err(CalibrateError::NoRows);
    }
    let given = request.matrix.thresholds.clone();
    Ok(Calibration {
        build: request.candidate.name.clone(),
        matrix: request.matrix.name.clone(),
        program_sha256,
        gates,
        false_alarms,
        headroom: headroom(&given, &itself, &reference),
        measured: measured(&given, &itself, &reference),
        against_itself: itself,
        against_reference: reference,
        given,
    })
}

fn add(cells: &[PlannedCell], margin: f64, itself: &mut Noise, reference: &mut Noise) {
    for planned in cells {
        let CellRun::Ran { seen, .. } = &planned.run else { continue };
        let rows = |role: Role| seen.of(role).and_then(scored);
        for (noise, right, against) in [
            (&mut *itself, Role::Baseline, Against::Baseline),
            (&mut *reference, Role::Reference, Against::Reference),
        ] {
            if let (Some(own), Some(right)) = (rows(Role::Candidate), rows(right))
                && let Ok(comparison) = logits::compare(Role::Candidate, against, own, right, margin)
            {
                noise.take(&comparison);
            }
        }
    }
}

impl Noise {
    fn take(&mut self, comparison: &LogitsComparison) {
        self.rows += comparison.rows.len();
        for metrics in [&comparison.prefill, &comparison.decode].into_iter().flatten() {
            self.mean_kl = self.mean_kl.max(metrics.mean_kl);
            self.p99_kl = self.p99_kl.max(metrics.p99_kl);
            self.relative_l2 = self.relative_l2.max(metrics.relative_l2);
            self.one_minus_cosine = self.one_minus_cosine.max(1.0 - metrics.cosine);
            self.max_logit_gap = self.max_logit_gap.max(metrics.max_logit_gap);
            self.top1_lost += metrics.top1_counted - metrics.top1_agreed;
        }
    }
}

fn measured(given: &Thresholds, itself: &Noise, reference: &Noise) -> Thresholds {
    let limit = |figure: fn(&Noise) -> f64| {
        let noise = figure(itself).max(figure(reference));
        round_up((noise * CLEARANCE).max(FLOOR))
    };
    Thresholds {
        mean_kl: limit(|n| n.mean_kl),
        p99_kl: limit(|n| n.p99_kl),
        relative_l2: limit(|n| n.relative_l2),
        cosine: 1.0 - limit(|n| n.one_minus_cosine),
        max_logit_gap: limit(|n| n.max_logit_gap),
        ..given.clone()
    }
}

fn headroom(given: &Thresholds, itself: &Noise, reference: &Noise) -> Vec<(&'static str, f64)> {
    let over = |limit: f64, figure: fn(&Noise) -> f64| limit / figure(itself).max(figure(reference));
    vec![
        ("mean-kl", over(given.mean_kl, |n| n.mean_kl)),
        ("p99-kl", over(given.p99_kl, |n| n.p99_kl)),
        ("relative-l2", over(given.relative_l2, |n| n.relative_l2)),
        ("cosine", over(1.0 - given.cosine, |n| n.one_minus_cosine)),
        ("max-logit-gap", over(given.max_logit_gap, |n| n.max_logit_gap)),
    ]
}

/// The next of 1, 2, 5, 10, … at or above a figure above 0.
fn round_up(figure: f64) -> f64 {
    let power = 10f64.powf(figure.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| figure <= step * power * (1.0 + 1e-9));
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{
        judge_cell,
        toy::{self, Fault, logits_cell, thresholds},
    };

    fn noise(candidate: Fault) -> (Noise, Noise) {
        let cell = logits_cell("m");
        let seen = toy::seen(&cell, Some(candidate), Some(Fault::None), Some(Fault::None));
        let judgement = Box::new(judge_cell(&cell, &seen, &thresholds()));
        let planned = PlannedCell { cell, run: CellRun::Ran { seen: Box::new(seen), judgement } };
        let (mut itself, mut reference) = (Noise::default(), Noise::default());
        add(&[planned], 0.25, &mut itself, &mut reference);
        (itself, reference)
    }

    #[test]
    fn equal_runs_have_no_noise_and_a_fault_would_widen_every_threshold() {
        let (itself, reference) = noise(Fault::None);
        assert!(itself.rows > 0 && itself.relative_l2 == 0.0 && reference.top1_lost == 0);
        let tight = measured(&Thresholds::default(), &itself, &reference);
        assert!((tight.relative_l2 - FLOOR).abs() < 1e-12 && tight.margin == Thresholds::default().margin);
        let (itself, reference) = noise(Fault::OffByOne);
        let wide = measured(&Thresholds::default(), &itself, &reference);
        assert!(wide.relative_l2 > Thresholds::default().relative_l2);
        assert!(headroom(&Thresholds::default(), &itself, &reference)[2].1 < 1.0);
    }

    #[test]
    fn figures_are_rounded_up_to_plain_ones() {
        for (figure, expected) in [(1.0, 1.0), (1.1, 2.0), (0.021, 0.05), (6e-6, 1e-5), (2e-4, 2e-4)] {
            assert!((round_up(figure) / expected - 1.0).abs() < 1e-6, "{figure}: {}", round_up(figure));
        }
    }
}
