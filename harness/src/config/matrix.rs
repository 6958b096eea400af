//! Reads a matrix file: models, probes, blocks of cells, thresholds. Which cells exist is settled here as far as
//! mistakes go; their order and what runs on this machine is for `matrix::expand`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use toml::Spanned;
use wildmatch::WildMatch;

use super::{
    builds::{quoted, unique_name},
    near::suggestion,
    reader::{Document, Keys, Problems, Table},
    spec::{
        Architecture, CellBlock, CellPattern, Head, Known, KnownWeight, MatrixSpec, ModeKey, ModelSource,
        ModelSpec, Quantization, SyntheticSpec, Thresholds,
    },
};
use crate::{
    engine::protocol::{Precision, Product},
    judge::{
        codes,
        text::SIGNALS,
        throughput::{
            REGRESSION,
            rule::{FEWEST_RUNS, MOST_RUNS},
        },
    },
    matrix::{
        cell::{AnswerShape, Backend, Budget, CellId, Probe, Stretch},
        expand::pattern_matches,
        passkey,
        throughput::{Clock, Pace, ThroughputSpec},
    },
    model::synthetic,
};

/// The independent implementations that a matrix may name.
pub const REFERENCES: &[&str] = &["mlx-lm"];

/// How long one engine process may take for one cell, unless the matrix says otherwise.
pub const DEFAULT_CELL_TIMEOUT: Duration = Duration::from_secs(180);

/// More cells than this are a slip in an axis, not a plan: at five seconds a cell they would take a day and a half.
const MOST_CELLS: usize = 20_000;

const PRECISIONS: &[(&str, Precision)] = &[("source", Precision::Source)];
const BACKENDS: &[(&str, Backend)] =
    &[("cpu", Backend::Cpu), ("metal", Backend::Metal), ("cuda", Backend::Cuda)];
const CLOCKS: &[(&str, Clock)] = &[("wall", Clock::Wall), ("cpu", Clock::Cpu)];
/// An architecture is asked for by its `model_type`.
const ARCHITECTURES: [(&str, Architecture); Architecture::ALL.len()] = {
    let mut words = [("", Architecture::Llama); Architecture::ALL.len()];
    let mut i = 0;
    while i < words.len() {
        words[i] = (Architecture::ALL[i].name(), Architecture::ALL[i]);
        i += 1;
    }
    words
};
const HEADS: &[(&str, Head)] = &[("own", Head::Own), ("tied", Head::Tied)];
const MODE_KEYS: &[(&str, ModeKey)] = &[("stated", ModeKey::Stated), ("omitted", ModeKey::Omitted)];
/// What MLX's affine kernels take.
const BITS: &[usize] = &[4, 8];
const GROUP_SIZES: &[usize] = &[32, 64, 128];

const ROOT: Keys = Keys::new(&[
    "baseline",
    "candidate",
    "reference",
    "cell-timeout-s",
    "battery-budget-s",
    "include",
    "known",
    "model",
    "probe",
    "cells",
    "thresholds",
]);
const MODEL: Keys = Keys::new(&["name", "kind"]);
const SYNTHETIC: Keys = Keys::new(&[
    "architecture",
    "seed",
    "layers",
    "hidden",
    "intermediate",
    "heads",
    "kv-heads",
    "head-dim",
    "vocab",
    "rope-theta",
    "weight-std",
    "max-positions",
    "shards",
    "head",
    "window",
    "bits",
    "group-size",
    "mode-key",
]);
const PACKAGE: Keys = Keys::new(&["package"]);
const PROBE: Keys = Keys::new(&["name", "kind"]);
const LOGITS: Keys =
    Keys::new(&["decode-steps", "input", "chunk", "warm-percent", "requests", "ops-per-buffer"]);
const PERPLEXITY: Keys = Keys::new(&["chunk"]);
const QUANTIZED_MATMUL: Keys = Keys::new(&["rows", "inner", "outer", "group-size", "bits", "tolerance"]);
const ATTENTION: Keys = Keys::new(&["queries", "keys", "heads", "kv-heads", "head-dim", "tolerance"]);
const ROPE: Keys = Keys::new(&["offset", "length", "batch", "heads", "head-dim", "base", "tolerance"]);
const CONCATENATE: Keys = Keys::new(&["pieces", "rows", "width", "tolerance"]);
const REPEAT: Keys = Keys::new(&["rows", "width", "times", "tolerance"]);
const KNOWN: Keys = Keys::new(&["build", "cells", "codes", "why", "weight", "up-to"]);
const WEIGHTS: &[(&str, KnownWeight)] = &[("fault", KnownWeight::Fault), ("limit", KnownWeight::Limit)];
const INPUTS: &[(&str, Input)] = &[("plain", Input::Plain), ("long", Input::Long)];
const GREEDY: Keys = Keys::new(&["max-tokens"]);
const TASK: Keys =
    Keys::new(&["prompt", "expect", "max-tokens", "allow", "json-keys", "tool", "tool-arguments"]);
const PASSKEY: Keys = Keys::new(&["key", "words", "depth-percent", "max-tokens"]);
const THROUGHPUT: Keys = Keys::new(&[
    "max-tokens",
    "requests",
    "clock",
    "threads",
    "max-regression",
    "power",
    "max-memory-growth",
    "max-leak-kib",
    "max-runs",
    "reference-runs",
    "min-decode-tok-s",
    "min-prefill-tok-s",
    "max-load-s",
    "no-slower-than",
]);
const PACE: Keys = Keys::new(&["model", "precision", "max-loss"]);
const AXES: Keys = Keys::called(
    "axis",
    "axes",
    &["models", "precisions", "contexts", "probes", "backends", "exclude", "timeout-s", "memory-mib"],
);
const PATTERN: Keys = Keys::called("axis", "axes", &["model", "precision", "context", "probe", "backend"]);
const THRESHOLDS: Keys = Keys::called(
    "threshold",
    "thresholds",
    &[
        "mean-kl",
        "p99-kl",
        "top1-agreement",
        "margin",
        "relative-l2",
        "cosine",
        "max-logit-gap",
        "free-text-drop",
        "near-tie",
    ],
);

#[derive(Clone, Copy)]
enum ModelKind {
    Synthetic,
    Package,
}

#[derive(Clone, Copy)]
enum ProbeKind {
    Logits,
    Greedy,
    Task,
    Passkey,
    Throughput,
    Perplexity,
    QuantizedMatmul,
    Attention,
    Rope,
    Concatenate,
    Repeat,
}

/// How a logits probe's prompt goes in.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    Plain,
    Long,
}

