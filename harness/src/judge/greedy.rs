//! Greedy ids of an engine against those of the engine taken as right: where they part, and whether that was a near tie.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::{Against, codes, diagnosis, logits::against_name, role_name};
use crate::{
    engine::protocol::{Generated, Tokens, TopToken},
    judge::{Finding, Severity},
    matrix::Role,
};

/// How far below the right engine's first choice, in nats and by its own account, the other choice may lie and still be
/// excused as a tie that rounding decided. A start value: rounding at bf16 moves log-probabilities by a few hundredths.
pub const NEAR_TIE_NATS: f64 = 0.05;

pub use super::codes::GREEDY_DIVERGES as DIVERGES;

/// One engine's greedy ids against another's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GreedyComparison {
    /// Whose ids.
    pub of: Role,
    /// Whose ids are taken as right.
    pub against: Against,
    /// How many ids agree before the first that does not.
    pub agreed: usize,
    /// How many ids the right engine produced.
    pub right_len: usize,
    /// Where they part.
    pub divergence: Option<Divergence>,
}

/// The step at which two greedy generations part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Index into the produced ids.
    pub index: usize,
    /// The right engine's id there; absent where it had stopped.
    pub right_id: Option<u32>,
    /// The other engine's id there; absent where it had stopped.
    pub engine_id: Option<u32>,
    /// The right engine's first choice over its second, in nats.
    pub margin: Option<f64>,
    /// How far the other engine's choice lies below the right engine's first, in nats, by the right engine's account;
    /// absent where that choice is not in its list.
    pub shortfall: Option<f64>,
    /// Whether a tie excuses it.
    pub near_tie: bool,
}

/// Compares and says what it means. Where the prompts differ nothing else can be compared, and no figures come back.
pub fn judge(
    of: Role,
    against: Against,
    engine: (&Tokens, &Generated),
    right: (&Tokens, &Generated),
    eos_ids: &[u32],
    near_tie_nats: f64,
) -> (Option<GreedyComparison>, Vec<Finding>) {
    let (name, other) = (role_name(of), against_name(against));
    if engine.0.ids != right.0.ids {
        let index = first_difference(&engine.0.ids, &right.0.ids);
        return (
            None,
            vec![Finding {
                code: codes::PROMPT_IDS_DIFFER.into(),
                subject: of.into(),
                severity: Severity::Error,
                message: format!(
                    "the {name} turns the same prompt into other ids than the {other}, first at index {index} ({} ids \
                     against {})",
                    engine.0.ids.len(),
                    right.0.ids.len()
                ),
                evidence: json!({
                    "against": against,
                    "index": index,
                    "diagnosis": diagnosis::of_prompts(engine.0, right.0),
                    "separation": { "runner_up": diagnosis::runner_up_of_prompts(engine.0, right.0) },
                    "texts": side_by_side(&right.0.rendered, &engine.0.rendered),
                    "right_ids": window(&right.0.ids, index),
                    "engine_ids": window(&engine.0.ids, index),
                }),
            }],
        );
    }
    let comparison = compare(of, against, engine.1, right.1, eos_ids, near_tie_nats);
    let Some(d) = &comparison.divergence else { return (Some(comparison), Vec::new()) };
    let step = |id: Option<u32>| id.map_or("stops".to_owned(), |id| format!("chooses {id}"));
    let tie = match d.shortfall {
        Some(s) => format!("{s:.3} nats below the {other}'s first choice"),
        None => {
            format!("not among the {other}'s {} most likely", right.1.top.get(d.index).map_or(0, Vec::len))
        }
    };
    let message = format!(
        "the {name}'s greedy ids leave the {other}'s at index {} of {}: the {other} {}, the {name} {}, {tie}{}",
        d.index,
        comparison.right_len,
        step(d.right_id),
        step(d.engine_id),
        if d.near_tie { "; a tie that rounding decides, so what follows is not compared" } else { "" },
    );
    let finding = Finding {
        code: if d.near_tie { codes::GREEDY_NEAR_TIE } else { DIVERGES }.into(),
        subject: of.into(),
        severity: if d.near_tie { Severity::Info } else { Severity::Error },
        message,
        evidence: json!({
            "against": against,
            "index": d.index,
            "near_tie_limit_nats": near_tie_nats,
            "divergence": d,
            "texts": side_by_side(&right.1.text, &engine.1.text),
            "right_ids": window(&right.1.ids, d.index),
            "engine_ids": window(&engine.1.ids, d.index),
            "right_top": right.1.top.get(d.index),
            "engine_top": engine.1.top.get(d.index),
        }),
    };
    (Some(comparison), vec![finding])
}

/// Two texts, and the first rewritten into the second word by word: `[-only in the right one-]{+only in the other+}`.
pub fn side_by_side(right: &str, engine: &str) -> Value {
    let diff = TextDiff::from_words(right, engine);
    let mut marked = String::new();
    let mut open = ChangeTag::Equal;
    for change in diff.iter_all_changes() {
        if change.tag() != open {
            marked.push_str(closing(open));
            open = change.tag();
            marked.push_str(match open {
                ChangeTag::Equal => "",
                ChangeTag::Delete => "[-",
                ChangeTag::Insert => "{+",
            });
        }
        marked.push_str(change.value());
    }
    marked.push_str(closing(open));
    json!({ "right": right, "engine": engine, "marked": marked })
}

fn closing(tag: ChangeTag) -> &'static str {
    match tag {
        ChangeTag::Equal => "",
        ChangeTag::Delete => "-]",
        ChangeTag::Insert => "+}",
    }
}

fn compare(
    of: Role,
    against: Against,
    engine: &Generated,
    right: &Generated,
    eos_ids: &[u32],
    near_tie_nats: f64,
) -> GreedyComparison {
    let index = first_difference(&engine.ids, &right.ids);
    let (right_id, engine_id) = (right.ids.get(index).copied(), engine.ids.get(index).copied());
    let divergence = (right_id != engine_id).then(|| {
        let top: &[TopToken] = right.top.get(index).map_or(&[], Vec::as_slice);
        let chosen = |t: &&TopToken| match engine_id {
            Some(id) => t.id == id,
            None => eos_ids.contains(&t.id),
        };
        let shortfall = top.first().zip(top.iter().find(chosen)).map(|(first, t)| first.logprob - t.logprob);
        Divergence {
            index,
            right_id,
            engine_id,
            margin: top.first().zip(top.get(1)).map(|(a, b)| a.logprob - b.logprob),
            shortfall,
            near_tie: shortfall.is_some_and(|s| s < near_tie_nats),
        }
    });
    GreedyComparison { of, against, agreed: index, right_len: right.ids.len(), divergence }
}

fn first_difference(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
}

/// The ids from two before an index to five after it.
fn window(ids: &[u32], index: usize) -> &[u32] {
    &ids[index.saturating_sub(2).min(ids.len())..(index + 6).min(ids.len())]
}
