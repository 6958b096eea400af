//! Which tensors a checkpoint of each family holds, under their Hugging Face names, and its `config.json`. What the families
//! have beside attention and an MLP is sized by the few numbers of a spec, so that a spec needs no more of them.
//!
//! Names, shapes and keys are those that safemlx-lm 0.4.1 and mlx-lm 0.32 both read.

use serde_json::{Value, json};

use super::synthetic::{EOS_ID, RMS_NORM_EPS, SyntheticTensor};
use crate::config::spec::{Architecture, Head, SyntheticSpec};

/// Routed experts of a layer that has some, and how many of them a token takes.
const EXPERTS: usize = 4;
const EXPERTS_A_TOKEN: usize = 2;

/// Taps of a causal convolution.
const CONVOLUTION: usize = 4;

/// Width of a state of Mamba2.
const STATE: usize = 16;

/// Width of what Gemma 4 gives each layer of every token.
const PER_LAYER: usize = 16;

/// Share of a head that turns, in the families that turn a part of it.
const TURNED_SHARE: f64 = 0.25;

/// RoPE base of layers with a window, which is the same whatever that of the others is.
const WINDOWED_THETA: f64 = 1e4;

/// What makes a shape impossible for its family, if anything.
pub(super) fn impossible(spec: &SyntheticSpec) -> Option<String> {
    let windowed = spec.architecture == Architecture::Gemma4;
    match (windowed, spec.window) {
        (true, None) => return Some("gemma4 needs a sliding window".to_owned()),
        (false, Some(_)) => return Some(format!("{} has no sliding window here", spec.architecture.name())),
        _ => {}
    }
    let smallest = match spec.architecture {
        Architecture::Llama | Architecture::Qwen3 => return None,
        // Each kind of layer has to be there.
        Architecture::Gemma4 | Architecture::Qwen35Moe => 2,
        Architecture::NemotronH => NEMOTRON_PATTERN.len(),
    };
    if !spec.layers.is_multiple_of(smallest) {
        return Some(format!("layers is {}, and must be a multiple of {smallest}", spec.layers));
    }
    if !spec.head_dim.is_multiple_of(8) || !spec.intermediate.is_multiple_of(EXPERTS) {
        return Some(format!("head_dim must be a multiple of 8 and intermediate of {EXPERTS}"));
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
    let tensors = if bounded { tensors(spec) } else { Vec::new() };
    let unbounded = (!bounded).then(|| vec![usize::MAX, 2]);
    tensors.into_iter().map(|tensor| tensor.shape).chain(unbounded)
}

/// Every tensor of the checkpoint, in the order of the layers.
pub(super) fn tensors(spec: &SyntheticSpec) -> Vec<SyntheticTensor> {
    let mut maker = Maker { spec, all: Vec::new() };
    match spec.architecture {
        Architecture::Llama | Architecture::Qwen3 => maker.plain(),
        Architecture::Gemma4 => maker.gemma4(),
        Architecture::NemotronH => maker.nemotron_h(),
        Architecture::Qwen35Moe => maker.qwen3_5_moe(),
    }
    maker.all
}

/// Mamba2, experts, attention, a plain MLP: the kinds of Nemotron-H's layers, over and over.
const NEMOTRON_PATTERN: [char; 4] = ['M', 'E', '*', '-'];

struct Maker<'s> {
    spec: &'s SyntheticSpec,
    all: Vec<SyntheticTensor>,
}

