//! T2: how likely engines find one text, by position. A fault that begins at some length shows as a step there, in a text
//! that a model reads well before it.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{BUILDS, CellJudgement, CellObservations, Finding, Severity, codes, diagnosis, role_name};
use crate::matrix::{Measured, Observation, Role};

/// The largest difference between two engines' mean log-probabilities of one bucket that passes, in nats: equal f32
/// arithmetic stays below 1e-4, a window that is off by one does not.
pub const MOST_NATS: f64 = 0.01;

/// The mean log-probabilities of a range of positions whose ends double.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The first position of the range.
    pub from: usize,
    /// The last.
    pub to: usize,
    /// How many positions were looked at.
    pub points: usize,
    /// The mean negative log-probability, in nats an id.
    pub mean_nats: f64,
    /// Its exponential.
    pub perplexity: f64,
}

/// The buckets of one engine: 0-255, 256-511, 512-1,023 and so on.
pub fn buckets(observation: &Observation) -> Vec<Bucket> {
    let Some(Measured::Perplexity { points, .. }) = &observation.measured else { return Vec::new() };
    points
        .chunk_by(|a, b| range(a.0) == range(b.0))
        .map(|points| {
            let (from, to) = range(points[0].0);
            let mean_nats = -points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
            Bucket { from, to, points: points.len(), mean_nats, perplexity: mean_nats.exp() }
        })
        .collect()
}

fn range(position: usize) -> (usize, usize) {
    let mut end = 256;
    while end <= position {
        end *= 2;
    }
    (if end == 256 { 0 } else { end / 2 }, end - 1)
}

/// Compares the builds with the reference, or with each other where it cannot decide.
pub fn judge(seen: &CellObservations, reference_is_usable: bool, out: &mut CellJudgement) {
    for of in BUILDS {
        let by = match (reference_is_usable, of) {
            (true, _) => Role::Reference,
            (false, Role::Candidate) => Role::Baseline,
            (false, _) => continue,
        };
        let (Some(own), Some(right)) = (seen.of(of), seen.of(by)) else { continue };
        let (Some(Measured::Perplexity { ids, .. }), Some(Measured::Perplexity { ids: right_ids, .. })) =
            (&own.measured, &right.measured)
        else {
            continue;
        };
        let error = |code: &str, message: String, evidence| Finding {
            code: code.into(),
            subject: of.into(),
            severity: Severity::Error,
            message,
            evidence,
        };
        if ids != right_ids {
            let at = ids.iter().zip(right_ids).position(|(a, b)| a != b);
            out.findings.push(error(
                codes::PROMPT_IDS_DIFFER,
                format!("the {} makes other ids of the text than the {}", role_name(of), role_name(by)),
                json!({ "index": at, "diagnosis": diagnosis::TOKENIZER, "command": own.command }),
            ));
            continue;
        }
        let (own_buckets, right_buckets) = (buckets(own), buckets(right));
        let worst = own_buckets
            .iter()
            .zip(&right_buckets)
            .find(|(a, b)| (a.mean_nats - b.mean_nats).abs() > MOST_NATS || a.from != b.from);
        if let Some((a, b)) = worst {
            out.findings.push(error(
                codes::PERPLEXITY_DIFFERS,
                format!(
                    "from position {} on the {} finds the text {} likely than the {}: perplexity {:.2}, not {:.2}",
                    a.from,
                    role_name(of),
                    if a.mean_nats > b.mean_nats { "less" } else { "more" },
                    role_name(by),
                    a.perplexity,
                    b.perplexity
                ),
                json!({
                    "against": by,
                    "first_position": a.from,
                    "engine_buckets": own_buckets,
                    "right_buckets": right_buckets,
                    "command": own.command,
                }),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::toy::{self, Fault, logits_cell};

    fn observation(role: Role, nats: impl Fn(usize) -> f64) -> Observation {
        let seen = toy::seen(&logits_cell("m"), Some(Fault::None), Some(Fault::None), Some(Fault::None));
        let points = (15..2047).step_by(16).map(|at| (at, -nats(at))).collect();
        Observation {
            measured: Some(Measured::Perplexity { ids: vec![5; 2048], points, prefill_s: 1.0 }),
            ..seen.of(role).unwrap().clone()
        }
    }

    fn findings(candidate: impl Fn(usize) -> f64) -> Vec<Finding> {
        let seen = CellObservations {
            candidate: Some(observation(Role::Candidate, candidate)),
            reference: Some(observation(Role::Reference, |_| 3.0)),
            ..CellObservations::default()
        };
        let mut out = CellJudgement::empty();
        judge(&seen, true, &mut out);
        out.findings
    }

    #[test]
    fn buckets_double_and_hold_every_point() {
        let buckets = buckets(&observation(Role::Candidate, |_| 2.0));
        let ranges: Vec<_> = buckets.iter().map(|b| (b.from, b.to, b.points)).collect();
        assert_eq!(ranges, [(0, 255, 16), (256, 511, 16), (512, 1023, 32), (1024, 2047, 63)]);
        assert!((buckets[0].perplexity - 2f64.exp()).abs() < 1e-9);
    }

    #[test]
    fn a_step_at_some_length_is_seen_and_placed() {
        assert_eq!(findings(|_| 3.00005), []);
        let found = findings(|at| if at < 1024 { 3.0 } else { 6.0 });
        assert_eq!(found[0].code, "perplexity-differs");
        assert_eq!(found[0].evidence["first_position"], json!(1024));
    }
}
