//! Is the candidate slower or hungrier than the baseline? Interleaved runs, a rank test with an effect floor, a confirmation
//! in a fresh session, and "inconclusive" where the noise would have hidden a loss as large as the limit.

pub mod pace;
pub mod rule;
pub mod simulate;
pub mod stats;

use serde::{Deserialize, Serialize};
use serde_json::json;

use self::{
    rule::{ALPHA, FEWEST_RUNS, Limit, Look, Next, Outcome, look, outcome, two_stage_p},
    stats::{coefficient_of_variation, mann_whitney_p_less, median, quantile, theil_sen_slope},
};
use super::{
    CellJudgement, CellObservations, Finding, ROLES, ReferenceState, Sameness, Severity, Subject, codes,
    hard, known,
};
use crate::matrix::{
    Cell, Role,
    throughput::{Clock, RunFigures, SessionRuns, ThroughputRuns, ThroughputSpec},
};

pub use super::codes::{MEMORY_LEAK as LEAK, THROUGHPUT_BOUND as BOUND, THROUGHPUT_REGRESSION as REGRESSION};

/// A token that takes this many times the median is a stall.
pub const STALL: f64 = 3.0;

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Tokens a second after the first.
    Decode,
    /// Prompt tokens a second.
    Prefill,
    /// Processor time of a request, in seconds.
    Cpu,
    /// Peak of MLX's memory, in bytes.
    DeviceMemory,
    /// Peak of the process's memory, in bytes.
    ProcessMemory,
    /// Time to the first token, in seconds.
    Ttft,
    /// Time to load the model, in seconds.
    Load,
    /// Median time of a token after the first, in seconds.
    TokenMedian,
    /// 95th percentile of the same.
    TokenP95,
    /// 99th percentile of the same.
    TokenP99,
    /// Share of tokens that take more than [`STALL`] times the median.
    Stalls,
}

/// Every figure, the gated ones first.
pub const METRICS: [Metric; 11] = [
    Metric::Decode,
    Metric::Prefill,
    Metric::Cpu,
    Metric::DeviceMemory,
    Metric::ProcessMemory,
    Metric::Ttft,
    Metric::Load,
    Metric::TokenMedian,
    Metric::TokenP95,
    Metric::TokenP99,
    Metric::Stalls,
];

/// An arm's runs in one number each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArmSummary {
    /// The median over runs, in the metric's unit.
    pub median: f64,
    /// Standard deviation over mean, over runs.
    pub cv: f64,
    /// How many runs.
    pub runs: usize,
}

/// One figure, candidate beside baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Which figure.
    pub metric: Metric,
    /// What it has to show; absent where it is only told.
    pub limit: Option<Limit>,
    /// The candidate's runs.
    pub candidate: ArmSummary,
    /// The baseline's runs.
    pub baseline: ArmSummary,
    /// The reference's runs.
    pub reference: Option<ArmSummary>,
    /// The first session, for gated figures.
    pub first: Option<Look>,
    /// The confirmation, where there was one.
    pub confirmation: Option<Look>,
    /// What follows, for gated figures.
    pub outcome: Option<Outcome>,
    /// The p value of the whole procedure, for gated figures.
    pub p: Option<f64>,
}

/// What a throughput cell says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputJudgement {
    /// One entry a figure, gated ones first.
    pub metrics: Vec<MetricComparison>,
    /// What follows from all gated figures.
    pub outcome: Outcome,
    /// One sentence on why.
    pub reason: String,
    /// Blocks that did not count, over all sessions.
    pub discarded_blocks: usize,
    /// Growth of held memory a request, in bytes: candidate and baseline, medians over runs.
    pub growth_bytes: [f64; 2],
    /// Energy, for the report.
    #[serde(default)]
    pub energy: EnergyOfRuns,
}

/// What a run of each build cost in energy, load and warm-up included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergyOfRuns {
    /// Medians over runs.
    Joules {
        /// Of the candidate.
        candidate: f64,
        /// Of the baseline.
        baseline: f64,
    },
    /// Nothing told it.
    Unknown {
        /// Why.
        reason: String,
    },
}

