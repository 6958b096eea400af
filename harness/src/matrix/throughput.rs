//! What interleaved, timed runs of two builds at one cell left behind, and how one block of them is run. How many there
//! are, and what they say, is not decided here.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    cell::Cell,
    observation::{Measured, Observation, ProcessOutcome, Role},
    run::ObserveError,
};
use crate::{
    engine::protocol::{Memory, Precision, Timed},
    tools::conditions::{self, Conditions},
};

/// What a comparison of speed goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// What a user waits for: prefill and decode rates.
    Wall,
    /// Processor time of a request: what a shared machine can tell, where a neighbour takes the processor away for as long as
    /// a whole run. It does not see waiting.
    Cpu,
}

/// What a throughput probe does and what it must show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ThroughputSpec {
    /// How many ids each request produces, end of text or not.
    pub max_tokens: usize,
    /// How many measured requests a process answers, after one that warms it up.
    pub requests: usize,
    /// What decides.
    pub clock: Clock,
    /// How many threads a product of matrices may use; the library's own choice where absent.
    pub threads: Option<usize>,
    /// The largest loss of speed that passes, as a share.
    pub max_regression: f64,
    /// The wanted chance to see a loss of that size.
    pub power: f64,
    /// The largest growth of peak memory, device and process, that passes, as a share.
    pub max_memory_growth: f64,
    /// The largest growth of held memory from request to request, beyond the baseline's, that passes.
    pub max_leak_bytes: u64,
    /// The most runs an arm of a session.
    #[serde(default = "all_runs")]
    pub max_runs: usize,
    /// How often the reference is timed, for the report.
    pub reference_runs: usize,
    /// The least decode rate that passes, in tokens a second.
    pub min_decode_tok_s: Option<f64>,
    /// The least prefill rate that passes, in tokens a second.
    pub min_prefill_tok_s: Option<f64>,
    /// The longest load that passes, in seconds.
    pub max_load_s: Option<f64>,
    /// Beside what else the candidate must not be slower.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_slower_than: Vec<Pace>,
}

/// Another model or number format, beside which the candidate must keep up at the same context and backend: its source
/// precision for a quantized model, the prequantized checkpoint for one that is quantized at load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pace {
    /// The other cell's model.
    pub model: String,
    /// The other cell's precision.
    pub precision: Precision,
    /// The largest loss of speed that passes, as a share.
    pub max_loss: f64,
}

/// As many as the rule ever makes; reports of before there was a choice.
fn all_runs() -> usize {
    usize::MAX
}

/// One measured request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedRequest {
    /// Ids and times.
    pub timed: Timed,
    /// What the process held after it.
    pub memory: Memory,
}

/// Everything that was run at a throughput cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThroughputRuns {
    /// The first session, and the confirmation where there was one.
    pub sessions: Vec<SessionRuns>,
    /// The reference's runs, for the report only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference: Vec<RunFigures>,
}

/// Blocks that were run one after the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionRuns {
    /// In order, discarded ones too.
    pub blocks: Vec<BlockRuns>,
}

/// A few runs in a row, and the conditions around them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockRuns {
    /// In order.
    pub runs: Vec<RunFigures>,
    /// Before the first run.
    pub before: Conditions,
    /// Between the runs.
    pub during: Vec<Conditions>,
    /// After the last run.
    pub after: Conditions,
    /// Why the block does not count.
    pub discarded: Option<String>,
}

/// The figures of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Whose process it was.
    pub role: Role,
    /// How long the model took to load.
    pub load_s: f64,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// One entry a measured request.
    pub requests: Vec<RequestFigures>,
    /// MLX's peak, whole process.
    pub device_peak_bytes: u64,
    /// The process's peak.
    pub process_peak_bytes: u64,
    /// Bytes in swap at the end, where the platform tells.
    pub swapped_bytes: Option<u64>,
    /// The beginning of a hash of all ids that were produced.
    pub ids_digest: String,
}

/// The figures of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestFigures {
    /// Time to the first id.
    pub ttft_s: f64,
    /// Time of each later id.
    pub token_times_s: Vec<f64>,
    /// Processor time, where the platform tells.
    pub cpu_s: Option<f64>,
    /// What MLX held afterwards.
    pub device_now_bytes: Option<u64>,
    /// What the process held afterwards: resident now, or its peak where only that is told.
    pub process_now_bytes: u64,
}

