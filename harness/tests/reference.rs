//! The real mlx-lm reference, run only where the environment variable `REGRAFT_REFERENCE_PYTHON` names an interpreter
//! that has it. The checkpoint is made here, with random weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use harness::{
    build::Artifact,
    engine::{
        ProcessOutcome, Session, SessionOptions,
        protocol::{
            Device, EngineErrorKind, Finish, Generate, History, Load, LogitsDetail, Phase, Precision, Score,
            Scored, Tokenize,
        },
    },
    event::Silent,
    matrix::{
        Backend, Cell, ForcedIds, Measured, ObserveOptions, Probe, Role, Scoring, Wanted, observe,
        observe_scorings,
    },
};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

const VOCAB: usize = 512;
const HIDDEN: usize = 64;
const MLP: usize = 128;
const HEAD: usize = 16;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;

/// The reference.
fn reference() -> Option<Artifact> {
    support::reference_program("mlx-lm", "mlx_lm_engine.py")
}

type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

/// Random numbers of standard deviation 0.15, so that position and history matter in the logits.
fn noise(state: &mut u64, count: usize) -> Vec<u8> {
    let mut uniform = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 40) as f32 / (1_u64 << 24) as f32
    };
    // The sum of twelve uniform numbers has variance one.
    (0..count).flat_map(|_| (0.15 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0)).to_le_bytes()).collect()
}

fn tensors(architecture: &str) -> Tensors {
    let mut state = 11;
    let mut all = Tensors::new();
    let mut random = |name: String, shape: [usize; 2]| {
        all.insert(name, (shape.to_vec(), noise(&mut state, shape[0] * shape[1])));
    };
    random("model.embed_tokens.weight".into(), [VOCAB, HIDDEN]);
    random("lm_head.weight".into(), [VOCAB, HIDDEN]);
    for layer in 0..2 {
        for (name, shape) in [
            ("self_attn.q_proj", [HEADS * HEAD, HIDDEN]),
            ("self_attn.k_proj", [KV_HEADS * HEAD, HIDDEN]),
            ("self_attn.v_proj", [KV_HEADS * HEAD, HIDDEN]),
            ("self_attn.o_proj", [HIDDEN, HEADS * HEAD]),
            ("mlp.gate_proj", [MLP, HIDDEN]),
            ("mlp.up_proj", [MLP, HIDDEN]),
            ("mlp.down_proj", [HIDDEN, MLP]),
        ] {
            random(format!("model.layers.{layer}.{name}.weight"), shape);
        }
    }
    let mut ones = |name: String, len: usize| {
        all.insert(name, (vec![len], 1_f32.to_le_bytes().repeat(len)));
    };
    ones("model.norm.weight".into(), HIDDEN);
    for layer in 0..2 {
        ones(format!("model.layers.{layer}.input_layernorm.weight"), HIDDEN);
        ones(format!("model.layers.{layer}.post_attention_layernorm.weight"), HIDDEN);
        if architecture == "qwen3" {
            ones(format!("model.layers.{layer}.self_attn.q_norm.weight"), HEAD);
            ones(format!("model.layers.{layer}.self_attn.k_norm.weight"), HEAD);
        }
    }
    all
}

