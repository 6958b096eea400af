//! The tensors of every family: which there are, of what shape and around what mean.

use super::{
    BIAS_STD, CONVOLUTION, DENSE_LAYERS, EXPERTS, FOUR_BIT_BLOCK, FOUR_BIT_GROUP, Latent, Linear, Mamba,
    NEMOTRON_PATTERN, NORM_STD, PER_LAYER, SHORT_CONVOLUTION, expert_width,
};
use crate::{
    config::spec::{Architecture, Head, SyntheticSpec},
    model::synthetic::SyntheticTensor,
};

/// What a gated MLP calls its gate, its other input and its output.
type GatedNames = [&'static str; 3];

const PROJECTIONS: GatedNames = ["gate_proj", "up_proj", "down_proj"];
/// As Mixtral called them.
const NUMBERED: GatedNames = ["w1", "w3", "w2"];

/// Every tensor of the checkpoint, in the order of the layers.
pub(in crate::model) fn tensors(spec: &SyntheticSpec) -> Vec<SyntheticTensor> {
    let mut maker = Maker { spec, all: Vec::new() };
    match spec.architecture {
        Architecture::Llama
        | Architecture::Mistral
        | Architecture::Qwen2
        | Architecture::Qwen3
        | Architecture::Qwen3Moe => maker.plain(),
        Architecture::Gemma4 => maker.gemma4(),
        Architecture::NemotronH => maker.nemotron_h(),
        Architecture::Qwen35 | Architecture::Qwen35Moe | Architecture::Qwen3Next => maker.qwen_hybrid(),
        Architecture::Lfm2 | Architecture::Lfm2Moe => maker.lfm2(),
        Architecture::GptOss => maker.gpt_oss(),
        Architecture::DeepseekV3 => maker.deepseek_v3(),
        Architecture::KimiLinear => maker.kimi_linear(),
    }
    maker.all
}

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

    fn bias(&mut self, name: &str, length: usize) {
        self.tensor(format!("{name}.bias"), &[length], 0.0, BIAS_STD);
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
        self.attention_with_output(prefix, query_rows, "o_proj");
    }

    fn attention_with_output(&mut self, prefix: &str, query_rows: usize, output: &str) {
        let SyntheticSpec { hidden, heads, kv_heads, head_dim, .. } = *self.spec;
        self.matrix(&format!("{prefix}.q_proj"), query_rows, hidden);
        self.matrix(&format!("{prefix}.k_proj"), kv_heads * head_dim, hidden);
        self.matrix(&format!("{prefix}.v_proj"), kv_heads * head_dim, hidden);
        self.matrix(&format!("{prefix}.{output}"), hidden, heads * head_dim);
    }

    /// What is added to queries, keys and values.
    fn attention_biases(&mut self, prefix: &str) {
        let keys = self.spec.kv_heads * self.spec.head_dim;
        self.bias(&format!("{prefix}.q_proj"), self.query_rows());
        self.bias(&format!("{prefix}.k_proj"), keys);
        self.bias(&format!("{prefix}.v_proj"), keys);
    }

    fn gated_mlp(&mut self, prefix: &str, width: usize) {
        self.gated(prefix, PROJECTIONS, width);
    }

    fn gated(&mut self, prefix: &str, [gate, up, down]: GatedNames, width: usize) {
        let hidden = self.spec.hidden;
        self.matrix(&format!("{prefix}.{gate}"), width, hidden);
        self.matrix(&format!("{prefix}.{up}"), width, hidden);
        self.matrix(&format!("{prefix}.{down}"), hidden, width);
    }

    /// Gated experts, each by itself.
    fn experts(&mut self, prefix: &str, names: GatedNames) {
        for expert in 0..EXPERTS {
            self.gated(&format!("{prefix}.{expert}"), names, expert_width(self.spec));
        }
    }

    /// What is added to the scores of experts before some are chosen, and only then.
    fn correction(&mut self, name: String) {
        self.tensor(name, &[EXPERTS], 0.0, 0.05);
    }

    fn head(&mut self) {
        if self.spec.head == Head::Own {
            self.matrix("lm_head", self.spec.vocab, self.spec.hidden);
        }
    }

    fn query_rows(&self) -> usize {
        self.spec.heads * self.spec.head_dim
    }

    /// Attention and an MLP or experts in every layer.
    fn plain(&mut self) {
        let SyntheticSpec { architecture, hidden, intermediate, head_dim, vocab, .. } = *self.spec;
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            self.norm(&named("input_layernorm"), hidden);
            self.attention(&named("self_attn"), self.query_rows());
            if architecture == Architecture::Qwen2 {
                self.attention_biases(&named("self_attn"));
            }
            if matches!(architecture, Architecture::Qwen3 | Architecture::Qwen3Moe) {
                self.norm(&named("self_attn.q_norm"), head_dim);
                self.norm(&named("self_attn.k_norm"), head_dim);
            }
            self.norm(&named("post_attention_layernorm"), hidden);
            if architecture == Architecture::Qwen3Moe {
                self.matrix(&named("mlp.gate"), EXPERTS, hidden);
                self.experts(&named("mlp.experts"), PROJECTIONS);
            } else {
                self.gated_mlp(&named("mlp"), intermediate);
            }
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
                    let width = expert_width(self.spec);
                    self.matrix(&mixer("gate"), EXPERTS, hidden);
                    self.correction(mixer("gate.e_score_correction_bias"));
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

    /// Linear and full attention by turns, and a plain MLP or experts, in one tensor or each by itself.
    fn qwen_hybrid(&mut self) {
        let SyntheticSpec { architecture, hidden, intermediate, heads, head_dim, vocab, .. } = *self.spec;
        let linear = Linear::of(self.spec);
        let next = architecture == Architecture::Qwen3Next;
        let root = if next { "model" } else { "model.language_model" };
        let whole = |part: &str| format!("{root}.{part}");
        self.matrix(&whole("embed_tokens"), vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| whole(&format!("layers.{layer}.{part}"));
            self.norm_above_one(&named("input_layernorm"), hidden);
            if layer % 2 == 0 {
                let convolved = 2 * linear.keys + linear.values;
                let part = |part: &str| named(&format!("linear_attn.{part}"));
                if next {
                    self.matrix(&part("in_proj_qkvz"), convolved + linear.values, hidden);
                    self.matrix(&part("in_proj_ba"), 2 * heads, hidden);
                } else {
                    self.matrix(&part("in_proj_qkv"), convolved, hidden);
                    self.matrix(&part("in_proj_z"), linear.values, hidden);
                    self.matrix(&part("in_proj_b"), heads, hidden);
                    self.matrix(&part("in_proj_a"), heads, hidden);
                }
                self.tensor(part("conv1d.weight"), &[convolved, 1, CONVOLUTION], 0.0, 0.5);
                self.tensor(part("dt_bias"), &[heads], 0.0, 0.5);
                self.slow_decay(part("A_log"), &[heads]);
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
            if architecture == Architecture::Qwen35 {
                self.gated_mlp(&named("mlp"), intermediate);
                continue;
            }
            let width = expert_width(self.spec);
            let std = self.spec.weight_std;
            self.matrix(&named("mlp.gate"), EXPERTS, hidden);
            if next {
                self.experts(&named("mlp.experts"), PROJECTIONS);
            } else {
                self.tensor(named("mlp.experts.gate_up_proj"), &[EXPERTS, 2 * width, hidden], 0.0, std);
                self.tensor(named("mlp.experts.down_proj"), &[EXPERTS, hidden, width], 0.0, std);
            }
            self.gated_mlp(&named("mlp.shared_expert"), width);
            self.matrix(&named("mlp.shared_expert_gate"), 1, hidden);
        }
        self.norm_above_one(&whole("norm"), hidden);
        self.head();
    }

    /// The logarithm of a decay that is slow, so that a lost state shows many steps later.
    fn slow_decay(&mut self, name: String, shape: &[usize]) {
        self.tensor(name, shape, -2.0, 0.5);
    }

    /// Short convolutions between two gates and attention by turns; the head is the embeddings.
    fn lfm2(&mut self) {
        let SyntheticSpec { architecture, hidden, intermediate, head_dim, vocab, .. } = *self.spec;
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            self.norm(&named("operator_norm"), hidden);
            if layer % 2 == 0 {
                self.matrix(&named("conv.in_proj"), 3 * hidden, hidden);
                // Small, or what attention adds to it would be lost behind two gates.
                self.tensor(named("conv.conv.weight"), &[hidden, 1, SHORT_CONVOLUTION], 0.0, 0.2);
                self.matrix(&named("conv.out_proj"), hidden, hidden);
            } else {
                self.attention_with_output(&named("self_attn"), self.query_rows(), "out_proj");
                // Twice as long as usual, so that a position decides something.
                for part in ["q_layernorm", "k_layernorm"] {
                    self.tensor(named(&format!("self_attn.{part}.weight")), &[head_dim], 2.0, NORM_STD);
                }
            }
            self.norm(&named("ffn_norm"), hidden);
            if architecture == Architecture::Lfm2Moe && layer >= DENSE_LAYERS {
                self.matrix(&named("feed_forward.gate"), EXPERTS, hidden);
                self.correction(named("feed_forward.expert_bias"));
                self.experts(&named("feed_forward.experts"), NUMBERED);
            } else {
                self.gated(&named("feed_forward"), NUMBERED, intermediate);
            }
        }
        self.norm("model.embedding_norm", hidden);
    }

    /// Attention with sinks and biases, with a window in every other layer; experts of four bits with biases in all.
    fn gpt_oss(&mut self) {
        let SyntheticSpec { hidden, heads, vocab, .. } = *self.spec;
        let width = expert_width(self.spec);
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            self.norm(&named("input_layernorm"), hidden);
            self.tensor(named("self_attn.sinks"), &[heads], 0.0, 1.0);
            self.attention(&named("self_attn"), self.query_rows());
            self.attention_biases(&named("self_attn"));
            self.bias(&named("self_attn.o_proj"), hidden);
            self.norm(&named("post_attention_layernorm"), hidden);
            self.matrix(&named("mlp.router"), EXPERTS, hidden);
            self.bias(&named("mlp.router"), EXPERTS);
            self.four_bit_experts(&named("mlp.experts.gate_up_proj"), 2 * width, hidden);
            self.four_bit_experts(&named("mlp.experts.down_proj"), hidden, width);
        }
        self.norm("model.norm", hidden);
        self.head();
    }

    /// A matrix of every expert in groups of 4-bit floating-point numbers with a power of two each, and a bias.
    fn four_bit_experts(&mut self, name: &str, rows: usize, columns: usize) {
        /// The root of the mean square of the sixteen numbers of E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives.
        const RMS: f64 = 2.926_174_977_679_906_4;
        let SyntheticSpec { seed, weight_std, .. } = *self.spec;
        let groups = columns / FOUR_BIT_GROUP;
        let blocks = [EXPERTS, rows, groups, FOUR_BIT_BLOCK];
        self.all.push(SyntheticTensor::bytes(seed, format!("{name}_blocks"), &blocks, 0..=u8::MAX));
        // The power of two below the wanted spread, or the one above it.
        let scale = |exponent: u8| 2_f64.powi(i32::from(exponent) - 127);
        let below = (0..u8::MAX - 1).rev().find(|n| scale(*n) * RMS <= weight_std).unwrap_or(0);
        let scales = [EXPERTS, rows, groups];
        self.all.push(SyntheticTensor::bytes(seed, format!("{name}_scales"), &scales, below..=below + 1));
        self.tensor(format!("{name}_bias"), &[EXPERTS, rows], 0.0, BIAS_STD);
    }

    /// Keys and values from a latent that all heads share, beside a part of the key that turns; experts in groups.
    fn deepseek_v3(&mut self) {
        let SyntheticSpec { hidden, intermediate, vocab, .. } = *self.spec;
        let latent = Latent::of(self.spec);
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            self.norm(&named("input_layernorm"), hidden);
            self.matrix(&named("self_attn.q_a_proj"), latent.rank, hidden);
            self.norm(&named("self_attn.q_a_layernorm"), latent.rank);
            self.matrix(&named("self_attn.q_b_proj"), self.spec.heads * latent.query(), latent.rank);
            self.latent_attention(&named("self_attn"), &latent);
            self.norm(&named("post_attention_layernorm"), hidden);
            if layer < DENSE_LAYERS {
                self.gated_mlp(&named("mlp"), intermediate);
            } else {
                self.matrix(&named("mlp.gate"), EXPERTS, hidden);
                self.correction(named("mlp.gate.e_score_correction_bias"));
                self.experts(&named("mlp.experts"), PROJECTIONS);
                self.gated_mlp(&named("mlp.shared_experts"), expert_width(self.spec));
            }
        }
        self.norm("model.norm", hidden);
        self.head();
    }

    /// What attention over a latent has beside its queries.
    fn latent_attention(&mut self, prefix: &str, latent: &Latent) {
        let SyntheticSpec { hidden, heads, .. } = *self.spec;
        self.matrix(&format!("{prefix}.kv_a_proj_with_mqa"), latent.rank + latent.turned, hidden);
        self.norm(&format!("{prefix}.kv_a_layernorm"), latent.rank);
        self.matrix(&format!("{prefix}.kv_b_proj"), heads * (latent.still + latent.value), latent.rank);
        self.matrix(&format!("{prefix}.o_proj"), hidden, heads * latent.value);
    }

    /// Linear attention with a decay a channel and attention over a latent by turns, neither with positions.
    fn kimi_linear(&mut self) {
        let SyntheticSpec { hidden, intermediate, heads, vocab, .. } = *self.spec;
        let (linear, latent) = (Linear::of(self.spec), Latent::of(self.spec));
        self.matrix("model.embed_tokens", vocab, hidden);
        for layer in 0..self.spec.layers {
            let named = |part: &str| format!("model.layers.{layer}.{part}");
            let attention = |part: &str| named(&format!("self_attn.{part}"));
            self.norm(&named("input_layernorm"), hidden);
            if layer % 2 == 0 {
                for part in ["q", "k", "v"] {
                    self.matrix(&attention(&format!("{part}_proj")), linear.values, hidden);
                    let taps = [linear.values, 1, CONVOLUTION];
                    self.tensor(attention(&format!("{part}_conv1d.weight")), &taps, 0.0, 0.5);
                }
                for part in ["f", "g"] {
                    self.matrix(&attention(&format!("{part}_a_proj")), linear.head, hidden);
                    self.matrix(&attention(&format!("{part}_b_proj")), linear.values, linear.head);
                }
                self.matrix(&attention("b_proj"), heads, hidden);
                self.tensor(attention("dt_bias"), &[linear.values], 0.0, 0.5);
                self.slow_decay(attention("A_log"), &[1, 1, heads, 1]);
                self.norm(&attention("o_norm"), linear.head);
                self.matrix(&attention("o_proj"), hidden, linear.values);
            } else {
                self.matrix(&attention("q_proj"), heads * latent.query(), hidden);
                self.latent_attention(&named("self_attn"), &latent);
            }
            self.norm(&named("post_attention_layernorm"), hidden);
            if layer < DENSE_LAYERS {
                self.gated_mlp(&named("mlp"), intermediate);
            } else {
                let sparse = |part: &str| named(&format!("block_sparse_moe.{part}"));
                self.matrix(&sparse("gate"), EXPERTS, hidden);
                self.correction(sparse("gate.e_score_correction_bias"));
                self.experts(&sparse("experts"), NUMBERED);
                self.gated_mlp(&sparse("shared_experts"), expert_width(self.spec));
            }
        }
        self.norm("model.norm", hidden);
        self.head();
    }
}