impl Maker<'_> {
    fn tensor(&mut self, name: String, shape: &[usize], mean: f64, std: f64) {
        self.all.push(SyntheticTensor::new(self.spec.seed, name, shape, mean, std));
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) {
        self.tensor(format!("{name}.weight"), &[rows, columns], 0.0, self.spec.weight_std);
    }

    /// A norm's weights, around 1.
    fn norm(&mut self, name: &str, length: usize) {
        self.tensor(format!("{name}.weight"), &[length], 1.0, NORM_STD);
    }

    /// The weights of a norm that adds 1 by itself.
    fn norm_above_one(&mut self, name: &str, length: usize) {
        self.tensor(format!("{name}.weight"), &[length], 0.0, NORM_STD);
    }

    fn attention(&mut self, prefix: &str, query_rows: usize) {
        let SyntheticSpec { hidden, heads, kv_heads, head_dim, .. } = *self.spec;
        self.matrix(&format!("{prefix}.q_proj"), query_rows, hidden);
        self.matrix(&format!("{prefix}.k_proj"), kv_heads * head_dim, hidden);
        self.matrix(&format!("{prefix}.v_proj"), kv_heads * head_dim, hidden);
        self.matrix(&format!("{prefix}.o_proj"), hidden, heads * head_dim);
    }

    fn gated_mlp(&mut self, prefix: &str, width: usize) {
        let hidden = self.spec.hidden;
        self.matrix(&format!("{prefix}.gate_proj"), width, hidden);
        self.matrix(&format!("{prefix}.up_proj"), width, hidden);
        self.matrix(&format!("{prefix}.down_proj"), hidden, width);
    }

    fn head(&mut self) {
        if self.spec.head == Head::Own {
            self.matrix("lm_head", self.spec.vocab, self.spec.hidden);
        }
    }

    fn query_rows(&self) -> usize {
        self.spec.heads * self.spec.head_dim
    }

    fn plain(&mut self) {
        let SyntheticSpec { hidden, intermediate, head_dim, vocab, .. } = *self.spec;
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            self.norm(&named("input_layernorm"), hidden);
            self.attention(&named("self_attn"), self.query_rows());
            if self.spec.architecture == Architecture::Qwen3 {
                self.norm(&named("self_attn.q_norm"), head_dim);
                self.norm(&named("self_attn.k_norm"), head_dim);
            }
            self.norm(&named("post_attention_layernorm"), hidden);
            self.gated_mlp(&named("mlp"), intermediate);
        }
        self.norm("model.norm", hidden);
        self.head();
    }

    /// Layers with and without a window by turns, an input of its own for each layer, no experts.
    fn gemma4(&mut self) {
        let SyntheticSpec { hidden, intermediate, head_dim, vocab, layers, .. } = *self.spec;
        let whole = |part: &str| format!("model.language_model.{part}");
        self.matrix(&whole("embed_tokens"), vocab, hidden);
        self.matrix(&whole("embed_tokens_per_layer"), vocab, layers * PER_LAYER);
        self.matrix(&whole("per_layer_model_projection"), layers * PER_LAYER, hidden);
        self.norm(&whole("per_layer_projection_norm"), PER_LAYER);
        for layer in 0..layers {
            let named = |part: &str| whole(&format!("layers.{layer}.{part}"));
            for part in [
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
                "post_per_layer_input_norm",
            ] {
                self.norm(&named(part), hidden);
            }
            self.attention(&named("self_attn"), self.query_rows());
            self.norm(&named("self_attn.q_norm"), head_dim);
            self.norm(&named("self_attn.k_norm"), head_dim);
            self.gated_mlp(&named("mlp"), intermediate);
            self.matrix(&named("per_layer_input_gate"), PER_LAYER, hidden);
            self.matrix(&named("per_layer_projection"), hidden, PER_LAYER);
            self.tensor(named("layer_scalar"), &[1], 1.0, NORM_STD);
        }
        self.norm(&whole("norm"), hidden);
        self.head();
    }

    fn nemotron_h(&mut self) {
        let SyntheticSpec { hidden, intermediate, heads, vocab, .. } = *self.spec;
        let mamba = Mamba::of(self.spec);
        self.matrix("backbone.embeddings", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("backbone.layers.{layer}.{part}");
            let mixer = |part: &str| named(&format!("mixer.{part}"));
            self.norm(&named("norm"), hidden);
            match NEMOTRON_PATTERN[layer % NEMOTRON_PATTERN.len()] {
                'M' => {
                    self.matrix(&mixer("in_proj"), mamba.inner + mamba.convolved + heads, hidden);
                    self.tensor(mixer("conv1d.weight"), &[mamba.convolved, 1, CONVOLUTION], 0.0, 0.5);
                    self.tensor(mixer("conv1d.bias"), &[mamba.convolved], 0.0, NORM_STD);
                    self.tensor(mixer("dt_bias"), &[heads], 0.0, 0.5);
                    self.tensor(mixer("A_log"), &[heads], 0.0, 0.5);
                    self.tensor(mixer("D"), &[heads], 1.0, NORM_STD);
                    self.norm(&mixer("norm"), mamba.inner);
                    self.matrix(&mixer("out_proj"), hidden, mamba.inner);
                }
                'E' => {
                    let width = intermediate / EXPERTS;
                    self.matrix(&mixer("gate"), EXPERTS, hidden);
                    self.tensor(mixer("gate.e_score_correction_bias"), &[EXPERTS], 0.0, 0.05);
                    for expert in 0..EXPERTS {
                        self.matrix(&mixer(&format!("experts.{expert}.up_proj")), width, hidden);
                        self.matrix(&mixer(&format!("experts.{expert}.down_proj")), hidden, width);
                    }
                    self.matrix(&mixer("shared_experts.up_proj"), width, hidden);
                    self.matrix(&mixer("shared_experts.down_proj"), hidden, width);
                }
                '*' => self.attention(&named("mixer"), self.query_rows()),
                _ => {
                    self.matrix(&mixer("up_proj"), intermediate, hidden);
                    self.matrix(&mixer("down_proj"), hidden, intermediate);
                }
            }
        }
        self.norm("backbone.norm_f", hidden);
        self.head();
    }

    /// Linear and full attention by turns, experts in every layer.
    fn qwen3_5_moe(&mut self) {
        let SyntheticSpec { hidden, intermediate, heads, head_dim, vocab, .. } = *self.spec;
        let linear = Linear::of(self.spec);
        let whole = |part: &str| format!("model.language_model.{part}");
        self.matrix(&whole("embed_tokens"), vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| whole(&format!("layers.{layer}.{part}"));
            self.norm_above_one(&named("input_layernorm"), hidden);
            if layer % 2 == 0 {
                let convolved = 2 * linear.keys + linear.values;
                let part = |part: &str| named(&format!("linear_attn.{part}"));
                self.matrix(&part("in_proj_qkv"), convolved, hidden);
                self.matrix(&part("in_proj_z"), linear.values, hidden);
                self.matrix(&part("in_proj_b"), heads, hidden);
                self.matrix(&part("in_proj_a"), heads, hidden);
                self.tensor(part("conv1d.weight"), &[convolved, 1, CONVOLUTION], 0.0, 0.5);
                self.tensor(part("dt_bias"), &[heads], 0.0, 0.5);
                // A slow decay, so that a lost state shows many steps later.
                self.tensor(part("A_log"), &[heads], -2.0, 0.5);
                self.norm(&part("norm"), linear.head);
                self.matrix(&part("out_proj"), hidden, linear.values);
            } else {
                // Each query head has a gate as wide.
                self.attention(&named("self_attn"), 2 * self.query_rows());
                // Twice as long as usual, or the quarter of a head that turns would decide nothing.
                for part in ["q_norm", "k_norm"] {
                    self.tensor(named(&format!("self_attn.{part}.weight")), &[head_dim], 1.0, NORM_STD);
                }
            }
            self.norm_above_one(&named("post_attention_layernorm"), hidden);
            let width = intermediate / EXPERTS;
            let std = self.spec.weight_std;
            self.matrix(&named("mlp.gate"), EXPERTS, hidden);
            self.tensor(named("mlp.experts.gate_up_proj"), &[EXPERTS, 2 * width, hidden], 0.0, std);
            self.tensor(named("mlp.experts.down_proj"), &[EXPERTS, hidden, width], 0.0, std);
            self.gated_mlp(&named("mlp.shared_expert"), width);
            self.matrix(&named("mlp.shared_expert_gate"), 1, hidden);
        }
        self.norm_above_one(&whole("norm"), hidden);
        self.head();
    }
}

