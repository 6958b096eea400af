//! The faults that the self-test puts into engines and checkpoints, each at three strengths, with the cells that are there
//! to see them. A gate runs more cells than these: what some of them see, all of them see.

use super::{
    checkpoint::{Checkpoint, GROUP, MERGES, TEMPLATE, Variant, WINDOW, merging_tokenizer},
    score::{Split, Strength},
};
use crate::{
    engine::{
        fault::{Fault, Layers},
        protocol::{Precision, Product},
    },
    matrix::{AnswerShape, Backend, Cell, Probe, Stretch},
};

/// Steps that are forced or generated after a prompt.
pub(crate) const STEPS: usize = 16;

/// One kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) root_cause: &'static str,
    pub(crate) tier: &'static str,
    pub(crate) split: Split,
    pub(crate) variants: &'static [Variant],
    /// Prompt lengths, in tokens.
    pub(crate) contexts: &'static [usize],
    pub(crate) probes: Probes,
    pub(crate) put_in: PutIn,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probes {
    Logits,
    Greedy,
    Chat,
    /// A prompt in pieces of 512.
    Pieces,
    /// The same prompt three times in one process, another one between.
    Requests,
    /// A product in the shape that only models reach.
    Product,
}

/// Where a fault goes in.
pub(crate) enum PutIn {
    Engine(fn(Strength) -> Fault),
    Checkpoint(fn(&mut Checkpoint, Strength)),
}

impl PutIn {
    pub(crate) fn place(&self) -> &'static str {
        match self {
            Self::Engine(_) => "engine",
            Self::Checkpoint(_) => "checkpoint",
        }
    }
}

const PLAIN: &[Variant] = &[Variant::Qwen3, Variant::Llama];
const CHAT_PROMPT: &str =
    "What is the distance that the ferry has to cover in a day, and is it the station or the mill?";

/// The cells of a model for these contexts.
pub(crate) fn cells(model: &str, contexts: &[usize], probes: Probes) -> Vec<Cell> {
    let cell =
        |context, name: &str, probe| Cell::new(model, Precision::Source, context, name, probe, Backend::Cpu);
    contexts
        .iter()
        .map(|&context| match probes {
            Probes::Logits => cell(context, "logits", Probe::Logits { decode_steps: STEPS, stretch: None }),
            Probes::Pieces => {
                let stretch = Some(Stretch { chunk: Some(512), requests: 1, ..Stretch::default() });
                cell(context, "pieces", Probe::Logits { decode_steps: 4, stretch })
            }
            Probes::Requests => {
                let stretch = Some(Stretch { requests: 3, ..Stretch::default() });
                cell(context, "requests", Probe::Logits { decode_steps: 4, stretch })
            }
            Probes::Product => {
                let product =
                    Product::QuantizedMatmul { rows: 34_992, inner: 64, outer: 32, group_size: 64, bits: 4 };
                cell(context, "product", Probe::Op { product, tolerance: 1e-5 })
            }
            Probes::Greedy => cell(context, "greedy", Probe::Greedy { max_tokens: 4 * STEPS }),
            Probes::Chat => cell(
                0,
                "chat",
                Probe::Task {
                    prompt: CHAT_PROMPT.to_owned(),
                    expect: Vec::new(),
                    shape: AnswerShape::Text,
                    max_tokens: 8,
                    allow: Vec::new(),
                },
            ),
        })
        .collect()
}

fn by<T>(strength: Strength, weak: T, middle: T, strong: T) -> T {
    match strength {
        Strength::Weak => weak,
        Strength::Middle => middle,
        Strength::Strong => strong,
    }
}

fn offset(delta: i64, strength: Strength) -> Fault {
    let (layers, from_step) = by(strength, (Layers::Last, 8), (Layers::Last, 0), (Layers::All, 0));
    Fault::DecodeOffset { delta, layers, from_step }
}

