//! The runner as the harness meets it: a process that loads a tiny checkpoint made here, over its stdin and stdout.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts the runner and fails by panic"
)]

#[path = "../../src/engine/protocol.rs"]
#[allow(unreachable_pub, dead_code, missing_docs, reason = "the file is shared with the harness library")]
mod protocol;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use protocol::*;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;
use tempfile::TempDir;

const VOCAB: usize = 48;
const HIDDEN: usize = 32;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const INNER: usize = 64;
const LAYERS: usize = 2;

/// A runner process with a conversation.
struct Runner {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Runner {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_regraft-runner"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, asked: 0 }
    }

    fn ask(&mut self, body: Request) -> Response {
        self.asked += 1;
        let line = serde_json::to_string(&Numbered { id: self.asked, body }).unwrap();
        let answer = self.say(&line);
        assert_eq!(answer.id, self.asked);
        answer.body
    }

    fn say(&mut self, line: &str) -> Numbered<Response> {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    fn load(&mut self, dir: &Path, device: Device) -> Response {
        let model_dir = dir.to_str().unwrap().to_owned();
        self.ask(Request::Load(Load { model_dir, precision: Precision::Source, device }))
    }

    /// Closes stdin and gives the exit code and what stdout still held.
    fn end(mut self) -> (Option<i32>, String) {
        self.input = None;
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

fn refusal(response: Response) -> EngineError {
    match response {
        Response::Error(error) => error,
        other => panic!("not a refusal: {other:?}"),
    }
}

type Tensors = BTreeMap<String, Vec<usize>>;

fn tensors(model_type: &str) -> Tensors {
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize]| tensors.insert(name, shape.to_vec());
    add("model.embed_tokens.weight".into(), &[VOCAB, HIDDEN]);
    add("model.norm.weight".into(), &[HIDDEN]);
    add("lm_head.weight".into(), &[VOCAB, HIDDEN]);
    for layer in 0..LAYERS {
        let name = |tail: &str| format!("model.layers.{layer}.{tail}.weight");
        add(name("self_attn.q_proj"), &[HEADS * HEAD_DIM, HIDDEN]);
        add(name("self_attn.k_proj"), &[KV_HEADS * HEAD_DIM, HIDDEN]);
        add(name("self_attn.v_proj"), &[KV_HEADS * HEAD_DIM, HIDDEN]);
        add(name("self_attn.o_proj"), &[HIDDEN, HEADS * HEAD_DIM]);
        add(name("mlp.gate_proj"), &[INNER, HIDDEN]);
        add(name("mlp.up_proj"), &[INNER, HIDDEN]);
        add(name("mlp.down_proj"), &[HIDDEN, INNER]);
        add(name("input_layernorm"), &[HIDDEN]);
        add(name("post_attention_layernorm"), &[HIDDEN]);
        if model_type == "qwen3" {
            add(name("self_attn.q_norm"), &[HEAD_DIM]);
            add(name("self_attn.k_norm"), &[HEAD_DIM]);
        }
    }
    tensors
}

/// Values in -0.4..0.4 from a multiplicative generator; norms are ones.
fn write_weights(dir: &Path, tensors: &Tensors) {
    let mut state = 0x2545_f491u32;
    let data = tensors
        .iter()
        .map(|(name, shape)| {
            let values = (0..shape.iter().product::<usize>()).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if name.contains("norm") {
                    1.0f32
                } else {
                    (state >> 8) as f32 / (1 << 24) as f32 * 0.8 - 0.4
                }
            });
            values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()
        })
        .collect::<Vec<_>>();
    let views = tensors
        .iter()
        .zip(&data)
        .map(|((name, shape), data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, &dir.join("model.safetensors")).unwrap();
}

fn checkpoint(model_type: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_weights(dir.path(), &tensors(model_type));
    let config = json!({
        "model_type": model_type, "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 128,
        "tie_word_embeddings": false, "eos_token_id": [0, 1],
    });
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let vocabulary = (1..VOCAB).map(|id| (format!("w{id}"), id)).chain([("<end>".to_owned(), 0)]);
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "unk_token": "w1", "vocab": vocabulary.collect::<BTreeMap<_, _>>()},
    });
    fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let template =
        "{% for m in messages %}w2 {{ m.content }}{% endfor %}{% if add_generation_prompt %} w3{% endif %}";
    let tokenizer_config = json!({"chat_template": template});
    fs::write(dir.path().join("tokenizer_config.json"), tokenizer_config.to_string()).unwrap();
    dir
}

fn score(ids: &[u32], prefill_len: usize, positions: &[usize]) -> Request {
    Request::Score(Score {
        ids: ids.to_vec(),
        prefill_len,
        positions: positions.to_vec(),
        top_k: 3,
        logits: LogitsDetail::Full,
        history: History::Kept,
        chunk: None,
        warm: None,
    })
}

fn scored(response: Response) -> Vec<ScoredPosition> {
    match response {
        Response::Scored(scored) => scored.positions,
        other => panic!("not a score: {other:?}"),
    }
}