/// Reads the text of a matrix file named `name`; `builds` are the names that it may compare.
///
/// # Errors
/// Every mistake of the file.
pub fn parse_matrix(name: &str, file: &str, text: &str, builds: &[&str]) -> Result<MatrixSpec, Problems> {
    let document = Document::parse(file, text);
    let root = document.root(ROOT);
    let baseline = known_name(&root, "baseline", "build", "builds", builds);
    let candidate = known_name(&root, "candidate", "build", "builds", builds);
    let reference = known_name(&root, "reference", "reference", "references", REFERENCES);
    let cell_timeout = match root.has("cell-timeout-s") {
        true => positive(&root, "cell-timeout-s").map(Duration::from_secs_f64),
        false => Some(DEFAULT_CELL_TIMEOUT),
    };
    let budget = match root.has("battery-budget-s") {
        true => positive(&root, "battery-budget-s").map(|s| Some(Duration::from_secs_f64(s))),
        false => Some(None),
    };
    let include = root.optional_list::<String>("include").map(inner).unwrap_or_default();

    let mut names = BTreeMap::new();
    let models: Vec<Option<ModelSpec>> = root
        .tables_by(
            "model",
            "kind",
            MODEL,
            &[("synthetic", ModelKind::Synthetic, SYNTHETIC), ("package", ModelKind::Package, PACKAGE)],
        )
        .iter()
        .map(|(kind, table)| model(*kind, table, &mut names))
        .collect();
    let mut names = BTreeMap::new();
    let probes: Vec<Option<(String, Probe)>> = root
        .tables_by(
            "probe",
            "kind",
            PROBE,
            &[
                ("logits", ProbeKind::Logits, LOGITS),
                ("greedy", ProbeKind::Greedy, GREEDY),
                ("task", ProbeKind::Task, TASK),
                ("passkey", ProbeKind::Passkey, PASSKEY),
                ("throughput", ProbeKind::Throughput, THROUGHPUT),
                ("perplexity", ProbeKind::Perplexity, PERPLEXITY),
                ("quantized-matmul", ProbeKind::QuantizedMatmul, QUANTIZED_MATMUL),
                ("attention", ProbeKind::Attention, ATTENTION),
                ("rope", ProbeKind::Rope, ROPE),
                ("concatenate", ProbeKind::Concatenate, CONCATENATE),
                ("repeat", ProbeKind::Repeat, REPEAT),
            ],
        )
        .iter()
        .map(|(kind, table)| probe(*kind, table, &mut names, &texts(&root.texts_in("model", "name"))))
        .collect();

    let declared = Declared::new(&root, &models, &probes);
    let tables = root.tables("cells", AXES);
    if !root.has("cells") && include.is_empty() {
        root.problem(root.span(), "the file lacks `[[cells]]`, so that nothing would be run");
    }
    let mut cells = BTreeSet::new();
    let blocks: Vec<Option<CellBlock>> =
        tables.iter().map(|table| block(table, &declared, &mut cells)).collect();
    let known: Vec<Option<Known>> =
        root.tables("known", KNOWN).iter().map(|table| known_fault(table, builds, &cells)).collect();
    let thresholds = thresholds(&root);
    if document.is_sound() {
        declared.note_unused(&root, &blocks);
    }

    let spec = || {
        Some(MatrixSpec {
            name: name.to_owned(),
            baseline: baseline?,
            candidate: candidate?,
            reference: reference?,
            models: models.into_iter().collect::<Option<_>>()?,
            probes: probes.into_iter().collect::<Option<_>>()?,
            blocks: blocks.into_iter().collect::<Option<_>>()?,
            thresholds,
            cell_timeout: cell_timeout?,
            include,
            known: known.into_iter().collect::<Option<_>>()?,
            budget: budget?,
        })
    };
    let spec = spec();
    drop(tables);
    document.finish(spec)
}

/// What the blocks may refer to. Names are taken from the file even where the rest of their table is wrong, so that
/// one mistake is not reported twice.
struct Declared<'m> {
    models: Vec<Spanned<String>>,
    probes: Vec<Spanned<String>>,
    sound_models: BTreeMap<&'m str, &'m ModelSpec>,
    sound_probes: BTreeMap<&'m str, &'m Probe>,
}

impl<'m> Declared<'m> {
    fn new(
        root: &Table<'_, '_>,
        models: &'m [Option<ModelSpec>],
        probes: &'m [Option<(String, Probe)>],
    ) -> Self {
        Self {
            models: root.texts_in("model", "name"),
            probes: root.texts_in("probe", "name"),
            sound_models: models.iter().flatten().map(|model| (model.name.as_str(), model)).collect(),
            sound_probes: probes.iter().flatten().map(|(name, probe)| (name.as_str(), probe)).collect(),
        }
    }

    fn note_unused(&self, root: &Table<'_, '_>, blocks: &[Option<CellBlock>]) {
        let used = |name: &str, axis: fn(&CellBlock) -> &Vec<String>| {
            blocks.iter().flatten().any(|block| axis(block).iter().any(|used| used == name))
        };
        for model in &self.models {
            if !used(model.get_ref(), |block| &block.models) {
                root.problem(model.span(), format!("no cell uses model `{}`", model.get_ref()));
            }
        }
        for probe in &self.probes {
            if !used(probe.get_ref(), |block| &block.probes) {
                root.problem(probe.span(), format!("no cell uses probe `{}`", probe.get_ref()));
            }
        }
    }
}

fn texts(names: &[Spanned<String>]) -> Vec<&str> {
    names.iter().map(|name| name.get_ref().as_str()).collect()
}

fn model(kind: ModelKind, table: &Table<'_, '_>, names: &mut BTreeMap<String, usize>) -> Option<ModelSpec> {
    let name = unique_name(table, "models", names);
    let source = match kind {
        ModelKind::Synthetic => synthetic_spec(table).map(ModelSource::Synthetic),
        ModelKind::Package => {
            filled(table, "package").map(|package| ModelSource::Package { package: package.into_inner() })
        }
    };
    Some(ModelSpec { name: name?.into_inner(), source: source? })
}

