//! Naming the cause of a divergence. First by what else would produce it: an engine that matches a deliberately broken
//! reference, and not the sound one, has that fault. Where nothing imitates it, by its pattern: at which positions and in
//! which kind of step it begins, and how it looks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Against, CellObservations, Finding, ReferenceState, Severity, Subject,
    greedy::{DIVERGES, NEAR_TIE_NATS},
    judge_cell,
    logits::{self, DECODE_DIVERGES, LogitsComparison, PREFILL_DIVERGES},
    scored,
};
use crate::{
    config::spec::Thresholds,
    engine::{
        fault::{Fault, Layers},
        protocol::{Generated, Phase, Scored, Tokens},
    },
    matrix::{Cell, Observation},
};

/// What the counterfactual shows: the engine decodes as the reference does when each step starts on an empty cache.
pub const NO_KV_CACHE: &str = "no-kv-cache";

/// Memory runs out because the whole prompt goes in as one piece.
pub const WHOLE_PREFILL: &str = "whole-prompt-prefill";

/// Logits that are no numbers.
pub const NOT_A_NUMBER: &str = "not-a-number";

/// The prompt is rendered differently.
pub const CHAT_TEMPLATE: &str = "chat-template";

/// The same text becomes other ids.
pub const TOKENIZER: &str = "tokenizer";

/// Ids with a meaning of their own are taken for others.
pub const SPECIAL_TOKENS: &str = "special-tokens";

/// The head's rows are in another order.
pub const HEAD_PERMUTED: &str = "head-rows-permuted";

/// Everything is a little off, everywhere.
pub const PRECISION_LOSS: &str = "precision-loss";

/// Rows are wrong even where there is nothing to attend to.
pub const WEIGHTS_OR_HEAD: &str = "weights-or-head";

/// Rows are right at position 0 and wrong after it, in prefill already.
pub const POSITIONS_OR_ATTENTION: &str = "positions-or-attention";

/// Prefill is right and the first one-token step is wrong.
pub const DECODE_STATE: &str = "decode-state";

/// The first steps are right and later ones wrong.
pub const STATE_LOST_LATER: &str = "state-lost-later";

/// The sentence for [`NO_KV_CACHE`].
pub const NO_KV_CACHE_SENTENCE: &str = "each decode step behaves as if it saw only the last token";

/// Adds to a decode divergence what the comparison with the reference without history says: the diagnosis when the
/// engine's decode rows match it within the thresholds, else the two distances and that the rows match neither.
pub fn explain(
    findings: &mut [Finding],
    to_reference: &LogitsComparison,
    to_counterfactual: &LogitsComparison,
    thresholds: &Thresholds,
) {
    let (Some(reference), Some(without)) = (&to_reference.decode, &to_counterfactual.decode) else { return };
    let matches = without.exceeds(thresholds).is_empty();
    let separation = json!({
        "mean_kl_to_reference": reference.mean_kl,
        "mean_kl_to_reference_without_history": without.mean_kl,
        "relative_l2_to_reference": reference.relative_l2,
        "relative_l2_to_reference_without_history": without.relative_l2,
        "decode_positions": without.positions,
        "runner_up": "some other fault of decoding: the rows would match neither run of the reference",
    });
    for finding in findings.iter_mut().filter(|f| f.code == DECODE_DIVERGES) {
        let Value::Object(evidence) = &mut finding.evidence else { continue };
        evidence.insert("diagnosis".into(), json!(if matches { NO_KV_CACHE } else { "unknown" }));
        evidence.insert("separation".into(), separation.clone());
        finding.message.push_str(&if matches {
            format!(
                "; {NO_KV_CACHE_SENTENCE}: the rows equal those of the reference without history (mean KL {:.1e})",
                without.mean_kl
            )
        } else {
            format!(
                "; the rows match neither the reference (mean KL {:.1e}) nor the reference without history (mean KL {:.1e})",
                reference.mean_kl, without.mean_kl
            )
        });
    }
}

/// So many steps at least must be foretold before greedy ids count as explained.
const FORETOLD_STEPS: usize = 3;