impl RunFigures {
    /// The figures of an observation; `None` where it came to none.
    pub fn of(observation: &Observation) -> Option<Self> {
        let Measured::Throughput { load_s, prompt_ids, requests } = observation.measured.as_ref()? else {
            return None;
        };
        if !matches!(observation.exit, ProcessOutcome::Clean | ProcessOutcome::AbortAtExit { .. }) {
            return None;
        }
        let last = &requests.last()?.memory;
        let mut hash = Sha256::new();
        for id in requests.iter().flat_map(|request| &request.timed.ids) {
            hash.update(id.to_le_bytes());
        }
        Some(Self {
            role: observation.role,
            load_s: *load_s,
            prompt_tokens: prompt_ids.len(),
            device_peak_bytes: last.device_peak_bytes,
            process_peak_bytes: last.process_peak_bytes,
            swapped_bytes: last.swapped_bytes,
            ids_digest: base16ct::lower::encode_string(&hash.finalize()[..8]),
            requests: requests
                .iter()
                .map(|TimedRequest { timed, memory }| RequestFigures {
                    ttft_s: timed.ttft_s,
                    // A tenth of a microsecond is more than any clock here tells, and keeps the record short.
                    token_times_s: timed.token_times_s.iter().map(|s| (s * 1e7).round() / 1e7).collect(),
                    cpu_s: timed.cpu_s,
                    device_now_bytes: memory.device_now_bytes,
                    process_now_bytes: memory.process_now_bytes.unwrap_or(memory.process_peak_bytes),
                })
                .collect(),
        })
    }

    /// Prompt tokens a second: all requests together.
    pub fn prefill_tok_s(&self) -> f64 {
        let time: f64 = self.requests.iter().map(|request| request.ttft_s).sum();
        (self.prompt_tokens * self.requests.len()) as f64 / time
    }

    /// Ids after the first a second: all requests together.
    pub fn decode_tok_s(&self) -> f64 {
        let times = || self.requests.iter().flat_map(|request| &request.token_times_s);
        times().count() as f64 / times().sum::<f64>()
    }
}

impl BlockRuns {
    /// Joules that the machine spent around each run, load and warm-up included, or why that is unknown.
    pub fn joules(&self) -> Vec<(Role, Result<f64, String>)> {
        let around = [&self.before].into_iter().chain(&self.during).chain([&self.after]);
        let readings: Vec<&Conditions> = around.collect();
        let spent = readings.windows(2).map(|pair| pair[0].energy.joules_until(&pair[1].energy));
        self.runs.iter().map(|run| run.role).zip(spent).collect()
    }
}

impl SessionRuns {
    /// The runs of a role in blocks that count.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &RunFigures> {
        let counted = self.blocks.iter().filter(|block| block.discarded.is_none());
        counted.flat_map(|block| &block.runs).filter(move |run| run.role == role)
    }
}

/// A block, and what ended it before its time.
#[derive(Debug)]
pub struct BlockOutcome {
    /// The block as far as it came.
    pub block: BlockRuns,
    /// The last observation of each role that ran, by order of their runs; an observation without figures is the last.
    pub observations: Vec<Observation>,
    /// Whether every run gave its figures.
    pub whole: bool,
}

/// Runs one process a role, one after the other, and reads the conditions around each.
///
/// # Errors
/// Where a process could not be started at all.
pub fn run_block(
    order: &[Role],
    mut observe: impl FnMut(Role) -> Result<Observation, ObserveError>,
    read: impl Fn() -> Conditions,
) -> Result<BlockOutcome, ObserveError> {
    let before = read();
    let mut readings = Vec::new();
    let (mut runs, mut observations) = (Vec::new(), Vec::new());
    let mut whole = true;
    for role in order {
        let observation = observe(*role)?;
        let figures = RunFigures::of(&observation);
        whole = figures.is_some();
        runs.extend(figures);
        observations.push(observation);
        readings.push(read());
        if !whole {
            break;
        }
    }
    let after = readings.pop().unwrap_or_else(|| before.clone());
    let around = || std::iter::once(&before).chain(&readings).chain(std::iter::once(&after));
    let discarded = around().zip(around().skip(1)).find_map(|(one, next)| conditions::changed(one, next));
    let block = BlockRuns { runs, before, during: readings, after, discarded };
    Ok(BlockOutcome { block, observations, whole })
}