impl Default for EnergyOfRuns {
    fn default() -> Self {
        Self::Unknown { reason: "it was not recorded".to_owned() }
    }
}

impl Metric {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode, tok/s",
            Self::Prefill => "prefill, tok/s",
            Self::Cpu => "processor time a request, ms",
            Self::DeviceMemory => "peak device memory, MiB",
            Self::ProcessMemory => "peak process memory, MiB",
            Self::Ttft => "time to first token, ms",
            Self::Load => "load, ms",
            Self::TokenMedian => "token, median, ms",
            Self::TokenP95 => "token, p95, ms",
            Self::TokenP99 => "token, p99, ms",
            Self::Stalls => "stalls, % of tokens",
        }
    }

    /// A value in the unit that [`Metric::name`] tells.
    pub fn shown(self, value: f64) -> f64 {
        match self {
            Self::Decode | Self::Prefill => value,
            Self::DeviceMemory | Self::ProcessMemory => value / f64::from(1 << 20),
            Self::Stalls => value * 100.0,
            _ => value * 1e3,
        }
    }

    /// The figure of one run.
    pub fn of(self, run: &RunFigures) -> f64 {
        let times = || -> Vec<f64> {
            run.requests.iter().flat_map(|request| request.token_times_s.iter().copied()).collect()
        };
        match self {
            Self::Decode => run.decode_tok_s(),
            Self::Prefill => run.prefill_tok_s(),
            Self::Cpu => {
                let times: Vec<f64> = run.requests.iter().filter_map(|request| request.cpu_s).collect();
                if times.is_empty() { f64::NAN } else { times.iter().sum::<f64>() / times.len() as f64 }
            }
            Self::DeviceMemory => run.device_peak_bytes as f64,
            Self::ProcessMemory => run.process_peak_bytes as f64,
            Self::Ttft => median(&run.requests.iter().map(|request| request.ttft_s).collect::<Vec<_>>()),
            Self::Load => run.load_s,
            Self::TokenMedian => median(&times()),
            Self::TokenP95 => quantile(&times(), 0.95),
            Self::TokenP99 => quantile(&times(), 0.99),
            Self::Stalls => {
                let times = times();
                let slow = STALL * median(&times);
                times.iter().filter(|time| **time > slow).count() as f64 / times.len().max(1) as f64
            }
        }
    }

    /// What the matrix asks of this figure.
    fn limit(self, spec: &ThroughputSpec) -> Option<Limit> {
        let max_regression = match self {
            Self::Decode | Self::Prefill if spec.clock == Clock::Wall => spec.max_regression,
            // A loss of speed of s takes 1 / (1 - s) of the time, and the goodness is the inverse of the time.
            Self::Cpu if spec.clock == Clock::Cpu => spec.max_regression,
            // Growing by g is keeping 1 / (1 + g) of the goodness.
            Self::DeviceMemory | Self::ProcessMemory => {
                spec.max_memory_growth / (1.0 + spec.max_memory_growth)
            }
            _ => return None,
        };
        Some(Limit { max_regression, power: spec.power })
    }

    /// The logarithm of a figure's goodness: more is better.
    fn goodness(self, value: f64) -> f64 {
        match self {
            Self::Decode | Self::Prefill => value.ln(),
            _ => -value.ln(),
        }
    }
}

/// A look at every gated figure of a session.
pub fn looks(session: &SessionRuns, spec: &ThroughputSpec) -> Vec<(Look, Limit)> {
    let gated = METRICS.iter().filter_map(|metric| Some((*metric, metric.limit(spec)?)));
    gated.map(|(metric, limit)| (look_at(metric, session, &limit), limit)).collect()
}

/// What to do next in a session.
pub fn next(session: &SessionRuns, spec: &ThroughputSpec) -> Next {
    rule::next(&looks(session, spec), spec.max_runs)
}

