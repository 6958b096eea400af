//! What the configuration files say once they are known to be right: plain values, no file positions left.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wildmatch::WildMatch;

use crate::{
    engine::protocol::Precision,
    matrix::cell::{Backend, Budget, CellId, Probe},
    tools::git::ids::CommitId,
};

/// One `[[build]]` of `matrices/builds.toml`: a recipe for an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildSpec {
    /// The name that `--candidate` and `--baseline` take.
    pub name: String,
    /// One sentence for people: what this build is.
    pub summary: String,
    /// The API that the runner is compiled against, such as `safemlx-lm-0.4`; a cargo feature of one of its packages.
    pub dialect: String,
    /// Where MLX itself comes from.
    pub mlx: MlxSource,
    /// The revision that crates with a `folder` come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Where each crate that the runner pins comes from, by crate name.
    pub crates: BTreeMap<String, CrateSource>,
}

/// Where MLX itself comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlxSource {
    /// The official prebuilt wheel of this version (`mlx-cpu` on Linux, `mlx-metal` on macOS).
    Wheel(String),
    /// What the crates carry, compiled and linked statically.
    Vendored,
    /// A revision of MLX or of a fork, compiled and linked dynamically.
    Git(MlxRevision),
}

impl MlxSource {
    /// The version that the build's library must be; `None` where the crates decide.
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Wheel(version) => Some(version),
            Self::Vendored | Self::Git(_) => None,
        }
    }
}

/// A revision of MLX, and what is made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MlxRevision {
    /// The revision.
    pub source: GitSource,
    /// The folder below `patches/` whose stack is applied to it, if any.
    pub patches: Option<String>,
    /// Whether Metal kernels are compiled when they are first used, and not ahead of time.
    pub metal_jit: bool,
}

/// A revision of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitSource {
    /// Its address.
    pub repository: String,
    /// The commit.
    pub commit: CommitId,
}

/// Where one crate comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrateSource {
    /// The exact version in the crates registry, or that the git revision states.
    pub version: String,
    /// The folder of the build's git revision that holds it; from the registry when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The folder below `patches/` whose stack is applied to it, if any.
    pub patches: Option<String>,
    /// Files of that stack that are left out: what a drop trial builds without. No configuration file says this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave_out: Vec<String>,
}

/// One `[[model]]` of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// The name that cells carry.
    pub name: String,
    /// Where its weights come from.
    pub source: ModelSource,
}

/// Where a model's weights come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelSource {
    /// Made here from a seed.
    Synthetic(SyntheticSpec),
    /// A GGUF file inside a Python package of the lock `harness/provision/models.lock`, converted to a Hugging Face folder.
    Package {
        /// The package's name.
        package: String,
    },
}

/// The shape of a synthetic checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyntheticSpec {
    /// The architecture.
    pub architecture: Architecture,
    /// Seeds every weight.
    pub seed: u64,
    /// Number of decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Vocabulary size.
    pub vocab: usize,
    /// RoPE base.
    pub rope_theta: f64,
    /// Standard deviation of the weight matrices.
    pub weight_std: f64,
    /// Largest position that the config allows.
    pub max_positions: usize,
    /// How many files the weights lie in; more than one have an index.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    pub shards: usize,
    /// Where the logits come from.
    #[serde(default, skip_serializing_if = "Head::is_own")]
    pub head: Head,
    /// How many positions a layer with a window sees, in the families that have such layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// How its matrices are stored; in single precision where this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
}

/// Where the logits of a model come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// A matrix of their own.
    #[default]
    Own,
    /// The embeddings.
    Tied,
}

impl Head {
    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// Affine quantization in groups, as MLX stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantization {
    /// Bits of a weight.
    pub bits: u32,
    /// Weights of a row that share a scale and a bias.
    pub group_size: usize,
    /// Whether the configuration names the mode.
    pub mode_key: ModeKey,
}

/// Whether `quantization.mode` stands in `config.json`. Checkpoints from before MLX had other modes lack it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeKey {
    /// `affine`.
    Stated,
    /// The key is not there.
    Omitted,
}

