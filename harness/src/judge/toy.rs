//! A toy engine for tests: logits are a pure function of what a step may see, so that real faults can be imitated.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::CellObservations;
use crate::{
    config::spec::Thresholds,
    engine::protocol::{
        Device, Finish, Generated, Hello, Phase, Precision, Scored, ScoredPosition, Tokens, TopToken,
    },
    matrix::{Backend, Cell, Measured, Observation, Probe, ProcessOutcome, Role},
};

pub(crate) const VOCAB: usize = 64;
pub(crate) const CONTEXT: usize = 8;
pub(crate) const STEPS: usize = 6;

/// What is wrong with a toy engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Other rounding: relative noise far below every threshold.
    Rounding,
    /// Decode steps see only their own token.
    NoHistory,
    /// Decode steps sit one position too far.
    OffByOne,
    /// Two logits change places in every row.
    SwappedLogits,
    /// The row at this position is NaN.
    NaN(usize),
}

pub(crate) fn thresholds() -> Thresholds {
    Thresholds {
        mean_kl: 1e-3,
        p99_kl: 0.02,
        top1_agreement: 0.995,
        margin: 0.25,
        relative_l2: 0.02,
        cosine: 0.999,
        max_logit_gap: 0.05,
        free_text_drop: 2.0,
        near_tie: 0.05,
    }
}

pub(crate) fn logits_cell(model: &str) -> Cell {
    let probe = Probe::Logits { decode_steps: STEPS, stretch: None };
    Cell::new(model, Precision::Source, CONTEXT, "logits", probe, Backend::Cpu)
}

pub(crate) fn greedy_cell(model: &str) -> Cell {
    let probe = Probe::Greedy { max_tokens: STEPS };
    Cell::new(model, Precision::Source, CONTEXT, "greedy", probe, Backend::Cpu)
}

pub(crate) fn task_cell(model: &str, name: &str) -> Cell {
    let probe = Probe::Task {
        prompt: "What is the capital of France?".into(),
        expect: vec!["Paris".into()],
        shape: Default::default(),
        max_tokens: 32,
        allow: vec![],
    };
    Cell::new(model, Precision::Source, 0, name, probe, Backend::Cpu)
}

/// All three roles at a cell; `None` where an engine is not run.
pub(crate) fn seen(
    cell: &Cell,
    candidate: Option<Fault>,
    baseline: Option<Fault>,
    reference: Option<Fault>,
) -> CellObservations {
    let one = |role, name, fault: Option<Fault>| fault.map(|fault| observe(cell, role, name, fault));
    CellObservations {
        candidate: one(Role::Candidate, "patched", candidate),
        baseline: one(Role::Baseline, "published", baseline),
        reference: one(Role::Reference, "mlx-lm", reference),
        reference_without_history: reference.and_then(|_| match cell.probe {
            Probe::Logits { .. } => one(Role::Reference, "mlx-lm", Some(Fault::NoHistory)),
            _ => None,
        }),
        ..CellObservations::default()
    }
}

pub(crate) fn observe(cell: &Cell, role: Role, engine: &str, fault: Fault) -> Observation {
    let prompt: Vec<u32> = (0..CONTEXT as u32).map(|i| (i * 7 + 3) % VOCAB as u32).collect();
    let measured = match &cell.probe {
        Probe::Logits { .. } => {
            let ids: Vec<u32> = (0..(CONTEXT + STEPS) as u32).map(|i| (i * 7 + 3) % VOCAB as u32).collect();
            let positions = (CONTEXT - 3..CONTEXT + STEPS).map(|p| scored_position(&ids, p, fault)).collect();
            let scored =
                Scored { positions, prefill_s: 0.25, decode_s: 0.5, held_bytes: None, peak_bytes: None };
            Measured::Logits { ids, prefill_len: CONTEXT, scored, again: Vec::new() }
        }
        Probe::Greedy { max_tokens } => generation(&prompt, *max_tokens, fault),
        Probe::Task { .. } if fault == Fault::NoHistory => {
            answer("The the capital of of 1 the capital", &[9, 9, 4, 2])
        }
        Probe::Task { .. } => answer("The capital of France is Paris.", &[9, 4, 7, 1]),
        Probe::Throughput(_) | Probe::Perplexity { .. } | Probe::Op { .. } => {
            unreachable!("what these measure is made beside their judges")
        }
    };
    Observation {
        role,
        engine: engine.into(),
        hello: Some(Hello {
            protocol: 1,
            engine: if role == Role::Reference { "mlx-lm" } else { "safemlx-lm" }.into(),
            version: "0.4.1".into(),
            mlx_version: "0.31.2".into(),
            dialect: if role == Role::Reference { "python" } else { "safemlx-lm-0.4" }.into(),
        }),
        device: Some(Device::Cpu),
        device_wanted: Device::Cpu,
        gpu: None,
        model_type: Some(if cell.model == "qwen3" { "qwen3" } else { "llama" }.into()),
        vocab_size: Some(VOCAB),
        eos_ids: vec![0],
        special_ids: vec![0, 1000],
        exit: ProcessOutcome::Clean,
        measured: Some(measured),
        memory: None,
        wall_s: 1.5,
        command: format!("{engine} --probe {}", cell.probe_name),
    }
}