/// Whether a cell is one of these.
pub fn spec_of(cell: &Cell) -> Option<&ThroughputSpec> {
    match &cell.probe {
        super::Probe::Throughput(spec) => Some(spec),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;

    use super::*;
    use crate::{
        engine::protocol::Device,
        tools::conditions::{Energy, EnergyCounter},
    };

    fn observation(role: Role, exit: ProcessOutcome) -> Observation {
        let timed = Timed { ids: vec![1, 2, 3], ttft_s: 0.5, token_times_s: vec![0.1, 0.3], cpu_s: None };
        let memory = Memory { device_peak_bytes: 7, process_peak_bytes: 9, ..Memory::default() };
        let requests = vec![TimedRequest { timed, memory }; 2];
        Observation {
            role,
            engine: "e".into(),
            hello: None,
            device: Some(Device::Cpu),
            device_wanted: Device::Cpu,
            gpu: None,
            model_type: None,
            vocab_size: None,
            eos_ids: vec![],
            special_ids: vec![],
            exit,
            measured: Some(Measured::Throughput { load_s: 0.2, prompt_ids: vec![5; 10], requests }),
            memory: None,
            wall_s: 1.0,
            command: String::new(),
        }
    }

    #[test]
    fn rates_are_over_all_requests() {
        let run = RunFigures::of(&observation(Role::Candidate, ProcessOutcome::Clean)).unwrap();
        assert!((run.prefill_tok_s() - 20.0).abs() < 1e-9 && (run.decode_tok_s() - 5.0).abs() < 1e-9);
        assert_eq!((run.requests[0].process_now_bytes, run.process_peak_bytes), (9, 9));
        assert_eq!(run.ids_digest.len(), 16);
        let refused = ProcessOutcome::Refused { kind: "failed".into(), message: String::new() };
        assert_eq!(RunFigures::of(&observation(Role::Candidate, refused)), None);
    }

    #[test]
    fn a_block_ends_at_a_run_without_figures() {
        let order = [Role::Candidate, Role::Baseline, Role::Candidate];
        let outcome = run_block(
            &order,
            |role| {
                let lost = ProcessOutcome::TimedOut { after_s: 1.0, last_lines: vec![] };
                Ok(observation(role, if role == Role::Baseline { lost } else { ProcessOutcome::Clean }))
            },
            Conditions::default,
        )
        .unwrap();
        assert!(!outcome.whole);
        assert_eq!((outcome.block.runs.len(), outcome.observations.len()), (1, 2));
    }

    #[test]
    fn every_run_has_its_energy() {
        let joules = Counter::new(0);
        let read = || {
            let so_far = joules.get();
            // The second run costs more than the first.
            joules.set(so_far + if so_far == 0 { 2_000_000 } else { 5_000_000 });
            let counter =
                EnergyCounter { name: "p".into(), microjoules: so_far, most_microjoules: 100_000_000 };
            Conditions { energy: Energy::Counters(vec![counter]), ..Conditions::default() }
        };
        let run = |role| Ok(observation(role, ProcessOutcome::Clean));
        let outcome = run_block(&[Role::Candidate, Role::Baseline], run, read).unwrap();
        assert_eq!(outcome.block.joules(), [(Role::Candidate, Ok(2.0)), (Role::Baseline, Ok(5.0))]);
    }

    #[test]
    fn a_change_in_the_middle_of_a_block_discards_it() {
        for (spoilt_at, discarded) in [(9, false), (1, true), (2, true)] {
            let readings = Counter::new(0);
            let read = || {
                let at = readings.replace(readings.get() + 1);
                // On battery for one reading only: before and after alone would not show it.
                let power = if at == spoilt_at { "battery" } else { "ac" };
                Conditions { power: Some(power.into()), ..Conditions::default() }
            };
            let run = |role| Ok(observation(role, ProcessOutcome::Clean));
            let outcome = run_block(&[Role::Candidate, Role::Baseline], run, read).unwrap();
            assert_eq!(outcome.block.discarded.is_some(), discarded, "{spoilt_at}");
            let session = SessionRuns { blocks: vec![outcome.block] };
            assert_eq!(session.of(Role::Baseline).count(), usize::from(!discarded));
        }
    }
}