/// Judges everything that was run at a throughput cell. Runs that were not by turns say nothing about speed.
pub(super) fn judge(cell: &Cell, spec: &ThroughputSpec, seen: &CellObservations) -> CellJudgement {
    let none = ThroughputRuns::default();
    let runs = seen.throughput.as_ref().unwrap_or(&none);
    let mut findings: Vec<Finding> =
        ROLES.iter().filter_map(|role| seen.of(*role)).flat_map(|o| hard::check(cell, o, seen)).collect();
    let metrics: Vec<MetricComparison> =
        METRICS.iter().filter_map(|metric| compare(*metric, runs, spec)).collect();
    let same_ids = same_work(runs);
    if !same_ids && !metrics.is_empty() {
        findings.push(Finding {
            code: codes::THROUGHPUT_OTHER_IDS.into(),
            subject: Subject::Harness,
            severity: Severity::Warning,
            message: "candidate and baseline produce different ids, so that their speeds are those of different work"
                .into(),
            evidence: json!({}),
        });
    }
    let mut stated = Vec::new();
    let mut worse = Vec::new();
    for m in metrics.iter().filter(|m| m.outcome == Some(Outcome::Worse)) {
        let mut finding = regression(m, same_ids);
        let known = same_ids
            && m.confirmation.is_some_and(|look| known::apply_to_loss(seen, 1.0 - look.ratio, &mut finding));
        if known {
            stated.push(sentence(m))
        } else {
            worse.push(m)
        }
        findings.push(finding);
    }
    findings.extend(metrics.iter().filter_map(|m| bound(m, spec)));
    let growth = [Role::Candidate, Role::Baseline].map(|role| growths(runs, role));
    findings.extend(leak(&growth, spec));

    let open: Vec<_> = metrics.iter().filter(|m| m.outcome == Some(Outcome::Inconclusive)).collect();
    let (outcome, reason) = if metrics.is_empty() {
        (Outcome::Inconclusive, "no block of runs gave figures that count".to_owned())
    } else if !worse.is_empty() && same_ids {
        (Outcome::Worse, worse.iter().map(|m| sentence(m)).collect::<Vec<_>>().join("; "))
    } else if let Some(m) = worse.first() {
        (Outcome::Inconclusive, format!("{}, but the builds produce different ids", sentence(m)))
    } else if let Some(m) = open.first() {
        (Outcome::Inconclusive, why_open(m))
    } else if !stated.is_empty() {
        (Outcome::Pass, format!("slower or hungrier as the matrix states: {}", stated.join("; ")))
    } else {
        let reason =
            "the candidate is no slower and no hungrier than the baseline, within the limits".to_owned();
        (Outcome::Pass, reason)
    };
    let discarded = runs.sessions.iter().flat_map(|s| &s.blocks).filter(|b| b.discarded.is_some()).count();
    CellJudgement {
        findings,
        reference: ReferenceState::NotPossible { reason: "throughput is compared with the baseline".into() },
        ran: ROLES.into_iter().filter(|role| seen.of(*role).is_some()).collect(),
        sameness: Sameness::NotNeeded,
        throughput: Some(ThroughputJudgement {
            metrics,
            outcome,
            reason,
            discarded_blocks: discarded,
            growth_bytes: growth.map(|slopes| if slopes.is_empty() { 0.0 } else { median(&slopes) }),
            energy: energy(runs),
        }),
        ..CellJudgement::empty()
    }
}

fn energy(runs: &ThroughputRuns) -> EnergyOfRuns {
    let blocks = runs.sessions.iter().flat_map(|session| &session.blocks);
    let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
    for (role, spent) in blocks.filter(|block| block.discarded.is_none()).flat_map(|block| block.joules()) {
        match (role, spent) {
            (_, Err(reason)) => return EnergyOfRuns::Unknown { reason },
            (Role::Candidate, Ok(joules)) => candidate.push(joules),
            (_, Ok(joules)) => baseline.push(joules),
        }
    }
    if candidate.is_empty() || baseline.is_empty() {
        return EnergyOfRuns::Unknown { reason: "no run counts".to_owned() };
    }
    EnergyOfRuns::Joules { candidate: median(&candidate), baseline: median(&baseline) }
}

fn look_at(metric: Metric, session: &SessionRuns, limit: &Limit) -> Look {
    let [candidate, baseline] = [Role::Candidate, Role::Baseline].map(|role| {
        session
            .of(role)
            .map(|run| metric.goodness(metric.of(run)))
            .filter(|g| g.is_finite())
            .collect::<Vec<_>>()
    });
    look(&candidate, &baseline, limit)
}

