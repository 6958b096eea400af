//! T2, decisive: teacher-forced logits of an engine against the engine taken as right, over prefill and decode positions
//! separately, because a check of prefill alone passes an engine that loses its history.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::{Against, role_name};
use crate::{
    config::spec::Thresholds,
    engine::protocol::{Phase, Scored, ScoredPosition},
    judge::{Finding, Severity},
    matrix::Role,
};

pub use super::codes::{DECODE_DIVERGES, PREFILL_DIVERGES};

/// One engine's rows against another's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogitsComparison {
    /// Whose rows.
    pub of: Role,
    /// Whose rows are taken as right.
    pub against: Against,
    /// Over the rows that prefills made.
    pub prefill: Option<PhaseMetrics>,
    /// Over the rows that one-token steps made.
    pub decode: Option<PhaseMetrics>,
    /// The figures of each row, ascending by position.
    pub rows: Vec<RowMetrics>,
}

/// The figures of one row `q` against the row `p` taken as right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowMetrics {
    /// Which input token.
    pub position: usize,
    /// What made the row.
    pub phase: Phase,
    /// KL(p‖q) in nats, from log-softmax in f64.
    pub kl: f64,
    /// ‖q − p‖ / ‖p‖ over raw logits.
    pub relative_l2: f64,
    /// Cosine of the angle between the raw rows.
    pub cosine: f64,
    /// Largest |qᵢ − pᵢ| in standard deviations of `p`: sees two swapped logits even among unlikely ids.
    pub max_logit_gap: f64,
    /// The id of that largest gap.
    pub max_logit_gap_id: u32,
    /// Difference in nats between the first and second choice of `p`.
    pub margin: f64,
    /// The most likely id of `p`.
    pub right_top: u32,
    /// The most likely id of `q`.
    pub top: u32,
}

/// The figures of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseMetrics {
    /// How many rows.
    pub positions: usize,
    /// Mean KL in nats.
    pub mean_kl: f64,
    /// 99th percentile of KL in nats by nearest rank; below 100 rows the largest.
    pub p99_kl: f64,
    /// Rows whose margin is above the threshold.
    pub top1_counted: usize,
    /// Those of them whose most likely ids agree.
    pub top1_agreed: usize,
    /// Largest relative L2 of a row.
    pub relative_l2: f64,
    /// Smallest cosine of a row.
    pub cosine: f64,
    /// Largest gap of one logit, in standard deviations.
    pub max_logit_gap: f64,
}

/// The rows of a range of positions, whose ends double: where a divergence begins and how it grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PositionBucket {
    /// The first position.
    pub from: usize,
    /// The last position.
    pub to: usize,
    /// How many rows.
    pub positions: usize,
    /// Mean KL in nats.
    pub mean_kl: f64,
    /// Mean log-probability that the right engine and the other give to the ids that follow; absent where none does.
    pub mean_next_logprob: Option<(f64, f64)>,
}

/// Why two sets of rows cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Incomparable {
    /// Different ids were forced.
    #[error("different ids or prefill lengths were forced")]
    DifferentIds,
    /// The rows were not recorded in full.
    #[error("the row at position {0} was not recorded in full")]
    RowNotRecorded(usize),
    /// The engine's rows have a wrong shape.
    #[error("{0}")]
    EngineAtFault(String),
    /// No position has a finite row on both sides.
    #[error("{0}")]
    NothingInCommon(String),
}

