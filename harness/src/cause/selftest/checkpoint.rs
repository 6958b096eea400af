//! The tiny checkpoints of the self-test, and ways to spoil them. A checkpoint is held whole in memory, so that a fault is a
//! change of values, and is written as an ordinary model folder.

use std::{borrow::Cow, collections::BTreeMap, fs, io, path::Path};

use half::bf16;
use safetensors::{Dtype, View};
use serde_json::{Value, json};

use crate::{
    config::spec::{Architecture, SyntheticSpec},
    model::synthetic,
};

/// The sliding window of [`Variant::Windowed`], in tokens.
pub(crate) const WINDOW: usize = 64;

/// The quantization group of [`Variant::Affine4`] and [`Variant::Affine8`].
pub(crate) const GROUP: usize = 32;

/// The factor by which [`Variant::Scaled`] stretches positions.
pub(crate) const ROPE_FACTOR: f64 = 4.0;

/// What a checkpoint of the self-test has that others have not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variant {
    Qwen3,
    Llama,
    /// Llama whose second layer sees a window.
    Windowed,
    /// Llama, prequantized to 4 bits.
    Affine4,
    /// Llama, prequantized to 8 bits.
    Affine8,
    /// Llama with linear scaling of positions.
    Scaled,
    /// Llama with a chat template and a tokenizer of merges.
    Chat,
    /// Qwen3 stored as brain floats.
    BFloat,
}

/// A tensor with its bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tensor {
    F32 { shape: Vec<usize>, values: Vec<f32> },
    Bf16 { shape: Vec<usize>, values: Vec<f32> },
    U32 { shape: Vec<usize>, values: Vec<u32> },
}

/// A model that can be changed before it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) config: Value,
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) tokenizer: Value,
    pub(crate) chat_template: Option<String>,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
            Self::Windowed => "llama-window",
            Self::Affine4 => "llama-4bit",
            Self::Affine8 => "llama-8bit",
            Self::Scaled => "llama-scaled",
            Self::Chat => "llama-chat",
            Self::BFloat => "qwen3-bf16",
        }
    }

    /// The checkpoint of this variant; the seed changes every weight.
    pub(crate) fn checkpoint(self, seed: u64) -> Checkpoint {
        let spec = SyntheticSpec {
            architecture: match self {
                Self::Qwen3 | Self::BFloat => Architecture::Qwen3,
                _ => Architecture::Llama,
            },
            seed,
            layers: 2,
            hidden: 64,
            intermediate: 128,
            heads: 4,
            kv_heads: 4,
            head_dim: 32,
            vocab: 512,
            rope_theta: 1e6,
            weight_std: 0.2,
            max_positions: 16_384,
            shards: 1,
            head: crate::config::spec::Head::Own,
            window: None,
            quantization: None,
        };
        let mut checkpoint = Checkpoint {
            config: synthetic::config(&spec),
            tensors: synthetic::tensors(&spec)
                .into_iter()
                .map(|t| (t.name.clone(), Tensor::F32 { shape: t.shape.clone(), values: t.values() }))
                .collect(),
            tokenizer: synthetic::tokenizer(spec.vocab),
            chat_template: None,
        };
        match self {
            Self::Qwen3 | Self::Llama => {}
            Self::Windowed => {
                checkpoint.config["layer_types"] = json!(["full_attention", "sliding_attention"]);
                checkpoint.config["sliding_window"] = json!(WINDOW);
            }
            Self::Affine4 => checkpoint.quantize(4, GROUP),
            Self::Affine8 => checkpoint.quantize(8, GROUP),
            Self::Scaled => {
                checkpoint.config["rope_scaling"] = json!({ "rope_type": "linear", "factor": ROPE_FACTOR });
            }
            Self::Chat => {
                checkpoint.tokenizer = merging_tokenizer(&MERGES);
                checkpoint.chat_template = Some(TEMPLATE.to_owned());
            }
            Self::BFloat => {
                checkpoint.config["torch_dtype"] = json!("bfloat16");
                for tensor in checkpoint.tensors.values_mut() {
                    if let Tensor::F32 { shape, values } = tensor {
                        *tensor = Tensor::Bf16 { shape: shape.clone(), values: values.clone() };
                    }
                }
            }
        }
        checkpoint
    }
}

