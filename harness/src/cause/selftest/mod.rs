//! How good is the gate itself? Puts faults into engines, checkpoints and texts, and changes what is no fault, lets the same
//! judge and verdict look that a gate uses, and counts. Engine and checkpoint faults go through real model processes.

mod checkpoint;
mod kinds;
mod lab;
mod salad;
pub mod score;
mod texts;

use std::{collections::BTreeMap, io};

use thiserror::Error;

pub use score::{BenignScore, KindScore, Rate, ScoreCard, Split, Strength};

use crate::{
    build::{self, BuildError, Layout, ProvisionError},
    config::spec::Thresholds,
    engine::{
        fault::{Fault, Layers},
        protocol::{Device, Finish, Generated, Precision, Tokens},
    },
    event::{Event, EventSink},
    judge::{
        CellObservations, Severity, Subject, diagnosis, judge_cell_with, task,
        tier::{Tier, Tiers},
    },
    matrix::{AnswerShape, Backend, Cell, Measured, Observation, ObserveError, Probe, ProcessOutcome, Role},
    model::ModelError,
    verdict::Verdict,
};
use checkpoint::Variant;
use kinds::{Kind, Probes, PutIn, cells, kinds};
use lab::Lab;
use texts::{CLEAN, CleanKind, Dice, TextFault};

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// One checkpoint a kind, a tenth of the texts.
    Quick,
    /// Everything.
    Full,
}

/// What a person asked the self-test.
#[derive(Debug)]
pub struct SelftestRequest<'a> {
    /// Where things are and go.
    pub layout: &'a Layout,
    /// How much is tried.
    pub extent: Extent,
    /// Tiers to leave out, to show that they are needed.
    pub without: Vec<Tier>,
    /// The judge's thresholds.
    pub thresholds: Thresholds,
    /// Only kinds whose name contains this.
    pub only: Option<String>,
}