/// Compares `engine` (ids, prefill length, rows) with `right`, row by row over the positions that both report.
///
/// Top-1 agreement is counted where the right row's margin is above `margin`, in nats.
pub fn compare(
    of: Role,
    against: Against,
    engine: (&[u32], usize, &Scored),
    right: (&[u32], usize, &Scored),
    margin: f64,
) -> Result<LogitsComparison, Incomparable> {
    if engine.0 != right.0 || engine.1 != right.1 {
        return Err(Incomparable::DifferentIds);
    }
    let mut rows = Vec::new();
    for r in &right.2.positions {
        let Some(e) = engine.2.positions.iter().find(|e| e.position == r.position) else { continue };
        let (q, p) = (row(e)?, row(r)?);
        if q.len() != p.len() {
            return Err(Incomparable::EngineAtFault(format!(
                "a logits row at position {} has {} values where {} are right",
                e.position,
                q.len(),
                p.len()
            )));
        }
        if e.phase != r.phase {
            return Err(Incomparable::EngineAtFault(format!(
                "position {} was answered by a {} where a {} was asked for",
                e.position,
                phase_name(e.phase),
                phase_name(r.phase)
            )));
        }
        if p.len() < 2 || q.iter().chain(&p).any(|x| !x.is_finite()) {
            continue;
        }
        rows.push(row_metrics(r.position, r.phase, &p, &q));
    }
    if rows.is_empty() {
        return Err(Incomparable::NothingInCommon("no position has a finite row on both sides".into()));
    }
    rows.sort_by_key(|r| r.position);
    Ok(LogitsComparison {
        of,
        against,
        prefill: phase_metrics(&rows, Phase::Prefill, margin),
        decode: phase_metrics(&rows, Phase::Decode, margin),
        rows,
    })
}

/// What the figures mean: one error for each phase that exceeds a threshold.
pub fn findings(
    comparison: &LogitsComparison,
    engine: &Scored,
    right: &Scored,
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (phase, code) in [(Phase::Prefill, PREFILL_DIVERGES), (Phase::Decode, DECODE_DIVERGES)] {
        let Some(metrics) = comparison.of_phase(phase) else { continue };
        let exceeded = metrics.exceeds(thresholds);
        if exceeded.is_empty() {
            continue;
        }
        let first = comparison.first_diverging(phase, thresholds).expect("a phase that exceeds has rows");
        let steps: Vec<_> = comparison.rows.iter().filter(|r| r.phase == phase).collect();
        let nth = steps.iter().position(|r| r.position == first.position).map_or(0, |i| i + 1);
        let other = match phase {
            Phase::Prefill => Phase::Decode,
            Phase::Decode => Phase::Prefill,
        };
        let beside = match comparison.of_phase(other) {
            None => format!("no {} position was compared", phase_name(other)),
            Some(m) if m.exceeds(thresholds).is_empty() => {
                format!("{} agrees (mean KL {:.1e})", phase_name(other), m.mean_kl)
            }
            Some(m) => format!("{} differs too (mean KL {:.1e})", phase_name(other), m.mean_kl),
        };
        findings.push(Finding {
            code: code.to_owned(),
            subject: comparison.of.into(),
            severity: Severity::Error,
            message: format!(
                "the {}'s {} leaves the {} at position {} ({} {nth} of {}): {}; {beside}",
                role_name(comparison.of),
                phase_name(phase),
                against_name(comparison.against),
                first.position,
                if phase == Phase::Decode { "decode step" } else { "row" },
                steps.len(),
                exceeded.join(", "),
            ),
            evidence: json!({
                "against": comparison.against,
                "first_position": first.position,
                "phase": phase,
                "exceeded": exceeded,
                "metrics": metrics,
                "first_row": first,
                "by_position": comparison.by_position(engine, right),
                "right_top": top_of(right, first.position),
                "engine_top": top_of(engine, first.position),
            }),
        });
    }
    findings
}

/// The logits of a position, or why there are none.
pub fn row(position: &ScoredPosition) -> Result<Vec<f32>, Incomparable> {
    let encoded = position.logits_f32.as_deref().ok_or(Incomparable::RowNotRecorded(position.position))?;
    let bytes = STANDARD.decode(encoded).map_err(|e| {
        Incomparable::EngineAtFault(format!(
            "the logits row at position {} is not base64: {e}",
            position.position
        ))
    })?;
    if bytes.is_empty() || bytes.len() % 4 != 0 {
        return Err(Incomparable::EngineAtFault(format!(
            "the logits row at position {} has {} bytes, not a multiple of four",
            position.position,
            bytes.len()
        )));
    }
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// The phase as a word in a sentence.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    }
}

/// The other side as words in a sentence.
pub fn against_name(against: Against) -> &'static str {
    match against {
        Against::Reference => "reference",
        Against::Baseline => "baseline",
        Against::ReferenceWithoutHistory => "reference without history",
    }
}

impl LogitsComparison {
    /// The figures of one phase.
    pub fn of_phase(&self, phase: Phase) -> Option<&PhaseMetrics> {
        match phase {
            Phase::Prefill => self.prefill.as_ref(),
            Phase::Decode => self.decode.as_ref(),
        }
    }

