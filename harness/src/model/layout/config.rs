//! `config.json` of every family, with every key that an engine insists on.

use serde_json::{Value, json};

use super::{
    CONVOLUTION, DENSE_LAYERS, EXPERTS, EXPERTS_A_TOKEN, Latent, Linear, Mamba, NEMOTRON_PATTERN, PER_LAYER,
    SHORT_CONVOLUTION, STATE, TURNED_SHARE, WINDOWED_THETA, expert_width,
};
use crate::{
    config::spec::{Architecture, Head, SyntheticSpec},
    model::synthetic::{EOS_ID, RMS_NORM_EPS},
};

/// `config.json`, with every key that an engine insists on.
pub(in crate::model) fn config(spec: &SyntheticSpec) -> Value {
    let name = spec.architecture.name();
    let mut config = match spec.architecture {
        Architecture::Llama => plain_config(spec, "LlamaForCausalLM", name),
        Architecture::Mistral => mistral_config(spec),
        Architecture::Qwen2 => qwen2_config(spec),
        Architecture::Qwen3 => plain_config(spec, "Qwen3ForCausalLM", name),
        Architecture::Qwen3Moe => qwen3_moe_config(spec),
        Architecture::Gemma4 => gemma4_config(spec),
        Architecture::NemotronH => nemotron_h_config(spec),
        Architecture::Qwen35 => qwen3_5_config(spec),
        Architecture::Qwen35Moe => qwen3_5_moe_config(spec),
        Architecture::Qwen3Next => qwen3_next_config(spec),
        Architecture::Lfm2 => lfm2_config(spec),
        Architecture::Lfm2Moe => lfm2_moe_config(spec),
        Architecture::GptOss => gpt_oss_config(spec),
        Architecture::DeepseekV3 => deepseek_v3_config(spec),
        Architecture::KimiLinear => kimi_linear_config(spec),
    };
    if let Some(quantization) = &spec.quantization {
        config["quantization"] = quantization.config();
    }
    config
}

fn tied(spec: &SyntheticSpec) -> bool {
    spec.head == Head::Tied
}

