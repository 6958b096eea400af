//! Naming the cause of a divergence by what else would produce it: an engine that matches a deliberately broken
//! reference, and not the sound one, has that fault.

use serde_json::{Value, json};

use super::{
    Finding, Severity,
    greedy::{DIVERGES, NEAR_TIE_NATS},
    logits::{DECODE_DIVERGES, LogitsComparison},
};
use crate::{
    config::spec::Thresholds,
    engine::protocol::{Generated, Phase, Scored, Tokens},
};

/// What the counterfactual shows: the engine decodes as the reference does when each step starts on an empty cache.
pub const NO_KV_CACHE: &str = "no-kv-cache";

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
