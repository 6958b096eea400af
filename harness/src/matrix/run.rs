//! Runs one engine at one cell and writes down what it did. What that is worth is not decided here.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    build::Artifact,
    engine::{
        protocol::{
            Device, Generate, Hello, History, Load, Loaded, LogitsDetail, Memory, Op, Score, Time, Tokenize,
            Tokens,
        },
        session::{Session, SessionOptions},
    },
    event::{Event, EventSink},
    matrix::{
        cell::{Backend, Cell, Probe, Stretch},
        ids::{FolderError, FolderIds, seeded_ids},
        long_text,
        observation::{Again, Measured, Observation, ProcessOutcome, Role, row_digests},
        throughput::{ThroughputSpec, TimedRequest},
    },
    tools::{
        child::ChildError,
        conditions::{self, GpuUse},
    },
};

/// How many of the most likely ids are asked for.
const TOP_K: usize = 8;

/// The least length of a piece that the reference takes, too.
const LARGE_PIECE: usize = 512;

/// How many ends of pieces are looked at.
const PIECES_SHOWN: usize = 12;

/// Seeds the request that is made between two equal ones.
const BESIDE: &str = "another request";

/// The log-probability of what is no number.
const UNLIKELY: f64 = -1e9;

/// How much base64 of whole logits rows one response may hold.
const FULL_ROWS_BYTES: usize = 48 << 20;

/// How an engine is run at a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct ObserveOptions {
    /// How long the engine process may take for the cell.
    pub timeout: Duration,
    /// The folder for one log of stderr a process.
    pub log_dir: PathBuf,
}

/// Why a cell could not be observed at all.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The engine's program did not start.
    #[error("cannot run engine `{engine}` at cell `{cell}`")]
    Start {
        /// The build's or reference's name.
        engine: String,
        /// The cell's name.
        cell: String,
        /// Why.
        #[source]
        source: ChildError,
    },
    /// The model folder does not say what ids there are.
    #[error("cannot read the model of cell `{cell}`")]
    Model {
        /// The cell's name.
        cell: String,
        /// Why.
        #[source]
        source: FolderError,
    },
}

impl ObserveError {
    /// What a person may try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Start { source, .. } => source.hint(),
            Self::Model { source, .. } => source.hint(),
        }
    }
}

/// Ids that an engine is forced along, to compare it with another's own choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedIds {
    /// The ids.
    pub ids: Vec<u32>,
    /// How many of them go into the prefill.
    pub prefill_len: usize,
}

impl ForcedIds {
    /// The ids along which something was measured: the forced ones, or the prompt and what was generated after it.
    pub fn of(measured: &Measured) -> Self {
        match measured {
            Measured::Logits { ids, prefill_len, .. } => Self { ids: ids.clone(), prefill_len: *prefill_len },
            Measured::Generation { prompt, generated } => Self {
                ids: prompt.ids.iter().chain(&generated.ids).copied().collect(),
                prefill_len: prompt.ids.len(),
            },
            Measured::Perplexity { ids, .. } => Self { ids: ids.clone(), prefill_len: ids.len() },
            Measured::Op { .. } => Self { ids: Vec::new(), prefill_len: 0 },
            Measured::Throughput { prompt_ids, requests, .. } => Self {
                ids: prompt_ids
                    .iter()
                    .chain(requests.first().iter().flat_map(|request| &request.timed.ids))
                    .copied()
                    .collect(),
                prefill_len: prompt_ids.len(),
            },
        }
    }
}

/// Runs an engine at a cell, in one process, and records everything up to where it came.
pub fn observe(
    cell: &Cell,
    role: Role,
    artifact: &Artifact,
    model_dir: &Path,
    options: &ObserveOptions,
    sink: &dyn EventSink,
) -> Result<Observation, ObserveError> {
    let measure = |session: &mut Session, folder: &FolderIds, eos_ids: &[u32]| {
        measure_cell(session, cell, role, folder, eos_ids)
    };
    run_session(cell, role, artifact, model_dir, options, sink, "", &measure)
}