impl Quantization {
    /// The value of `quantization` in `config.json`.
    pub fn config(&self) -> Value {
        let mut config = json!({ "group_size": self.group_size, "bits": self.bits });
        if self.mode_key == ModeKey::Stated {
            config["mode"] = json!("affine");
        }
        config
    }
}

fn one_shard() -> usize {
    1
}

// A spec's JSON names its model folder, and folders of before must keep their names.
fn is_one_shard(shards: &usize) -> bool {
    *shards == 1
}

/// An architecture that synthetic checkpoints can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// `model_type = "llama"`.
    Llama,
    /// `model_type = "qwen3"`: per-head RMS norms on queries and keys.
    Qwen3,
    /// `model_type = "gemma4"`: windows in every other layer, an input of its own for each layer.
    Gemma4,
    /// `model_type = "nemotron_h"`: Mamba2, experts, attention without positions, a plain MLP.
    NemotronH,
    /// `model_type = "qwen3_5_moe"`: linear attention in every other layer, experts in all.
    #[serde(rename = "qwen3-5-moe")]
    Qwen35Moe,
    /// `model_type = "mistral"`: llama under another name.
    Mistral,
    /// `model_type = "qwen2"`: queries, keys and values have biases.
    Qwen2,
    /// `model_type = "qwen3_moe"`: experts in every layer.
    Qwen3Moe,
    /// `model_type = "lfm2"`: gated short convolutions in every other layer.
    Lfm2,
    /// `model_type = "lfm2_moe"`: the same, with experts behind the first layer.
    Lfm2Moe,
    /// `model_type = "qwen3_5"`: linear attention in every other layer, a plain MLP in all.
    #[serde(rename = "qwen3-5")]
    Qwen35,
    /// `model_type = "qwen3_next"`: as Qwen3.5 MoE, with other names and fused projections.
    Qwen3Next,
    /// `model_type = "gpt_oss"`: sinks, windows in every other layer, experts of four bits.
    GptOss,
    /// `model_type = "deepseek_v3"`: attention over a latent, experts in groups behind the first layer.
    DeepseekV3,
    /// `model_type = "kimi_linear"`: linear attention and attention over a latent by turns, without positions.
    KimiLinear,
}

impl Architecture {
    /// Every one.
    pub const ALL: [Self; 15] = [
        Self::Llama,
        Self::Qwen3,
        Self::Gemma4,
        Self::NemotronH,
        Self::Qwen35Moe,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3Moe,
        Self::Lfm2,
        Self::Lfm2Moe,
        Self::Qwen35,
        Self::Qwen3Next,
        Self::GptOss,
        Self::DeepseekV3,
        Self::KimiLinear,
    ];

    /// Its `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
            Self::Gemma4 => "gemma4",
            Self::NemotronH => "nemotron_h",
            Self::Qwen35Moe => "qwen3_5_moe",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3Moe => "qwen3_moe",
            Self::Lfm2 => "lfm2",
            Self::Lfm2Moe => "lfm2_moe",
            Self::Qwen35 => "qwen3_5",
            Self::Qwen3Next => "qwen3_next",
            Self::GptOss => "gpt_oss",
            Self::DeepseekV3 => "deepseek_v3",
            Self::KimiLinear => "kimi_linear",
        }
    }
}

/// One matrix file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixSpec {
    /// The matrix's name: the file's stem.
    pub name: String,
    /// The build that is pinned now, unless `--baseline` says otherwise.
    pub baseline: String,
    /// The build that wants to become the pin, unless `--candidate` says otherwise.
    pub candidate: String,
    /// The independent implementation; `mlx-lm`.
    pub reference: String,
    /// The models, by declaration order.
    pub models: Vec<ModelSpec>,
    /// The named probes, by declaration order.
    pub probes: Vec<(String, Probe)>,
    /// The blocks of cells, by declaration order.
    pub blocks: Vec<CellBlock>,
    /// The judge's thresholds.
    pub thresholds: Thresholds,
    /// How long one engine process may take for one cell.
    pub cell_timeout: Duration,
    /// Other matrices whose models, probes, blocks and known faults are part of this one; already taken in.
    pub include: Vec<String>,
    /// What is known to be wrong with builds.
    pub known: Vec<Known>,
    /// How long all cells together may take: none is begun after that.
    pub budget: Option<Duration>,
}