/// Every kind.
pub(crate) fn kinds() -> Vec<Kind> {
    use PutIn::{Checkpoint as C, Engine as E};
    use Split::{HeldOut, Tuned};
    let kind = |name, root_cause, split, variants, contexts, put_in| Kind {
        name,
        root_cause,
        tier: "logits",
        split,
        variants,
        contexts,
        probes: Probes::Logits,
        put_in,
    };
    vec![
        kind(
            "no-kv-cache",
            "cache",
            Tuned,
            PLAIN,
            &[24],
            E(|s| Fault::HistoryLost { from_step: by(s, 12, 4, 0) }),
        ),
        Kind {
            probes: Probes::Pieces,
            ..kind(
                "mask-wrapped",
                "mask",
                HeldOut,
                PLAIN,
                &[1100],
                E(|s| Fault::KeysBeyond {
                    limit: by(s, 1096, 1024, 1024),
                    layers: by(s, Layers::Last, Layers::Last, Layers::All),
                }),
            )
        },
        Kind {
            probes: Probes::Requests,
            ..kind(
                "request-stale",
                "requests",
                HeldOut,
                PLAIN,
                &[64],
                E(|s| Fault::RequestStale { tokens: by(s, 1, 4, 16) }),
            )
        },
        Kind {
            probes: Probes::Requests,
            ..kind(
                "request-leaks",
                "requests",
                HeldOut,
                PLAIN,
                &[64],
                E(|s| Fault::RequestLeaks { bytes: by(s, 2 << 20, 8 << 20, 64 << 20) }),
            )
        },
        Kind {
            probes: Probes::Product,
            ..kind(
                "product-rows-wrap",
                "products",
                HeldOut,
                &[Variant::Llama],
                &[0],
                E(|s| Fault::ProductRowsWrap { from: by(s, 34_991, 32_768, 16_384) }),
            )
        },
        Kind {
            probes: Probes::Product,
            ..kind(
                "product-columns-unwritten",
                "products",
                HeldOut,
                &[Variant::Llama],
                &[0],
                E(|s| Fault::ProductColumnsUnwritten { columns: by(s, 1, 4, 16) }),
            )
        },
        Kind {
            probes: Probes::Greedy,
            tier: "greedy",
            ..kind(
                "no-kv-cache-greedy",
                "cache",
                HeldOut,
                PLAIN,
                &[24],
                E(|s| Fault::HistoryLost { from_step: by(s, 48, 12, 0) }),
            )
        },
        Kind {
            probes: Probes::Greedy,
            tier: "free-text",
            ..kind(
                "no-kv-cache-after-a-tie",
                "cache",
                HeldOut,
                PLAIN,
                &[24],
                E(|s| Fault::LostAfterTie { margin: 0.045, after: by(s, 16, 4, 0) }),
            )
        },
        kind(
            "cache-stale-after",
            "cache",
            HeldOut,
            PLAIN,
            &[24],
            E(|s| Fault::CacheStale {
                after_step: by(s, 12, 4, 0),
                layers: by(s, Layers::Last, Layers::All, Layers::All),
            }),
        ),
        kind(
            "stale-block",
            "cache",
            HeldOut,
            PLAIN,
            &[300],
            E(|s| Fault::StaleBlock {
                start: 100,
                length: by(s, 1, 8, 64),
                layers: by(s, Layers::Last, Layers::All, Layers::All),
            }),
        ),
        kind("offset-plus-one", "positions", Tuned, PLAIN, &[24], E(|s| offset(1, s))),
        kind("offset-minus-one", "positions", HeldOut, PLAIN, &[24], E(|s| offset(-1, s))),
        kind(
            "window-plus",
            "window",
            HeldOut,
            &[Variant::Windowed],
            &[WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 1],
            E(|s| Fault::Window { delta: by(s, 1, 8, 1 << 20) }),
        ),
        kind(
            "window-minus",
            "window",
            Tuned,
            &[Variant::Windowed],
            &[WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 1],
            E(|s| Fault::Window { delta: by(s, -1, -8, -48) }),
        ),
        kind(
            "chunk-boundary-lost",
            "chunks",
            HeldOut,
            PLAIN,
            &[300],
            E(|s| Fault::ChunkBoundary { size: by(s, 256, 128, 64), lost: by(s, 1, 8, 64) }),
        ),
        kind(
            "truncated",
            "truncation",
            HeldOut,
            PLAIN,
            &[300],
            E(|s| Fault::Truncated { keep: by(s, 299, 256, 128) }),
        ),
        kind(
            "wrong-dtype",
            "precision",
            Tuned,
            PLAIN,
            &[24],
            E(|s| Fault::Dtype {
                dtype: by(s, "float16", "bfloat16", "bfloat16").to_owned(),
                layers: by(s, Layers::Last, Layers::Last, Layers::All),
            }),
        ),
        kind(
            "rope-base",
            "positions",
            Tuned,
            PLAIN,
            &[24, 300],
            C(|c, s| {
                let theta = c.config["rope_theta"].as_f64().unwrap_or(1e6);
                c.config["rope_theta"] = serde_json::json!(theta * by(s, 0.9, 0.5, 0.01));
            }),
        ),
        kind(
            "rope-scaling-dropped",
            "positions",
            HeldOut,
            &[Variant::Scaled],
            &[24],
            C(|c, s| {
                let factor = by(s, Some(3.9), Some(2.0), None);
                c.config["rope_scaling"] = factor.map_or(
                    serde_json::Value::Null,
                    |f| serde_json::json!({ "rope_type": "linear", "factor": f }),
                );
            }),
        ),
        kind(
            "qk-swapped",
            "weights",
            HeldOut,
            PLAIN,
            &[24],
            C(|c, s| {
                let rows = by(s, 4, 32, 128);
                for layer in 0..by(s, 1, 1, 2) {
                    let (q, k) = (
                        format!("model.layers.{layer}.self_attn.q_proj"),
                        format!("model.layers.{layer}.self_attn.k_proj"),
                    );
                    let n = rows * c.columns(&q);
                    let mut other = c.weight(&k)[..n].to_vec();
                    c.weight(&q)[..n].swap_with_slice(&mut other);
                    c.weight(&k)[..n].copy_from_slice(&other);
                }
            }),
        ),
        kind(
            "head-shuffled",
            "head",
            Tuned,
            PLAIN,
            &[24],
            C(|c, s| {
                let columns = c.columns("lm_head");
                let head = c.weight("lm_head");
                let rows = by(s, 2, 32, head.len() / columns);
                head[..rows * columns].rotate_left(columns);
            }),
        ),
        kind(
            "scales-biases-swapped",
            "quantization",
            HeldOut,
            &[Variant::Affine4, Variant::Affine8],
            &[24],
            C(|c, s| match s {
                Strength::Weak => c.swap_scales("model.layers.1.mlp.down_proj", 2),
                Strength::Middle => c.swap_scales("model.layers.1.mlp.down_proj", usize::MAX),
                Strength::Strong => {
                    for part in ["self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj"] {
                        c.swap_scales(&format!("model.layers.0.{part}"), usize::MAX);
                    }
                }
            }),
        ),
        kind(
            "wrong-group-size",
            "quantization",
            HeldOut,
            &[Variant::Affine4, Variant::Affine8],
            &[24],
            C(|c, s| match s {
                // Quantized anew in groups of twice the length; at last each second group is read with the scale of the first.
                Strength::Weak => requantize(c, 8),
                Strength::Middle => requantize(c, 4),
                Strength::Strong => c.share_scales(),
            }),
        ),
        Kind {
            tier: "hard",
            ..kind(
                "nan-in-weights",
                "nan",
                Tuned,
                PLAIN,
                &[24],
                C(|c, s| match s {
                    Strength::Weak => c.weight("lm_head")[777] = f32::NAN,
                    Strength::Middle => c.weight("model.layers.1.mlp.down_proj")[5] = f32::NAN,
                    Strength::Strong => c.weight("model.layers.0.self_attn.q_proj").fill(f32::NAN),
                }),
            )
        },
        kind(
            "layer-dropped",
            "weights",
            HeldOut,
            PLAIN,
            &[24],
            C(|c, s| {
                let (down, out) = ("model.layers.1.mlp.down_proj", "model.layers.1.self_attn.o_proj");
                let scale = |w: &mut Vec<f32>, by: f32| w.iter_mut().for_each(|x| *x *= by);
                scale(c.weight(down), by(s, 0.98, 0.0, 0.0));
                scale(c.weight(out), by(s, 1.0, 1.0, 0.0));
            }),
        ),
        kind(
            "norm-eps",
            "weights",
            HeldOut,
            PLAIN,
            &[24],
            C(|c, s| {
                c.config["rms_norm_eps"] = serde_json::json!(by(s, 1e-5, 1e-3, 1e-1));
            }),
        ),
        Kind {
            probes: Probes::Chat,
            tier: "greedy",
            ..kind(
                "tokenizer-merges",
                "tokenizer",
                HeldOut,
                &[Variant::Chat],
                &[0],
                C(|c, s| {
                    c.tokenizer = merging_tokenizer(&MERGES[..MERGES.len() - by(s, 1, 6, 24)]);
                }),
            )
        },
        Kind {
            probes: Probes::Chat,
            tier: "greedy",
            ..kind(
                "chat-template",
                "template",
                HeldOut,
                &[Variant::Chat],
                &[0],
                C(|c, s| {
                    c.chat_template = Some(match s {
                        Strength::Weak => TEMPLATE.replace("assistant:\\n", "assistant:"),
                        Strength::Middle => TEMPLATE.replacen("{{ 'system: be brief and right\\n' }}", "", 1),
                        Strength::Strong => "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned(),
                    });
                }),
            )
        },
        Kind {
            probes: Probes::Chat,
            tier: "hard",
            ..kind(
                "eos-id",
                "template",
                HeldOut,
                &[Variant::Chat],
                &[0],
                C(|c, s| {
                    c.config["eos_token_id"] =
                        by(s, serde_json::json!([0, 5]), serde_json::json!(5), serde_json::json!([5, 6, 7]));
                }),
            )
        },
    ]
}