/// The standard deviation of norm weights around their mean.
const NORM_STD: f64 = 0.1;

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

/// `config.json`, with every key that an engine insists on.
pub(super) fn config(spec: &SyntheticSpec) -> Value {
    let name = spec.architecture.name();
    let mut config = match spec.architecture {
        Architecture::Llama => plain_config(spec, "LlamaForCausalLM", name),
        Architecture::Qwen3 => plain_config(spec, "Qwen3ForCausalLM", name),
        Architecture::Gemma4 => gemma4_config(spec),
        Architecture::NemotronH => nemotron_h_config(spec),
        Architecture::Qwen35Moe => qwen3_5_moe_config(spec),
    };
    if let Some(quantization) = &spec.quantization {
        config["quantization"] = quantization.config();
    }
    config
}

fn tied(spec: &SyntheticSpec) -> bool {
    spec.head == Head::Tied
}

fn plain_config(spec: &SyntheticSpec, class: &str, model_type: &str) -> Value {
    json!({
        "architectures": [class],
        "model_type": model_type,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": RMS_NORM_EPS,
        "rope_theta": spec.rope_theta,
        "rope_scaling": null,
        "tie_word_embeddings": tied(spec),
        "attention_bias": false,
        "mlp_bias": false,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": null,
        "eos_token_id": EOS_ID,
    })
}

