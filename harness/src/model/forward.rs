//! A plain f32 forward pass of synthetic llama and qwen3 models, one token at a time, with faults on demand. Slow and
//! only for tests: it proves that a checkpoint can show a fault, without any engine.
//!
//! Its logits were compared by hand with mlx-lm 0.32.2's for both models of `matrices/smoke.toml` (8 tokens of prefill,
//! 16 decode steps): the largest difference was 1.1e-5, where rows have a standard deviation of 1.7.

use std::collections::BTreeMap;

use super::{
    quantize::{applies_to, dequantize, quantize},
    synthetic::{RMS_NORM_EPS, tensors},
};
use crate::config::spec::{Architecture, Head, SyntheticSpec};

/// A way in which an engine may go wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// It is sound.
    None,
    /// RoPE runs with another base.
    RopeBase(f64),
    /// Decode steps count their position from one too many, prefill does not. (All positions off by the same number
    /// would change nothing: RoPE sees only distances.)
    DecodePositionOffByOne,
    /// Every decode step sees only its own token, at position 0.
    LostCache,
}

/// A model with its weights in memory.
pub(crate) struct Forward<'s> {
    spec: &'s SyntheticSpec,
    weights: BTreeMap<String, Vec<f32>>,
}

#[derive(Default, Clone)]
struct LayerCache {
    /// `[position][kv_head * head_dim]`, after RoPE.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl<'s> Forward<'s> {
    pub(crate) fn new(spec: &'s SyntheticSpec) -> Self {
        let weights = tensors(spec)
            .into_iter()
            .map(|tensor| {
                let values = match &spec.quantization {
                    Some(how) if applies_to(&tensor, how) => {
                        dequantize(&quantize(&tensor.values(), how), how)
                    }
                    _ => tensor.values(),
                };
                (tensor.name.clone(), values)
            })
            .collect();
        Self { spec, weights }
    }

    /// The logits rows of every position from `prefill_len` on, where each is a decode step.
    pub(crate) fn decode_rows(&self, ids: &[usize], prefill_len: usize, fault: Fault) -> Vec<Vec<f32>> {
        let theta = match fault {
            Fault::RopeBase(theta) => theta,
            _ => self.spec.rope_theta,
        };
        let mut caches = vec![LayerCache::default(); self.spec.layers];
        let mut rows = Vec::new();
        for (index, &id) in ids.iter().enumerate() {
            let decoding = index >= prefill_len;
            let position = match fault {
                Fault::LostCache if decoding => {
                    caches.fill(LayerCache::default());
                    0
                }
                Fault::DecodePositionOffByOne if decoding => index + 1,
                _ => index,
            };
            let hidden = self.step(id, position, theta, &mut caches);
            if decoding {
                let head = match self.spec.head {
                    Head::Own => self.weight("lm_head"),
                    Head::Tied => self.weight("model.embed_tokens"),
                };
                rows.push(matvec(head, &rms_norm(&hidden, self.weight("model.norm"))));
            }
        }
        rows
    }

    fn weight(&self, name: &str) -> &[f32] {
        &self.weights[&format!("{name}.weight")]
    }

    fn step(&self, id: usize, position: usize, theta: f64, caches: &mut [LayerCache]) -> Vec<f32> {
        let spec = self.spec;
        let mut x = self.weight("model.embed_tokens")[id * spec.hidden..][..spec.hidden].to_vec();
        for (layer, cache) in caches.iter_mut().enumerate() {
            let weight = |part: &str| self.weight(&format!("model.layers.{layer}.{part}"));
            let normed = rms_norm(&x, weight("input_layernorm"));
            let mut queries = matvec(weight("self_attn.q_proj"), &normed);
            let mut keys = matvec(weight("self_attn.k_proj"), &normed);
            if spec.architecture == Architecture::Qwen3 {
                norm_heads(&mut queries, weight("self_attn.q_norm"));
                norm_heads(&mut keys, weight("self_attn.k_norm"));
            }
            turn_heads(&mut queries, spec.head_dim, position, theta);
            turn_heads(&mut keys, spec.head_dim, position, theta);
            cache.keys.push(keys);
            cache.values.push(matvec(weight("self_attn.v_proj"), &normed));
            add(&mut x, &matvec(weight("self_attn.o_proj"), &self.attend(&queries, cache)));

            let normed = rms_norm(&x, weight("post_attention_layernorm"));
            let gate = matvec(weight("mlp.gate_proj"), &normed);
            let up = matvec(weight("mlp.up_proj"), &normed);
            let inner: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut x, &matvec(weight("mlp.down_proj"), &inner));
        }
        x
    }

    fn attend(&self, queries: &[f32], cache: &LayerCache) -> Vec<f32> {
        let dim = self.spec.head_dim;
        let group = self.spec.heads / self.spec.kv_heads;
        let mut out = vec![0.0; queries.len()];
        for head in 0..self.spec.heads {
            let query = &queries[head * dim..][..dim];
            let shared = head / group * dim;
            let scores: Vec<f32> = cache
                .keys
                .iter()
                .map(|key| dot(query, &key[shared..][..dim]) / (dim as f32).sqrt())
                .collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f32 = shares.iter().sum();
            for (share, value) in shares.iter().zip(&cache.values) {
                for (o, v) in out[head * dim..][..dim].iter_mut().zip(&value[shared..][..dim]) {
                    *o += share / sum * v;
                }
            }
        }
        out
    }
}

/// Mean KL divergence in nats of `other`'s rows from `reference`'s rows.
pub(crate) fn mean_kl(reference: &[Vec<f32>], other: &[Vec<f32>]) -> f64 {
    let total: f64 = reference
        .iter()
        .zip(other)
        .map(|(p, q)| {
            let (p, q) = (log_softmax(p), log_softmax(q));
            p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>()
        })
        .sum();
    total / reference.len() as f64
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - largest).exp()).sum();
    row.iter().map(|x| f64::from(x - largest) - sum.ln()).collect()
}

// Plain loops: tests are built without optimization, where iterators cost several times as much.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (mut sum, mut i) = (0.0, 0);
    while i < a.len() {
        sum += a[i] * b[i];
        i += 1;
    }
    sum
}

fn matvec(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(x.len()).map(|row| dot(row, x)).collect()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn rms_norm(x: &[f32], weight: &[f32]) -> Vec<f32> {
    let scale = 1.0 / (dot(x, x) / x.len() as f32 + RMS_NORM_EPS as f32).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

fn norm_heads(heads: &mut [f32], weight: &[f32]) {
    for head in heads.chunks_exact_mut(weight.len()) {
        let normed = rms_norm(head, weight);
        head.copy_from_slice(&normed);
    }
}

fn turn_heads(heads: &mut [f32], head_dim: usize, position: usize, theta: f64) {
    let half = head_dim / 2;
    for i in 0..half {
        let angle = position as f64 * theta.powf(-(i as f64) / half as f64);
        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
        for head in heads.chunks_exact_mut(head_dim) {
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos - b * sin;
            head[i + half] = a * sin + b * cos;
        }
    }
}