    /// The rows by position: 0, 1, 2-3, 4-7 and so on, empty ranges left out.
    pub fn by_position(&self, engine: &Scored, right: &Scored) -> Vec<PositionBucket> {
        let next = |scored: &Scored, position: usize| {
            scored.positions.iter().find(|p| p.position == position).and_then(|p| p.next_logprob)
        };
        self.rows
            .chunk_by(|a, b| (a.position + 1).ilog2() == (b.position + 1).ilog2())
            .map(|rows| {
                let nexts: Vec<(f64, f64)> = rows
                    .iter()
                    .filter_map(|r| next(right, r.position).zip(next(engine, r.position)))
                    .collect();
                #[expect(clippy::cast_precision_loss, reason = "counts of positions are far below 2^52")]
                let mean = |sum: f64, n: usize| sum / n as f64;
                let sums = nexts.iter().fold((0.0, 0.0), |(r, e), n| (r + n.0, e + n.1));
                PositionBucket {
                    from: rows[0].position,
                    to: rows[rows.len() - 1].position,
                    positions: rows.len(),
                    mean_kl: mean(rows.iter().map(|r| r.kl).sum(), rows.len()),
                    mean_next_logprob: (!nexts.is_empty())
                        .then(|| (mean(sums.0, nexts.len()), mean(sums.1, nexts.len()))),
                }
            })
            .collect()
    }

    /// The first row of a phase that is out by itself; where only an average is, the first row above that average's
    /// limit.
    pub fn first_diverging(&self, phase: Phase, thresholds: &Thresholds) -> Option<&RowMetrics> {
        let mut rows = self.rows.iter().filter(|r| r.phase == phase);
        rows.clone()
            .find(|r| r.exceeds(thresholds))
            .or_else(|| rows.clone().find(|r| r.kl > thresholds.mean_kl))
            .or_else(|| rows.next())
    }
}

impl RowMetrics {
    /// Whether this row alone is out.
    pub fn exceeds(&self, t: &Thresholds) -> bool {
        self.kl > t.p99_kl
            || self.relative_l2 > t.relative_l2
            || self.cosine < t.cosine
            || self.max_logit_gap > t.max_logit_gap
            || (self.margin > t.margin && self.top != self.right_top)
    }
}

