//! Can the synthetic checkpoints of the matrices show the faults that they are there for? A checkpoint with small
//! weights is blind: its attention is flat, and a wrong position changes nothing that a threshold could see.

use std::{fs, path::Path};

use super::forward::{Fault, Forward, mean_kl};
use crate::config::{
    load_builds, load_matrix,
    spec::{Architecture, MatrixSpec, ModelSource, SyntheticSpec},
};

/// The shortest logits cell of the default matrix: a shorter context shows less.
const PREFILL: usize = 8;
const STEPS: usize = 16;

/// A fault must move the figure this many times beyond its threshold.
const CLEARANCE: f64 = 10.0;

const FAULTS: [Fault; 3] = [Fault::RopeBase(1e4), Fault::DecodePositionOffByOne, Fault::LostCache];

fn ids(vocab: usize) -> Vec<usize> {
    (0..PREFILL + STEPS).map(|i| (i * 7919 + 13) % vocab).collect()
}

fn divergences(spec: &SyntheticSpec) -> [(Fault, f64); 3] {
    let (model, ids) = (Forward::new(spec), ids(spec.vocab));
    let sound = model.decode_rows(&ids, PREFILL, Fault::None);
    FAULTS.map(|fault| (fault, mean_kl(&sound, &model.decode_rows(&ids, PREFILL, fault))))
}

fn matrices() -> Vec<MatrixSpec> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let builds = load_builds(root).unwrap();
    let mut names: Vec<String> = fs::read_dir(root.join("matrices"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml") && path.file_stem().unwrap() != "builds")
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names.iter().map(|name| load_matrix(root, name, &builds).unwrap()).collect()
}

#[test]
fn every_synthetic_model_of_the_matrices_shows_every_fault() {
    let mut seen = 0;
    for matrix in matrices() {
        for model in &matrix.models {
            let ModelSource::Synthetic(spec) = &model.source else { continue };
            // What has no forward pass here is shown by mlx-lm itself: `harness/tests/families.rs`.
            if !matches!(spec.architecture, Architecture::Llama | Architecture::Qwen3) {
                continue;
            }
            for (fault, divergence) in divergences(spec) {
                assert!(
                    divergence > CLEARANCE * matrix.thresholds.mean_kl,
                    "model `{}` of matrix `{}` moves mean KL only by {divergence:.2e} with {fault:?}",
                    model.name,
                    matrix.name,
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 6, "the default matrix has two synthetic models");
}

#[test]
fn a_checkpoint_with_small_weights_is_blind() {
    let spec = SyntheticSpec {
        architecture: Architecture::Llama,
        seed: 1,
        layers: 2,
        hidden: 64,
        intermediate: 64,
        heads: 2,
        kv_heads: 1,
        head_dim: 32,
        vocab: 256,
        rope_theta: 1e6,
        weight_std: 0.02,
        max_positions: 128,
        shards: 1,
        head: crate::config::spec::Head::Own,
        window: None,
        quantization: None,
    };
    let [(_, rope), (_, position), _] = divergences(&spec);
    assert!(rope < 1e-5 && position < 1e-5, "{rope:.2e} {position:.2e}");
}
