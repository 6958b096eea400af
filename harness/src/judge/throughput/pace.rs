//! Does the candidate keep up with itself: a quantized model with its source precision, one quantized at load with the
//! prequantized checkpoint? Cells are not run by turns, so that what a machine drifts by belongs to nobody.

use serde_json::json;

use super::{
    Metric,
    rule::{FEWEST_RUNS, Outcome},
    stats::two_sample_shift,
};
use crate::{
    engine::protocol::Precision,
    judge::{Finding, Severity, Subject},
    matrix::{
        Cell, Role,
        throughput::{Clock, Pace, ThroughputRuns, ThroughputSpec, spec_of},
    },
};

pub use crate::judge::codes::SLOWER_THAN_PEER as SLOWER;

/// How far the speed of a machine may move from one cell to the next: the drift within a session of the noise by which the
/// rule's error rates are simulated.
pub const DRIFT: f64 = 0.04;

/// What one pace of a cell comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Paced {
    /// What follows; absent where the other cell did not run, or is none of this matrix.
    pub outcome: Option<Outcome>,
    /// The statement.
    pub finding: Finding,
}

/// Holds the candidate's speed at a cell against its speed at the cells beside which the probe states a pace: those of the
/// other model or precision at the same context and backend, with equal work. `ran` are the throughput cells that have runs.
pub fn check(cell: &Cell, spec: &ThroughputSpec, ran: &[(&Cell, &ThroughputRuns)]) -> Vec<Paced> {
    let own = ran.iter().find(|(other, _)| other.id == cell.id).map(|(_, runs)| *runs);
    let peer = |pace: &Pace| {
        ran.iter().find(|(other, _)| {
            let alike = spec_of(other).is_some_and(|peer| {
                (peer.max_tokens, peer.clock, peer.threads) == (spec.max_tokens, spec.clock, spec.threads)
            });
            alike
                && other.id != cell.id
                && (&other.model, other.precision) == (&pace.model, pace.precision)
                && (other.context, other.backend) == (cell.context, cell.backend)
        })
    };
    spec.no_slower_than
        .iter()
        .map(|pace| match (own, peer(pace)) {
            (Some(own), Some((_, peer))) => compared(own, peer, spec, pace),
            _ => absent(pace),
        })
        .collect()
}

fn compared(own: &ThroughputRuns, peer: &ThroughputRuns, spec: &ThroughputSpec, pace: &Pace) -> Paced {
    let metric = if spec.clock == Clock::Wall { Metric::Decode } else { Metric::Cpu };
    let logs = |runs: &ThroughputRuns| -> Vec<f64> {
        // A confirmation is run only where something was red, and would weigh twice.
        let first = runs.sessions.first().into_iter().flat_map(|session| session.of(Role::Candidate));
        first.map(|run| metric.goodness(metric.of(run))).filter(|goodness| goodness.is_finite()).collect()
    };
    let (own, peer) = (logs(own), logs(peer));
    let shift = two_sample_shift(&own, &peer, 1.0 - spec.power);
    let [ratio, lower, upper] = [shift.estimate, shift.lower, shift.upper].map(f64::exp);
    let least = 1.0 - pace.max_loss;
    let outcome = if own.len().min(peer.len()) < FEWEST_RUNS {
        Outcome::Inconclusive
    } else if upper < least * (1.0 - DRIFT) {
        Outcome::Worse
    } else if lower > least * (1.0 + DRIFT) {
        Outcome::Pass
    } else {
        Outcome::Inconclusive
    };
    let says = match outcome {
        Outcome::Worse => "slower than the matrix allows",
        Outcome::Pass => "fast enough",
        Outcome::Inconclusive => "too close to the limit, or too noisy, to say",
    };
    let speed = if metric == Metric::Decode { "decode rate" } else { "speed by processor time" };
    Paced {
        outcome: Some(outcome),
        finding: Finding {
            code: SLOWER.into(),
            subject: if outcome == Outcome::Inconclusive { Subject::Harness } else { Subject::Candidate },
            severity: match outcome {
                Outcome::Pass => Severity::Info,
                Outcome::Inconclusive => Severity::Warning,
                Outcome::Worse => Severity::Error,
            },
            message: format!(
                "the candidate's {speed} is {ratio:.3} of that with {} ({lower:.3} to {upper:.3}), where the matrix asks for \
                 {least:.3}: {says}",
                named(&pace.model, pace.precision)
            ),
            evidence: json!({ "ratio": ratio, "least": least, "runs": [own.len(), peer.len()] }),
        },
    }
}

fn absent(pace: &Pace) -> Paced {
    Paced {
        outcome: None,
        finding: Finding {
            code: SLOWER.into(),
            subject: Subject::Harness,
            severity: Severity::Info,
            message: format!(
                "not applicable: no cell of {} with this context, backend and work has figures",
                named(&pace.model, pace.precision)
            ),
            evidence: json!({}),
        },
    }
}

fn named(model: &str, precision: Precision) -> String {
    format!("{model}/{precision}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::throughput::tests::{Build, SOUND, cell_of, session, spec},
        matrix::throughput::ThroughputRuns,
    };

    fn paced(max_loss: f64) -> ThroughputSpec {
        let pace = Pace { model: "full".into(), precision: Precision::Source, max_loss };
        ThroughputSpec { no_slower_than: vec![pace], ..spec() }
    }

    fn runs(slow: f64, spread: f64) -> ThroughputRuns {
        let first = session(Build { slow, ..SOUND }, SOUND, 8, spread);
        ThroughputRuns { sessions: vec![first], reference: vec![] }
    }

    /// What the pace of a model that is `slow` times slower than the other comes to.
    fn said(slow: f64, spread: f64, max_loss: f64) -> Paced {
        let spec = paced(max_loss);
        let (own, peer) = (cell_of("quantized", &spec), cell_of("full", &spec));
        let (mine, theirs) = (runs(slow, spread), runs(1.0, spread));
        check(&own, &spec, &[(&peer, &theirs), (&own, &mine)]).remove(0)
    }

    #[test]
    fn a_model_keeps_up_falls_behind_or_nobody_knows() {
        for (slow, spread, max_loss, expected) in [
            (0.5, 0.01, 0.05, Outcome::Pass),
            (1.0, 0.001, 0.1, Outcome::Pass),
            (1.3, 0.01, 0.1, Outcome::Worse),
            // Within what a machine drifts by, whichever way.
            (1.13, 0.001, 0.1, Outcome::Inconclusive),
            (1.08, 0.001, 0.1, Outcome::Inconclusive),
            (1.3, 0.5, 0.1, Outcome::Inconclusive),
        ] {
            assert_eq!(said(slow, spread, max_loss).outcome, Some(expected), "{slow} {spread} {max_loss}");
        }
        insta::assert_snapshot!(
            said(1.3, 0.0, 0.1).finding.message,
            @"the candidate's decode rate is 0.769 of that with full/source (0.769 to 0.769), where the matrix asks for 0.900: slower than the matrix allows"
        );
    }

    #[test]
    fn without_the_other_cell_a_pace_is_not_applicable() {
        let spec = paced(0.1);
        let own = cell_of("quantized", &spec);
        let runs = runs(1.0, 0.01);
        // The same model name at other work is another measurement.
        let other_work = ThroughputSpec { max_tokens: 99, ..spec.clone() };
        let peer = cell_of("full", &other_work);
        let said = check(&own, &spec, &[(&own, &runs), (&peer, &runs)]).remove(0);
        assert_eq!((said.outcome, said.finding.severity), (None, Severity::Info));
        assert!(said.finding.message.starts_with("not applicable: no cell of full/source"));
    }
}
