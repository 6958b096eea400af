//! Random checkpoints from a seed: every weight as a pure function of the spec. Leaves the tensors of each family to `layout`,
//! folders and files to `folder`.
//!
//! Every weight is made from integers by one multiplication, one addition and one rounding, so that the bytes are
//! the same on every platform.

use std::{borrow::Cow, ops::RangeInclusive};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use safetensors::{Dtype, View};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::layout;
use crate::config::spec::SyntheticSpec;

/// Raised when equal specs start to give other bytes.
pub const GENERATOR_VERSION: u32 = 1;

/// The ε of every RMS norm.
pub const RMS_NORM_EPS: f64 = 1e-6;

/// The id that ends a text.
pub const EOS_ID: u32 = 0;

/// The text of [`EOS_ID`].
pub const EOS_TEXT: &str = "<|end|>";

/// The text of the id that stands for unknown words.
pub const UNKNOWN_TEXT: &str = "<|unknown|>";

/// More weights than this are refused: 2^31, 8 GiB.
const MAX_WEIGHTS: usize = 1 << 31;

const SYLLABLE_STARTS: [&str; 16] =
    ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"];
const SYLLABLE_ENDS: [&str; 5] = ["a", "e", "i", "o", "u"];
const SYLLABLES: usize = SYLLABLE_STARTS.len() * SYLLABLE_ENDS.len();

/// One tensor of a synthetic checkpoint; its numbers are made when they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticTensor {
    /// The Hugging Face name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// `[rows, columns]` of a matrix, `[length]` of a norm.
    pub shape: Vec<usize>,
    numbers: Numbers,
    seed: [u8; 32],
}

/// What the numbers of a tensor are drawn from.
#[derive(Debug, Clone, PartialEq)]
enum Numbers {
    /// A normal distribution, near enough.
    Normal { mean: f64, std: f64 },
    /// Bytes of a range whose length is a power of two, all as likely.
    Bytes(RangeInclusive<u8>),
}

impl SyntheticTensor {
    pub(super) fn new(seed: u64, name: String, shape: &[usize], mean: f64, std: f64) -> Self {
        Self::of(seed, name, shape, Numbers::Normal { mean, std })
    }

    /// Bytes, each of a range whose length is a power of two.
    pub(super) fn bytes(seed: u64, name: String, shape: &[usize], range: RangeInclusive<u8>) -> Self {
        debug_assert!(range.len().is_power_of_two(), "{range:?}");
        Self::of(seed, name, shape, Numbers::Bytes(range))
    }

    fn of(seed: u64, name: String, shape: &[usize], numbers: Numbers) -> Self {
        Self { seed: tensor_seed(seed, &name), name, shape: shape.to_vec(), numbers }
    }

    /// The weights in row-major order; of bytes, what they stand for as whole numbers.
    #[must_use]
    pub fn values(&self) -> Vec<f32> {
        match &self.numbers {
            Numbers::Normal { mean, std } => self.draws().map(|bits| weight(bits, *mean, *std)).collect(),
            Numbers::Bytes(range) => self.draws().map(|bits| f32::from(byte(bits, range))).collect(),
        }
    }