fn synthetic_spec(table: &Table<'_, '_>) -> Option<SyntheticSpec> {
    let architecture = table.required_word("architecture", &ARCHITECTURES);
    let seed = table.required::<u64>("seed");
    let layers = at_least_one(table, "layers");
    let hidden = at_least_one(table, "hidden");
    let intermediate = at_least_one(table, "intermediate");
    let heads = at_least_one(table, "heads");
    let kv_heads = at_least_one(table, "kv-heads");
    let head_dim = at_least_one(table, "head-dim");
    let vocab = at_least_one(table, "vocab");
    let rope_theta = positive(table, "rope-theta");
    let weight_std = positive(table, "weight-std");
    let max_positions = at_least_one(table, "max-positions");
    let shards = match table.has("shards") {
        true => at_least_one(table, "shards").map(Spanned::into_inner),
        false => Some(1),
    };
    let head = match table.has("head") {
        true => table.required_word("head", HEADS).map(Spanned::into_inner),
        false => Some(Head::Own),
    };
    let window = match table.has("window") {
        true => at_least_one(table, "window").map(|window| Some(window.into_inner())),
        false => Some(None),
    };
    let quantization = quantization(table);
    let mut clear = true;
    if let (Some(heads), Some(kv_heads)) = (&heads, &kv_heads)
        && heads.get_ref() % kv_heads.get_ref() != 0
    {
        clear = false;
        table.problem(
            kv_heads.span(),
            format!(
                "`kv-heads` must divide `heads`, and {} does not divide {}",
                kv_heads.get_ref(),
                heads.get_ref()
            ),
        );
    }
    if let Some(head_dim) = &head_dim
        && head_dim.get_ref() % 2 != 0
    {
        clear = false;
        table.problem(head_dim.span(), "`head-dim` must be even: rotary embeddings turn pairs");
    }
    let spec = SyntheticSpec {
        architecture: architecture?.into_inner(),
        seed: seed?.into_inner(),
        layers: layers?.into_inner(),
        hidden: hidden?.into_inner(),
        intermediate: intermediate?.into_inner(),
        heads: heads?.into_inner(),
        kv_heads: kv_heads?.into_inner(),
        head_dim: head_dim?.into_inner(),
        vocab: vocab?.into_inner(),
        rope_theta: rope_theta?,
        weight_std: weight_std?,
        max_positions: max_positions?.into_inner(),
        shards: shards?,
        head: head?,
        window: window?,
        quantization: quantization?,
    };
    if clear && let Some(problem) = synthetic::impossible(&spec) {
        table.problem(table.span(), format!("this model cannot be made: {problem}"));
    }
    Some(spec)
}

/// `bits`, `group-size` and `mode-key`, all or none of them.
fn quantization(table: &Table<'_, '_>) -> Option<Option<Quantization>> {
    const KEYS: [&str; 3] = ["bits", "group-size", "mode-key"];
    if !KEYS.iter().any(|key| table.has(key)) {
        return Some(None);
    }
    let bits = one_of(table, "bits", BITS);
    let group_size = one_of(table, "group-size", GROUP_SIZES);
    let mode_key = table.required_word("mode-key", MODE_KEYS);
    Some(Some(Quantization {
        bits: u32::try_from(bits?).ok()?,
        group_size: group_size?,
        mode_key: mode_key?.into_inner(),
    }))
}