/// Adds to a greedy divergence whether the reference without history, forced along the engine's own ids, foretells the
/// engine's choice at every decode step (a tie counts as foretold).
pub fn explain_greedy(
    findings: &mut [Finding],
    engine: (&Tokens, &Generated),
    counterfactual: (&[u32], usize, &Scored),
) {
    let (prompt, generated) = engine;
    let (ids, prefill_len, scored) = counterfactual;
    let along_own_ids =
        prefill_len == prompt.ids.len() && ids.iter().eq(prompt.ids.iter().chain(&generated.ids));
    if !along_own_ids {
        return;
    }
    let steps: Vec<bool> = scored
        .positions
        .iter()
        .filter(|p| p.phase == Phase::Decode)
        .filter_map(|p| {
            let chosen = *ids.get(p.position + 1)?;
            let first = p.top.first()?;
            let foretold = p.top.iter().find(|t| t.id == chosen);
            Some(foretold.is_some_and(|t| first.logprob - t.logprob < NEAR_TIE_NATS))
        })
        .collect();
    let hits = steps.iter().filter(|hit| **hit).count();
    let explained = hits == steps.len() && hits >= FORETOLD_STEPS;
    for finding in findings.iter_mut().filter(|f| f.code == DIVERGES) {
        let Value::Object(evidence) = &mut finding.evidence else { continue };
        evidence.insert("diagnosis".into(), json!(if explained { NO_KV_CACHE } else { "unknown" }));
        evidence.insert(
            "separation".into(),
            json!({
                "steps": steps.len(),
                "foretold_by_reference_without_history": hits,
                "runner_up": "some other fault of decoding: the reference without history would not foretell every step",
            }),
        );
        finding.message.push_str(&if explained {
            format!(
                "; {NO_KV_CACHE_SENTENCE}: the reference without history foretells all {hits} of its steps"
            )
        } else {
            format!("; the reference without history foretells {hits} of its {} steps", steps.len())
        });
    }
}

/// The faults whose imitation by the reference is compared with an engine that diverges, by the name of the cause.
pub fn imitations() -> Vec<(&'static str, Fault)> {
    let all = || Layers::All;
    vec![
        (NO_KV_CACHE, Fault::HistoryLost { from_step: 0 }),
        ("position-one-too-far", Fault::DecodeOffset { delta: 1, layers: all(), from_step: 0 }),
        ("position-one-too-near", Fault::DecodeOffset { delta: -1, layers: all(), from_step: 0 }),
        ("rope-base-is-the-default", Fault::RopeBase { base: 10_000.0, layers: all() }),
        ("rope-scaling-is-dropped", Fault::RopeScalingDropped),
        ("head-is-the-embedding", Fault::HeadTied),
        ("scales-and-biases-swapped", Fault::ScalesSwapped { layers: all() }),
        ("window-one-too-small", Fault::Window { delta: -1 }),
        ("window-one-too-large", Fault::Window { delta: 1 }),
        ("window-ignored", Fault::Window { delta: 1 << 20 }),
        ("half-precision", Fault::Dtype { dtype: "float16".into(), layers: all() }),
        ("brain-float", Fault::Dtype { dtype: "bfloat16".into(), layers: all() }),
        ("cache-stale", Fault::CacheStale { after_step: 0, layers: all() }),
    ]
}

/// Imitations at longer contexts would cost more than the cell, and shorter cells of the model tell the cause.
const LONGEST_IMITATED: usize = 1024;

/// Whether the candidate's rows leave a usable reference at this cell, so that imitations could name the cause.
pub fn wants_imitations(cell: &Cell, seen: &CellObservations, thresholds: &Thresholds) -> bool {
    let judgement = judge_cell(cell, seen, thresholds);
    judgement.reference == ReferenceState::Usable
        && cell.context <= LONGEST_IMITATED
        && judgement.findings.iter().any(|f| {
            f.subject == Subject::Candidate
                && (f.code == DECODE_DIVERGES || f.code == PREFILL_DIVERGES)
                && f.evidence["diagnosis"] != json!(NO_KV_CACHE)
        })
}

