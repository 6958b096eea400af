//! Which tensors a checkpoint of each family holds, under their Hugging Face names, and its `config.json`. What the families
//! have beside attention and an MLP is sized by the few numbers of a spec, so that a spec needs no more of them.
//!
//! Names, shapes and keys are those that the sources of two engines both read: of mlx-lm 0.32 and safemlx-lm 0.4.1 for llama,
//! qwen3, gemma4, nemotron_h and qwen3_5_moe, of mlx-lm 0.32 and eredu-architectures 0.5.0 for all others.

mod config;
mod tensors;

use super::synthetic::SyntheticTensor;
use crate::config::spec::{Architecture, Head, SyntheticSpec};

pub(super) use config::config;
pub(super) use tensors::tensors;

/// Routed experts of a layer that has some, and how many of them a token takes.
const EXPERTS: usize = 4;
const EXPERTS_A_TOKEN: usize = 2;

/// How many first layers have a plain MLP, in families where the others have experts.
const DENSE_LAYERS: usize = 1;

/// Taps of a causal convolution.
const CONVOLUTION: usize = 4;

/// Taps of LFM2's, as its released checkpoints have them.
const SHORT_CONVOLUTION: usize = 3;

/// Width of a state of Mamba2.
const STATE: usize = 16;

/// Width of what Gemma 4 gives each layer of every token.
const PER_LAYER: usize = 16;

/// Share of a head that turns, in the families that turn a part of it.
const TURNED_SHARE: f64 = 0.25;

/// RoPE base of layers with a window, which is the same whatever that of the others is.
const WINDOWED_THETA: f64 = 1e4;

/// Numbers of four bits that share a scale, and the bytes that they take.
const FOUR_BIT_GROUP: usize = 32;
const FOUR_BIT_BLOCK: usize = FOUR_BIT_GROUP / 2;

/// The standard deviation of norm weights around their mean.
const NORM_STD: f64 = 0.1;

/// The standard deviation of what a projection adds: a third of what it multiplies, so that a lost bias shows.
const BIAS_STD: f64 = 0.5;

/// Mamba2, experts, attention, a plain MLP: the kinds of Nemotron-H's layers, over and over.
const NEMOTRON_PATTERN: [char; 4] = ['M', 'E', '*', '-'];

/// What makes a shape impossible for its family, if anything.
pub(super) fn impossible(spec: &SyntheticSpec) -> Option<String> {
    use Architecture as A;
    let SyntheticSpec { architecture, .. } = *spec;
    let name = architecture.name();
    let windowed = matches!(architecture, A::Gemma4 | A::GptOss);
    match (windowed, spec.window) {
        (true, None) => return Some(format!("{name} needs a sliding window")),
        (false, Some(_)) => return Some(format!("{name} has no sliding window here")),
        _ => {}
    }
    let (head, called) = match architecture {
        A::Lfm2 | A::Lfm2Moe => (Head::Tied, "tied"),
        A::GptOss | A::DeepseekV3 => (Head::Own, "own"),
        _ => (spec.head, ""),
    };
    if spec.head != head {
        return Some(format!("the head of {name} must be {called}"));
    }
    let whole_heads = matches!(architecture, A::Qwen2 | A::Lfm2 | A::Lfm2Moe);
    if whole_heads && spec.heads.checked_mul(spec.head_dim) != Some(spec.hidden) {
        return Some(format!("heads times head-dim must be hidden in {name}"));
    }
    if architecture == A::DeepseekV3 && spec.heads != spec.kv_heads {
        return Some(format!("{name} has as many kv-heads as heads, for all share a latent"));
    }
    let smallest = match architecture {
        A::Llama | A::Mistral | A::Qwen2 | A::Qwen3 => return None,
        A::Qwen3Moe => 1,
        A::NemotronH => NEMOTRON_PATTERN.len(),
        // Each kind of layer has to be there.
        A::Gemma4
        | A::Qwen35
        | A::Qwen35Moe
        | A::Qwen3Next
        | A::Lfm2
        | A::Lfm2Moe
        | A::GptOss
        | A::DeepseekV3
        | A::KimiLinear => 2,
    };
    if !spec.layers.is_multiple_of(smallest) {
        return Some(format!("layers is {}, and must be a multiple of {smallest}", spec.layers));
    }
    if !spec.head_dim.is_multiple_of(8) || !spec.intermediate.is_multiple_of(EXPERTS) {
        return Some(format!("head-dim must be a multiple of 8 and intermediate of {EXPERTS}"));
    }
    if matches!(architecture, A::DeepseekV3 | A::KimiLinear) && !spec.hidden.is_multiple_of(2) {
        return Some(format!("hidden must be even in {name}"));
    }
    if architecture == A::GptOss {
        let rows = [spec.hidden, expert_width(spec)];
        if !rows.iter().all(|row| row.is_multiple_of(FOUR_BIT_GROUP)) {
            return Some(format!(
                "groups of {FOUR_BIT_GROUP} do not divide hidden and the width of an expert"
            ));
        }
        if spec.quantization.is_some() {
            return Some(format!("the experts of {name} have four bits as they are"));
        }
    }
    None
}