impl Checkpoint {
    /// Writes the model folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let about = [("format".to_owned(), "pt".to_owned())].into();
        safetensors::serialize_to_file(
            self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor)),
            Some(about),
            &folder.join("model.safetensors"),
        )
        .map_err(io::Error::other)?;
        let mut tokenizer_config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": null,
            "eos_token": synthetic::EOS_TEXT,
            "unk_token": synthetic::UNKNOWN_TEXT,
            "clean_up_tokenization_spaces": false,
        });
        if let Some(template) = &self.chat_template {
            tokenizer_config["chat_template"] = json!(template);
        }
        for (name, value) in [
            ("config.json", &self.config),
            ("generation_config.json", &json!({ "eos_token_id": self.config["eos_token_id"] })),
            ("tokenizer.json", &self.tokenizer),
            ("tokenizer_config.json", &tokenizer_config),
        ] {
            fs::write(folder.join(name), serde_json::to_vec(value)?)?;
        }
        Ok(())
    }

    /// The numbers of a weight, to be changed.
    pub(crate) fn weight(&mut self, name: &str) -> &mut Vec<f32> {
        match self.tensors.get_mut(&format!("{name}.weight")) {
            Some(Tensor::F32 { values, .. } | Tensor::Bf16 { values, .. }) => values,
            _ => panic!("the self-test names a weight `{name}` that its checkpoint lacks"),
        }
    }

    /// Values in a row of a matrix.
    pub(crate) fn columns(&self, name: &str) -> usize {
        self.tensors[&format!("{name}.weight")].shape().last().copied().unwrap_or(1)
    }

    /// Prequantizes every matrix: an affine grid for each group of a row, packed lowest bits first.
    pub(crate) fn quantize(&mut self, bits: usize, group: usize) {
        let names: Vec<String> = self.tensors.keys().filter(|n| !n.contains("norm")).cloned().collect();
        for name in names {
            let Some(Tensor::F32 { shape, values }) = self.tensors.remove(&name) else { continue };
            let stem = name.trim_end_matches(".weight");
            let (rows, columns) = (shape[0], shape[1]);
            let (mut packed, mut scales, mut biases) = (Vec::new(), Vec::new(), Vec::new());
            for chunk in values.chunks_exact(group) {
                let low = chunk.iter().copied().fold(f32::INFINITY, f32::min);
                let high = chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let most = ((1_u32 << bits) - 1) as f32;
                let scale = ((high - low) / most).max(1e-7);
                scales.push(scale);
                biases.push(low);
                for word in chunk.chunks_exact(32 / bits) {
                    packed.push(word.iter().enumerate().fold(0_u32, |acc, (i, w)| {
                        acc | ((((w - low) / scale).round().clamp(0.0, most) as u32) << (i * bits))
                    }));
                }
            }
            let grid = vec![rows, columns / group];
            self.tensors
                .insert(name.clone(), Tensor::U32 { shape: vec![rows, columns * bits / 32], values: packed });
            self.tensors
                .insert(format!("{stem}.scales"), Tensor::F32 { shape: grid.clone(), values: scales });
            self.tensors.insert(format!("{stem}.biases"), Tensor::F32 { shape: grid, values: biases });
        }
        self.config["quantization"] = json!({ "group_size": group, "bits": bits });
    }

    /// The numbers that quantized matrices stand for, as ordinary matrices.
    pub(crate) fn dequantize(&mut self, bits: usize, group: usize) {
        let names: Vec<String> =
            self.tensors.keys().filter_map(|n| n.strip_suffix(".scales").map(str::to_owned)).collect();
        for stem in names {
            let (
                Some(Tensor::F32 { values: scales, .. }),
                Some(Tensor::F32 { values: biases, .. }),
                Some(Tensor::U32 { values: packed, shape }),
            ) = (
                self.tensors.remove(&format!("{stem}.scales")),
                self.tensors.remove(&format!("{stem}.biases")),
                self.tensors.remove(&format!("{stem}.weight")),
            )
            else {
                continue;
            };
            let a_word = 32 / bits;
            let values = (0..packed.len() * a_word)
                .map(|i| {
                    let q = (packed[i / a_word] >> (bits * (i % a_word))) & ((1 << bits) - 1);
                    scales[i / group] * q as f32 + biases[i / group]
                })
                .collect();
            let shape = vec![shape[0], shape[1] * a_word];
            self.tensors.insert(format!("{stem}.weight"), Tensor::F32 { shape, values });
        }
    }

    /// Gives each second group of all quantized matrices the scale and bias of the group before it: what an engine does that
    /// takes groups for twice as long.
    pub(crate) fn share_scales(&mut self) {
        for (name, tensor) in &mut self.tensors {
            if let Tensor::F32 { values, .. } = tensor
                && (name.ends_with(".scales") || name.ends_with(".biases"))
            {
                values.chunks_exact_mut(2).for_each(|pair| pair[1] = pair[0]);
            }
        }
    }

    /// Swaps scales and biases of the first `groups` groups of a quantized matrix.
    pub(crate) fn swap_scales(&mut self, name: &str, groups: usize) {
        let (scales, biases) = (format!("{name}.scales"), format!("{name}.biases"));
        let mut scale = self.tensors.remove(&scales).expect("a quantized matrix has scales");
        let mut bias = self.tensors.remove(&biases).expect("a quantized matrix has biases");
        if let (Tensor::F32 { values: s, .. }, Tensor::F32 { values: b, .. }) = (&mut scale, &mut bias) {
            let n = groups.min(s.len());
            s[..n].swap_with_slice(&mut b[..n]);
        }
        self.tensors.insert(scales, scale);
        self.tensors.insert(biases, bias);
    }
}