/// The cause that differing ids of one prompt tell.
pub fn of_prompts(engine: &Tokens, right: &Tokens) -> &'static str {
    if engine.rendered == right.rendered { TOKENIZER } else { CHAT_TEMPLATE }
}

/// What separates that cause from the next likely one.
pub fn runner_up_of_prompts(engine: &Tokens, right: &Tokens) -> &'static str {
    match engine.rendered == right.rendered {
        true => "the chat template: the rendered texts would differ, and they are equal",
        false => "the tokenizer: the rendered texts would be equal, and they differ",
    }
}

/// One imitation beside the engine.
struct Candidate<'i> {
    name: &'i str,
    matches: bool,
    mean_kl: f64,
}

/// Adds to divergences that have no diagnosis yet what the imitations say, else what the pattern says; either with what
/// separates it from the runner-up.
pub fn explain_by_pattern(
    findings: &mut [Finding],
    comparison: &LogitsComparison,
    engine: (&[u32], usize, &Scored),
    right: (&[u32], usize, &Scored),
    imitations: &BTreeMap<String, Observation>,
    thresholds: &Thresholds,
) {
    if findings.iter().all(|f| named(f).is_some()) {
        return;
    }
    let own = mean_kl(comparison);
    let mut candidates: Vec<Candidate<'_>> = imitations
        .iter()
        .filter_map(|(name, observation)| {
            let rows = scored(observation)?;
            // An imitation that changes nothing here says nothing.
            let effect =
                logits::compare(comparison.of, Against::Reference, rows, right, thresholds.margin).ok()?;
            if exceeds_nothing(&effect, thresholds) {
                return None;
            }
            let to =
                logits::compare(comparison.of, Against::Reference, engine, rows, thresholds.margin).ok()?;
            Some(Candidate { name, matches: exceeds_nothing(&to, thresholds), mean_kl: mean_kl(&to) })
        })
        .collect();
    candidates.sort_by(|a, b| a.mean_kl.total_cmp(&b.mean_kl).then(a.name.cmp(b.name)));
    let (diagnosis, separation, sentence) = match candidates.first() {
        Some(best) if best.matches => {
            let next = candidates.get(1);
            (
                best.name.to_owned(),
                json!({
                    "mean_kl_to_reference": own,
                    "mean_kl_to_imitation": best.mean_kl,
                    "runner_up": next.map(|c| c.name),
                    "mean_kl_to_runner_up": next.map(|c| c.mean_kl),
                    "imitations": candidates.len(),
                }),
                format!(
                    "the rows equal those of the reference with `{}` put in (mean KL {:.1e}{})",
                    best.name,
                    best.mean_kl,
                    next.map_or(String::new(), |c| format!("; next `{}`, {:.1e}", c.name, c.mean_kl))
                ),
            )
        }
        nearest => {
            let (name, runner_up, sentence) = pattern(comparison, engine, right, thresholds);
            let nearest = nearest.map(|c| json!({ "name": c.name, "mean_kl": c.mean_kl }));
            (
                name.to_owned(),
                json!({
                    "mean_kl_to_reference": own,
                    "runner_up": runner_up,
                    "nearest_imitation": nearest,
                }),
                sentence.to_owned(),
            )
        }
    };
    for finding in findings.iter_mut().filter(|f| named(f).is_none()) {
        let Value::Object(evidence) = &mut finding.evidence else { continue };
        evidence.insert("diagnosis".into(), json!(diagnosis));
        let before = evidence.insert("separation".into(), separation.clone());
        if let (Some(Value::Object(before)), Some(Value::Object(now))) =
            (before, evidence.get_mut("separation"))
        {
            for (key, value) in before {
                now.entry(key).or_insert(value);
            }
        }
        finding.message.push_str("; ");
        finding.message.push_str(&sentence);
    }
}

fn exceeds_nothing(comparison: &LogitsComparison, thresholds: &Thresholds) -> bool {
    [&comparison.prefill, &comparison.decode].into_iter().flatten().all(|m| m.exceeds(thresholds).is_empty())
}

#[expect(clippy::cast_precision_loss, reason = "counts of positions are far below 2^52")]
fn mean_kl(comparison: &LogitsComparison) -> f64 {
    comparison.rows.iter().map(|r| r.kl).sum::<f64>() / comparison.rows.len() as f64
}