    /// Sixty-four random bits for each number.
    fn draws(&self) -> impl Iterator<Item = u64> {
        let mut rng = Pcg64::from_seed(self.seed);
        (0..self.len()).map(move |_| rng.next_u64())
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

// The sum of four uniform 16-bit integers is near enough to a normal distribution for weights, and is exact. A
// sampler built on logarithms and cosines would differ between C libraries in the last bit.
fn weight(bits: u64, mean: f64, std: f64) -> f32 {
    const CENTRE: f64 = 2.0 * 65_535.0;
    // The variance of one uniform integer in 0..n is (n² - 1) / 12.
    const VARIANCE: f64 = 4.0 * (65_536.0 * 65_536.0 - 1.0) / 12.0;
    let sum = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum::<u64>();
    let scale = std / VARIANCE.sqrt();
    ((sum as f64 - CENTRE) * scale + mean) as f32
}

fn byte(bits: u64, range: &RangeInclusive<u8>) -> u8 {
    let [lowest, ..] = bits.to_le_bytes();
    // A mask, since the length of the whole range is no byte.
    range.start() + (lowest & (range.end() - range.start()))
}

impl View for SyntheticTensor {
    fn dtype(&self) -> Dtype {
        match self.numbers {
            Numbers::Normal { .. } => Dtype::F32,
            Numbers::Bytes(_) => Dtype::U8,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match &self.numbers {
            Numbers::Normal { .. } => self.values().iter().flat_map(|v| v.to_le_bytes()).collect(),
            Numbers::Bytes(range) => self.draws().map(|bits| byte(bits, range)).collect(),
        })
    }

    fn data_len(&self) -> usize {
        match self.numbers {
            Numbers::Normal { .. } => self.len() * 4,
            Numbers::Bytes(_) => self.len(),
        }
    }
}

/// What makes a shape impossible, if anything.
#[must_use]
pub fn impossible(spec: &SyntheticSpec) -> Option<String> {
    let sizes = [
        ("layers", spec.layers),
        ("hidden", spec.hidden),
        ("intermediate", spec.intermediate),
        ("heads", spec.heads),
        ("kv-heads", spec.kv_heads),
        ("head-dim", spec.head_dim),
        ("vocab", spec.vocab),
        ("max-positions", spec.max_positions),
    ];
    if let Some((name, size)) = sizes.iter().find(|(_, size)| *size == 0 || *size > i32::MAX as usize) {
        return Some(format!("{name} is {size}, and must be between 1 and {}", i32::MAX));
    }
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        return Some(format!("kv-heads {} does not divide heads {}", spec.kv_heads, spec.heads));
    }
    if !spec.head_dim.is_multiple_of(2) {
        return Some(format!("head-dim {} is odd, and RoPE turns pairs", spec.head_dim));
    }
    if spec.vocab < 3 || spec.vocab > SYLLABLES * SYLLABLES * SYLLABLES {
        return Some(format!(
            "vocab is {}, and must be between 3 and {}",
            spec.vocab,
            SYLLABLES * SYLLABLES * SYLLABLES
        ));
    }
    if !(spec.rope_theta.is_finite() && spec.rope_theta > 1.0) {
        return Some(format!("rope-theta is {}, and must be a finite number above 1", spec.rope_theta));
    }
    if !(spec.weight_std.is_finite() && spec.weight_std > 0.0) {
        return Some(format!("weight-std is {}, and must be a finite number above 0", spec.weight_std));
    }
    let rows = [spec.hidden, spec.intermediate, spec.heads.saturating_mul(spec.head_dim)];
    if let Some(how) = &spec.quantization
        && !rows.iter().all(|row| row.is_multiple_of(how.group_size))
    {
        return Some(format!(
            "groups of {} do not divide hidden, intermediate and all heads",
            how.group_size
        ));
    }
    layout::impossible(spec)
        .or_else(|| {
            layout::weight_count(spec)
                .filter(|count| *count <= MAX_WEIGHTS)
                .is_none()
                .then(|| format!("it would have more than {MAX_WEIGHTS} weights"))
        })
        .or_else(|| {
            let most = if spec.shards > 1 { layout::tensors(spec).len() } else { 1 };
            (spec.shards > most)
                .then(|| format!("shards is {}, and there are {most} tensors to lie in them", spec.shards))
        })
}

/// Every tensor of the checkpoint, in the order of the layers. The spec must not be [`impossible`].
#[must_use]
pub fn tensors(spec: &SyntheticSpec) -> Vec<SyntheticTensor> {
    layout::tensors(spec)
}

/// `config.json`, with every key that an engine insists on.
#[must_use]
pub fn config(spec: &SyntheticSpec) -> Value {
    layout::config(spec)
}

/// The text of an id: short made-up words, so that people can tell two outputs apart at a glance.
#[must_use]
pub fn word(id: usize) -> String {
    match id {
        0 => EOS_TEXT.to_owned(),
        1 => UNKNOWN_TEXT.to_owned(),
        _ => {
            let syllable = |n: usize| {
                format!(
                    "{}{}",
                    SYLLABLE_STARTS[n / SYLLABLE_ENDS.len()],
                    SYLLABLE_ENDS[n % SYLLABLE_ENDS.len()]
                )
            };
            let mut text = syllable(id / SYLLABLES % SYLLABLES) + &syllable(id % SYLLABLES);
            if id >= SYLLABLES * SYLLABLES {
                text += &syllable(id / (SYLLABLES * SYLLABLES));
            }
            text
        }
    }
}

/// `tokenizer.json`: one id a word, words parted by white space, joined by one space when decoded.
#[must_use]
pub fn tokenizer(vocab: usize) -> Value {
    let words: serde_json::Map<String, Value> = (0..vocab).map(|id| (word(id), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": special_tokens(),
        "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": words, "unk_token": UNKNOWN_TEXT },
    })
}