fn save_tensors(path: &Path, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (shape, bytes))| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// A Hugging Face folder of a tiny model with a tokenizer of one word a token.
fn make_model(architecture: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    save_tensors(&folder.path().join("model.safetensors"), &tensors(architecture));
    let mut vocab: serde_json::Map<String, Value> =
        (2..VOCAB).map(|id| (format!("w{id}"), json!(id))).collect();
    vocab.insert("<eos>".into(), json!(0));
    vocab.insert("<unk>".into(), json!(1));
    let template = "{% for m in messages %}w3 {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}w4{% endif %}";
    for (name, content) in [
        (
            "config.json",
            json!({
                "model_type": architecture, "hidden_size": HIDDEN, "intermediate_size": MLP, "vocab_size": VOCAB,
                "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                "head_dim": HEAD, "rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6,
                "max_position_embeddings": 4_096, "tie_word_embeddings": false, "eos_token_id": 0,
            }),
        ),
        (
            "tokenizer.json",
            json!({
                "version": "1.0",
                "added_tokens": [{
                    "id": 0, "content": "<eos>", "special": true, "normalized": false,
                    "single_word": false, "lstrip": false, "rstrip": false,
                }],
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
            }),
        ),
        (
            "tokenizer_config.json",
            json!({
                "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "unk_token": "<unk>",
                "chat_template": template,
            }),
        ),
    ] {
        std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    folder
}

fn start(artifact: &Artifact) -> Session {
    let options =
        SessionOptions { timeout: Duration::from_secs(120), stderr_log: None, memory_limit_bytes: None };
    let mut session = Session::start(artifact, &options).unwrap();
    let hello = session.hello().expect("the reference says hello");
    assert_eq!((hello.engine.as_str(), hello.dialect.as_str()), ("mlx-lm", "python"));
    session
}

fn load(folder: &Path) -> Load {
    Load {
        model_dir: folder.to_string_lossy().into_owned(),
        precision: Precision::Source,
        device: Device::Cpu,
    }
}

fn best(scored: &Scored, phase: Phase) -> Vec<u32> {
    scored.positions.iter().filter(|row| row.phase == phase).map(|row| row.top[0].id).collect()
}

#[test]
fn scoring_and_generating_agree_and_history_matters() {
    let Some(artifact) = reference() else { return };
    for architecture in ["llama", "qwen3"] {
        let model = make_model(architecture);
        let mut session = start(&artifact);
        let loaded = session.load(&load(model.path())).expect("the model loads");
        assert_eq!((loaded.model_type.as_str(), loaded.vocab_size), (architecture, VOCAB));
        assert_eq!((loaded.eos_ids, loaded.device), (vec![0], Device::Cpu));
        assert_eq!(loaded.tensors, tensors(architecture).len());

        let text = session.tokenize(&Tokenize::Text { text: "w9 <eos> w8".into() }).unwrap();
        assert_eq!((text.ids, text.rendered.as_str()), (vec![9, 0, 8], "w9 <eos> w8"));
        let chat = session.tokenize(&Tokenize::Chat { user: "w9 w8".into() }).unwrap();
        assert_eq!((chat.ids, chat.rendered.as_str()), (vec![3, 9, 8, 4], "w3 w9 w8 w4"));
        assert_eq!(session.detokenize(&[9, 0, 8]).unwrap(), "w9 <eos> w8");

        let prompt: Vec<u32> = (1..=8).map(|n| n * 10).collect();
        let generate = Generate { prompt_ids: prompt.clone(), max_tokens: 12, stop_ids: vec![], top_k: 5 };
        let generated = session.generate(&generate).unwrap();
        assert_eq!((generated.ids.len(), generated.finish), (12, Finish::Length));
        assert_eq!((generated.top.len(), generated.token_times_s.len()), (12, 11));
        assert_eq!(session.generate(&generate).unwrap().ids, generated.ids, "it repeats itself");
        // Stopping at the fifth id leaves the ids before its first appearance.
        let stop = generated.ids[4];
        let before = generated.ids.iter().position(|&id| id == stop).unwrap();
        let stopped = session.generate(&Generate { stop_ids: vec![stop], ..generate }).unwrap();
        assert_eq!((stopped.ids.as_slice(), stopped.finish), (&generated.ids[..before], Finish::Stop));

        let ids: Vec<u32> = prompt.iter().chain(&generated.ids).copied().collect();
        let score = Score {
            positions: (0..ids.len()).collect(),
            prefill_len: prompt.len(),
            ids,
            top_k: 5,
            logits: LogitsDetail::Full,
            history: History::Kept,
            chunk: None,
            warm: None,
        };
        let kept = session.score(&score).unwrap();
        // The logits at the last prompt id choose the first generated id, and so on.
        let chosen: Vec<u32> = kept.positions[prompt.len() - 1..].iter().map(|row| row.top[0].id).collect();
        assert_eq!(chosen[..12], generated.ids);
        for (row, top) in kept.positions[prompt.len() - 1..].iter().zip(&generated.top) {
            assert!((row.top[0].logprob - top[0].logprob).abs() < 1e-4);
            assert!(row.next_logprob.is_none_or(|next| (next - row.top[0].logprob).abs() < 1e-9));
        }
        for row in &kept.positions {
            let bytes = STANDARD.decode(row.logits_f32.as_ref().unwrap()).unwrap();
            let logits: Vec<f32> =
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            assert_eq!((logits.len(), row.non_finite), (VOCAB, 0));
            let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(logits[row.top[0].id as usize], highest);
            assert!(row.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
        }

        // Position by position through prefills of their own, the same rows come out.
        let alone = Score { prefill_len: score.ids.len(), ..score.clone() };
        let alone = session.score(&alone).unwrap();
        assert_eq!(
            best(&alone, Phase::Prefill),
            [best(&kept, Phase::Prefill), best(&kept, Phase::Decode)].concat()
        );

        let none = session.score(&Score { history: History::None, ..score.clone() }).unwrap();
        assert_eq!(best(&none, Phase::Prefill), best(&kept, Phase::Prefill));
        let same = best(&none, Phase::Decode)
            .iter()
            .zip(best(&kept, Phase::Decode))
            .filter(|(a, b)| *a == b)
            .count();
        assert!(same < 6, "without history {same} of 12 decode steps choose the same id");
        // A decode step without history is a prompt of one id.
        let single = Score { ids: vec![score.ids[10]], prefill_len: 1, positions: vec![0], ..score };
        let single = session.score(&single).unwrap();
        assert_eq!(single.positions[0].logits_f32, none.positions[10].logits_f32);

        assert!(session.memory().unwrap().process_peak_bytes > 1 << 20);
        assert_eq!(session.finish(), ProcessOutcome::Clean);
    }
}

#[test]
fn a_checkpoint_that_is_not_exactly_the_models_is_refused() {
    let Some(artifact) = reference() else { return };
    let edit = |change: &dyn Fn(&mut Tensors)| {
        let model = make_model("qwen3");
        let mut tensors = tensors("qwen3");
        change(&mut tensors);
        save_tensors(&model.path().join("model.safetensors"), &tensors);
        model
    };
    let missing = edit(&|tensors| drop(tensors.remove("model.layers.1.mlp.up_proj.weight")));
    let extra = edit(&|tensors| {
        let norm = tensors["model.norm.weight"].clone();
        tensors.insert("model.layers.1.self_attn.r_norm.weight".into(), norm);
    });
    let misshapen = edit(&|tensors| {
        let norm = tensors["model.layers.0.self_attn.q_norm.weight"].clone();
        tensors.insert("model.norm.weight".into(), norm);
    });
    let truncated = make_model("qwen3");
    let weights = truncated.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() - 100]).unwrap();
    let unknown = make_model("qwen3");
    let config = unknown.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap().replace("qwen3", "qwen3_of_nowhere");
    std::fs::write(config, text).unwrap();
    let twice = make_model("qwen3");
    std::fs::copy(twice.path().join("model.safetensors"), twice.path().join("model-2.safetensors")).unwrap();
    let nowhere = PathBuf::from("/nowhere/model");

    for (folder, kind, words) in [
        (missing.path(), EngineErrorKind::BadModel, "mlp.up_proj.weight"),
        (extra.path(), EngineErrorKind::BadModel, "r_norm.weight"),
        (misshapen.path(), EngineErrorKind::BadModel, "model.norm.weight"),
        (truncated.path(), EngineErrorKind::BadModel, "its header describes"),
        (unknown.path(), EngineErrorKind::UnsupportedModel, "qwen3_of_nowhere"),
        (twice.path(), EngineErrorKind::BadModel, "`model-2.safetensors` and `model.safetensors`"),
        (nowhere.as_path(), EngineErrorKind::BadModel, "/nowhere/model/config.json"),
    ] {
        let mut session = start(&artifact);
        assert!(session.load(&load(folder)).is_none(), "{words}");
        let ProcessOutcome::Refused { kind: seen, message } = session.finish() else {
            panic!("a bad model is refused: {words}")
        };
        assert_eq!(json!(seen), json!(kind), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_gpu_that_is_asked_for_is_used_or_refused() {
    let Some(artifact) = reference() else { return };
    let model = make_model("llama");
    let mut session = start(&artifact);
    let loaded = session.load(&Load { device: Device::Gpu, ..load(model.path()) });
    let outcome = session.finish();
    match loaded {
        Some(loaded) => assert_eq!((loaded.device, outcome), (Device::Gpu, ProcessOutcome::Clean)),
        None => assert!(
            matches!(&outcome, ProcessOutcome::Refused { kind, .. } if kind == "no-device"),
            "{outcome:?}"
        ),
    }
}

#[test]
fn a_folder_without_a_template_is_refused_only_when_one_is_needed() {
    let Some(artifact) = reference() else { return };
    let model = make_model("llama");
    let config = json!({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"});
    std::fs::write(model.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let mut session = start(&artifact);
    session.load(&load(model.path())).expect("the model loads");
    assert_eq!(session.tokenize(&Tokenize::Text { text: "w9".into() }).unwrap().ids, [9]);
    assert!(session.tokenize(&Tokenize::Chat { user: "w9".into() }).is_none());
    let outcome = session.finish();
    assert!(matches!(&outcome, ProcessOutcome::Refused { kind, .. } if kind == "no-template"), "{outcome:?}");
}

#[test]
fn a_cell_is_observed_with_and_without_history() {
    let Some(artifact) = reference() else { return };
    let model = make_model("qwen3");
    let logs = tempfile::tempdir().unwrap();
    let options = ObserveOptions { timeout: Duration::from_secs(120), log_dir: logs.path().into() };
    let probe = Probe::Greedy { max_tokens: 8 };
    let cell = Cell::new("tiny", Precision::Source, 16, "greedy", probe, Backend::Cpu);
    let seen = observe(&cell, Role::Reference, &artifact, model.path(), &options, &Silent).unwrap();
    assert_eq!(seen.exit, ProcessOutcome::Clean);
    assert_eq!((&seen.eos_ids, &seen.special_ids), (&vec![0], &vec![0]));
    let forced = ForcedIds::of(seen.measured.as_ref().unwrap());
    assert_eq!((forced.ids.len(), forced.prefill_len), (24, 16));

    let scorings =
        [Wanted::Likelihood, Wanted::RowsWithoutHistory].map(|want| Scoring { forced: &forced, want });
    let mut scored =
        observe_scorings(&cell, Role::Reference, &scorings, &artifact, model.path(), &options, &Silent)
            .unwrap();
    assert_eq!(scored.len(), 2);
    let without = scored.pop().unwrap();
    assert_eq!(without.exit, ProcessOutcome::Clean);
    // What it chose greedily is its own first choice at every step.
    let Some(Measured::Logits { scored: likely, .. }) = scored.pop().unwrap().measured else {
        panic!("it scored")
    };
    assert_eq!(likely.positions.iter().map(|p| p.position).collect::<Vec<_>>(), (15..23).collect::<Vec<_>>());
    for p in &likely.positions {
        assert_eq!(p.top[0].id, forced.ids[p.position + 1]);
        assert!(p.logits_f32.is_none());
    }
    let Some(Measured::Logits { ids, scored, .. }) = without.measured else { panic!("it scored") };
    assert_eq!(ids, forced.ids);
    // The prefill still chooses the first generated id; the steps after it no longer follow.
    let row = |position: usize| scored.positions.iter().find(|row| row.position == position).unwrap();
    assert_eq!(row(15).top[0].id, forced.ids[16]);
    assert!((16..23).any(|position| row(position).top[0].id != forced.ids[position + 1]));
}