/// One `[[known]]` of a matrix: what a build is known to do at some cells. A gate that does not see it is blind there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// A pattern of build names: a bundle may carry a build under a shorter name.
    pub build: String,
    /// A pattern of cell names, as `--filter` takes it.
    pub cells: String,
    /// Codes of errors, one of which must be found.
    pub codes: Vec<String>,
    /// One sentence for people.
    pub why: String,
    /// What it means for the cell.
    pub weight: KnownWeight,
    /// For a known limit of speed or memory: the largest loss that is known, as a share of the baseline's goodness. What is
    /// worse still is a regression like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<f64>,
}

impl Known {
    /// Whether it is about a build of this name.
    pub fn is_about(&self, build: &str) -> bool {
        WildMatch::new(&self.build).matches(build)
    }
}

/// What something known means for a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnownWeight {
    /// The build is broken there, and fails.
    Fault,
    /// The build cannot do it and need not: errors of these codes become warnings.
    Limit,
}

/// One `[[cells]]` of a matrix: the product of its axes, less what it excludes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellBlock {
    /// Names of models.
    pub models: Vec<String>,
    /// Number formats.
    pub precisions: Vec<Precision>,
    /// Prompt lengths in tokens; `[0]` where the probes bring their own prompts.
    pub contexts: Vec<usize>,
    /// Names of probes.
    pub probes: Vec<String>,
    /// Backends.
    pub backends: Vec<Backend>,
    /// Points of the product to leave out; an absent axis matches everything.
    pub exclude: Vec<CellPattern>,
    /// What each of its cells may cost.
    pub budget: Budget,
}

/// A pattern over the axes; an absent axis matches everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellPattern {
    /// A model's name.
    pub model: Option<String>,
    /// A number format.
    pub precision: Option<Precision>,
    /// A prompt length.
    pub context: Option<usize>,
    /// A probe's name.
    pub probe: Option<String>,
    /// A backend.
    pub backend: Option<Backend>,
}

/// One point of a block: its coordinates by name, before the probe is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Point<'b> {
    /// The model's name.
    pub model: &'b str,
    /// The number format.
    pub precision: Precision,
    /// The prompt length in tokens.
    pub context: usize,
    /// The probe's name.
    pub probe: &'b str,
    /// The backend.
    pub backend: Backend,
}

impl Point<'_> {
    /// The name of the cell at this point.
    pub fn cell_id(&self) -> CellId {
        CellId::new(self.model, self.precision, self.context, self.probe, self.backend)
    }
}

impl CellBlock {
    /// Every point of the product, excluded ones too, the last axis fastest.
    pub fn product(&self) -> impl Iterator<Item = Point<'_>> {
        self.models.iter().flat_map(move |model| {
            self.precisions.iter().flat_map(move |&precision| {
                self.contexts.iter().flat_map(move |&context| {
                    self.probes.iter().flat_map(move |probe| {
                        self.backends.iter().map(move |&backend| Point {
                            model,
                            precision,
                            context,
                            probe,
                            backend,
                        })
                    })
                })
            })
        })
    }

    /// The points that are left after the excludes.
    pub fn points(&self) -> impl Iterator<Item = Point<'_>> {
        self.product().filter(|point| !self.exclude.iter().any(|pattern| pattern.matches(point)))
    }
}

impl CellPattern {
    /// Whether every axis that the pattern names has the point's value.
    pub fn matches(&self, point: &Point<'_>) -> bool {
        fn agrees<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
            wanted.is_none_or(|wanted| wanted == value)
        }
        agrees(self.model.as_deref(), point.model)
            && agrees(self.precision, point.precision)
            && agrees(self.context, point.context)
            && agrees(self.probe.as_deref(), point.probe)
            && agrees(self.backend, point.backend)
    }
}