/// A relative distance up to which rows are the same numbers, less exactly kept.
const PRECISION_L2: f64 = 0.06;

/// Class, runner-up with what separates it, and a sentence.
fn pattern(
    comparison: &LogitsComparison,
    engine: (&[u32], usize, &Scored),
    right: (&[u32], usize, &Scored),
    thresholds: &Thresholds,
) -> (&'static str, &'static str, &'static str) {
    let bad = |r: &&logits::RowMetrics| r.exceeds(thresholds);
    let worst_l2 = comparison.rows.iter().map(|r| r.relative_l2).fold(0.0, f64::max);
    let first = comparison.rows.first();
    let decode: Vec<_> = comparison.rows.iter().filter(|r| r.phase == Phase::Decode).collect();
    if comparison.rows.iter().filter(bad).any(|r| r.relative_l2 > PRECISION_L2)
        && comparison.rows.iter().filter(bad).all(|r| permuted(r.position, engine.2, right.2))
    {
        return (
            HEAD_PERMUTED,
            "other weights: the values of a row would differ, and they are the same ones in another order",
            "every row holds the reference's values in another order, as a shuffled head gives",
        );
    }
    if worst_l2 < PRECISION_L2 && comparison.rows.iter().all(|r| r.relative_l2 > worst_l2 / 20.0) {
        return (
            PRECISION_LOSS,
            "a fault of positions or of the cache: the first position would be exact, and it is off as the others are",
            "every row is a little off by about the same amount, as a coarser number format gives",
        );
    }
    match first {
        Some(r) if r.position == 0 && bad(&r) => (
            WEIGHTS_OR_HEAD,
            "a fault of positions or attention: position 0, which attends to itself alone, would be right",
            "position 0 is wrong, where there is nothing to attend to: weights, norms, head or quantization",
        ),
        _ if comparison.rows.iter().filter(|r| r.phase == Phase::Prefill).any(|r| bad(&r)) => (
            POSITIONS_OR_ATTENTION,
            "weights or head: position 0 would be wrong too, and it is right",
            "position 0 is right and later prefill rows are wrong: rotary positions, mask, window or a lost chunk",
        ),
        _ if decode.first().is_some_and(bad) => (
            DECODE_STATE,
            "a fault of attention itself: prefill rows would be wrong too, and they are right",
            "prefill is right and the first one-token step is wrong: cache contents or the step's position",
        ),
        _ => (
            STATE_LOST_LATER,
            "a cache that is never filled: the first step would be wrong, and it is right",
            "the first steps are right and later ones wrong: the cache stops growing, wraps or is overwritten",
        ),
    }
}

/// Whether two rows hold the same values in another order.
fn permuted(position: usize, engine: &Scored, right: &Scored) -> bool {
    let sorted = |scored: &Scored| {
        let mut row = logits::row(scored.positions.iter().find(|p| p.position == position)?).ok()?;
        row.sort_by(f32::total_cmp);
        Some(row)
    };
    let (Some(e), Some(r)) = (sorted(engine), sorted(right)) else { return false };
    let scale = r.iter().fold(0.0_f32, |m, x| m.max(x.abs())).max(f32::MIN_POSITIVE);
    e.len() == r.len() && e.iter().zip(&r).all(|(a, b)| (a - b).abs() < 1e-4 * scale)
}

/// The diagnosis that a finding carries, when the pattern told one.
pub fn named(finding: &Finding) -> Option<&str> {
    finding.evidence.get("diagnosis").and_then(Value::as_str).filter(|d| *d != "unknown")
}

/// Lets an error without a diagnosis borrow the one that another cell of the same model gave for the same subject. It
/// stays a likelihood: `likely_cause`, with the cell that showed it.
pub fn borrow(finding: &mut Finding, diagnosis: &str, seen_at: &str) {
    if finding.severity != Severity::Error || named(finding).is_some() {
        return;
    }
    if let Value::Object(evidence) = &mut finding.evidence {
        evidence.insert("likely_cause".into(), json!({ "diagnosis": diagnosis, "seen_at": seen_at }));
    }
}