impl PhaseMetrics {
    /// Each threshold that is exceeded, with figure and limit, for people.
    pub fn exceeds(&self, t: &Thresholds) -> Vec<String> {
        let mut out = Vec::new();
        if self.mean_kl > t.mean_kl {
            out.push(format!("mean KL {:.2e} nats (limit {:.0e})", self.mean_kl, t.mean_kl));
        }
        if self.p99_kl > t.p99_kl {
            out.push(format!("99th-percentile KL {:.2e} nats (limit {:.0e})", self.p99_kl, t.p99_kl));
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of positions are far below 2^52")]
        if self.top1_counted > 0 && (self.top1_agreed as f64) < t.top1_agreement * self.top1_counted as f64 {
            out.push(format!("the most likely id agrees at {} of {}", self.top1_agreed, self.top1_counted));
        }
        if self.relative_l2 > t.relative_l2 {
            out.push(format!("relative L2 {:.2e} (limit {:.0e})", self.relative_l2, t.relative_l2));
        }
        if self.cosine < t.cosine {
            out.push(format!("cosine {:.4} (limit {})", self.cosine, t.cosine));
        }
        if self.max_logit_gap > t.max_logit_gap {
            out.push(format!(
                "one logit is off by {:.2e} standard deviations (limit {:.0e})",
                self.max_logit_gap, t.max_logit_gap
            ));
        }
        out
    }
}

fn top_of(scored: &Scored, position: usize) -> Value {
    json!(scored.positions.iter().find(|p| p.position == position).map(|p| &p.top))
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_sum = row.iter().map(|x| f64::from(x - max).exp()).sum::<f64>().ln();
    row.iter().map(|x| f64::from(*x) - f64::from(max) - log_sum).collect()
}

/// The first and second largest, smallest id first among equals.
fn top_two(row: &[f32]) -> (usize, usize) {
    let (mut first, mut second) = (0, usize::MAX);
    for i in 1..row.len() {
        if row[i] > row[first] {
            second = first;
            first = i;
        } else if second == usize::MAX || row[i] > row[second] {
            second = i;
        }
    }
    (first, second)
}

#[expect(clippy::cast_precision_loss, reason = "vocabularies are far below 2^52")]
fn row_metrics(position: usize, phase: Phase, p: &[f32], q: &[f32]) -> RowMetrics {
    let (log_p, log_q) = (log_softmax(p), log_softmax(q));
    let kl = log_p.iter().zip(&log_q).map(|(a, b)| a.exp() * (a - b)).sum::<f64>().max(0.0);
    let (mut dot, mut pp, mut qq, mut dd, mut sum) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut gap, mut gap_id) = (0.0, 0);
    for (i, (a, b)) in p.iter().zip(q).enumerate() {
        let (a, b) = (f64::from(*a), f64::from(*b));
        dot += a * b;
        pp += a * a;
        qq += b * b;
        dd += (a - b) * (a - b);
        sum += a;
        if (a - b).abs() > gap {
            (gap, gap_id) = ((a - b).abs(), i);
        }
    }
    let n = p.len() as f64;
    let std = (pp / n - (sum / n).powi(2)).max(0.0).sqrt().max(f64::from(f32::MIN_POSITIVE));
    let (first, second) = top_two(p);
    let cosine = if pp > 0.0 && qq > 0.0 {
        (dot / (pp.sqrt() * qq.sqrt())).clamp(-1.0, 1.0)
    } else if pp == qq {
        1.0
    } else {
        0.0
    };
    RowMetrics {
        position,
        phase,
        kl,
        relative_l2: if dd == 0.0 { 0.0 } else { (dd / pp.max(f64::from(f32::MIN_POSITIVE))).sqrt() },
        cosine: if dd == 0.0 { 1.0 } else { cosine },
        max_logit_gap: gap / std,
        max_logit_gap_id: u32::try_from(gap_id).unwrap_or(u32::MAX),
        margin: f64::from(p[first]) - f64::from(p[second]),
        right_top: u32::try_from(first).unwrap_or(u32::MAX),
        top: u32::try_from(top_two(q).0).unwrap_or(u32::MAX),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of positions are far below 2^52")]
fn phase_metrics(rows: &[RowMetrics], phase: Phase, margin: f64) -> Option<PhaseMetrics> {
    let rows: Vec<_> = rows.iter().filter(|r| r.phase == phase).collect();
    if rows.is_empty() {
        return None;
    }
    let mut kls: Vec<f64> = rows.iter().map(|r| r.kl).collect();
    kls.sort_by(f64::total_cmp);
    let rank = (kls.len() * 99).div_ceil(100);
    let counted: Vec<_> = rows.iter().filter(|r| r.margin > margin).collect();
    Some(PhaseMetrics {
        positions: rows.len(),
        mean_kl: kls.iter().sum::<f64>() / kls.len() as f64,
        p99_kl: kls[rank - 1],
        top1_counted: counted.len(),
        top1_agreed: counted.iter().filter(|r| r.top == r.right_top).count(),
        relative_l2: rows.iter().map(|r| r.relative_l2).fold(0.0, f64::max),
        cosine: rows.iter().map(|r| r.cosine).fold(1.0, f64::min),
        max_logit_gap: rows.iter().map(|r| r.max_logit_gap).fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::toy::{full_row, thresholds};

    /// Rows from a small generator with a printed seed, so that a failure can be repeated.
    fn random_rows(seed: u64, rows: usize, vocab: usize) -> Vec<Vec<f32>> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 24) as f32
        };
        // Twelve uniform values make nearly a normal one.
        (0..rows)
            .map(|_| (0..vocab).map(|_| ((0..12).map(|_| next()).sum::<f32>() - 6.0) * 3.0).collect())
            .collect()
    }

    fn scored(rows: &[Vec<f32>]) -> Scored {
        let positions = rows
            .iter()
            .enumerate()
            .map(|(position, row)| ScoredPosition {
                position,
                phase: if position < 2 { Phase::Prefill } else { Phase::Decode },
                non_finite: 0,
                next_logprob: None,
                top: vec![],
                logits_f32: Some(full_row(row)),
            })
            .collect();
        Scored { positions, prefill_s: 0.0, decode_s: 0.0, held_bytes: None, peak_bytes: None }
    }

    fn compared(engine: &[Vec<f32>], right: &[Vec<f32>]) -> LogitsComparison {
        let ids: Vec<u32> = (0..right.len() as u32).collect();
        let (e, r) = (scored(engine), scored(right));
        compare(Role::Candidate, Against::Reference, (&ids, 2, &e), (&ids, 2, &r), 0.25).unwrap()
    }

    #[test]
    fn identical_rows_measure_zero_and_scaled_noise_stays_inside_the_thresholds() {
        for seed in 1..20 {
            let right = random_rows(seed, 6, 500);
            let same = compared(&right, &right);
            assert!(
                same.rows.iter().all(|r| r.kl == 0.0 && r.relative_l2 == 0.0 && r.cosine == 1.0),
                "seed {seed}"
            );
            let noise = random_rows(seed + 1000, 6, 500);
            let near: Vec<Vec<f32>> = right
                .iter()
                .zip(&noise)
                .map(|(row, n)| row.iter().zip(n).map(|(x, e)| x + 1e-5 * e).collect())
                .collect();
            for phase in [Phase::Prefill, Phase::Decode] {
                let c = compared(&near, &right);
                let exceeded = c.of_phase(phase).unwrap().exceeds(&thresholds());
                assert!(exceeded.is_empty(), "seed {seed}: {exceeded:?}");
            }
        }
    }

    #[test]
    fn any_two_swapped_logits_are_seen_where_they_are() {
        for seed in 1..60 {
            let right = random_rows(seed, 6, 500);
            let (a, b) = ((seed as usize * 37) % 500, (seed as usize * 101 + 7) % 500);
            let at = 2 + seed as usize % 4;
            let apart = (right[at][a] - right[at][b]).abs();
            if a == b || apart < 0.5 {
                continue;
            }
            let mut engine = right.clone();
            engine[at].swap(a, b);
            let c = compared(&engine, &right);
            assert!(c.prefill.as_ref().unwrap().exceeds(&thresholds()).is_empty());
            assert!(
                !c.decode.as_ref().unwrap().exceeds(&thresholds()).is_empty(),
                "seed {seed}: {a} and {b}"
            );
            assert_eq!(c.first_diverging(Phase::Decode, &thresholds()).unwrap().position, at, "seed {seed}");
        }
    }

    #[test]
    fn rows_moved_by_one_position_are_seen_from_the_first_on() {
        for seed in 1..20 {
            let rows = random_rows(seed, 7, 500);
            let c = compared(&rows[1..], &rows[..6]);
            assert_eq!(c.first_diverging(Phase::Decode, &thresholds()).unwrap().position, 2, "seed {seed}");
            assert!(c.decode.unwrap().mean_kl > 1.0, "seed {seed}");
        }
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let rows = random_rows(1, 4, 50);
        let (ids, other) = ([0, 1, 2, 3], [0, 1, 2, 9]);
        let whole = scored(&rows);
        let compare = |e: (&[u32], usize, &Scored), r: (&[u32], usize, &Scored)| {
            compare(Role::Candidate, Against::Reference, e, r, 0.25)
        };
        assert_eq!(compare((&other, 2, &whole), (&ids, 2, &whole)), Err(Incomparable::DifferentIds));
        assert_eq!(compare((&ids, 3, &whole), (&ids, 2, &whole)), Err(Incomparable::DifferentIds));
        let mut summary = whole.clone();
        summary.positions[1].logits_f32 = None;
        assert_eq!(compare((&ids, 2, &summary), (&ids, 2, &whole)), Err(Incomparable::RowNotRecorded(1)));
        for broken in ["not base64!", "AAA=", ""] {
            let mut bad = whole.clone();
            bad.positions[0].logits_f32 = Some(broken.into());
            let found = compare((&ids, 2, &bad), (&ids, 2, &whole));
            assert!(matches!(found, Err(Incomparable::EngineAtFault(_))), "{broken:?}: {found:?}");
        }
        let short = scored(&random_rows(1, 4, 49));
        let found = compare((&ids, 2, &short), (&ids, 2, &whole));
        assert!(matches!(found, Err(Incomparable::EngineAtFault(_))), "{found:?}");
    }
}