fn one_of(table: &Table<'_, '_>, key: &str, known: &[usize]) -> Option<usize> {
    let value = table.required::<usize>(key)?;
    if known.contains(value.get_ref()) {
        return Some(value.into_inner());
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    table.problem(value.span(), format!("`{key}` is one of {}", known.join(", ")));
    None
}

fn probe(
    kind: ProbeKind,
    table: &Table<'_, '_>,
    names: &mut BTreeMap<String, usize>,
    models: &[&str],
) -> Option<(String, Probe)> {
    let name = unique_name(table, "probes", names);
    let probe = match kind {
        ProbeKind::Logits => {
            let decode_steps = table.required::<usize>("decode-steps");
            if let Some(steps) = &decode_steps
                && *steps.get_ref() == 0
            {
                let why =
                    "`decode-steps` must be at least 1: a prefill alone passes a build that lost its cache";
                table.problem(steps.span(), why);
            }
            let stretch = stretch(table);
            decode_steps
                .zip(stretch)
                .map(|(steps, stretch)| Probe::Logits { decode_steps: steps.into_inner(), stretch })
        }
        ProbeKind::Greedy => at_least_one(table, "max-tokens")
            .map(|max_tokens| Probe::Greedy { max_tokens: max_tokens.into_inner() }),
        ProbeKind::Task => {
            let prompt = filled(table, "prompt");
            let expect = table.required_list::<String>("expect");
            for text in
                expect.iter().flat_map(Spanned::get_ref).filter(|text| text.get_ref().trim().is_empty())
            {
                table.problem(text.span(), "an empty text in `expect` is in every answer");
            }
            let max_tokens = at_least_one(table, "max-tokens");
            let allow = table.optional_list::<String>("allow");
            for signal in allow.iter().flat_map(Spanned::get_ref) {
                if !SIGNALS.contains(&signal.get_ref().as_str()) {
                    table.problem(signal.span(), unknown("signal", signal.get_ref(), "signals", &SIGNALS));
                }
            }
            let shape = answer_shape(table);
            prompt.zip(expect).zip(max_tokens).map(|((prompt, expect), max_tokens)| Probe::Task {
                prompt: prompt.into_inner(),
                expect: inner(expect),
                shape,
                max_tokens: max_tokens.into_inner(),
                allow: allow.map(inner).unwrap_or_default(),
            })
        }
        ProbeKind::Passkey => {
            let key = filled(table, "key");
            let words = at_least_one(table, "words");
            let depth = table.required::<usize>("depth-percent");
            if let Some(depth) = &depth
                && *depth.get_ref() > 100
            {
                table.problem(depth.span(), "`depth-percent` goes from 0, the beginning, to 100, the end");
            }
            let max_tokens = at_least_one(table, "max-tokens");
            key.zip(words).zip(depth).zip(max_tokens).map(|(((key, words), depth), max_tokens)| {
                passkey::probe(key.get_ref(), words.into_inner(), depth.into_inner(), max_tokens.into_inner())
            })
        }
        ProbeKind::Throughput => throughput(table, models).map(Probe::Throughput),
        ProbeKind::Perplexity => {
            at_least_one(table, "chunk").map(|chunk| Probe::Perplexity { chunk: chunk.into_inner() })
        }
        ProbeKind::QuantizedMatmul
        | ProbeKind::Attention
        | ProbeKind::Rope
        | ProbeKind::Concatenate
        | ProbeKind::Repeat => product(kind, table),
    };
    Some((name?.into_inner(), probe?))
}

/// How a long prompt goes in; `None` inside where the prompt goes in plainly.
fn stretch(table: &Table<'_, '_>) -> Option<Option<Stretch>> {
    let input = match table.has("input") {
        true => table.optional_word("input", INPUTS).map(Spanned::into_inner)?,
        false => Input::Plain,
    };
    let own = ["chunk", "warm-percent", "requests", "ops-per-buffer"];
    if input == Input::Plain {
        if let Some(key) = own.iter().find(|key| table.has(key)) {
            table.problem(table.span(), format!("`{key}` needs `input = \"long\"`"));
        }
        return Some(None);
    }
    let count = |key: &str| match table.has(key) {
        true => at_least_one(table, key).map(|value| Some(value.into_inner())),
        false => Some(None),
    };
    let (chunk, requests, ops_per_buffer) = (count("chunk"), count("requests"), count("ops-per-buffer"));
    let warm_percent = count("warm-percent");
    if let Some(Some(percent)) = warm_percent
        && percent > 99
    {
        table.problem(table.span(), "`warm-percent` must leave something of the prompt: 1 to 99");
    }
    Some(Some(Stretch {
        chunk: chunk?,
        warm_percent: warm_percent?,
        requests: requests?.unwrap_or(1),
        ops_per_buffer: ops_per_buffer?,
    }))
}

/// A product in a shape that only models reach.
fn product(kind: ProbeKind, table: &Table<'_, '_>) -> Option<Probe> {
    let size = |key: &str| at_least_one(table, key).map(Spanned::into_inner);
    let tolerance = table.required::<f64>("tolerance");
    if let Some(value) = &tolerance
        && !(0.0..1.0).contains(value.get_ref())
    {
        table.problem(value.span(), format!("`tolerance` is a share from 0 to 1, not {}", value.get_ref()));
    }
    let product = match kind {
        ProbeKind::QuantizedMatmul => Product::QuantizedMatmul {
            rows: size("rows")?,
            inner: size("inner")?,
            outer: size("outer")?,
            group_size: size("group-size")?,
            bits: size("bits")?,
        },
        ProbeKind::Attention => Product::Attention {
            queries: size("queries")?,
            keys: size("keys")?,
            heads: size("heads")?,
            kv_heads: size("kv-heads")?,
            head_dim: size("head-dim")?,
        },
        ProbeKind::Rope => Product::Rope {
            offset: table.required::<usize>("offset")?.into_inner(),
            length: size("length")?,
            batch: size("batch")?,
            heads: size("heads")?,
            head_dim: size("head-dim")?,
            base: positive(table, "base")?,
        },
        ProbeKind::Concatenate => {
            Product::Concatenate { pieces: size("pieces")?, rows: size("rows")?, width: size("width")? }
        }
        _ => Product::Repeat { rows: size("rows")?, width: size("width")?, times: size("times")? },
    };
    Some(Probe::Op { product, tolerance: tolerance?.into_inner() })
}

/// Something that is known of a build.
fn known_fault(table: &Table<'_, '_>, builds: &[&str], cells: &BTreeSet<CellId>) -> Option<Known> {
    let build = table.required::<String>("build").filter(|pattern| {
        let some = builds.iter().any(|name| WildMatch::new(pattern.get_ref()).matches(name));
        if !some {
            table.problem(pattern.span(), unknown("build", pattern.get_ref(), "builds", builds));
        }
        some
    });
    let pattern = filled(table, "cells");
    if let Some(pattern) = &pattern
        && !cells.iter().any(|id| pattern_matches(pattern.get_ref(), id))
    {
        table.problem(pattern.span(), "no cell of this file has such a name");
    }
    let codes = table.required_list::<String>("codes");
    for code in codes.iter().flat_map(Spanned::get_ref) {
        if !codes::ALL.contains(&code.get_ref().as_str()) {
            table.problem(code.span(), unknown("finding code", code.get_ref(), "finding codes", codes::ALL));
        }
    }
    let codes = codes.map(inner);
    let why = filled(table, "why");
    let weight = table.required_word("weight", WEIGHTS);
    let speed = codes.as_ref().is_some_and(|codes| codes.iter().any(|code| code == REGRESSION));
    let limit = weight.as_ref().is_some_and(|weight| *weight.get_ref() == KnownWeight::Limit);
    let up_to = if table.has("up-to") { share(table, "up-to", None).map(Some) } else { Some(None) };
    match (speed && limit, &up_to) {
        (true, Some(None)) => table.problem(
            table.span(),
            "a known limit of speed needs `up-to`, the largest loss that is known, such as 0.3",
        ),
        (false, Some(Some(_))) => table
            .problem(table.span(), format!("`up-to` belongs to a `limit` whose `codes` hold `{REGRESSION}`")),
        _ => {}
    }
    Some(Known {
        build: build?.into_inner(),
        cells: pattern?.into_inner(),
        codes: codes?,
        why: why?.into_inner(),
        weight: weight?.into_inner(),
        up_to: up_to?,
    })
}

/// What the answer of a task must be beside holding texts; any text where the keys for it are absent.
fn answer_shape(table: &Table<'_, '_>) -> AnswerShape {
    let keys = table.optional_list::<String>("json-keys").map(inner);
    let arguments = table.optional_list::<String>("tool-arguments").map(inner);
    match (table.optional::<String>("tool"), keys, arguments) {
        (Some(tool), None, arguments) => {
            AnswerShape::ToolCall { name: tool.into_inner(), arguments: arguments.unwrap_or_default() }
        }
        (Some(tool), Some(_), _) => {
            table.problem(tool.span(), "an answer is either a tool call or an object with `json-keys`");
            AnswerShape::Text
        }
        (None, _, Some(_)) => {
            table.problem(table.span(), "`tool-arguments` are those of a `tool`, which is not named");
            AnswerShape::Text
        }
        (None, Some(keys), None) => AnswerShape::Json { keys },
        (None, None, None) => AnswerShape::Text,
    }
}

/// A throughput probe. Two requests are the fewest that show growth, two tokens the fewest that have a rate.
fn throughput(table: &Table<'_, '_>, models: &[&str]) -> Option<ThroughputSpec> {
    let count = |key: &str, least: usize, default: usize| match table.optional::<usize>(key) {
        Some(value) if *value.get_ref() < least => {
            table.problem(value.span(), format!("`{key}` must be at least {least}"));
            None
        }
        Some(value) => Some(value.into_inner()),
        None => Some(default),
    };
    let share = |key: &str, default: Option<f64>| share(table, key, default);
    let bound = |key: &str| if table.has(key) { positive(table, key).map(Some) } else { Some(None) };
    let max_tokens = at_least_one(table, "max-tokens").map(Spanned::into_inner);
    if let Some(1) = max_tokens {
        table.problem(table.span(), "`max-tokens` must be at least 2: one token has no decode rate");
    }
    if !table.has("max-regression") {
        table.problem(
            table.span(),
            "a throughput probe needs `max-regression`, the largest loss that passes, such as 0.05",
        );
    }
    let (requests, reference_runs) = (count("requests", 2, 4), count("reference-runs", 0, 0));
    let clock = match table.has("clock") {
        true => table.optional_word("clock", CLOCKS).map(Spanned::into_inner),
        false => Some(Clock::Wall),
    };
    let threads = if table.has("threads") { count("threads", 1, 1).map(Some) } else { Some(None) };
    let leak_kib = count("max-leak-kib", 1, 256);
    let max_runs = count("max-runs", FEWEST_RUNS, MOST_RUNS);
    let (max_regression, power) = (share("max-regression", None), share("power", Some(0.95)));
    let max_memory_growth = share("max-memory-growth", Some(0.1));
    let (decode, prefill, load) =
        (bound("min-decode-tok-s"), bound("min-prefill-tok-s"), bound("max-load-s"));
    let paces: Vec<Option<Pace>> =
        table.tables("no-slower-than", PACE).iter().map(|table| pace(table, models)).collect();
    Some(ThroughputSpec {
        max_tokens: max_tokens?,
        requests: requests?,
        clock: clock?,
        threads: threads?,
        max_regression: max_regression?,
        power: power?,
        max_memory_growth: max_memory_growth?,
        max_leak_bytes: leak_kib? as u64 * 1024,
        max_runs: max_runs?,
        reference_runs: reference_runs?,
        min_decode_tok_s: decode?,
        min_prefill_tok_s: prefill?,
        max_load_s: load?,
        no_slower_than: paces.into_iter().collect::<Option<_>>()?,
    })
}

/// What a throughput probe's model must keep up with.
fn pace(table: &Table<'_, '_>, models: &[&str]) -> Option<Pace> {
    let model = known_name(table, "model", "model", "models", models);
    let precision = table.required_word("precision", PRECISIONS);
    if !table.has("max-loss") {
        table.problem(
            table.span(),
            "`no-slower-than` needs `max-loss`, the largest loss that passes, such as 0.05",
        );
    }
    let max_loss = share(table, "max-loss", None);
    Some(Pace { model: model?, precision: precision?.into_inner(), max_loss: max_loss? })
}

/// A share between 0 and 1, neither of them included.
fn share(table: &Table<'_, '_>, key: &str, default: Option<f64>) -> Option<f64> {
    match table.optional::<f64>(key) {
        Some(value) if *value.get_ref() <= 0.0 || *value.get_ref() >= 1.0 => {
            table.problem(
                value.span(),
                format!("`{key}` must be between 0 and 1, such as 0.05 for 5 %, not {}", value.get_ref()),
            );
            None
        }
        Some(value) => Some(value.into_inner()),
        None => default,
    }
}

fn block(table: &Table<'_, '_>, declared: &Declared<'_>, cells: &mut BTreeSet<CellId>) -> Option<CellBlock> {
    let models = known_names(table, "models", "model", &declared.models);
    let precisions = table.required_words("precisions", PRECISIONS);
    let contexts = table.required_list::<usize>("contexts");
    let probes = known_names(table, "probes", "probe", &declared.probes);
    let backends = table.required_words("backends", BACKENDS);
    note_repeats(table, "models", &models);
    note_repeats(table, "precisions", &precisions);
    note_repeats(table, "contexts", &contexts);
    note_repeats(table, "probes", &probes);
    note_repeats(table, "backends", &backends);
    let patterns: Vec<(Table<'_, '_>, Option<CellPattern>)> = table
        .tables("exclude", PATTERN)
        .into_iter()
        .map(|exclude| {
            let pattern = pattern(&exclude, declared);
            (exclude, pattern)
        })
        .collect();

    let timeout_s = match table.has("timeout-s") {
        true => positive(table, "timeout-s").map(Some),
        false => Some(None),
    };
    let memory_mib = match table.has("memory-mib") {
        true => at_least_one(table, "memory-mib").map(|value| Some(value.into_inner())),
        false => Some(None),
    };
    let places = contexts.clone()?;
    let block = CellBlock {
        models: inner(models?),
        precisions: inner(precisions?),
        contexts: inner(contexts?),
        probes: inner(probes?),
        backends: inner(backends?),
        exclude: patterns.iter().filter_map(|(_, pattern)| pattern.clone()).collect(),
        budget: Budget {
            timeout_s: timeout_s?,
            memory_bytes: memory_mib?.map(|mib| mib as u64 * 1024 * 1024),
        },
    };
    let size = [&block.models.len(), &block.precisions.len(), &block.contexts.len(), &block.probes.len()]
        .into_iter()
        .fold(block.backends.len(), |product, axis| product.saturating_mul(*axis));
    if size > MOST_CELLS {
        table.problem(
            table.span(),
            format!("this block has {size} cells, more than the {MOST_CELLS} that a run can hold"),
        );
        return None;
    }
    for (exclude, pattern) in &patterns {
        if let Some(pattern) = pattern
            && !block.product().any(|point| pattern.matches(&point))
        {
            exclude.problem(exclude.span(), "this exclude matches no cell of its block");
        }
    }
    if size > 0 && block.points().next().is_none() {
        table.problem(table.span(), "the excludes leave no cell of this block");
    }
    note_impossible(table, &block, &places, declared);
    let ids: BTreeSet<CellId> = block.points().map(|point| point.cell_id()).collect();
    for id in ids.intersection(cells) {
        table.problem(table.span(), format!("cell `{id}` is in two blocks"));
    }
    cells.extend(ids);
    Some(block)
}

fn pattern(table: &Table<'_, '_>, declared: &Declared<'_>) -> Option<CellPattern> {
    if table.keys().is_empty() {
        table.problem(table.span(), "an exclude must name at least one axis");
        return None;
    }
    let name = |key: &str, things: &str, known: &[Spanned<String>]| match table.has(key) {
        true => known_name(table, key, key, things, &texts(known)).map(Some),
        false => Some(None),
    };
    let model = name("model", "models", &declared.models);
    let probe = name("probe", "probes", &declared.probes);
    let precision = table.optional_word("precision", PRECISIONS).map(Spanned::into_inner);
    let context = table.optional::<usize>("context").map(Spanned::into_inner);
    let backend = table.optional_word("backend", BACKENDS).map(Spanned::into_inner);
    // An axis that was named and could not be read must not become one that matches everything.
    let complete =
        [(precision.is_some(), "precision"), (context.is_some(), "context"), (backend.is_some(), "backend")]
            .into_iter()
            .all(|(read, key)| read || !table.has(key));
    complete.then_some(CellPattern { model: model?, precision, context, probe: probe?, backend })
}

/// Notes cells that no engine could run, each at the context that makes it impossible.
fn note_impossible(
    table: &Table<'_, '_>,
    block: &CellBlock,
    contexts: &Spanned<Vec<Spanned<usize>>>,
    declared: &Declared<'_>,
) {
    for point in block.points() {
        let (Some(&model), Some(&probe)) =
            (declared.sound_models.get(point.model), declared.sound_probes.get(point.probe))
        else {
            continue;
        };
        let place = contexts
            .get_ref()
            .iter()
            .find(|context| *context.get_ref() == point.context)
            .map_or_else(|| table.span(), Spanned::span);
        let context = point.context;
        let more = match probe {
            Probe::Task { .. } => {
                if context != 0 {
                    let why =
                        format!("task `{}` brings its own prompt, so its context must be 0", point.probe);
                    table.problem(place, why);
                } else if matches!(model.source, ModelSource::Synthetic(_)) {
                    let why =
                        format!("model `{}` is synthetic and cannot do task `{}`", point.model, point.probe);
                    table.problem(table.span(), why);
                }
                continue;
            }
            Probe::Op { .. } => {
                if context != 0 {
                    let why =
                        format!("product `{}` has its own shape, so its context must be 0", point.probe);
                    table.problem(place, why);
                }
                continue;
            }
            Probe::Perplexity { .. } if matches!(model.source, ModelSource::Synthetic(_)) => {
                let why = format!("model `{}` is synthetic and reads no text", point.model);
                table.problem(table.span(), why);
                continue;
            }
            Probe::Perplexity { .. } => 0,
            Probe::Logits { decode_steps, .. } => *decode_steps,
            Probe::Greedy { max_tokens } => *max_tokens,
            Probe::Throughput(spec) => spec.max_tokens,
        };
        if context == 0 {
            table.problem(place, format!("probe `{}` needs a context of at least 1 token", point.probe));
        } else if let ModelSource::Synthetic(spec) = &model.source
            && context.saturating_add(more) > spec.max_positions
        {
            table.problem(
                place,
                format!(
                    "context {context} and the {more} tokens that probe `{}` adds exceed the {} positions of model `{}`",
                    point.probe, spec.max_positions, point.model
                ),
            );
        }
    }
}

fn thresholds(root: &Table<'_, '_>) -> Thresholds {
    let mut thresholds = Thresholds::default();
    let Some(table) = root.optional_table("thresholds", THRESHOLDS) else { return thresholds };
    let take = |key: &str, field: &mut f64, most: f64| {
        let Some(value) = table.optional::<f64>(key) else { return };
        let number = *value.get_ref();
        if number < 0.0 || number > most {
            let range =
                if most.is_finite() { format!("between 0 and {most}") } else { "0 or more".to_owned() };
            table.problem(value.span(), format!("`{key}` must be {range}, not {number}"));
        }
        *field = number;
    };
    take("mean-kl", &mut thresholds.mean_kl, f64::INFINITY);
    take("p99-kl", &mut thresholds.p99_kl, f64::INFINITY);
    take("top1-agreement", &mut thresholds.top1_agreement, 1.0);
    take("margin", &mut thresholds.margin, f64::INFINITY);
    take("relative-l2", &mut thresholds.relative_l2, f64::INFINITY);
    take("cosine", &mut thresholds.cosine, 1.0);
    take("max-logit-gap", &mut thresholds.max_logit_gap, f64::INFINITY);
    take("free-text-drop", &mut thresholds.free_text_drop, f64::INFINITY);
    take("near-tie", &mut thresholds.near_tie, f64::INFINITY);
    thresholds
}

fn known_name(table: &Table<'_, '_>, key: &str, thing: &str, things: &str, known: &[&str]) -> Option<String> {
    let name = table.required::<String>(key)?;
    if !known.contains(&name.get_ref().as_str()) {
        table.problem(name.span(), unknown(thing, name.get_ref(), things, known));
        return None;
    }
    Some(name.into_inner())
}

fn known_names(
    table: &Table<'_, '_>,
    key: &str,
    thing: &str,
    known: &[Spanned<String>],
) -> Option<Spanned<Vec<Spanned<String>>>> {
    let names = table.required_list::<String>(key)?;
    let known = texts(known);
    let span = names.span();
    let (good, bad): (Vec<_>, Vec<_>) =
        names.into_inner().into_iter().partition(|name| known.contains(&name.get_ref().as_str()));
    for name in bad {
        table.problem(name.span(), unknown(thing, name.get_ref(), key, &known));
    }
    Some(Spanned::new(span, good))
}

fn unknown(thing: &str, name: &str, things: &str, known: &[&str]) -> String {
    format!("unknown {thing} {}; {}", quoted(name).replace('"', "`"), suggestion(name, things, known))
}

fn note_repeats<T: PartialEq>(table: &Table<'_, '_>, key: &str, list: &Option<Spanned<Vec<Spanned<T>>>>) {
    let Some(list) = list else { return };
    for (index, value) in list.get_ref().iter().enumerate() {
        if list.get_ref()[..index].iter().any(|earlier| earlier.get_ref() == value.get_ref()) {
            table.problem(value.span(), format!("`{key}` holds this value twice"));
        }
    }
}

fn at_least_one(table: &Table<'_, '_>, key: &str) -> Option<Spanned<usize>> {
    let value = table.required::<usize>(key)?;
    if *value.get_ref() == 0 {
        table.problem(value.span(), format!("`{key}` must be at least 1"));
        return None;
    }
    Some(value)
}

fn positive(table: &Table<'_, '_>, key: &str) -> Option<f64> {
    let value = table.required::<f64>(key)?;
    if *value.get_ref() <= 0.0 || *value.get_ref() > 1e12 {
        table.problem(
            value.span(),
            format!("`{key}` must be above 0 and at most 1e12, not {}", value.get_ref()),
        );
        return None;
    }
    Some(value.into_inner())
}

fn filled(table: &Table<'_, '_>, key: &str) -> Option<Spanned<String>> {
    let value = table.required::<String>(key)?;
    if value.get_ref().trim().is_empty() {
        table.problem(value.span(), format!("`{key}` is empty"));
        return None;
    }
    Some(value)
}

fn inner<T>(list: Spanned<Vec<Spanned<T>>>) -> Vec<T> {
    list.into_inner().into_iter().map(Spanned::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"
baseline = "published"
candidate = "patched"
reference = "mlx-lm"
cell-timeout-s = 90

[[model]]
name = "qwen3"
kind = "synthetic"
architecture = "qwen3"
seed = 1
layers = 2
hidden = 128
intermediate = 256
heads = 4
kv-heads = 2
head-dim = 64
vocab = 4096
rope-theta = 1e6
weight-std = 0.15
max-positions = 4096

[[model]]
name = "small"
kind = "package"
package = "llm-small"

[[probe]]
name = "logits"
kind = "logits"
decode-steps = 16

[[probe]]
name = "capital"
kind = "task"
prompt = "What is the capital of France?"
expect = ["Paris"]
max-tokens = 24

[[cells]]
models = ["qwen3"]
precisions = ["source"]
contexts = [8, 300]
probes = ["logits"]
backends = ["cpu", "metal"]
exclude = [{ context = 300, backend = "metal" }]

[[cells]]
models = ["small"]
precisions = ["source"]
contexts = [0]
probes = ["capital"]
backends = ["cpu"]

[thresholds]
relative-l2 = 2e-3
"#;

    fn parse(text: &str) -> Result<MatrixSpec, Problems> {
        parse_matrix("m", "matrices/m.toml", text, &["published", "patched"])
    }

    /// The problems of the sound matrix after replacements, without the file's name.
    fn problems(replacements: &[(&str, &str)]) -> String {
        let mut text = SOUND.to_owned();
        for (old, new) in replacements {
            assert!(text.contains(old), "the fixture has no {old}");
            text = text.replacen(old, new, 1);
        }
        parse(&text).unwrap_err().to_string().replace("matrices/m.toml:", "")
    }

    #[test]
    fn a_sound_matrix_is_read_with_defaults_where_it_is_silent() {
        let spec = parse(SOUND).unwrap();
        assert_eq!(spec.cell_timeout, Duration::from_secs(90));
        assert_eq!(spec.thresholds, Thresholds { relative_l2: 2e-3, ..Thresholds::default() });
        assert_eq!(spec.blocks[0].points().count(), 3);
        assert_eq!(spec.probes[0], ("logits".to_owned(), Probe::Logits { decode_steps: 16, stretch: None }));
        assert!(matches!(&spec.models[1].source, ModelSource::Package { package } if package == "llm-small"));
    }

    #[test]
    fn a_throughput_probe_has_defaults_and_its_mistakes_have_messages() {
        let with = |lines: &str| SOUND.replacen("kind = \"logits\"\ndecode-steps = 16", lines, 1);
        let spec = parse(&with("kind = \"throughput\"\nmax-tokens = 8\nmax-regression = 0.05")).unwrap();
        let Probe::Throughput(speed) = &spec.probes[0].1 else { panic!("it is a throughput probe") };
        assert_eq!((speed.requests, speed.power, speed.clock), (4, 0.95, Clock::Wall));
        assert_eq!((speed.max_leak_bytes, speed.min_decode_tok_s, speed.threads), (256 << 10, None, None));
        let keeping_up = "no-slower-than = [{ model = \"qwen3\", precision = \"source\", max-loss = 0.1 }]";
        let spec = parse(&with(&format!(
            "kind = \"throughput\"\nmax-tokens = 8\nmax-regression = 0.05\n{keeping_up}"
        )))
        .unwrap();
        let Probe::Throughput(speed) = &spec.probes[0].1 else { panic!("it is a throughput probe") };
        let pace = Pace { model: "qwen3".into(), precision: Precision::Source, max_loss: 0.1 };
        assert_eq!(speed.no_slower_than, [pace]);
        for (line, message) in [
            ("max-tokens = 8", "needs `max-regression`"),
            ("max-tokens = 1\nmax-regression = 0.05", "`max-tokens` must be at least 2"),
            ("max-tokens = 8\nmax-regression = 5", "must be between 0 and 1, such as 0.05 for 5 %, not 5"),
            ("max-tokens = 8\nmax-regression = 0.05\nrequests = 1", "`requests` must be at least 2"),
            ("max-tokens = 8\nmax-regression = 0.05\nclock = \"sun\"", "sun"),
            ("max-tokens = 8\nmax-regression = 0.05\nmin-decode-tok-s = 0", "must be above 0"),
            (
                "max-tokens = 8\nmax-regression = 0.05\nno-slower-than = [{ model = \"qwen\", precision = \"q4\", max-loss = 2 }]",
                "unknown model `qwen`; did you mean `qwen3`?",
            ),
            (
                "max-tokens = 8\nmax-regression = 0.05\nno-slower-than = [{ model = \"qwen3\", precision = \"source\" }]",
                "needs `max-loss`",
            ),
        ] {
            let problems = parse(&with(&format!("kind = \"throughput\"\n{line}"))).unwrap_err().to_string();
            assert!(problems.contains(message), "{line}: {problems}");
        }
    }

    #[test]
    fn a_model_that_cannot_be_made_is_told_with_its_place_before_anything_is_built() {
        for (key, value, reason) in [
            (
                "architecture = \"qwen3\"",
                "architecture = \"nemotron_h\"",
                "7:1: this model cannot be made: layers is",
            ),
            ("architecture = \"qwen3\"", "architecture = \"gpt_oss\"", "7:1: this model cannot be made: "),
            (
                "weight-std",
                "window = 8\nweight-std",
                "7:1: this model cannot be made: qwen3 has no sliding window",
            ),
            (
                "weight-std",
                "shards = 1000000\nweight-std",
                "7:1: this model cannot be made: shards is 1000000",
            ),
        ] {
            let told = problems(&[(key, value)]);
            assert!(told.contains(reason), "{value}: {told}");
        }
    }

    #[test]
    fn different_mistakes_of_one_matrix_are_reported_together_with_their_places() {
        let changes = [
            ("candidate = \"patched\"", "candidate = \"pathced\""),
            ("kv-heads = 2", "kv-heads = 3"),
            ("precisions = [\"source\"]", "quantisation = [\"source\"]"),
        ];
        insta::assert_snapshot!(problems(&changes), @"
        3:13: unknown build `pathced`; did you mean `patched`?
        16:12: `kv-heads` must divide `heads`, and 3 does not divide 4
        40:1: `cells` lacks `precisions`
        42:1: unknown axis `quantisation`; the axes of `cells` are models, precisions, contexts, probes, backends, exclude, timeout-s, memory-mib
        ");
    }

    #[test]
    fn each_kind_of_mistake_has_its_message() {
        let cases: &[(&str, &str)] = &[
            ("hidden = 128", "hiden = 128"),
            ("hidden = 128", "hidden = \"128\""),
            ("layers = 2", "layers = 0"),
            ("head-dim = 64", "head-dim = 33"),
            ("weight-std = 0.15", "weight-std = 0"),
            ("architecture = \"qwen3\"", "architecture = \"gwen3\""),
            ("kind = \"package\"", "kind = \"hub\""),
            ("name = \"small\"", "name = \"qwen3\""),
            ("name = \"small\"", "name = \"a/b\""),
            ("decode-steps = 16", "decode-steps = 0"),
            ("decode-steps = 16", "decode-steps = 4000"),
            ("expect = [\"Paris\"]", "expect = []"),
            ("expect = [\"Paris\"]", "expect = [\" \"]"),
            ("max-tokens = 24", "max-tokens = 24\nallow = [\"run\", \"compresion\"]"),
            ("models = [\"small\"]", "models = [\"smal\"]"),
            ("models = [\"small\"]", "models = [\"small\", \"qwen3\"]"),
            ("contexts = [8, 300]", "contexts = [8, 0]"),
            ("contexts = [8, 300]", "contexts = [8, 300, 8]"),
            ("contexts = [8, 300]", "contexts = []"),
            ("contexts = [0]", "contexts = [8]"),
            ("context = 300, backend", "context = 299, backend"),
            ("{ context = 300, backend = \"metal\" }", "{}"),
            ("{ context = 300, backend = \"metal\" }", "{ model = \"qwen3\" }"),
            ("{ context = 300, backend = \"metal\" }", "{ models = \"qwen3\" }"),
            ("probes = [\"capital\"]", "probes = [\"logits\"]"),
            ("relative-l2 = 2e-3", "cosine = 1.5"),
            ("cell-timeout-s = 90", "cell-timeout-s = -1"),
            ("reference = \"mlx-lm\"", "reference = \"torch\""),
        ];
        let seen: Vec<String> = cases
            .iter()
            .map(|(old, new)| format!("{new}\n  {}", problems(&[(old, new)]).replace('\n', "\n  ")))
            .collect();
        insta::assert_snapshot!(seen.join("\n"), @r#"
        hiden = 128
          7:1: `model` lacks `hidden`
          13:1: unknown key `hiden`; did you mean `hidden`?
        hidden = "128"
          13:10: `hidden` must be a whole number, not text
        layers = 0
          12:10: `layers` must be at least 1
        head-dim = 33
          17:12: `head-dim` must be even: rotary embeddings turn pairs
        weight-std = 0
          20:14: `weight-std` must be above 0 and at most 1e12, not 0
        architecture = "gwen3"
          10:16: unknown value `gwen3` of `architecture`; did you mean `qwen3`?
        kind = "hub"
          25:8: unknown value `hub` of `kind`; known values are synthetic, package
        name = "qwen3"
          24:8: there are two models named `qwen3`
          49:11: unknown model `small`; known models are qwen3
        name = "a/b"
          24:8: "a/b" is no name: use lower-case letters, digits, `-`, `.` and `_`, a letter or digit first
          49:11: unknown model `small`; known models are qwen3, a/b
        decode-steps = 0
          31:16: `decode-steps` must be at least 1: a prefill alone passes a build that lost its cache
        decode-steps = 4000
          43:16: context 300 and the 4000 tokens that probe `logits` adds exceed the 4096 positions of model `qwen3`
        expect = []
          37:10: `expect` is empty
        expect = [" "]
          37:11: an empty text in `expect` is in every answer
        max-tokens = 24
        allow = ["run", "compresion"]
          39:17: unknown signal `compresion`; did you mean `compression`?
        models = ["smal"]
          49:11: unknown model `smal`; did you mean `small`?
        models = ["small", "qwen3"]
          48:1: model `qwen3` is synthetic and cannot do task `capital`
        contexts = [8, 0]
          43:16: probe `logits` needs a context of at least 1 token
          46:12: this exclude matches no cell of its block
        contexts = [8, 300, 8]
          43:21: `contexts` holds this value twice
        contexts = []
          43:12: `contexts` is empty
        contexts = [8]
          51:13: task `capital` brings its own prompt, so its context must be 0
        context = 299, backend
          46:12: this exclude matches no cell of its block
        {}
          46:12: an exclude must name at least one axis
        { model = "qwen3" }
          40:1: the excludes leave no cell of this block
        { models = "qwen3" }
          40:1: the excludes leave no cell of this block
          46:14: unknown axis `models`; did you mean `model`?
        probes = ["logits"]
          51:13: probe `logits` needs a context of at least 1 token
        cosine = 1.5
          56:10: `cosine` must be between 0 and 1, not 1.5
        cell-timeout-s = -1
          5:18: `cell-timeout-s` must be above 0 and at most 1e12, not -1
        reference = "torch"
          4:13: unknown reference `torch`; known references are mlx-lm
        "#);
    }

    #[test]
    fn a_cell_in_two_blocks_is_a_mistake() {
        let again = "\n[[cells]]\nmodels = [\"qwen3\"]\nprecisions = [\"source\"]\ncontexts = [300, 400]\n\
                     probes = [\"logits\"]\nbackends = [\"cpu\"]\n";
        insta::assert_snapshot!(problems(&[("\n[thresholds]", &format!("{again}\n[thresholds]"))]), @"55:1: cell `qwen3/source/300/logits/cpu` is in two blocks");
    }

    #[test]
    fn what_is_known_names_builds_cells_and_findings_that_there_are() {
        let known = |build: &str, cells: &str, code: &str| {
            format!(
                "[[known]]\nbuild = \"{build}\"\ncells = \"{cells}\"\ncodes = [\"refused\", \"{code}\"]\nwhy = \"it is so\"\n\
                 weight = \"fault\"\n\n[thresholds]"
            )
        };
        let with = |known: &str| SOUND.replacen("[thresholds]", known, 1);
        let spec = parse(&with(&known("*tched", "qwen3/*", "decode-logits-diverge"))).unwrap();
        assert_eq!(spec.known[0].codes, ["refused", "decode-logits-diverge"]);
        let said = [
            known("patched", "qwen3/*", "decode-logit-diverges"),
            known("patched", "qwen3/*", "throughput-regresion"),
            known("patched", "qwen4/*", "crashed"),
            known("pathced", "qwen3/*", "crashed"),
            known("patched", "qwen3/*", "it-is-slow"),
        ]
        .map(|known| problems(&[("[thresholds]", &known)]));
        insta::assert_snapshot!(said[..4].join("\n"), @"
        58:21: unknown finding code `decode-logit-diverges`; did you mean `decode-logits-diverge`?
        58:21: unknown finding code `throughput-regresion`; did you mean `throughput-regression`?
        57:9: no cell of this file has such a name
        56:9: unknown build `pathced`; did you mean `patched`?
        ");
        assert!(said[4].contains("`it-is-slow`; known finding codes are abort-at-exit, "), "{}", said[4]);
    }

    #[test]
    fn what_no_cell_uses_is_a_mistake() {
        let unused = "[[probe]]\nname = \"greedy\"\nkind = \"greedy\"\nmax-tokens = 8\n\n[[cells]]";
        insta::assert_snapshot!(problems(&[("[[cells]]", unused)]), @"41:8: no cell uses probe `greedy`");
    }

    #[test]
    fn an_empty_file_says_what_it_lacks() {
        insta::assert_snapshot!(parse("").unwrap_err().to_string().replace("matrices/m.toml:", ""), @"
        1:1: the file lacks `[[cells]]`, so that nothing would be run
        1:1: the file lacks `baseline`
        1:1: the file lacks `candidate`
        1:1: the file lacks `reference`
        ");
    }
}