/// `added_tokens` of every tokenizer made here: the end of a text and the unknown word.
pub(crate) fn special_tokens() -> Value {
    let special = |id: u32, text: &str| {
        json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    json!([special(EOS_ID, EOS_TEXT), special(1, UNKNOWN_TEXT)])
}

/// `tokenizer_config.json`. There is no chat template: nobody can chat with random weights.
#[must_use]
pub fn tokenizer_config(spec: &SyntheticSpec) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec.max_positions,
        "bos_token": null,
        "eos_token": EOS_TEXT,
        "unk_token": UNKNOWN_TEXT,
        "clean_up_tokenization_spaces": false,
    })
}

// One stream a tensor, so that a tensor's weights do not depend on which tensors come before it.
fn tensor_seed(seed: u64, name: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"regraft synthetic weights\0");
    hash.update(seed.to_le_bytes());
    hash.update(name.as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::config::spec::{Architecture, Head, ModeKey, Quantization};

    fn tiny(architecture: Architecture) -> SyntheticSpec {
        SyntheticSpec {
            architecture,
            seed: 7,
            layers: 2,
            hidden: 16,
            intermediate: 24,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            vocab: 64,
            rope_theta: 1e6,
            weight_std: 0.15,
            max_positions: 512,
            shards: 1,
            head: Head::Own,
            window: None,
            quantization: None,
        }
    }

    fn digest(spec: &SyntheticSpec) -> String {
        let mut hash = Sha256::new();
        for tensor in tensors(spec) {
            hash.update(tensor.data());
        }
        base16ct::lower::encode_string(&hash.finalize())
    }

    #[test]
    fn weights_are_the_same_bytes_on_every_platform() {
        // These change only together with GENERATOR_VERSION.
        let digests = [Architecture::Qwen3, Architecture::Llama].map(|a| digest(&tiny(a))[..16].to_owned());
        insta::assert_snapshot!(digests.join(" "), @"0a03a7c7c752fb4e 871d780498d4ad45");
    }

    /// A small checkpoint of every family, as its engines want it.
    fn tiny_of_every_family() -> Vec<SyntheticSpec> {
        use Architecture as A;
        let whole_heads = |spec: SyntheticSpec| SyntheticSpec { hidden: 32, head: Head::Tied, ..spec };
        let shaped = |architecture| {
            let spec = SyntheticSpec { layers: 4, ..tiny(architecture) };
            match architecture {
                A::Gemma4 => SyntheticSpec { window: Some(8), ..spec },
                A::GptOss => SyntheticSpec { window: Some(8), hidden: 32, intermediate: 128, ..spec },
                A::Qwen2 | A::Lfm2 | A::Lfm2Moe => whole_heads(spec),
                A::DeepseekV3 => SyntheticSpec { kv_heads: 4, ..spec },
                _ => spec,
            }
        };
        Architecture::ALL.map(shaped).to_vec()
    }

    #[test]
    fn weights_and_configurations_of_every_family_stay_what_they_are() {
        // The first five as they were made before there were others; all change only together with GENERATOR_VERSION.
        let lines: Vec<String> = tiny_of_every_family()
            .iter()
            .map(|spec| {
                let told = base16ct::lower::encode_string(&Sha256::digest(config(spec).to_string()));
                format!("{} {} {}", spec.architecture.name(), &digest(spec)[..12], &told[..12])
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        llama 31c668fb1b55 3b3cd6ab66f4
        qwen3 121adb44211d 2b69a7159ec3
        gemma4 7d248a69efd5 49b005483d46
        nemotron_h 70b0489f1822 3021389b945d
        qwen3_5_moe 6e61935da488 47bfc5e4aa6e
        mistral 31c668fb1b55 616f28a46933
        qwen2 6626e1019965 230f95330633
        qwen3_moe b2d8782d9fc4 375c0528dac1
        lfm2 c6f9a6216765 ab2bafb146f7
        lfm2_moe d2cf4a6c0d60 232fd967da37
        qwen3_5 8da04b711320 7c0702ec29f1
        qwen3_next 289ff5ffd0e7 23634239335c
        gpt_oss 41b71f20ad72 5c171f10c851
        deepseek_v3 98e53c742303 375a1c4c7136
        kimi_linear e8c13c6bb750 adb01052fbd5
        ");
    }

    #[test]
    fn every_family_can_be_made_and_names_no_tensor_twice() {
        for spec in tiny_of_every_family() {
            let name = spec.architecture.name();
            assert_eq!(impossible(&spec), None, "{name}");
            let tensors = tensors(&spec);
            let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            assert_eq!(names.len(), tensors.len(), "{name}");
            for tensor in &tensors {
                assert_eq!(tensor.data().len(), tensor.data_len(), "{name}: {}", tensor.name);
            }
            assert_eq!(config(&spec)["model_type"], name);
        }
    }

    #[test]
    fn four_bit_weights_have_the_asked_spread_and_scales_that_differ() {
        let spec =
            tiny_of_every_family().into_iter().find(|s| s.architecture == Architecture::GptOss).unwrap();
        let all = tensors(&spec);
        let of = |suffix: &str| all.iter().find(|t| t.name.ends_with(suffix)).unwrap();
        let (blocks, scales) = (of("gate_up_proj_blocks"), of("gate_up_proj_scales"));
        assert_eq!(
            (blocks.shape.as_slice(), scales.shape.as_slice()),
            (&[4, 64, 1, 16][..], &[4, 64, 1][..])
        );
        const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let (blocks, scales) = (blocks.data(), scales.data());
        let mut squares = Vec::new();
        for (block, scale) in blocks.chunks_exact(16).zip(scales.iter()) {
            let scale = 2_f64.powi(i32::from(*scale) - 127);
            for number in block.iter().flat_map(|byte| [byte & 7, byte >> 4 & 7]) {
                squares.push((E2M1[usize::from(number)] * scale).powi(2));
            }
        }
        let rms = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        assert!((0.1..0.2).contains(&rms), "{rms}");
        assert_eq!(scales.iter().collect::<HashSet<_>>().len(), 2);
    }

    #[test]
    fn another_seed_gives_other_weights_and_another_layer_leaves_them_alone() {
        let spec = tiny(Architecture::Llama);
        let find = |spec: &SyntheticSpec| {
            tensors(spec)
                .into_iter()
                .find(|t| t.name.ends_with("layers.1.mlp.up_proj.weight"))
                .unwrap()
                .values()
        };
        assert_ne!(find(&spec), find(&SyntheticSpec { seed: 8, ..spec.clone() }));
        assert_eq!(find(&spec), find(&SyntheticSpec { layers: 3, ..spec.clone() }));
    }

    #[test]
    fn weights_have_the_asked_spread() {
        let spec = SyntheticSpec { vocab: 4096, ..tiny(Architecture::Llama) };
        let values = tensors(&spec)[0].values();
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
        let variance =
            values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((variance.sqrt() - 0.15).abs() < 0.003, "{}", variance.sqrt());
    }

    #[test]
    fn norms_stay_near_one() {
        for tensor in tensors(&tiny(Architecture::Qwen3)).iter().filter(|t| t.name.contains("norm")) {
            assert!(tensor.values().iter().all(|v| (0.6..1.4).contains(v)), "{}", tensor.name);
        }
    }

    #[test]
    fn only_qwen3_normalizes_queries_and_keys() {
        let norms = |a| tensors(&tiny(a)).iter().filter(|t| t.name.contains("q_norm")).count();
        assert_eq!((norms(Architecture::Qwen3), norms(Architecture::Llama)), (2, 0));
    }

    #[test]
    fn every_id_has_its_own_readable_word() {
        let words: HashSet<String> = (0..49_152).map(word).collect();
        assert_eq!(words.len(), 49_152);
        assert_eq!(word(2), "babi");
        assert!(words.iter().all(|w| !w.contains(char::is_whitespace)));
    }

    #[test]
    fn impossible_shapes_are_named() {
        let spec = tiny(Architecture::Llama);
        let groups_of_32 = Quantization { bits: 4, group_size: 32, mode_key: ModeKey::Stated };
        let cases = [
            (SyntheticSpec { kv_heads: 3, ..spec.clone() }, "kv-heads 3 does not divide heads 4"),
            (SyntheticSpec { head_dim: 7, ..spec.clone() }, "head-dim 7 is odd"),
            (SyntheticSpec { layers: 0, ..spec.clone() }, "layers is 0"),
            (SyntheticSpec { vocab: 2, ..spec.clone() }, "vocab is 2"),
            (
                SyntheticSpec { shards: 1_000_000_000, ..spec.clone() },
                "shards is 1000000000, and there are 21 tensors",
            ),
            (SyntheticSpec { rope_theta: f64::NAN, ..spec.clone() }, "rope-theta is NaN"),
            (SyntheticSpec { weight_std: 0.0, ..spec.clone() }, "weight-std is 0"),
            (
                SyntheticSpec { quantization: Some(groups_of_32), ..spec.clone() },
                "groups of 32 do not divide",
            ),
            (SyntheticSpec { window: Some(8), ..spec.clone() }, "llama has no sliding window here"),
            (tiny(Architecture::Gemma4), "gemma4 needs a sliding window"),
            (tiny(Architecture::NemotronH), "layers is 2, and must be a multiple of 4"),
            (tiny(Architecture::Qwen2), "heads times head-dim must be hidden in qwen2"),
            (tiny(Architecture::Lfm2), "the head of lfm2 must be tied"),
            (tiny(Architecture::DeepseekV3), "deepseek_v3 has as many kv-heads as heads"),
            (tiny(Architecture::GptOss), "gpt_oss needs a sliding window"),
            (SyntheticSpec { window: Some(8), ..tiny(Architecture::GptOss) }, "groups of 32 do not divide"),
            (
                SyntheticSpec { window: Some(8), ..tiny(Architecture::Mistral) },
                "mistral has no sliding window here",
            ),
            (
                SyntheticSpec { hidden: 1 << 30, intermediate: 1 << 30, ..spec.clone() },
                "more than 2147483648 weights",
            ),
        ];
        for (spec, expected) in cases {
            let problem = impossible(&spec).unwrap();
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(impossible(&spec), None);
    }
}
