//! Can the synthetic checkpoints of families without a forward pass of our own show the faults that they are there for, and
//! does MLX read what our quantizer writes? Asked of the real mlx-lm, run only where the environment variable
//! `REGRAFT_REFERENCE_PYTHON` names an interpreter that has it.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use harness::{
    build::Artifact,
    config::{
        load_builds, load_matrix,
        spec::{Architecture, MatrixSpec, ModelSource, ModelSpec, SyntheticSpec},
    },
    engine::{
        Session, SessionOptions,
        fault::{Fault, Layers, make_faulty_folder},
        protocol::{Device, History, Load, LogitsDetail, Phase, Precision, Score},
    },
    event::Silent,
    model::{Check, ModelInputs, prepare, quantize, synthetic},
};

const PREFILL: usize = 8;
const STEPS: usize = 16;

/// A fault must move the figure this many times beyond its threshold.
const CLEARANCE: f64 = 10.0;

/// The reference's library behind the program that can be asked for faults.
fn engine() -> Option<Artifact> {
    support::reference_program("faulty-mlx-lm", "faulty_engine.py")
}

fn matrix() -> MatrixSpec {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    load_matrix(root, "families", &load_builds(root).unwrap()).unwrap()
}

fn specs(matrix: &MatrixSpec) -> impl Iterator<Item = (&ModelSpec, &SyntheticSpec)> {
    matrix.models.iter().filter_map(|model| match &model.source {
        ModelSource::Synthetic(spec) => Some((model, spec)),
        ModelSource::Package { .. } => None,
    })
}

/// The logits rows of the decode steps behind a fixed prompt.
fn decode_rows(engine: &Artifact, folder: &Path, vocab: usize) -> Vec<Vec<f64>> {
    let options =
        SessionOptions { timeout: Duration::from_secs(120), memory_limit_bytes: None, stderr_log: None };
    let mut session = Session::start(engine, &options).unwrap();
    session.hello().unwrap();
    let load = Load {
        model_dir: folder.to_str().unwrap().to_owned(),
        precision: Precision::Source,
        device: Device::Cpu,
    };
    session.load(&load).unwrap();
    let ids: Vec<u32> =
        (0..PREFILL + STEPS).map(|i| u32::try_from((i * 7919 + 13) % vocab).unwrap()).collect();
    let scored = session
        .score(&Score {
            positions: (PREFILL..ids.len()).collect(),
            ids,
            prefill_len: PREFILL,
            top_k: 1,
            logits: LogitsDetail::Full,
            history: History::Kept,
            chunk: None,
            warm: None,
        })
        .unwrap();
    session.finish();
    assert!(scored.positions.iter().all(|position| position.phase == Phase::Decode));
    scored
        .positions
        .iter()
        .map(|position| {
            let bytes = STANDARD.decode(position.logits_f32.as_ref().unwrap()).unwrap();
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
        })
        .collect()
}

fn mean_kl(right: &[Vec<f64>], other: &[Vec<f64>]) -> f64 {
    let log_softmax = |row: &[f64]| -> Vec<f64> {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
        row.iter().map(|x| x - largest - sum).collect()
    };
    let total: f64 = right
        .iter()
        .zip(other)
        .map(|(p, q)| {
            let (p, q) = (log_softmax(p), log_softmax(q));
            p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>()
        })
        .sum();
    total / right.len() as f64
}

#[test]
#[allow(clippy::print_stderr, reason = "the figures are what a person runs this for")]
fn every_family_shows_every_fault() {
    let Some(engine) = engine() else { return };
    let (matrix, root) = (matrix(), tempfile::tempdir().unwrap());
    let inputs = ModelInputs { root: root.path(), package_file: None, check: Check::Sizes };
    for (model, spec) in specs(&matrix) {
        if matches!(spec.architecture, Architecture::Llama | Architecture::Qwen3) {
            continue;
        }
        let without_positions =
            matches!(spec.architecture, Architecture::NemotronH | Architecture::KimiLinear);
        let sound = prepare(model, inputs, &Silent).unwrap();
        let right = decode_rows(&engine, &sound.path, spec.vocab);
        let mut moved = Vec::new();
        for (name, fault) in [
            ("lost-cache", Fault::HistoryLost { from_step: 0 }),
            ("offset-of-one", Fault::DecodeOffset { delta: 1, layers: Layers::All, from_step: 0 }),
        ] {
            // Attention without positions has none that could be wrong.
            if without_positions && name == "offset-of-one" {
                continue;
            }
            let folder = root.path().join(format!("{}-{name}", model.name));
            make_faulty_folder(&sound.path, &folder, &fault).unwrap();
            moved.push((name, mean_kl(&right, &decode_rows(&engine, &folder, spec.vocab))));
        }
        let mut other = model.clone();
        let ModelSource::Synthetic(changed) = &mut other.source else { unreachable!() };
        changed.rope_theta = 1e4;
        let other = prepare(&other, inputs, &Silent).unwrap();
        let by_base = mean_kl(&right, &decode_rows(&engine, &other.path, spec.vocab));
        if without_positions {
            assert!(by_base == 0.0, "a base that belongs to no layer moved mean KL by {by_base:.2e}");
        } else {
            moved.push(("rope-base", by_base));
        }
        eprintln!("{}: {moved:?}", model.name);
        for (name, moved) in moved {
            assert!(
                moved > CLEARANCE * matrix.thresholds.mean_kl,
                "model `{}` moves mean KL only by {moved:.2e} with {name}",
                model.name
            );
        }
    }
}

#[test]
fn mlx_reads_what_the_quantizer_writes() {
    let Some(engine) = engine() else { return };
    let (matrix, root) = (matrix(), tempfile::tempdir().unwrap());
    let inputs = ModelInputs { root: root.path(), package_file: None, check: Check::Sizes };
    let mut seen = 0;
    for (model, spec) in specs(&matrix) {
        let Some(how) = &spec.quantization else { continue };
        let packed = prepare(model, inputs, &Silent).unwrap();
        // The same numbers in single precision: every quantized matrix written as what it comes back as.
        let folder = root.path().join(format!("{}-plain", model.name));
        std::fs::create_dir(&folder).unwrap();
        for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
            std::fs::copy(packed.path.join(file), folder.join(file)).unwrap();
        }
        let plain = SyntheticSpec { quantization: None, ..spec.clone() };
        std::fs::write(folder.join("config.json"), synthetic::config(&plain).to_string()).unwrap();
        let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = synthetic::tensors(&plain)
            .iter()
            .map(|tensor| {
                let own = tensor.values();
                let values = match quantize::applies_to(tensor, how) {
                    true => quantize::dequantize(&quantize::quantize(&own, how), how),
                    false => own,
                };
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                (tensor.name.clone(), tensor.shape.clone(), bytes)
            })
            .collect();
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
            (name.as_str(), view.unwrap())
        });
        safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
        let kl = mean_kl(
            &decode_rows(&engine, &folder, spec.vocab),
            &decode_rows(&engine, &packed.path, spec.vocab),
        );
        assert!(kl.abs() < 1e-8, "model `{}` reads otherwise by a mean KL of {kl:.2e}", model.name);
        seen += 1;
    }
    assert!(seen >= 7, "4 and 8 bits in three group sizes, and without a mode");
}