/// Asks an engine that has loaded the cell's model for what the cell's probe measures.
pub(crate) fn measure_cell(
    session: &mut Session,
    cell: &Cell,
    role: Role,
    folder: &FolderIds,
    eos_ids: &[u32],
) -> Option<Measured> {
    let seeded = |count: usize| seeded_ids(&cell.model, cell.context, count, folder);
    match &cell.probe {
        Probe::Logits { decode_steps, stretch: Some(stretch) } => {
            let forced = ForcedIds { ids: seeded(cell.context + decode_steps), prefill_len: cell.context };
            // As long, so that what it leaves behind would be as large.
            let other = seeded_ids(BESIDE, cell.context, cell.context + decode_steps, folder);
            measure_stretch(session, role, &forced, other, stretch)
        }
        Probe::Perplexity { chunk } => measure_perplexity(session, cell.context, *chunk),
        Probe::Op { product, .. } => {
            let device = device_of(cell.backend);
            session.op(&Op { device, product: product.clone() }).map(|done| Measured::Op { done })
        }
        Probe::Logits { decode_steps, stretch: None } => {
            let forced = ForcedIds { ids: seeded(cell.context + decode_steps), prefill_len: cell.context };
            measure_scoring(session, &Scoring { forced: &forced, want: Wanted::Rows }, folder.vocab_size)
        }
        Probe::Greedy { max_tokens } => {
            let ids = seeded(cell.context);
            let generate = Generate {
                prompt_ids: ids.clone(),
                max_tokens: *max_tokens,
                stop_ids: Vec::new(),
                top_k: TOP_K,
            };
            let generated = session.generate(&generate)?;
            Some(Measured::Generation { prompt: Tokens { ids, rendered: String::new() }, generated })
        }
        Probe::Task { prompt, max_tokens, .. } => {
            let prompt = session.tokenize(&Tokenize::Chat { user: prompt.clone() })?;
            let generate = Generate {
                prompt_ids: prompt.ids.clone(),
                max_tokens: *max_tokens,
                stop_ids: eos_ids.to_vec(),
                top_k: TOP_K,
            };
            let generated = session.generate(&generate)?;
            Some(Measured::Generation { prompt, generated })
        }
        Probe::Throughput(spec) => measure_throughput(session, seeded(cell.context), spec),
    }
}

/// One scoring of ids that an engine does not choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring<'f> {
    /// The ids.
    pub forced: &'f ForcedIds,
    /// What is wanted of them.
    pub want: Wanted,
}

/// What a scoring is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Whole rows, as a logits cell has them.
    Rows,
    /// The same with decode steps that see nothing but their own token: what an engine that lost its history would do.
    RowsWithoutHistory,
    /// How likely each id after the prompt is, without rows.
    Likelihood,
}