/// The kinds of layers that take turns.
fn by_turns(spec: &SyntheticSpec, kinds: [&'static str; 2]) -> Vec<&'static str> {
    kinds.into_iter().cycle().take(spec.layers).collect()
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
            "layer_types": by_turns(spec, ["sliding_attention", "full_attention"]),
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
    let width = expert_width(spec);
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

fn qwen3_5_config(spec: &SyntheticSpec) -> Value {
    let width = json!({ "intermediate_size": spec.intermediate });
    qwen3_5_whole(spec, "Qwen3_5ForConditionalGeneration", "qwen3_5_text", width)
}

fn qwen3_5_moe_config(spec: &SyntheticSpec) -> Value {
    qwen3_5_whole(spec, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", qwen_experts(spec))
}

/// The text model's keys stand below a key of their own.
fn qwen3_5_whole(spec: &SyntheticSpec, class: &str, text_type: &str, feed_forward: Value) -> Value {
    let turned = json!({
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": spec.rope_theta,
            "partial_rotary_factor": TURNED_SHARE,
        },
    });
    let text = [qwen_hybrid(spec), feed_forward, turned];
    json!({
        "architectures": [class],
        "model_type": spec.architecture.name(),
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
        "text_config": text.into_iter().fold(json!({ "model_type": text_type }), merged),
    })
}

/// What Qwen3-Next and Qwen3.5 call by the same names.
fn qwen_hybrid(spec: &SyntheticSpec) -> Value {
    let linear = Linear::of(spec);
    json!({
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
        "layer_types": by_turns(spec, ["linear_attention", "full_attention"]),
        "linear_conv_kernel_dim": CONVOLUTION,
        "linear_key_head_dim": linear.head,
        "linear_value_head_dim": linear.head,
        "linear_num_key_heads": spec.kv_heads,
        "linear_num_value_heads": spec.heads,
    })
}

fn qwen_experts(spec: &SyntheticSpec) -> Value {
    let width = expert_width(spec);
    json!({
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        "norm_topk_prob": true,
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
    })
}

fn qwen3_next_config(spec: &SyntheticSpec) -> Value {
    let own = json!({
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "intermediate_size": spec.intermediate,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": spec.rope_theta,
        "rope_scaling": null,
        "partial_rotary_factor": TURNED_SHARE,
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
    });
    merged(merged(qwen_hybrid(spec), qwen_experts(spec)), own)
}

/// Every layer sees everything, as in releases from 0.2 on. Eredu gives all layers the window that a configuration states;
/// mlx-lm has one in layers that `layer_types` names, and no place for a model in which they are all.
fn mistral_config(spec: &SyntheticSpec) -> Value {
    merged(plain_config(spec, "MistralForCausalLM", "mistral"), json!({ "sliding_window": null }))
}

fn qwen2_config(spec: &SyntheticSpec) -> Value {
    let own = json!({ "attention_bias": true, "use_sliding_window": false });
    merged(plain_config(spec, "Qwen2ForCausalLM", "qwen2"), own)
}

fn qwen3_moe_config(spec: &SyntheticSpec) -> Value {
    let own = json!({
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        "norm_topk_prob": true,
        "moe_intermediate_size": expert_width(spec),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    });
    merged(plain_config(spec, "Qwen3MoeForCausalLM", "qwen3_moe"), own)
}

fn lfm2_config(spec: &SyntheticSpec) -> Value {
    let own = json!({
        "architectures": ["Lfm2ForCausalLM"],
        "block_dim": spec.hidden,
        "block_ff_dim": spec.intermediate,
        "block_multiple_of": 1,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": false,
    });
    merged(lfm2_whole(spec), own)
}

fn lfm2_moe_config(spec: &SyntheticSpec) -> Value {
    let own = json!({
        "architectures": ["Lfm2MoeForCausalLM"],
        "num_dense_layers": DENSE_LAYERS,
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        "norm_topk_prob": true,
        "routed_scaling_factor": 1.0,
        "use_expert_bias": true,
        "moe_intermediate_size": expert_width(spec),
    });
    merged(lfm2_whole(spec), own)
}

fn lfm2_whole(spec: &SyntheticSpec) -> Value {
    json!({
        "model_type": spec.architecture.name(),
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "max_position_embeddings": spec.max_positions,
        "norm_eps": RMS_NORM_EPS,
        "rope_theta": spec.rope_theta,
        "layer_types": by_turns(spec, ["conv", "full_attention"]),
        "conv_L_cache": SHORT_CONVOLUTION,
        "conv_bias": false,
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "bos_token_id": null,
        "eos_token_id": EOS_ID,
    })
}

fn gpt_oss_config(spec: &SyntheticSpec) -> Value {
    json!({
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": expert_width(spec),
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": RMS_NORM_EPS,
        "rope_theta": spec.rope_theta,
        "rope_scaling": null,
        "sliding_window": spec.window,
        "layer_types": by_turns(spec, ["sliding_attention", "full_attention"]),
        "swiglu_limit": 7.0,
        "attention_bias": true,
        "hidden_act": "silu",
        "tie_word_embeddings": false,
        "quantization_config": { "quant_method": "mxfp4" },
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
    })
}

fn deepseek_v3_config(spec: &SyntheticSpec) -> Value {
    let latent = Latent::of(spec);
    let whole = json!({
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": RMS_NORM_EPS,
        "rope_theta": spec.rope_theta,
        "rope_scaling": null,
        "q_lora_rank": latent.rank,
        "kv_lora_rank": latent.rank,
        "qk_nope_head_dim": latent.still,
        "qk_rope_head_dim": latent.turned,
        "v_head_dim": latent.value,
        "attention_bias": false,
        "hidden_act": "silu",
        "tie_word_embeddings": false,
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
    });
    let experts = json!({
        "first_k_dense_replace": DENSE_LAYERS,
        "moe_layer_freq": 1,
        "moe_intermediate_size": expert_width(spec),
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": EXPERTS_A_TOKEN,
        // Half of the groups, each of which holds as many experts as a token takes.
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": true,
        "routed_scaling_factor": 1.5,
        "num_nextn_predict_layers": 0,
    });
    merged(whole, experts)
}

fn kimi_linear_config(spec: &SyntheticSpec) -> Value {
    let (linear, latent) = (Linear::of(spec), Latent::of(spec));
    // Counted from one.
    let layers = |rest: usize| (1..=spec.layers).filter(|layer| layer % 2 == rest).collect::<Vec<_>>();
    let whole = json!({
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "model_max_length": spec.max_positions,
        "rms_norm_eps": RMS_NORM_EPS,
        "rope_theta": spec.rope_theta,
        "rope_scaling": null,
        "linear_attn_config": {
            "kda_layers": layers(1),
            "full_attn_layers": layers(0),
            "num_heads": spec.heads,
            "head_dim": linear.head,
            "short_conv_kernel_size": CONVOLUTION,
        },
        "q_lora_rank": null,
        "kv_lora_rank": latent.rank,
        "qk_nope_head_dim": latent.still,
        "qk_rope_head_dim": latent.turned,
        "v_head_dim": latent.value,
        "mla_use_nope": true,
        "hidden_act": "silu",
        "tie_word_embeddings": tied(spec),
        "torch_dtype": "float32",
        "eos_token_id": EOS_ID,
    });
    let experts = json!({
        "first_k_dense_replace": DENSE_LAYERS,
        "moe_layer_freq": 1,
        "moe_intermediate_size": expert_width(spec),
        "num_experts": EXPERTS,
        "num_experts_per_token": EXPERTS_A_TOKEN,
        "num_shared_experts": 1,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": true,
        "routed_scaling_factor": 1.5,
        "use_grouped_topk": true,
        "num_expert_group": 1,
        "topk_group": 1,
    });
    merged(whole, experts)
}