/// What the reference without history says along what an engine generated.
pub(crate) fn without_history(engine: &Observation) -> Observation {
    let Some(Measured::Generation { prompt, generated }) = &engine.measured else { unreachable!() };
    let ids: Vec<u32> = prompt.ids.iter().chain(&generated.ids).copied().collect();
    let positions = (CONTEXT - 1..ids.len()).map(|p| scored_position(&ids, p, Fault::NoHistory)).collect();
    let scored = Scored { positions, prefill_s: 0.25, decode_s: 0.5, held_bytes: None, peak_bytes: None };
    let measured = Some(Measured::Logits { ids, prefill_len: CONTEXT, scored, again: Vec::new() });
    Observation { role: Role::Reference, engine: "mlx-lm".into(), measured, ..engine.clone() }
}

/// A task's answer with these ids; each choice is certain.
pub(crate) fn answer(text: &str, ids: &[u32]) -> Measured {
    Measured::Generation {
        prompt: Tokens { ids: vec![1, 2, 3], rendered: "<user>What is the capital of France?".into() },
        generated: Generated {
            ids: ids.to_vec(),
            text: text.into(),
            finish: Finish::Stop,
            ttft_s: 0.1,
            token_times_s: vec![0.1; ids.len().saturating_sub(1)],
            top: ids
                .iter()
                .map(|id| vec![TopToken { id: *id, logprob: -0.01 }, TopToken { id: id + 1, logprob: -5.0 }])
                .collect(),
        },
    }
}

pub(crate) fn full_row(row: &[f32]) -> String {
    STANDARD.encode(row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}

fn generation(prompt: &[u32], max_tokens: usize, fault: Fault) -> Measured {
    let mut ids = prompt.to_vec();
    let mut top = Vec::new();
    for step in 0..max_tokens {
        let phase = if step == 0 { Phase::Prefill } else { Phase::Decode };
        let likely = top_k(&row(&ids, ids.len() - 1, phase, fault));
        ids.push(likely[0].id);
        top.push(likely);
    }
    let produced = ids.split_off(prompt.len());
    Measured::Generation {
        prompt: Tokens { ids, rendered: String::new() },
        generated: Generated {
            text: produced.iter().map(|id| format!("w{id} ")).collect(),
            ids: produced,
            finish: Finish::Length,
            ttft_s: 0.1,
            token_times_s: vec![0.1; max_tokens - 1],
            top,
        },
    }
}

fn scored_position(ids: &[u32], position: usize, fault: Fault) -> ScoredPosition {
    let phase = if position < CONTEXT { Phase::Prefill } else { Phase::Decode };
    let row = row(ids, position, phase, fault);
    let non_finite = row.iter().filter(|x| !x.is_finite()).count();
    let top = if non_finite > 0 { vec![] } else { top_k(&row) };
    let next = ids.get(position + 1).and_then(|id| top.iter().find(|t| t.id == *id)).map(|t| t.logprob);
    ScoredPosition { position, phase, non_finite, next_logprob: next, top, logits_f32: Some(full_row(&row)) }
}

fn row(ids: &[u32], position: usize, phase: Phase, fault: Fault) -> Vec<f32> {
    let decoding = phase == Phase::Decode;
    let (visible, offset) = match fault {
        Fault::NoHistory if decoding => (&ids[position..=position], 0),
        Fault::OffByOne if decoding => (&ids[..=position], 1),
        _ => (&ids[..=position], 0),
    };
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for (i, id) in visible.iter().enumerate() {
        state = mix(state ^ (u64::from(*id) << 20) ^ (i as u64 + offset));
    }
    let mut row: Vec<f32> = (0..VOCAB as u64)
        .map(|i| (mix(state ^ (i << 7)) >> 40) as f32 / (1 << 24) as f32 * 8.0 - 4.0)
        .collect();
    match fault {
        Fault::SwappedLogits => row.swap(5, 6),
        Fault::NaN(at) if at == position => row[3] = f32::NAN,
        Fault::Rounding => row.iter_mut().enumerate().for_each(|(i, x)| *x *= 1.0 + 1e-6 * (i % 3) as f32),
        _ => {}
    }
    row
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn top_k(row: &[f32]) -> Vec<TopToken> {
    let log_sum = row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
    let mut top: Vec<TopToken> = row
        .iter()
        .enumerate()
        .map(|(id, x)| TopToken { id: id as u32, logprob: f64::from(*x) - log_sum })
        .collect();
    top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
    top.truncate(5);
    top
}