fn compare(metric: Metric, runs: &ThroughputRuns, spec: &ThroughputSpec) -> Option<MetricComparison> {
    let of = |role| -> Vec<f64> {
        runs.sessions.iter().flat_map(|session| session.of(role)).map(|run| metric.of(run)).collect()
    };
    let (candidate, baseline) = (summarized(&of(Role::Candidate))?, summarized(&of(Role::Baseline))?);
    let reference: Vec<f64> = runs.reference.iter().map(|run| metric.of(run)).collect();
    let limit = metric.limit(spec);
    let looked = |at: usize| Some(look_at(metric, runs.sessions.get(at)?, &limit?));
    let (first, confirmation) = (looked(0), looked(1));
    // A session that another figure made red says nothing against one that was sound before.
    let confirmation = confirmation.filter(|_| first.is_some_and(|f| f.state == rule::State::Worse));
    Some(MetricComparison {
        metric,
        limit,
        candidate,
        baseline,
        reference: summarized(&reference),
        first,
        confirmation,
        outcome: first.map(|first| outcome(first.state, confirmation.map(|c| c.state))),
        p: first.map(|first| two_stage_p(&first, confirmation.as_ref())),
    })
}

fn summarized(values: &[f64]) -> Option<ArmSummary> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    (!finite.is_empty()).then(|| ArmSummary {
        median: median(&finite),
        // Where nothing is ever counted there is no mean to divide by.
        cv: Some(coefficient_of_variation(&finite)).filter(|cv| cv.is_finite()).unwrap_or(0.0),
        runs: finite.len(),
    })
}

/// Whether every run of both builds produced the same ids.
fn same_work(runs: &ThroughputRuns) -> bool {
    let all = || runs.sessions.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.runs);
    all().zip(all().skip(1)).all(|(one, next)| one.ids_digest == next.ids_digest)
}

fn sentence(m: &MetricComparison) -> String {
    let look = m.confirmation.or(m.first).expect("only gated figures are told");
    format!(
        "{}: {:.1} against the baseline's {:.1}, a ratio of {:.3} in goodness, seen in two sessions",
        m.metric.name(),
        m.metric.shown(m.candidate.median),
        m.metric.shown(m.baseline.median),
        look.ratio
    )
}

fn why_open(m: &MetricComparison) -> String {
    let (Some(first), Some(limit)) = (m.first, m.limit) else { return "too few runs".to_owned() };
    let (loss, limit) = (first.detectable * 100.0, limit.max_regression * 100.0);
    let noise = first.spread * 100.0;
    let name = m.metric.name();
    if m.confirmation.is_some() {
        return format!("{name}: slower in the first session, and the second could not tell");
    }
    format!(
        "{name}: {} runs with a spread of {noise:.1} % could have seen a loss of {loss:.1} % or more, and cannot exclude \
         one of {limit:.1} %, the limit",
        first.runs
    )
}

fn regression(m: &MetricComparison, same_ids: bool) -> Finding {
    Finding {
        code: REGRESSION.into(),
        subject: Role::Candidate.into(),
        severity: if same_ids { Severity::Error } else { Severity::Warning },
        message: sentence(m),
        evidence: json!({ "comparison": m }),
    }
}

fn bound(m: &MetricComparison, spec: &ThroughputSpec) -> Option<Finding> {
    let value = m.candidate.median;
    let (bound, word) = match m.metric {
        Metric::Decode => (spec.min_decode_tok_s.filter(|least| value < *least)?, "at least"),
        Metric::Prefill => (spec.min_prefill_tok_s.filter(|least| value < *least)?, "at least"),
        Metric::Load => (spec.max_load_s.filter(|most| value > *most)?, "at most"),
        _ => return None,
    };
    Some(Finding {
        code: BOUND.into(),
        subject: Role::Candidate.into(),
        severity: Severity::Error,
        message: format!(
            "{}: the candidate's median is {:.1}, and the matrix asks for {word} {:.1}",
            m.metric.name(),
            m.metric.shown(value),
            m.metric.shown(bound)
        ),
        evidence: json!({ "value": value, "bound": bound }),
    })
}