/// The judge's thresholds. Defaults are for equal MLX versions at f32 on a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Largest mean KL divergence, in nats, of a row against the reference's row.
    pub mean_kl: f64,
    /// Largest 99th-percentile KL divergence, in nats.
    pub p99_kl: f64,
    /// Smallest share of positions whose most likely id agrees, counted where the reference's margin is above `margin`.
    pub top1_agreement: f64,
    /// The margin, in nats, between the reference's first and second choice below which either choice is right.
    pub margin: f64,
    /// Largest relative L2 distance of a row from the reference's row.
    pub relative_l2: f64,
    /// Smallest cosine of a row with the reference's row.
    pub cosine: f64,
    /// Largest absolute difference of one logit, in standard deviations of the reference's row.
    pub max_logit_gap: f64,
    /// How far the mean log-probability of an engine's own text may lie below that of the reference's text, in nats an
    /// id, by the reference's account.
    #[serde(default = "default_free_text_drop")]
    pub free_text_drop: f64,
    /// How far an id may lie below the reference's first choice, in nats, for either to be right in a greedy text.
    #[serde(default = "default_near_tie")]
    pub near_tie: f64,
}

/// A start value: roundings of single precision move a logit by a thousandth of this.
fn default_near_tie() -> f64 {
    0.05
}

/// A start value: a sound text that parted from the reference's at a tie lies within a nat, word salad four and more.
fn default_free_text_drop() -> f64 {
    2.0
}

/// Start values: the mean and 99th-percentile divergences follow the published scale of quantized against full
/// weights (a mean of about .003 at 5 bits), a third of which no rebuild of one source reaches. Equal f32 arithmetic
/// gives equal bits on a CPU and about 3e-6 with another BLAS or other pieces (`cargo xtask calibrate`, `selftest`), so
/// relative distance and logit gap are thirty times that and not the .02 that changed kernels need; the margin leaves near ties out, where rounding may decide.
impl Default for Thresholds {
    fn default() -> Self {
        Self {
            mean_kl: 1e-3,
            p99_kl: 0.02,
            top1_agreement: 0.995,
            margin: 0.25,
            relative_l2: 1e-4,
            cosine: 0.999,
            max_logit_gap: 1e-3,
            free_text_drop: default_free_text_drop(),
            near_tie: default_near_tie(),
        }
    }
}

/// Up to this many tokens a prompt is short.
const SHORT_CONTEXT: usize = 1024;

impl Thresholds {
    /// For a cell. Products on GPUs may be rounded to fewer bits (TF32) and in an order that depends on the shape, so that
    /// other pieces move rows by about 5e-4: distances are never tighter there than the facts' start values allow. Not
    /// calibrated: no such device is at hand every night. Behind long prompts angles are positions times frequencies of 24
    /// bits, and two sound ways to make a frequency part by 1e-3 at 40,000.
    #[must_use]
    pub fn for_cell(&self, backend: Backend, context: usize) -> Self {
        let (relative_l2, max_logit_gap) = match backend {
            Backend::Metal | Backend::Cuda => (0.02, 0.1),
            Backend::Cpu if context > SHORT_CONTEXT => (1e-3, 1e-2),
            Backend::Cpu => return self.clone(),
        };
        Self {
            relative_l2: self.relative_l2.max(relative_l2),
            max_logit_gap: self.max_logit_gap.max(max_logit_gap),
            ..self.clone()
        }
    }

    /// For weights of 16 bits, whose rounding moves every logit: the distances of the facts that other kernels need (a
    /// relative L2 of .02), and twice that for the shallow, wide-spread models of the self-test. A tie is then what the margin
    /// says: logits that may be off by a fifth of their spread decide no finer.
    #[must_use]
    pub fn for_half_precision(&self) -> Self {
        Self {
            relative_l2: self.relative_l2.max(0.04),
            max_logit_gap: self.max_logit_gap.max(0.2),
            mean_kl: self.mean_kl.max(2e-3),
            near_tie: self.near_tie.max(self.margin),
            ..self.clone()
        }
    }
}