/// Replaces the quantized weights by those of another grid, made from the same numbers.
fn requantize(c: &mut Checkpoint, bits: usize) {
    let own = c.config["quantization"]["bits"].as_u64().and_then(|b| usize::try_from(b).ok()).unwrap_or(bits);
    c.dequantize(own, GROUP);
    c.quantize(if own == 4 { 4 } else { bits }, 2 * GROUP);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_both_splits() {
        let kinds = kinds();
        let names: BTreeSet<_> = kinds.iter().map(|k| k.name).collect();
        assert_eq!(names.len(), kinds.len());
        for split in [Split::Tuned, Split::HeldOut] {
            assert!(kinds.iter().any(|k| k.split == split));
        }
    }

    #[test]
    fn every_checkpoint_fault_changes_the_checkpoint_at_every_strength() {
        for kind in kinds() {
            let PutIn::Checkpoint(spoil) = kind.put_in else { continue };
            for variant in kind.variants {
                let sound = variant.checkpoint(1);
                for strength in Strength::ALL {
                    let mut faulty = sound.clone();
                    spoil(&mut faulty, strength);
                    // NaN differs from itself, so the bytes are compared.
                    let bytes = |c: &Checkpoint| format!("{c:?}");
                    assert!(bytes(&sound) != bytes(&faulty), "{} {variant:?} {strength:?}", kind.name);
                }
            }
        }
    }
}