/// How many weights there are; `None` where that is more than can be counted.
pub(super) fn weight_count(spec: &SyntheticSpec) -> Option<usize> {
    // Sizes are known without a single weight.
    let mut count = 0_usize;
    for shape in shapes(spec) {
        let own = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size))?;
        count = count.checked_add(own)?;
    }
    Some(count)
}

fn shapes(spec: &SyntheticSpec) -> impl Iterator<Item = Vec<usize>> {
    // Shapes are made of products that a hostile spec could overflow, so sizes are bounded first.
    let sizes = [spec.hidden, spec.intermediate, spec.heads, spec.kv_heads, spec.head_dim];
    let bounded = spec.layers <= 1 << 10 && sizes.iter().all(|size| *size <= 1 << 20);
    let tensors: Vec<SyntheticTensor> = if bounded { tensors(spec) } else { Vec::new() };
    let unbounded = (!bounded).then(|| vec![usize::MAX, 2]);
    tensors.into_iter().map(|tensor| tensor.shape).chain(unbounded)
}

/// The width of one of a layer's experts: together they are as wide as a plain MLP.
fn expert_width(spec: &SyntheticSpec) -> usize {
    spec.intermediate / EXPERTS
}

/// The sizes of a Mamba2 mixer: as many heads as attention has, half as wide, a group a key/value head.
struct Mamba {
    head: usize,
    inner: usize,
    convolved: usize,
}

impl Mamba {
    fn of(spec: &SyntheticSpec) -> Self {
        let head = spec.head_dim / 2;
        let inner = spec.heads * head;
        Self { head, inner, convolved: inner + 2 * spec.kv_heads * STATE }
    }
}

/// The sizes of linear attention: a key head a key/value head, a value head a query head, both half as wide.
struct Linear {
    head: usize,
    keys: usize,
    values: usize,
}

impl Linear {
    fn of(spec: &SyntheticSpec) -> Self {
        let head = spec.head_dim / 2;
        Self { head, keys: spec.kv_heads * head, values: spec.heads * head }
    }
}

/// The sizes of attention over a latent: half of each key stands still and half turns, values are whole heads.
struct Latent {
    /// Width of the latent that keys and values come from, and of that of queries where they have one.
    rank: usize,
    still: usize,
    turned: usize,
    value: usize,
}

impl Latent {
    fn of(spec: &SyntheticSpec) -> Self {
        let turned = spec.head_dim / 2;
        Self { rank: spec.hidden / 2, still: spec.head_dim - turned, turned, value: spec.head_dim }
    }

    /// Width of a query.
    fn query(&self) -> usize {
        self.still + self.turned
    }
}