impl Tensor {
    fn shape(&self) -> &[usize] {
        match self {
            Self::F32 { shape, .. } | Self::Bf16 { shape, .. } | Self::U32 { shape, .. } => shape,
        }
    }
}

impl View for &Tensor {
    fn dtype(&self) -> Dtype {
        match self {
            Tensor::F32 { .. } => Dtype::F32,
            Tensor::Bf16 { .. } => Dtype::BF16,
            Tensor::U32 { .. } => Dtype::U32,
        }
    }

    fn shape(&self) -> &[usize] {
        Tensor::shape(self)
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match self {
            Tensor::F32 { values, .. } => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Tensor::Bf16 { values, .. } => {
                values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()
            }
            Tensor::U32 { values, .. } => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        })
    }

    fn data_len(&self) -> usize {
        match self {
            Tensor::F32 { values, .. } => values.len() * 4,
            Tensor::Bf16 { values, .. } => values.len() * 2,
            Tensor::U32 { values, .. } => values.len() * 4,
        }
    }
}

/// The chat template of [`Variant::Chat`].
pub(crate) const TEMPLATE: &str = concat!(
    "{{ 'system: be brief and right\\n' }}",
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}",
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}",
);

/// The merges of [`Variant::Chat`]'s tokenizer, most important first.
pub(crate) const MERGES: [(&str, &str); 24] = [
    ("t", "h"),
    ("th", "e"),
    ("i", "n"),
    ("a", "n"),
    ("an", "d"),
    ("e", "r"),
    ("o", "n"),
    ("r", "e"),
    ("i", "s"),
    ("a", "t"),
    ("o", "u"),
    ("in", "g"),
    ("e", "n"),
    ("t", "o"),
    ("o", "f"),
    ("s", "t"),
    ("h", "a"),
    ("a", "s"),
    ("w", "h"),
    ("c", "a"),
    ("wh", "at"),
    ("n", "t"),
    ("l", "e"),
    ("is", "t"),
];

/// A tokenizer of single characters and merges.
pub(crate) fn merging_tokenizer(merges: &[(&str, &str)]) -> Value {
    let mut vocab = serde_json::Map::new();
    let add = |vocab: &mut serde_json::Map<String, Value>, token: String| {
        let id = vocab.len();
        vocab.entry(token).or_insert(json!(id));
    };
    add(&mut vocab, synthetic::EOS_TEXT.to_owned());
    add(&mut vocab, synthetic::UNKNOWN_TEXT.to_owned());
    add(&mut vocab, "\n".to_owned());
    (' '..='~').for_each(|c| add(&mut vocab, c.to_string()));
    // Every merged token keeps its id, whichever merges are there.
    MERGES.iter().for_each(|(a, b)| add(&mut vocab, format!("{a}{b}")));
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": synthetic::special_tokens(),
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": { "type": "Fuse" },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": synthetic::UNKNOWN_TEXT,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": vocab,
            "merges": merges.iter().map(|(a, b)| json!([a, b])).collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantized_weights_are_near_the_weights() {
        let plain = Variant::Llama.checkpoint(1);
        let quantized = Variant::Affine8.checkpoint(1);
        let Tensor::F32 { values, shape } = &plain.tensors["lm_head.weight"] else { panic!() };
        let (Tensor::U32 { values: packed, shape: packed_shape }, Tensor::F32 { values: scales, .. }) =
            (&quantized.tensors["lm_head.weight"], &quantized.tensors["lm_head.scales"])
        else {
            panic!()
        };
        let Tensor::F32 { values: biases, .. } = &quantized.tensors["lm_head.biases"] else { panic!() };
        assert_eq!(packed_shape, &vec![shape[0], shape[1] / 4]);
        for (i, value) in values.iter().enumerate() {
            let q = (packed[i / 4] >> (8 * (i % 4))) & 255;
            let back = scales[i / GROUP] * q as f32 + biases[i / GROUP];
            assert!((value - back).abs() <= scales[i / GROUP], "{value} {back}");
        }
    }

    #[test]
    fn merged_tokens_keep_their_ids_when_merges_go() {
        let (all, none) = (merging_tokenizer(&MERGES), merging_tokenizer(&[]));
        assert_eq!(all["model"]["vocab"], none["model"]["vocab"]);
        assert_ne!(all["model"]["merges"], none["model"]["merges"]);
    }
}