fn gemma4_config(spec: &SyntheticSpec) -> Value {
    let kinds: Vec<&str> =
        (0..spec.layers).map(|layer| ["sliding_attention", "full_attention"][layer % 2]).collect();
    json!({
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "vocab_size": spec.vocab,
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size": spec.hidden,
            "intermediate_size": spec.intermediate,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": spec.kv_heads,
            "head_dim": spec.head_dim,
            "global_head_dim": spec.head_dim,
            "vocab_size": spec.vocab,
            "vocab_size_per_layer_input": spec.vocab,
            "hidden_size_per_layer_input": PER_LAYER,
            "num_kv_shared_layers": 0,
            "use_double_wide_mlp": false,
            "max_position_embeddings": spec.max_positions,
            "rms_norm_eps": RMS_NORM_EPS,
            "sliding_window": spec.window,
            "layer_types": kinds,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": spec.rope_theta,
                    "partial_rotary_factor": TURNED_SHARE,
                },
                "sliding_attention": { "rope_type": "default", "rope_theta": WINDOWED_THETA },
            },
            "final_logit_softcapping": 30.0,
            "tie_word_embeddings": tied(spec),
            "attention_k_eq_v": false,
            "attention_bias": false,
            "enable_moe_block": false,
            "hidden_activation": "gelu_pytorch_tanh",
            "pad_token_id": EOS_ID,
        },
    })
}

fn nemotron_h_config(spec: &SyntheticSpec) -> Value {
    let pattern: String =
        (0..spec.layers).map(|layer| NEMOTRON_PATTERN[layer % NEMOTRON_PATTERN.len()]).collect();
    let width = spec.intermediate / EXPERTS;
    let whole = json!({
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "hybrid_override_pattern": pattern,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.max_positions,
        // As released checkpoints have them: the base belongs to no layer, and the bounds of the time step to training.
        "rope_theta": spec.rope_theta,
        "time_step_min": 0.001,
        "time_step_max": 0.1,
        "time_step_floor": 1e-4,
        "attention_bias": false,
        "mlp_bias": false,
        "use_bias": false,
        "layer_norm_epsilon": RMS_NORM_EPS,
        "norm_eps": RMS_NORM_EPS,
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
    });
    let layers = json!({
        "use_conv_bias": true,
        "mamba_num_heads": spec.heads,
        "mamba_head_dim": Mamba::of(spec).head,
        "mamba_proj_bias": false,
        "mamba_hidden_act": "silu",
        "mlp_hidden_act": "relu2",
        "ssm_state_size": STATE,
        "conv_kernel": CONVOLUTION,
        "n_groups": spec.kv_heads,
        "chunk_size": 64,
        "expand": 1,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        "moe_intermediate_size": width,
        "moe_shared_expert_intermediate_size": width,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": true,
    });
    merged(whole, layers)
}

fn merged(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

fn qwen3_5_moe_config(spec: &SyntheticSpec) -> Value {
    let kinds: Vec<&str> =
        (0..spec.layers).map(|layer| ["linear_attention", "full_attention"][layer % 2]).collect();
    let linear = Linear::of(spec);
    let width = spec.intermediate / EXPERTS;
    json!({
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
        "text_config": {
            "model_type": "qwen3_5_moe_text",
            "vocab_size": spec.vocab,
            "hidden_size": spec.hidden,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": spec.kv_heads,
            "head_dim": spec.head_dim,
            "max_position_embeddings": spec.max_positions,
            "rms_norm_eps": RMS_NORM_EPS,
            "tie_word_embeddings": tied(spec),
            "attention_bias": false,
            "hidden_act": "silu",
            "full_attention_interval": 2,
            "layer_types": kinds,
            "linear_conv_kernel_dim": CONVOLUTION,
            "linear_key_head_dim": linear.head,
            "linear_value_head_dim": linear.head,
            "linear_num_key_heads": spec.kv_heads,
            "linear_num_value_heads": spec.heads,
            "num_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_A_TOKEN,
            "norm_topk_prob": true,
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": width,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": spec.rope_theta,
                "partial_rotary_factor": TURNED_SHARE,
            },
        },
    })
}