/// Growth of held memory a request, in bytes, one entry a run: the larger of what the process and what MLX holds.
fn growths(runs: &ThroughputRuns, role: Role) -> Vec<f64> {
    runs.sessions
        .iter()
        .flat_map(|session| session.of(role))
        .map(|run| {
            let process: Vec<f64> = run.requests.iter().map(|r| r.process_now_bytes as f64).collect();
            let device: Vec<f64> =
                run.requests.iter().filter_map(|r| Some(r.device_now_bytes? as f64)).collect();
            theil_sen_slope(&process).max(theil_sen_slope(&device))
        })
        .collect()
}

fn leak([candidate, baseline]: &[Vec<f64>; 2], spec: &ThroughputSpec) -> Option<Finding> {
    if candidate.len() < FEWEST_RUNS || baseline.len() < FEWEST_RUNS {
        return None;
    }
    let (grows, beside) = (median(candidate), median(baseline));
    let surely = mann_whitney_p_less(baseline, candidate) < ALPHA;
    (surely && grows - beside.max(0.0) > spec.max_leak_bytes as f64).then(|| Finding {
        code: LEAK.into(),
        subject: Role::Candidate.into(),
        severity: Severity::Error,
        message: format!(
            "the candidate holds {:.0} KiB more after every request, the baseline {:.0} KiB",
            grows / 1024.0,
            beside / 1024.0
        ),
        evidence: json!({ "candidate_bytes": candidate, "baseline_bytes": baseline }),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        config::spec::{Known, KnownWeight, Thresholds},
        engine::protocol::Precision,
        judge::{judge_cell, toy},
        matrix::{
            Backend, Probe,
            throughput::{BlockRuns, RequestFigures},
        },
        tools::conditions::Conditions,
    };

    pub(crate) fn spec() -> ThroughputSpec {
        ThroughputSpec {
            max_tokens: 4,
            requests: 4,
            clock: Clock::Wall,
            threads: None,
            max_regression: 0.05,
            power: 0.95,
            max_memory_growth: 0.1,
            max_leak_bytes: 256 << 10,
            max_runs: rule::MOST_RUNS,
            reference_runs: 0,
            min_decode_tok_s: None,
            min_prefill_tok_s: None,
            max_load_s: None,
            no_slower_than: vec![],
        }
    }

    /// How a build differs from one that makes 1,000 tokens a second.
    #[derive(Clone, Copy)]
    pub(crate) struct Build {
        pub(crate) slow: f64,
        pub(crate) bytes: u64,
        pub(crate) leak: u64,
        pub(crate) ids: &'static str,
    }

    pub(crate) const SOUND: Build = Build { slow: 1.0, bytes: 100 << 20, leak: 0, ids: "a" };

    fn run(role: Role, build: Build, jitter: f64) -> RunFigures {
        let request = |at: u64| RequestFigures {
            ttft_s: 0.01 * (1.0 + jitter),
            token_times_s: vec![0.001 * build.slow * (1.0 + jitter); 3],
            cpu_s: Some(0.02 * build.slow * (1.0 + jitter)),
            device_now_bytes: Some(50 << 20),
            process_now_bytes: build.bytes + at * build.leak,
        };
        RunFigures {
            role,
            load_s: 0.1,
            prompt_tokens: 8,
            requests: (0..4).map(request).collect(),
            device_peak_bytes: build.bytes / 2,
            process_peak_bytes: build.bytes,
            swapped_bytes: Some(0),
            ids_digest: build.ids.into(),
        }
    }

    pub(crate) fn session(candidate: Build, baseline: Build, runs: usize, spread: f64) -> SessionRuns {
        let block = |at: usize| {
            let jitter = |n: usize| spread * (((n * 7) % 11) as f64 / 5.0 - 1.0);
            BlockRuns {
                runs: vec![
                    run(Role::Candidate, candidate, jitter(4 * at)),
                    run(Role::Baseline, baseline, jitter(4 * at + 1)),
                    run(Role::Baseline, baseline, jitter(4 * at + 2)),
                    run(Role::Candidate, candidate, jitter(4 * at + 3)),
                ],
                before: Conditions::default(),
                during: vec![],
                after: Conditions::default(),
                discarded: None,
            }
        };
        SessionRuns { blocks: (0..runs / 2).map(block).collect() }
    }

    pub(crate) fn cell_of(model: &str, spec: &ThroughputSpec) -> Cell {
        Cell::new(model, Precision::Source, 8, "speed", Probe::Throughput(spec.clone()), Backend::Cpu)
    }

    fn judged(sessions: Vec<SessionRuns>, spec: &ThroughputSpec) -> CellJudgement {
        let cell = cell_of("m", spec);
        let runs = ThroughputRuns { sessions, reference: vec![] };
        let seen = CellObservations { throughput: Some(runs), ..CellObservations::default() };
        crate::judge::judge_cell(&cell, &seen, &crate::config::spec::Thresholds::default())
    }

    fn twice(candidate: Build, baseline: Build, spread: f64) -> CellJudgement {
        judged(
            vec![session(candidate, baseline, 12, spread), session(candidate, baseline, 12, spread)],
            &spec(),
        )
    }

    fn codes(judgement: &CellJudgement) -> Vec<(&str, Severity)> {
        judgement.findings.iter().map(|f| (f.code.as_str(), f.severity)).collect()
    }

    fn outcome_of(judgement: &CellJudgement) -> (Outcome, &str) {
        let speed = judgement.throughput.as_ref().unwrap();
        (speed.outcome, &speed.reason)
    }

    #[test]
    fn equal_builds_pass_and_a_slow_one_is_an_error_of_the_candidate() {
        let same = twice(SOUND, SOUND, 0.01);
        assert_eq!((outcome_of(&same).0, codes(&same)), (Outcome::Pass, vec![]));
        let slow = twice(Build { slow: 1.08, ..SOUND }, SOUND, 0.01);
        assert_eq!(codes(&slow), [(REGRESSION, Severity::Error)]);
        let (outcome, why) = outcome_of(&slow);
        assert_eq!(outcome, Outcome::Worse);
        assert!(why.starts_with("decode, tok/s: 92") && why.contains("in two sessions"), "{why}");
        let metrics = &slow.throughput.as_ref().unwrap().metrics;
        assert_eq!(metrics.len(), METRICS.len());
        assert_eq!(metrics[1].outcome, Some(Outcome::Pass), "the prefill is as fast");
        assert!(metrics[0].p.unwrap() < 1e-4);
    }

    #[test]
    fn where_processor_time_decides_the_rates_are_only_told() {
        let slow = Build { slow: 1.08, ..SOUND };
        let sessions = || vec![session(slow, SOUND, 12, 0.01), session(slow, SOUND, 12, 0.01)];
        let cpu = judged(sessions(), &ThroughputSpec { clock: Clock::Cpu, ..spec() });
        assert_eq!(codes(&cpu), [(REGRESSION, Severity::Error)]);
        assert!(outcome_of(&cpu).1.starts_with("processor time a request"), "{:?}", outcome_of(&cpu));
    }

    #[test]
    fn a_loss_that_the_matrix_states_is_told_and_a_larger_one_is_a_regression() {
        let slow = Build { slow: 1.25, ..SOUND };
        let with_limit = |build: &str, up_to: f64| {
            let sessions = vec![session(slow, SOUND, 12, 0.01), session(slow, SOUND, 12, 0.01)];
            let other = toy::observe(&toy::logits_cell("m"), Role::Candidate, "other", toy::Fault::None);
            let seen = CellObservations {
                candidate: Some(other),
                throughput: Some(ThroughputRuns { sessions, reference: vec![] }),
                known: vec![Known {
                    build: build.into(),
                    cells: "*".into(),
                    codes: vec![REGRESSION.into()],
                    why: "it does more".into(),
                    weight: KnownWeight::Limit,
                    up_to: Some(up_to),
                }],
                ..CellObservations::default()
            };
            judge_cell(&cell_of("m", &spec()), &seen, &Thresholds::default())
        };
        let stated = with_limit("other", 0.25);
        assert_eq!(codes(&stated), [(REGRESSION, Severity::Warning)]);
        assert!(stated.findings[0].message.ends_with("; this is known of `other`: it does more"));
        let (outcome, why) = outcome_of(&stated);
        assert_eq!(outcome, Outcome::Pass);
        assert!(why.starts_with("slower or hungrier as the matrix states: decode, tok/s: 799.2"), "{why}");
        for unstated in [with_limit("other", 0.15), with_limit("another", 0.25)] {
            assert_eq!(codes(&unstated), [(REGRESSION, Severity::Error)]);
            assert_eq!(outcome_of(&unstated).0, Outcome::Worse);
        }
    }

    #[test]
    fn swapped_builds_are_no_regression() {
        let fast = twice(SOUND, Build { slow: 1.08, ..SOUND }, 0.01);
        assert_eq!((outcome_of(&fast).0, codes(&fast)), (Outcome::Pass, vec![]));
    }

    #[test]
    fn one_red_session_or_too_much_noise_is_inconclusive_and_says_what_could_be_seen() {
        let slow = Build { slow: 1.08, ..SOUND };
        let once = judged(vec![session(slow, SOUND, 12, 0.01)], &spec());
        assert_eq!(outcome_of(&once).0, Outcome::Inconclusive);
        let noisy = judged(vec![session(SOUND, SOUND, 12, 0.5)], &spec());
        let (outcome, why) = outcome_of(&noisy);
        assert_eq!(outcome, Outcome::Inconclusive);
        assert!(why.contains("12 runs with a spread of") && why.contains("5.0 %, the limit"), "{why}");
        assert_eq!(outcome_of(&judged(vec![], &spec())).0, Outcome::Inconclusive);
    }

    #[test]
    fn memory_that_grew_and_memory_that_leaks_are_told_apart() {
        let fat = twice(Build { bytes: 130 << 20, ..SOUND }, SOUND, 0.01);
        assert_eq!(codes(&fat), [(REGRESSION, Severity::Error), (REGRESSION, Severity::Error)]);
        let leaky = twice(Build { leak: 1 << 20, ..SOUND }, SOUND, 0.01);
        assert_eq!(codes(&leaky), [(LEAK, Severity::Error)]);
        assert!(leaky.findings[0].message.contains("1024 KiB more after every request, the baseline 0 KiB"));
        let both = twice(Build { leak: 1 << 20, ..SOUND }, Build { leak: 1 << 20, ..SOUND }, 0.01);
        assert_eq!(codes(&both), []);
    }

    #[test]
    fn a_loss_beside_other_ids_is_not_held_against_the_candidate() {
        let other = twice(Build { slow: 1.08, ids: "b", ..SOUND }, SOUND, 0.01);
        assert_eq!(
            codes(&other),
            [("throughput-other-ids", Severity::Warning), (REGRESSION, Severity::Warning)]
        );
        assert_eq!(outcome_of(&other).0, Outcome::Inconclusive);
    }

    #[test]
    fn absolute_bounds_are_held_whatever_the_baseline_does() {
        let asked = ThroughputSpec { min_decode_tok_s: Some(2000.0), max_load_s: Some(0.05), ..spec() };
        let both = judged(vec![session(SOUND, SOUND, 12, 0.01)], &asked);
        assert_eq!(codes(&both), [(BOUND, Severity::Error), (BOUND, Severity::Error)]);
        assert!(both.findings[0].message.contains("the matrix asks for at least 2000.0"));
        let met = ThroughputSpec { min_decode_tok_s: Some(900.0), min_prefill_tok_s: Some(700.0), ..spec() };
        assert_eq!(codes(&judged(vec![session(SOUND, SOUND, 12, 0.01)], &met)), []);
    }

    #[test]
    fn a_discarded_block_does_not_count() {
        let mut with = session(SOUND, SOUND, 12, 0.01);
        let mut spoilt = session(Build { slow: 9.0, ..SOUND }, SOUND, 2, 0.0).blocks.remove(0);
        spoilt.discarded = Some("the governor changed from a to b".into());
        with.blocks.push(spoilt);
        let judgement = judged(vec![with], &spec());
        let speed = judgement.throughput.as_ref().unwrap();
        assert_eq!((speed.outcome, speed.discarded_blocks), (Outcome::Pass, 1));
        assert_eq!(speed.metrics[0].candidate.runs, 12);
    }
}