/// Runs an engine along given ids, all scorings in one process; one observation each, up to where it came.
pub fn observe_scorings(
    cell: &Cell,
    role: Role,
    scorings: &[Scoring<'_>],
    artifact: &Artifact,
    model_dir: &Path,
    options: &ObserveOptions,
    sink: &dyn EventSink,
) -> Result<Vec<Observation>, ObserveError> {
    let measured = RefCell::new(Vec::new());
    let measure = |session: &mut Session, folder: &FolderIds, _eos_ids: &[u32]| {
        for scoring in scorings {
            measured.borrow_mut().push(measure_scoring(session, scoring, folder.vocab_size)?);
        }
        None
    };
    let ran = run_session(cell, role, artifact, model_dir, options, sink, ".scorings", &measure)?;
    let one = |measured| Observation { measured: Some(measured), ..ran.clone() };
    Ok(measured.into_inner().into_iter().map(one).collect())
}

/// The positions that a scoring reports: two early prefill positions, the end of the prefill, and the decode steps; at
/// most `most` of them, of which the first decode steps matter most, and the last shows how far a fault has grown.
pub fn scored_positions(forced: &ForcedIds, most: usize) -> Vec<usize> {
    let (len, prefill_len) = (forced.ids.len(), forced.prefill_len);
    if len == 0 {
        return Vec::new();
    }
    let last_prefill = prefill_len.clamp(1, len) - 1;
    let mut positions = vec![0, last_prefill / 2, last_prefill];
    positions.dedup();
    let room = most.saturating_sub(positions.len() + 1);
    positions.extend((last_prefill + 1..len).take(room));
    positions.push(len - 1);
    positions.dedup();
    positions
}

/// One request that warms up, then the measured ones. All have the same prompt and a fresh cache.
fn measure_throughput(
    session: &mut Session,
    prompt_ids: Vec<u32>,
    spec: &ThroughputSpec,
) -> Option<Measured> {
    let load_s = session.load_s()?;
    let time = Time { prompt_ids, tokens: spec.max_tokens };
    session.time(&time)?;
    let requests = (0..spec.requests)
        .map(|_| Some(TimedRequest { timed: session.time(&time)?, memory: session.memory()? }))
        .collect::<Option<Vec<_>>>()?;
    Some(Measured::Throughput { load_s, prompt_ids: time.prompt_ids, requests })
}

/// Asks for a long prompt, as often as the probe says.
fn measure_stretch(
    session: &mut Session,
    role: Role,
    forced: &ForcedIds,
    other: Vec<u32>,
    stretch: &Stretch,
) -> Option<Measured> {
    let ForcedIds { ids, prefill_len } = forced;
    let builds = role != Role::Reference;
    let large = |chunk: &usize| *chunk >= LARGE_PIECE;
    let percent = stretch.warm_percent.filter(|_| builds);
    let score = Score {
        ids: ids.clone(),
        prefill_len: *prefill_len,
        positions: stretch_positions(forced, stretch),
        top_k: TOP_K,
        logits: LogitsDetail::Full,
        history: History::Kept,
        chunk: stretch.chunk.filter(|chunk| builds || large(chunk)),
        // At least one id before, the decode step, and one behind.
        warm: percent
            .filter(|_| *prefill_len >= 3)
            .map(|percent| (prefill_len * percent / 100).clamp(1, prefill_len - 2)),
    };
    let scored = session.score(&score)?;
    let mut again = Vec::new();
    for request in 1..if builds { stretch.requests } else { 1 } {
        if request == 1 {
            session.score(&Score { ids: other.clone(), logits: LogitsDetail::Summary, ..score.clone() })?;
        }
        let repeated = session.score(&score)?;
        again.push(Again {
            row_digests: row_digests(&repeated),
            held_bytes: repeated.held_bytes,
            peak_bytes: repeated.peak_bytes,
        });
    }
    Some(Measured::Logits { ids: ids.clone(), prefill_len: *prefill_len, scored, again })
}

/// The ends of some large pieces, the end of the prefill, and the decode steps.
fn stretch_positions(forced: &ForcedIds, stretch: &Stretch) -> Vec<usize> {
    let prefill_len = forced.prefill_len;
    let mut ends: Vec<usize> = match stretch.chunk {
        Some(chunk) if chunk >= LARGE_PIECE && stretch.warm_percent.is_none() => {
            (1..prefill_len.div_ceil(chunk)).map(|piece| piece * chunk - 1).collect()
        }
        _ => Vec::new(),
    };
    let every = ends.len().div_ceil(PIECES_SHOWN).max(1);
    ends = ends.into_iter().rev().step_by(every).collect();
    ends.reverse();
    ends.extend(prefill_len - 1..forced.ids.len());
    ends
}

/// Asks how likely the first ids of our own text are.
fn measure_perplexity(session: &mut Session, context: usize, chunk: usize) -> Option<Measured> {
    let mut ids = session.tokenize(&Tokenize::Text { text: long_text::text() })?.ids;
    ids.truncate(context);
    let positions: Vec<usize> =
        (1..=ids.len() / chunk).map(|piece| piece * chunk - 1).filter(|at| at + 1 < ids.len()).collect();
    let scored = session.score(&Score {
        ids: ids.clone(),
        prefill_len: ids.len(),
        positions,
        top_k: 1,
        logits: LogitsDetail::Summary,
        history: History::Kept,
        chunk: Some(chunk),
        warm: None,
    })?;
    let points = scored
        .positions
        .iter()
        // A value that is no number is as unlikely as can be.
        .map(|p| (p.position, p.next_logprob.unwrap_or(UNLIKELY)))
        .collect();
    Some(Measured::Perplexity { ids, points, prefill_s: scored.prefill_s })
}

/// Asks an engine that has loaded a model to score given ids.
pub(crate) fn measure_scoring(
    session: &mut Session,
    scoring: &Scoring<'_>,
    vocab_size: usize,
) -> Option<Measured> {
    // Base64 makes four bytes of three.
    let row_bytes = vocab_size * size_of::<f32>() * 4 / 3 + 4;
    let ForcedIds { ids, prefill_len } = scoring.forced;
    let positions = match scoring.want {
        // The row at a position foretells the id after it.
        Wanted::Likelihood => (prefill_len.saturating_sub(1)..ids.len().saturating_sub(1)).collect(),
        _ => scored_positions(scoring.forced, (FULL_ROWS_BYTES / row_bytes).max(4)),
    };
    let scored = session.score(&Score {
        ids: ids.clone(),
        prefill_len: *prefill_len,
        positions,
        top_k: TOP_K,
        logits: if scoring.want == Wanted::Likelihood { LogitsDetail::Summary } else { LogitsDetail::Full },
        history: if scoring.want == Wanted::RowsWithoutHistory { History::None } else { History::Kept },
        chunk: None,
        warm: None,
    })?;
    Some(Measured::Logits { ids: ids.clone(), prefill_len: *prefill_len, scored, again: Vec::new() })
}

/// How long an engine may take for a cell.
pub(crate) fn timeout_of(cell: &Cell, options: &ObserveOptions) -> Duration {
    cell.budget.timeout_s.map_or(options.timeout, Duration::from_secs_f64)
}

fn device_of(backend: Backend) -> Device {
    match backend {
        Backend::Cpu => Device::Cpu,
        Backend::Metal | Backend::Cuda => Device::Gpu,
    }
}

/// The request that loads a cell's model.
pub(crate) fn load_of(cell: &Cell, model_dir: &Path) -> Load {
    let model_dir = std::path::absolute(model_dir).unwrap_or_else(|_| model_dir.to_owned());
    Load {
        model_dir: model_dir.to_string_lossy().into_owned(),
        precision: cell.precision,
        device: device_of(cell.backend),
    }
}

/// What a session has shown of a cell, up to where it came.
pub(crate) struct Shown {
    pub(crate) hello: Option<Hello>,
    pub(crate) loaded: Option<Loaded>,
    pub(crate) measured: Option<Measured>,
}

impl Shown {
    /// Asks a session in which `loaded` is what loading the cell's model came to.
    pub(crate) fn ask(
        session: &mut Session,
        folder: &FolderIds,
        hello: Option<Hello>,
        loaded: Option<Loaded>,
        measure: Measure<'_>,
    ) -> Self {
        let mut shown = Self { hello, loaded, measured: None };
        if shown.loaded.is_some() {
            shown.measured = measure(session, folder, &shown.eos_ids(folder));
        }
        shown
    }

    /// What the driver says of the process, where it has loaded the cell's model and the cell is about its device.
    pub(crate) fn gpu_use(&self, cell: &Cell, session: &Session) -> Option<GpuUse> {
        let asked = self.loaded.is_some() && cell.backend == Backend::Cuda;
        asked.then(|| conditions::gpu_use(session.pid())).flatten()
    }

    /// The ids that end a reply, as the engine says; what the folder says of a model that was not loaded.
    fn eos_ids(&self, folder: &FolderIds) -> Vec<u32> {
        self.loaded
            .as_ref()
            .map_or_else(|| folder.eos.iter().copied().collect(), |loaded| loaded.eos_ids.clone())
    }

    /// Together with how the process ended.
    pub(crate) fn observation(
        self,
        (cell, role, engine): (&Cell, Role, &Artifact),
        folder: FolderIds,
        end: End,
    ) -> Observation {
        let eos_ids = self.eos_ids(&folder);
        let loaded = self.loaded.as_ref();
        Observation {
            role,
            engine: engine.name.clone(),
            device: loaded.map(|loaded| loaded.device),
            device_wanted: device_of(cell.backend),
            model_type: loaded.map(|loaded| loaded.model_type.clone()),
            vocab_size: loaded.map(|loaded| loaded.vocab_size),
            hello: self.hello,
            eos_ids,
            special_ids: folder.special.into_iter().collect(),
            exit: end.exit,
            measured: self.measured,
            memory: end.memory,
            gpu: end.gpu,
            wall_s: end.took.as_secs_f64(),
            command: end.command,
        }
    }
}

/// How a process ended at a cell.
pub(crate) struct End {
    pub(crate) exit: ProcessOutcome,
    pub(crate) memory: Option<Memory>,
    pub(crate) gpu: Option<GpuUse>,
    pub(crate) took: Duration,
    pub(crate) command: String,
}

/// Asks a session for what is wanted of a loaded model, given what its folder says and the ids that end a reply.
pub(crate) type Measure<'a> = &'a dyn Fn(&mut Session, &FolderIds, &[u32]) -> Option<Measured>;

#[allow(clippy::too_many_arguments, reason = "the two callers above differ only in the last two")]
fn run_session(
    cell: &Cell,
    role: Role,
    artifact: &Artifact,
    model_dir: &Path,
    options: &ObserveOptions,
    sink: &dyn EventSink,
    log_suffix: &str,
    measure: Measure<'_>,
) -> Result<Observation, ObserveError> {
    let step = format!("{} with {}{log_suffix}", cell.id, artifact.name);
    sink.emit(Event::StepStarted { step: step.clone() });
    let folder = FolderIds::read(model_dir)
        .map_err(|source| ObserveError::Model { cell: cell.id.to_string(), source })?;
    let mut artifact = artifact.clone();
    if let Some(ops) = cell.stretch().and_then(|stretch| stretch.ops_per_buffer)
        && role != Role::Reference
    {
        artifact.env.insert("MLX_MAX_OPS_PER_BUFFER".to_owned(), ops.to_string());
    }
    let artifact = &artifact;
    let timeout = timeout_of(cell, options);
    // A limit of address space means nothing to a process that maps a device's memory.
    let memory_limit_bytes =
        cell.budget.memory_bytes.filter(|_| cell.backend == Backend::Cpu && role != Role::Reference);
    let stderr_log = Some(options.log_dir.join(log_name(cell, role, artifact, log_suffix)));
    let mut session =
        Session::start(artifact, &SessionOptions { timeout, stderr_log, memory_limit_bytes }).map_err(
            |source| ObserveError::Start { engine: artifact.name.clone(), cell: cell.id.to_string(), source },
        )?;
    let hello = session.hello();
    let loaded = session.load(&load_of(cell, model_dir));
    let shown = Shown::ask(&mut session, &folder, hello, loaded, measure);
    let (memory, gpu) = (session.memory(), shown.gpu_use(cell, &session));
    let command = session.command().to_owned();
    let started = std::time::Instant::now() - session.elapsed();
    let exit = session.finish();
    let took = started.elapsed();
    sink.emit(Event::StepFinished { step, outcome: exit.label().to_owned(), took });
    Ok(shown.observation((cell, role, artifact), folder, End { exit, memory, gpu, took, command }))
}

fn log_name(cell: &Cell, role: Role, artifact: &Artifact, suffix: &str) -> String {
    let role = match role {
        Role::Candidate => "candidate",
        Role::Baseline => "baseline",
        Role::Reference => "reference",
    };
    let name = format!("{}.{role}.{}{suffix}.stderr.log", cell.id, artifact.name);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Mutex};

    use serde_json::Value;

    use super::*;
    use crate::{
        build::Provenance,
        engine::protocol::{Finish, Generated, Numbered, Precision, Request},
    };

    fn forced(prefill_len: usize, decode_steps: usize) -> ForcedIds {
        ForcedIds { ids: vec![7; prefill_len + decode_steps], prefill_len }
    }

    #[test]
    fn positions_hold_both_ends_of_the_prefill_and_the_decode_steps() {
        for (prefill_len, decode_steps, most, expected) in [
            (8, 4, 100, vec![0, 3, 7, 8, 9, 10, 11]),
            (8, 0, 100, vec![0, 3, 7]),
            (1, 2, 100, vec![0, 1, 2]),
            (2, 1, 100, vec![0, 1, 2]),
            // No room for all: the first decode steps, and the last.
            (8, 100, 6, vec![0, 3, 7, 8, 9, 107]),
            (8, 100, 4, vec![0, 3, 7, 107]),
        ] {
            assert_eq!(scored_positions(&forced(prefill_len, decode_steps), most), expected);
        }
        assert!(scored_positions(&ForcedIds { ids: vec![], prefill_len: 0 }, 9).is_empty());
    }

    #[test]
    fn positions_are_what_the_protocol_asks_for() {
        for prefill_len in 1..12 {
            for decode_steps in 0..12 {
                for most in 4..20 {
                    let positions = scored_positions(&forced(prefill_len, decode_steps), most);
                    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
                    assert!(positions.len() <= most);
                    assert_eq!(positions.last(), Some(&(prefill_len + decode_steps - 1)));
                    assert!(positions.contains(&(prefill_len - 1)));
                }
            }
        }
    }

    #[test]
    fn forced_ids_of_a_generation_are_its_prompt_and_its_output() {
        let generated = Generated {
            ids: vec![3, 4],
            text: String::new(),
            finish: Finish::Length,
            ttft_s: 0.0,
            token_times_s: vec![0.0],
            top: vec![vec![], vec![]],
        };
        let prompt = Tokens { ids: vec![1, 2], rendered: String::new() };
        let measured = Measured::Generation { prompt, generated };
        assert_eq!(ForcedIds::of(&measured), ForcedIds { ids: vec![1, 2, 3, 4], prefill_len: 2 });
    }

    #[derive(Default)]
    struct Recorded(Mutex<Vec<Event>>);

    impl EventSink for Recorded {
        fn emit(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    /// An engine that answers with the given lines in turn and keeps what it was asked in `asked`.
    struct Double {
        folder: tempfile::TempDir,
        artifact: Artifact,
    }

    impl Double {
        fn new(answers: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("config.json"), r#"{"vocab_size": 50, "eos_token_id": 2}"#)
                .unwrap();
            std::fs::write(
                folder.path().join("tokenizer.json"),
                r#"{"added_tokens": [{"id": 1, "special": true}, {"id": 3, "special": false}]}"#,
            )
            .unwrap();
            let mut script = format!("cd {}; ", folder.path().display());
            for (id, answer) in (1..).zip(answers) {
                script += &format!("read -r l; echo \"$l\" >> asked; echo '{{\"id\":{id},{answer}}}'; ");
            }
            let artifact = Artifact {
                name: "double".into(),
                program: "/bin/sh".into(),
                args: vec!["-c".into(), script],
                env: BTreeMap::new(),
                provenance: Provenance { digest: String::new(), inputs: Value::Null, log: Value::Null },
            };
            Self { folder, artifact }
        }

        fn observe(&self, probe: Probe, sink: &dyn EventSink) -> Observation {
            let cell = Cell::new("m", Precision::Source, 4, "p", probe, Backend::Cpu);
            let options =
                ObserveOptions { timeout: Duration::from_secs(20), log_dir: self.folder.path().join("logs") };
            observe(&cell, Role::Candidate, &self.artifact, self.folder.path(), &options, sink).unwrap()
        }

        fn asked(&self) -> Vec<Request> {
            let text = std::fs::read_to_string(self.folder.path().join("asked")).unwrap();
            text.lines().map(|line| serde_json::from_str::<Numbered<Request>>(line).unwrap().body).collect()
        }
    }

    const HELLO: &str =
        r#""result":"hello","protocol":1,"engine":"e","version":"1","mlx_version":"0","dialect":"d""#;
    const LOADED: &str = r#""result":"loaded","model_type":"t","vocab_size":50,"eos_ids":[2,9],"tensors":3,"device":"cpu","load_s":0.1"#;
    const GENERATED: &str = r#""result":"generated","ids":[5],"text":"five","finish":"stop","ttft_s":0.1,"token_times_s":[],"top":[[]]"#;
    const MEMORY: &str = r#""result":"memory","device_peak_bytes":1,"process_peak_bytes":2"#;
    const BYE: &str = r#""result":"bye""#;

    #[test]
    fn a_greedy_cell_is_observed_with_the_end_of_text_ignored() {
        let double = Double::new(&[HELLO, LOADED, GENERATED, MEMORY, BYE]);
        let sink = Recorded::default();
        let seen = double.observe(Probe::Greedy { max_tokens: 6 }, &sink);
        assert_eq!(seen.exit, ProcessOutcome::Clean);
        assert_eq!((seen.eos_ids, seen.special_ids), (vec![2, 9], vec![1]));
        assert_eq!((seen.device, seen.vocab_size), (Some(Device::Cpu), Some(50)));
        assert!(seen.memory.is_some() && seen.wall_s > 0.0);
        let Some(Measured::Generation { prompt, .. }) = seen.measured else { panic!("it generated") };
        assert_eq!(prompt.ids.len(), 4);
        let Request::Generate(generate) = &double.asked()[2] else { panic!("it was asked to generate") };
        assert_eq!((&generate.prompt_ids, generate.max_tokens), (&prompt.ids, 6));
        assert!(generate.stop_ids.is_empty());
        assert!(double.folder.path().join("logs/m_source_4_p_cpu.candidate.double.stderr.log").exists());
        let events = sink.0.into_inner().unwrap();
        assert!(matches!(&events[..], [Event::StepStarted { step }, Event::StepFinished { outcome, .. }]
                if step == "m/source/4/p/cpu with double" && outcome == "ok"));
    }

    #[test]
    fn an_abort_after_the_last_answer_costs_nothing_of_what_was_measured() {
        // As on CUDA: everything is answered, and then a stream is waited for that the driver has taken down already.
        let mut double = Double::new(&[HELLO, LOADED, GENERATED, MEMORY, BYE]);
        double.artifact.args[1] +=
            "echo 'cudaStreamSynchronize failed: driver shutting down' >&2; kill -ABRT $$";
        let seen = double.observe(Probe::Greedy { max_tokens: 6 }, &crate::event::Silent);
        let ProcessOutcome::AbortAtExit { code: None, signal: Some(6), last_lines } = &seen.exit else {
            panic!("{:?}", seen.exit)
        };
        assert_eq!(last_lines[..], ["cudaStreamSynchronize failed: driver shutting down"]);
        assert!(
            matches!(&seen.measured, Some(Measured::Generation { generated, .. }) if generated.ids == [5])
        );
    }

    #[test]
    fn a_task_cell_is_observed_with_the_models_own_template_and_stop_ids() {
        let tokens = r#""result":"tokens","ids":[8,9],"rendered":"<user>hi""#;
        let double = Double::new(&[HELLO, LOADED, tokens, GENERATED, MEMORY, BYE]);
        let probe = Probe::Task {
            prompt: "hi".into(),
            expect: vec![],
            shape: Default::default(),
            max_tokens: 6,
            allow: vec![],
        };
        let seen = double.observe(probe, &crate::event::Silent);
        let Some(Measured::Generation { prompt, generated }) = seen.measured else { panic!("it generated") };
        assert_eq!((prompt.rendered.as_str(), generated.text.as_str()), ("<user>hi", "five"));
        let asked = double.asked();
        assert_eq!(asked[2], Request::Tokenize(Tokenize::Chat { user: "hi".into() }));
        let Request::Generate(generate) = &asked[3] else { panic!("it was asked to generate") };
        assert_eq!((&generate.prompt_ids, &generate.stop_ids), (&vec![8, 9], &vec![2, 9]));
    }

    #[test]
    fn a_logits_cell_forces_ids_past_the_prompt() {
        let scored = r#""result":"scored","positions":[],"prefill_s":0.1,"decode_s":0.2"#;
        let double = Double::new(&[HELLO, LOADED, scored, MEMORY, BYE]);
        let seen = double.observe(Probe::Logits { decode_steps: 3, stretch: None }, &crate::event::Silent);
        let Some(Measured::Logits { ids, prefill_len, .. }) = seen.measured else { panic!("it scored") };
        assert_eq!((ids.len(), prefill_len), (7, 4));
        let Request::Score(score) = &double.asked()[2] else { panic!("it was asked to score") };
        assert_eq!(score.positions, [0, 1, 3, 4, 5, 6]);
        assert_eq!((score.logits, score.history), (LogitsDetail::Full, History::Kept));
    }

    #[test]
    fn a_refused_model_is_observed_up_to_there() {
        let refusal = r#""result":"error","kind":"bad-model","message":"tensor x is missing""#;
        let double = Double::new(&[HELLO, refusal]);
        let seen = double.observe(Probe::Greedy { max_tokens: 6 }, &crate::event::Silent);
        assert_eq!(
            seen.exit,
            ProcessOutcome::Refused { kind: "bad-model".into(), message: "tensor x is missing".into() }
        );
        assert!(seen.hello.is_some() && seen.measured.is_none() && seen.device.is_none());
        assert_eq!(double.asked().len(), 2);
    }

    #[test]
    fn a_folder_without_a_configuration_is_an_error_with_a_hint() {
        let double = Double::new(&[]);
        std::fs::remove_file(double.folder.path().join("config.json")).unwrap();
        let cell = Cell::new("m", Precision::Source, 4, "p", Probe::Greedy { max_tokens: 1 }, Backend::Cpu);
        let options =
            ObserveOptions { timeout: Duration::from_secs(1), log_dir: double.folder.path().into() };
        let (artifact, folder) = (&double.artifact, double.folder.path());
        let error =
            observe(&cell, Role::Baseline, artifact, folder, &options, &crate::event::Silent).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the model of cell `m/source/4/p/cpu`");
        assert!(error.hint().contains("remove it from the cache"));
    }
}