fn row(position: &ScoredPosition) -> Vec<f32> {
    let bytes = STANDARD.decode(position.logits_f32.as_ref().unwrap()).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn a_checkpoint_is_loaded_generated_from_and_scored() {
    for model_type in ["qwen3", "llama"] {
        let dir = checkpoint(model_type);
        let mut runner = Runner::start();
        let Response::Hello(hello) = runner.ask(Request::Hello) else { panic!("no hello") };
        assert_eq!((hello.protocol, hello.engine.as_str()), (PROTOCOL_VERSION, "safemlx-lm"));
        assert!(hello.version.starts_with("0.4.") && hello.mlx_version.contains('.'), "{hello:?}");

        let Response::Loaded(loaded) = runner.load(dir.path(), Device::Cpu) else { panic!("not loaded") };
        assert_eq!(loaded.model_type, model_type);
        assert_eq!((loaded.vocab_size, loaded.eos_ids, loaded.device), (VOCAB, vec![0, 1], Device::Cpu));
        assert_eq!(loaded.tensors, tensors(model_type).len());

        let text = Tokenize::Text { text: "w5 w6 <end>".into() };
        let Response::Tokens(tokens) = runner.ask(Request::Tokenize(text)) else { panic!("no tokens") };
        assert_eq!(tokens.ids, [5, 6, 0]);
        for user in ["w5 w6", "w7"] {
            let chat = Tokenize::Chat { user: user.into() };
            let Response::Tokens(tokens) = runner.ask(Request::Tokenize(chat)) else { panic!("no tokens") };
            assert_eq!(tokens.rendered, format!("w2 {user} w3"));
        }
        let Response::Text { text } = runner.ask(Request::Detokenize { ids: vec![0, 5] }) else {
            panic!("no text")
        };
        assert_eq!(text, "<end> w5");

        let prompt_ids = vec![5, 9, 30, 12];
        let request = Generate { prompt_ids: prompt_ids.clone(), max_tokens: 6, stop_ids: vec![], top_k: 2 };
        let Response::Generated(made) = runner.ask(Request::Generate(request.clone())) else {
            panic!("nothing generated")
        };
        assert_eq!((made.ids.len(), made.finish), (6, Finish::Length));
        assert_eq!((made.token_times_s.len(), made.top.len()), (5, 6));
        assert!(made.top.iter().zip(&made.ids).all(|(top, id)| top.len() == 2 && top[0].id == *id));
        assert!(made.ttft_s > 0.0 && made.text.split(' ').count() == 6, "{made:?}");

        // Scoring what was generated walks the same steps.
        let ids = [prompt_ids.clone(), made.ids.clone()].concat();
        let positions = scored(runner.ask(score(&ids, 4, &[0, 3, 4, 5, 9])));
        let seen = positions.iter().map(|at| (at.position, at.phase)).collect::<Vec<_>>();
        let (prefill, decode) = (Phase::Prefill, Phase::Decode);
        assert_eq!(seen, [(0, prefill), (3, prefill), (4, decode), (5, decode), (9, decode)]);
        for (at, step) in positions[1..4].iter().zip(0..) {
            assert_eq!(at.top[0], made.top[step][0], "{model_type} step {step}");
            assert!((at.next_logprob.unwrap() - at.top[0].logprob).abs() < 1e-12);
        }
        assert_eq!(positions[4].next_logprob, None);
        assert!(positions.iter().all(|at| at.non_finite == 0 && row(at).len() == VOCAB));

        // The library's own sampler chooses the same ids.
        let time = Time { prompt_ids: prompt_ids.clone(), tokens: made.ids.len() };
        let Response::Timed(timed) = runner.ask(Request::Time(time)) else { panic!("nothing timed") };
        assert_eq!((&timed.ids, timed.token_times_s.len()), (&made.ids, made.ids.len() - 1));
        assert!(timed.ttft_s > 0.0 && timed.cpu_s.is_some_and(|s| s >= 0.0), "{timed:?}");

        let stopping = Generate { stop_ids: vec![made.ids[2]], ..request };
        let Response::Generated(stopped) = runner.ask(Request::Generate(stopping)) else { panic!("nothing") };
        let until = made.ids.iter().position(|id| *id == made.ids[2]).unwrap();
        assert_eq!((&stopped.ids[..], stopped.finish), (&made.ids[..until], Finish::Stop));

        let Response::Memory(memory) = runner.ask(Request::Memory) else { panic!("no memory") };
        assert!(memory.device_peak_bytes > 0 && memory.process_peak_bytes > 1 << 20, "{memory:?}");
        assert_eq!(runner.ask(Request::Shutdown), Response::Bye);
        assert_eq!(runner.end(), (Some(0), String::new()));
    }
}

#[test]
fn decode_steps_see_what_one_prefill_of_the_same_ids_sees() {
    let dir = checkpoint("llama");
    let mut runner = Runner::start();
    runner.load(dir.path(), Device::Cpu);
    let ids = [7, 3, 41, 22, 7, 3, 19];
    let decoded = scored(runner.ask(score(&ids, 2, &[3, 6])));
    let prefilled = scored(runner.ask(score(&ids, 7, &[3, 6])));
    for (decoded, prefilled) in decoded.iter().zip(&prefilled) {
        assert_eq!((decoded.phase, prefilled.phase), (Phase::Decode, Phase::Prefill));
        let apart = row(decoded).into_iter().zip(row(prefilled)).map(|(left, right)| (left - right).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-4);
    }
    // The comparison can fail: other ids before the position move the row.
    let moved = scored(runner.ask(score(&[8, 3, 41, 22, 7, 3, 19], 2, &[3, 6])));
    assert!(
        row(&moved[1]).into_iter().zip(row(&decoded[1])).any(|(left, right)| (left - right).abs() > 1e-2)
    );
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused() {
    for model_type in ["qwen3", "llama"] {
        let mut runner = Runner::start();
        let victim = "model.layers.1.self_attn.k_proj.weight";
        type Fault = fn(&mut Tensors, &str);
        let faults: [(&str, Fault); 3] = [
            ("1 missing (model.layers.1.self_attn.k_proj.weight)", |all, victim| {
                all.remove(victim);
            }),
            ("1 extra (model.layers.1.self_attn.k_proj.weight.spare)", |all, victim| {
                all.insert(format!("{victim}.spare"), vec![1]);
            }),
            (
                "1 misshapen (model.layers.1.self_attn.k_proj.weight is [32, 31] instead of [32, 32])",
                |all, victim| {
                    all.insert(victim.into(), vec![KV_HEADS * HEAD_DIM, HIDDEN - 1]);
                },
            ),
        ];
        for (expected, fault) in faults {
            let dir = checkpoint(model_type);
            let mut broken = tensors(model_type);
            fault(&mut broken, victim);
            write_weights(dir.path(), &broken);
            let error = refusal(runner.load(dir.path(), Device::Cpu));
            assert_eq!(error.kind, EngineErrorKind::BadModel);
            assert!(error.message.contains(expected), "{model_type}: {} lacks {expected}", error.message);
        }
        // A refusal leaves the runner usable.
        let dir = checkpoint(model_type);
        assert!(matches!(runner.load(dir.path(), Device::Cpu), Response::Loaded(_)));
    }
}

#[test]
fn folders_that_cannot_be_loaded_say_why() {
    type Fault = fn(&Path);
    let faults: [(Fault, EngineErrorKind, &str); 7] = [
        (|dir| fs::remove_file(dir.join("config.json")).unwrap(), EngineErrorKind::BadModel, "config.json"),
        (
            |dir| {
                let file = fs::File::options().write(true).open(dir.join("model.safetensors")).unwrap();
                let length = file.metadata().unwrap().len();
                file.set_len(length / 2).unwrap();
            },
            EngineErrorKind::BadModel,
            "the header describes",
        ),
        (|dir| edit_config(dir, "model_type", json!("abacus")), EngineErrorKind::UnsupportedModel, "abacus"),
        (
            |dir| edit_config(dir, "vocab_size", json!(-3)),
            EngineErrorKind::BadModel,
            "vocab_size cannot be -3",
        ),
        (
            |dir| edit_config(dir, "rope_scaling", json!({"rope_type": "bogus"})),
            EngineErrorKind::UnsupportedModel,
            "bogus",
        ),
        (
            |dir| edit_config(dir, "head_dim", json!("wide")),
            EngineErrorKind::BadModel,
            "invalid qwen3 config",
        ),
        (|dir| fs::write(dir.join("tokenizer.json"), "{").unwrap(), EngineErrorKind::BadModel, "tokenizer"),
    ];
    let mut runner = Runner::start();
    for (fault, kind, why) in faults {
        let dir = checkpoint("qwen3");
        fault(dir.path());
        let error = refusal(runner.load(dir.path(), Device::Cpu));
        assert_eq!(error.kind, kind, "{}", error.message);
        assert!(error.message.contains(why), "{} lacks {why}", error.message);
    }
}

fn edit_config(dir: &Path, key: &str, value: serde_json::Value) {
    let path = dir.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn a_chat_needs_a_template() {
    let dir = checkpoint("llama");
    fs::remove_file(dir.path().join("tokenizer_config.json")).unwrap();
    let mut runner = Runner::start();
    runner.load(dir.path(), Device::Cpu);
    let error = refusal(runner.ask(Request::Tokenize(Tokenize::Chat { user: "w1".into() })));
    assert_eq!(error.kind, EngineErrorKind::NoTemplate);
}

#[test]
fn a_gpu_is_used_or_refused_and_never_replaced() {
    let dir = checkpoint("qwen3");
    match Runner::start().load(dir.path(), Device::Gpu) {
        Response::Loaded(loaded) => assert_eq!(loaded.device, Device::Gpu),
        other => assert_eq!(refusal(other).kind, EngineErrorKind::NoDevice),
    }
}

#[test]
fn rubbish_is_answered_and_the_end_of_input_ends_the_process_in_peace() {
    let mut runner = Runner::start();
    let answer = runner.say("rubbish");
    assert_eq!((answer.id, refusal(answer.body).kind), (0, EngineErrorKind::BadRequest));
    assert!(matches!(runner.ask(Request::Hello), Response::Hello(_)));
    assert_eq!(runner.end(), (Some(0), String::new()));
}