/// Why the gate could not be measured.
#[derive(Debug, Error)]
pub enum SelftestError {
    /// No kind is asked for.
    #[error("no kind of fault or change that this self-test tries has `{part}` in its name")]
    NoKind {
        /// What was asked for.
        part: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A tool or download is missing.
    #[error("cannot provision the tools of the self-test")]
    Provision(#[source] Box<ProvisionError>),
    /// The reference did not come about.
    #[error("cannot prepare the reference engine")]
    Reference(#[source] Box<BuildError>),
    /// An engine could not be started at all.
    #[error("cannot run the self-test's engines")]
    Observe(#[from] Box<ObserveError>),
    /// The model that speaks could not be prepared.
    #[error("cannot prepare the language model of the self-test")]
    Model(#[source] Box<ModelError>),
    /// A model folder could not be made.
    #[error("cannot write the model folder `{folder}` of the self-test")]
    Folder {
        /// Which.
        folder: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The sound engine does not do what it must, so that nothing can be measured against it.
    #[error("the sound engine cannot be used for `{kind}`: {reason}")]
    Unsound {
        /// What was being tried.
        kind: String,
        /// What it did.
        reason: String,
    },
}

impl SelftestError {
    /// What a person can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoKind { known, .. } => Some(format!("the kinds are {}", known.join(", "))),
            Self::Provision(source) => source.hint(),
            Self::Reference(source) => source.hint(),
            Self::Model(source) => source.hint(),
            Self::Observe(source) => Some(source.hint().to_owned()),
            Self::Folder { .. } => {
                Some("check that the temporary folder is writable and has room".to_owned())
            }
            Self::Unsound { .. } => Some(
                "look into target/regraft/logs/selftest; `cargo xtask doctor` checks the tools".to_owned(),
            ),
        }
    }
}

/// Clean outputs of a full run, all kinds together.
const CLEAN_OUTPUTS: usize = 1_500;
/// Broken texts of a full run, by kind and strength.
const TEXTS_A_KIND: usize = 60;
/// Checkpoints of a full run, by kind and variant.
const CHECKPOINTS: u64 = 4;
/// Gates of a build against itself in a full run.
const SAME_BUILD_GATES: u64 = 50;

/// The version of MLX beside the reference's own, 0.31.2.
const OTHER_MLX: &str = "0.32.0";

/// The variable by which the faulty reference is told which packages come first.
const PACKAGES_FIRST: &str = "REGRAFT_PACKAGES_FIRST";

/// Measures the gate.
///
/// # Errors
/// Where it could not be measured. A gate that misses its targets is no error: the card says so.
pub fn run(request: &SelftestRequest<'_>, sink: &dyn EventSink) -> Result<ScoreCard, SelftestError> {
    let tiers = Tiers::without(&request.without);
    let wanted = |name: &str| request.only.as_deref().is_none_or(|part| name.contains(part));
    let known = names(request.extent);
    if let (Some(part), false) = (&request.only, known.iter().any(|name| wanted(name))) {
        return Err(SelftestError::NoKind { part: part.clone(), known });
    }
    let mut scores = Vec::new();
    let mut benign = Vec::new();
    phase(sink, "texts", || {
        for fault in texts::FAULTS.iter().filter(|f| wanted(f.name)) {
            scores.push(score_text(fault, request, &tiers));
        }
        for kind in CLEAN.iter().filter(|k| wanted(&format!("clean-{}", k.name))) {
            benign.push(score_clean(kind, request, &tiers));
        }
        Ok(())
    })?;

    let tried: Vec<Kind> = kinds().into_iter().filter(|k| wanted(k.name)).collect();
    let changes: Vec<Change> = changes()
        .into_iter()
        .filter(|c| wanted(c.name) && (cfg!(target_os = "linux") || !matches!(c.how, How::Mlx(_))))
        .collect();
    if !tried.is_empty() || !changes.is_empty() || wanted("salad") {
        let toolbox = build::provision(request.layout, sink)
            .map_err(|source| SelftestError::Provision(Box::new(source)))?;
        let reference = build::reference_artifact(request.layout, &toolbox)
            .map_err(|source| SelftestError::Reference(Box::new(source)))?;
        let engine = build::faulty_reference(&reference, request.layout);
        let log_dir = request.layout.work.join("logs/selftest");
        let mut lab = Lab::new(&engine, &log_dir, &request.thresholds, tiers)?;
        phase(sink, "faults", || {
            for kind in &tried {
                sink.emit(Event::StepStarted { step: kind.name.to_owned() });
                let begun = std::time::Instant::now();
                let score = score_kind(kind, request, &mut lab)?;
                let outcome = format!("{} of {}", score.middle.caught, score.middle.of);
                sink.emit(Event::StepFinished { step: kind.name.to_owned(), outcome, took: begun.elapsed() });
                scores.push(score);
            }
            Ok(())
        })?;
        phase(sink, "benign changes", || {
            for change in &changes {
                sink.emit(Event::StepStarted { step: change.name.to_owned() });
                let begun = std::time::Instant::now();
                let other = match change.how {
                    How::Mlx(version) => {
                        let folder = build::mlx_binding(version, request.layout, &toolbox, sink)
                            .map_err(|source| SelftestError::Provision(Box::new(source)))?;
                        let mut other = engine.clone();
                        other.env.insert(PACKAGES_FIRST.to_owned(), folder.to_string_lossy().into_owned());
                        other
                    }
                    _ => engine.clone(),
                };
                let score = score_change(change, request, &mut lab, other, &log_dir)?;
                let outcome = format!("{} of {}", score.passed, score.of);
                sink.emit(Event::StepFinished {
                    step: change.name.to_owned(),
                    outcome,
                    took: begun.elapsed(),
                });
                benign.push(score);
            }
            Ok(())
        })?;
        sink.emit(Event::Note(format!("{} model processes", lab.processes())));
        if request.extent == Extent::Full && wanted("salad") {
            phase(sink, "salad", || {
                let (kinds, change) = salad::score(request, &toolbox, &engine, &log_dir, sink)?;
                scores.extend(kinds);
                benign.push(change);
                Ok(())
            })?;
        }
    }
    let mut not_tried = BTreeMap::new();
    if request.extent == Extent::Quick {
        not_tried.insert(
            "word salad".to_owned(),
            "it needs a model of language, which `--quick` leaves out".to_owned(),
        );
    }
    if let Some(part) = &request.only {
        not_tried
            .insert("others".to_owned(), format!("only kinds with `{part}` in their name were asked for"));
    }
    if !cfg!(target_os = "linux") {
        not_tried.insert(
            "another-mlx".to_owned(),
            "the other version of the Python binding is locked for Linux alone".to_owned(),
        );
    }
    let without = request.without.iter().map(ToString::to_string).collect();
    Ok(ScoreCard::new(scores, benign, not_tried, without))
}

/// Everything that a self-test of this extent tries.
fn names(extent: Extent) -> Vec<String> {
    let mut names: Vec<String> = texts::FAULTS.iter().map(|fault| fault.name.to_owned()).collect();
    names.extend(CLEAN.iter().map(|kind| format!("clean-{}", kind.name)));
    names.extend(kinds().iter().map(|kind| kind.name.to_owned()));
    names.extend(changes().iter().map(|change| change.name.to_owned()));
    if extent == Extent::Full {
        names.push("salad".to_owned());
    }
    names
}

fn phase(
    sink: &dyn EventSink,
    name: &str,
    work: impl FnOnce() -> Result<(), SelftestError>,
) -> Result<(), SelftestError> {
    sink.emit(Event::PhaseStarted { phase: name.to_owned(), steps: None });
    let begun = std::time::Instant::now();
    work()?;
    sink.emit(Event::PhaseFinished { phase: name.to_owned(), took: begun.elapsed() });
    Ok(())
}

/// Puts a fault in at every strength, into several checkpoints.
fn score_kind(
    kind: &Kind,
    request: &SelftestRequest<'_>,
    lab: &mut Lab<'_>,
) -> Result<KindScore, SelftestError> {
    let seeds = if request.extent == Extent::Quick { 1 } else { CHECKPOINTS };
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    let mut strengths = BTreeMap::new();
    let mut named = Vec::new();
    for strength in Strength::ALL {
        let (mut caught, mut of) = (0, 0);
        for (variant, seed) in kind.variants.iter().flat_map(|v| (1..=seeds).map(move |seed| (*v, seed))) {
            let cells = cells(&lab::model_name(variant, seed), kind.contexts, kind.probes);
            let folder = match &kind.put_in {
                PutIn::Engine(fault) => lab.with_fault(variant, seed, &fault(strength))?,
                PutIn::Checkpoint(spoil) => {
                    let mut checkpoint = variant.checkpoint(seed);
                    spoil(&mut checkpoint, strength);
                    lab.write(&checkpoint)?
                }
            };
            // Naming causes by imitation costs more than seeing the fault, so it is done once a kind, at its plainest.
            let explained = strength == Strength::Strong && of == 0;
            lab.explain = if explained { lab::Explain::ByImitation } else { lab::Explain::ByPattern };
            let outcome = lab.judge(kind.name, &cells, variant, seed, &folder, lab::Stop::AtFirstFailure)?;
            lab.explain = lab::Explain::ByPattern;
            lab.forget(&folder);
            of += 1;
            if explained {
                named.clone_from(&outcome.causes);
            }
            caught += u64::from(outcome.verdict == Verdict::Fail);
            for cause in outcome.causes {
                *causes.entry(cause).or_insert(0) += 1;
            }
        }
        strengths.insert(strength, Rate::new(caught, of));
    }
    Ok(KindScore {
        name: kind.name.to_owned(),
        root_cause: kind.root_cause.to_owned(),
        place: kind.put_in.place().to_owned(),
        tier: kind.tier.to_owned(),
        split: kind.split,
        middle: strengths[&Strength::Middle],
        strengths,
        causes,
        cause_at_strongest: (!named.is_empty()).then(|| named.join(", ")),
    })
}

/// A change that a gate must pass.
struct Change {
    name: &'static str,
    how: How,
    variants: &'static [Variant],
    probes: &'static [Probes],
    contexts: &'static [usize],
}

enum How {
    /// The same engine again, on other checkpoints each time.
    SameBuild,
    /// Another environment of the process: variables to set, and to take away.
    Environment(&'static [(&'static str, &'static str)], &'static [&'static str]),
    /// Another version of MLX below the same engine.
    Mlx(&'static str),
    /// Another way to compute, by the program that also does faults.
    Engine(fn() -> Fault),
}

fn changes() -> Vec<Change> {
    const PLAIN: &[Variant] = &[Variant::Qwen3, Variant::Llama];
    const BOTH: &[Probes] = &[Probes::Logits, Probes::Greedy];
    let change = |name, how| Change { name, how, variants: PLAIN, probes: BOTH, contexts: &[24, 300] };
    vec![
        change("same-build", How::SameBuild),
        change(
            "one-thread",
            How::Environment(&[("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")], &[]),
        ),
        change("another-blas", How::Environment(&[], &["LD_PRELOAD"])),
        change("another-mlx", How::Mlx(OTHER_MLX)),
        change("one-operation-a-buffer", How::Environment(&[("MLX_MAX_OPS_PER_BUFFER", "1")], &[])),
        change("chunks-of-7", How::Engine(|| Fault::ChunkBoundary { size: 7, lost: 0 })),
        change("chunks-of-128", How::Engine(|| Fault::ChunkBoundary { size: 128, lost: 0 })),
        Change {
            probes: &[Probes::Greedy],
            ..change("one-near-tie-in-64-flipped", How::Engine(|| Fault::NearTieFlipped { margin: 0.03 }))
        },
        Change {
            variants: &[Variant::BFloat],
            ..change(
                "bf16-rounding",
                How::Engine(|| Fault::Dtype { dtype: "float32".into(), layers: Layers::All }),
            )
        },
        Change {
            variants: &[Variant::BFloat],
            ..change("bf16-chunks-of-128", How::Engine(|| Fault::ChunkBoundary { size: 128, lost: 0 }))
        },
        Change {
            variants: &[Variant::Windowed, Variant::Affine4, Variant::Affine8, Variant::Scaled],
            ..change(
                "other-checkpoints-one-thread",
                How::Environment(&[("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")], &[]),
            )
        },
        Change {
            variants: &[Variant::Chat],
            probes: &[Probes::Chat],
            contexts: &[0],
            ..change("chat-again", How::SameBuild)
        },
    ]
}

fn score_change(
    change: &Change,
    request: &SelftestRequest<'_>,
    lab: &mut Lab<'_>,
    mut other: build::Artifact,
    log_dir: &std::path::Path,
) -> Result<BenignScore, SelftestError> {
    let (quick, many) = (request.extent == Extent::Quick, change.name == "same-build");
    let seeds = match (quick, many) {
        (true, _) => 1,
        (false, true) => SAME_BUILD_GATES / change.variants.len() as u64,
        (false, false) => CHECKPOINTS,
    };
    let mut score = BenignScore {
        name: change.name.to_owned(),
        passed: 0,
        of: 0,
        largest_relative_l2: None,
        first_alarm: None,
    };
    if let How::Environment(set, away) = &change.how {
        other.env.extend(set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        // An empty value preloads nothing.
        other.env.extend(away.iter().map(|k| ((*k).to_owned(), String::new())));
    }
    let options = lab::options(log_dir);
    let mut bench = matches!(change.how, How::Environment(..) | How::Mlx(_))
        .then(|| crate::matrix::Bench::new(&other, &options));
    // Seeds beyond those of the faults, so that thresholds are not fitted to them.
    for (variant, seed) in
        change.variants.iter().flat_map(|v| (101..=100 + seeds).map(move |seed| (*v, seed)))
    {
        let cells: Vec<Cell> = change
            .probes
            .iter()
            .flat_map(|probes| cells(&lab::model_name(variant, seed), change.contexts, *probes))
            .collect();
        let folder = match &change.how {
            How::Engine(fault) => lab.with_fault(variant, seed, &fault())?,
            How::SameBuild | How::Environment(..) | How::Mlx(_) => lab.sound(variant, seed)?,
        };
        let outcome = match &mut bench {
            Some(bench) => lab.judge_with(bench, change.name, &cells, variant, seed, &folder)?,
            None => lab.judge(change.name, &cells, variant, seed, &folder, lab::Stop::Never)?,
        };
        score.of += 1;
        if let Some(l2) = outcome.largest_relative_l2 {
            score.largest_relative_l2 = Some(score.largest_relative_l2.map_or(l2, |most| most.max(l2)));
        }
        if outcome.verdict == Verdict::Pass {
            score.passed += 1;
        } else if score.first_alarm.is_none() {
            score.first_alarm = Some(outcome.reason);
        }
    }
    Ok(score)
}

/// A cell whose two texts are judged.
fn text_cell(prompt: &str, expect: &[&str], allow: &[&str]) -> Cell {
    let probe = Probe::Task {
        prompt: prompt.to_owned(),
        expect: expect.iter().map(|e| (*e).to_owned()).collect(),
        shape: AnswerShape::Text,
        max_tokens: 4_096,
        allow: allow.iter().map(|a| (*a).to_owned()).collect(),
    };
    Cell::new("texts", Precision::Source, 0, "text", probe, Backend::Cpu)
}

/// What the tiers that look at a text alone say of one engine's text beside another's: the first alarm, and the cause.
fn alarm(
    cell: &Cell,
    text: &str,
    peer: &str,
    thresholds: &Thresholds,
    tiers: &Tiers,
) -> Option<(String, Option<String>)> {
    let tiers = Tiers::only(
        &[Tier::Hard, Tier::Text, Tier::Tasks].into_iter().filter(|t| tiers.has(*t)).collect::<Vec<_>>(),
    );
    let seen = CellObservations {
        candidate: Some(answered(Role::Candidate, text)),
        reference: Some(answered(Role::Reference, peer)),
        ..CellObservations::default()
    };
    let judgement = judge_cell_with(cell, &seen, thresholds, &tiers);
    judgement
        .findings
        .iter()
        .find(|f| f.subject == Subject::Candidate && (f.severity == Severity::Error || task::is_alarm(f)))
        .map(|f| (format!("{}: {}", f.code, f.message), diagnosis::named(f).map(str::to_owned)))
}

/// An observation of an engine that answered this text; its ids are made from the text's words and marks.
fn answered(role: Role, text: &str) -> Observation {
    let mut ids: Vec<u32> = Vec::new();
    let mut word: Option<u32> = None;
    for c in text.chars() {
        if c.is_alphanumeric() {
            let hash = word.unwrap_or(2_166_136_261);
            word = Some((hash ^ u32::from(c)).wrapping_mul(16_777_619));
        } else {
            ids.extend(word.take().map(|hash| 1_000 + hash % 40_000));
            if !c.is_whitespace() {
                // `!` is the first id of many vocabularies: what argmax of NaN prints.
                ids.push(if c == '!' { 0 } else { 1 + u32::from(c) % 900 });
            }
        }
    }
    ids.extend(word.map(|hash| 1_000 + hash % 40_000));
    Observation {
        role,
        engine: "text".into(),
        hello: None,
        device: Some(Device::Cpu),
        device_wanted: Device::Cpu,
        gpu: None,
        model_type: None,
        vocab_size: Some(49_152),
        eos_ids: vec![49_000],
        special_ids: vec![49_000],
        exit: ProcessOutcome::Clean,
        measured: Some(Measured::Generation {
            prompt: Tokens { ids: vec![1, 2, 3], rendered: String::new() },
            generated: Generated {
                token_times_s: vec![0.0; ids.len().saturating_sub(1)],
                top: Vec::new(),
                ids,
                text: text.to_owned(),
                finish: Finish::Stop,
                ttft_s: 0.0,
            },
        }),
        memory: None,
        wall_s: 0.0,
        command: "none: the text was made by the self-test".into(),
    }
}

fn score_text(fault: &TextFault, request: &SelftestRequest<'_>, tiers: &Tiers) -> KindScore {
    let tries = if request.extent == Extent::Quick { TEXTS_A_KIND / 10 } else { TEXTS_A_KIND };
    let mut causes = BTreeMap::new();
    let mut strengths = BTreeMap::new();
    for strength in Strength::ALL {
        let mut caught = 0;
        for i in 0..tries {
            let mut dice = Dice::new(seed_of(fault.name, i));
            let (mut sound, mut peer) = (texts::prose(&mut dice), texts::prose(&mut dice));
            let expect: &[&str] = if fault.tier == "tasks" { &[texts::ANSWER] } else { &[] };
            if !expect.is_empty() {
                for text in [&mut sound, &mut peer] {
                    *text += &format!(" The pass key is {}.", texts::ANSWER);
                }
            }
            let broken = (fault.spoil)(&mut dice, &sound, strength);
            let cell = text_cell("Tell me about a town by a river.", expect, &[]);
            if let Some((_, cause)) = alarm(&cell, &broken, &peer, &request.thresholds, tiers) {
                caught += 1;
                if let Some(cause) = cause {
                    *causes.entry(cause).or_insert(0) += 1;
                }
            }
        }
        strengths.insert(strength, Rate::new(caught, tries as u64));
    }
    KindScore {
        name: fault.name.to_owned(),
        root_cause: fault.root_cause.to_owned(),
        place: "text".to_owned(),
        tier: fault.tier.to_owned(),
        split: if fault.tuned { Split::Tuned } else { Split::HeldOut },
        middle: strengths[&Strength::Middle],
        strengths,
        causes,
        cause_at_strongest: None,
    }
}

fn score_clean(kind: &CleanKind, request: &SelftestRequest<'_>, tiers: &Tiers) -> BenignScore {
    let all = if request.extent == Extent::Quick { CLEAN_OUTPUTS / 10 } else { CLEAN_OUTPUTS };
    let tries = all.div_ceil(CLEAN.len());
    let mut score = BenignScore {
        name: format!("clean-{}", kind.name),
        passed: 0,
        of: tries as u64,
        largest_relative_l2: None,
        first_alarm: None,
    };
    for i in 0..tries {
        let mut dice = Dice::new(seed_of(kind.name, i));
        let (text, peer) = ((kind.make)(&mut dice), (kind.make)(&mut dice));
        let cell = text_cell(kind.prompt, &[], kind.allow);
        match alarm(&cell, &text, &peer, &request.thresholds, tiers) {
            None => score.passed += 1,
            Some((what, _)) if score.first_alarm.is_none() => score.first_alarm = Some(what),
            Some(_) => {}
        }
    }
    score
}

fn seed_of(name: &str, i: usize) -> u64 {
    name.bytes().fold(i as u64 + 1, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(layout: &Layout, without: Vec<Tier>) -> SelftestRequest<'_> {
        SelftestRequest {
            layout,
            extent: Extent::Quick,
            without,
            thresholds: Thresholds::default(),
            only: None,
        }
    }

    fn missed_texts(without: &[Tier]) -> Vec<&'static str> {
        let layout = Layout { root: ".".into(), work: ".".into(), cache: ".".into(), mirrors: None };
        let request = request(&layout, without.to_vec());
        let tiers = Tiers::without(without);
        texts::FAULTS
            .iter()
            .filter(|f| score_text(f, &request, &tiers).middle.share() < 0.99)
            .map(|f| f.name)
            .collect()
    }

    #[test]
    fn broken_texts_are_seen_and_clean_ones_are_not() {
        assert_eq!(missed_texts(&[]), [""; 0]);
        let layout = Layout { root: ".".into(), work: ".".into(), cache: ".".into(), mirrors: None };
        let request = request(&layout, vec![]);
        for kind in &CLEAN {
            let score = score_clean(kind, &request, &Tiers::all());
            assert_eq!(score.passed, score.of, "{}: {:?}", score.name, score.first_alarm);
        }
        // What a prompt allows is an alarm at a prompt that does not allow it.
        let zeros = format!("The bytes of the file are {}.", "00 ".repeat(20));
        let of = |allow: &[&str]| {
            let cell = text_cell("Show the bytes.", &[], allow);
            alarm(&cell, &zeros, "The bytes are 01 02 03.", &request.thresholds, &Tiers::all())
        };
        assert!(of(&["run", "period", "one-word", "compression"]).is_none());
        assert!(of(&[]).unwrap().0.contains("repeated-id"));
    }

    #[test]
    fn a_kind_that_there_is_not_is_refused_with_those_that_there_are() {
        let layout = Layout { root: ".".into(), work: ".".into(), cache: ".".into(), mirrors: None };
        for part in ["nosuch", "salad"] {
            let request = SelftestRequest { only: Some(part.to_owned()), ..request(&layout, vec![]) };
            let error = run(&request, &crate::event::Silent).unwrap_err();
            assert!(error.to_string().contains(part) && error.hint().unwrap().contains("wrong-answer"));
        }
    }

    #[test]
    fn a_gate_without_a_tier_misses_what_only_that_tier_sees() {
        assert!(missed_texts(&[Tier::Text]).contains(&"loop-to-400"));
        assert!(missed_texts(&[Tier::Text]).contains(&"wrong-script"));
        assert!(missed_texts(&[Tier::Tasks]).contains(&"wrong-answer"));
    }
}
