//! What speaking the protocol costs: a runner in its mode `bare` answers a timed generation through the protocol and then
//! makes the same one by its bare loop, by turns in one process, so that neither two processes nor two times are compared.
//! `cargo run -p harness --example throughput_overhead -- TRIALS.json` takes the file of `throughput_trials` and uses its
//! candidate, model, context and probe; `comparisons` is the number of processes, the probe's `requests` that of turns in each.
#![allow(clippy::print_stdout, reason = "this program is its output")]

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf, time::Duration};

use harness::{
    engine::{
        Session, SessionOptions,
        protocol::{Device, Load, Precision, Time},
    },
    judge::throughput::stats::median,
};
use serde::Deserialize;
use serde_json::Value;

/// One-sided 95 %: the point of the standard normal distribution.
const Z_95: f64 = 1.644_853_6;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Trials {
    candidate: Engine,
    model_dir: PathBuf,
    context: u32,
    probe: harness::matrix::throughput::ThroughputSpec,
    comparisons: usize,
}

#[derive(Deserialize)]
struct Engine {
    program: PathBuf,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Bare {
    ids: usize,
    decode_s: f64,
    cpu_s: Option<f64>,
}

/// One turn: the protocol's figures between those of the bare loop before and after it.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Seconds an id, through the protocol and bare.
    id_s: [f64; 2],
    /// Processor time of a request in the runner, the same.
    cpu_s: [f64; 2],
    /// Time of the whole request as the runner tells it.
    request_s: f64,
    /// Processor time that was spent here for it, waiting for the bare loop included.
    here_s: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the trials' file is missing")?;
    let trials: Trials = serde_json::from_str(&fs::read_to_string(path)?)?;
    let mut turns = Vec::new();
    for _ in 0..trials.comparisons {
        turns.extend(process(&trials)?);
    }
    let rates = |of: fn(&Turn) -> f64| median(&turns.iter().map(|turn| 1.0 / of(turn)).collect::<Vec<_>>());
    println!(
        "decode tok/s: {:.1} through the protocol, {:.1} in the bare loop; {} turns in {} processes",
        rates(|turn| turn.id_s[0]),
        rates(|turn| turn.id_s[1]),
        turns.len(),
        trials.comparisons
    );
    let told = |what: &str, of: fn(&Turn) -> f64| {
        let mut shares: Vec<f64> =
            turns.iter().map(|turn| 100.0 * of(turn)).filter(|share| share.is_finite()).collect();
        shares.sort_by(f64::total_cmp);
        let [low, high] = bounds(&shares);
        println!("{what}: {:.3} % (90 % confidence: {low:.3} to {high:.3} %)", median(&shares));
    };
    told("decoding takes longer through the protocol, wall clock, by", |t| t.id_s[0] / t.id_s[1] - 1.0);
    told("a request takes more processor time in the runner, by", |t| t.cpu_s[0] / t.cpu_s[1] - 1.0);
    told("of a request's time the harness's own processor time is", |t| t.here_s / t.request_s);
    Ok(())
}

/// The order statistics between which the median lies with 90 %: the sign test's, by its normal approximation.
fn bounds(sorted: &[f64]) -> [f64; 2] {
    let n = sorted.len() as f64;
    let at = |index: f64| sorted.get(index.max(0.0) as usize).or(sorted.last()).copied().unwrap_or(f64::NAN);
    let half = Z_95 * n.sqrt() / 2.0;
    [at((n / 2.0 - half).floor() - 1.0), at((n / 2.0 + half).ceil())]
}

fn process(trials: &Trials) -> Result<Vec<Turn>, Box<dyn Error>> {
    let artifact = harness::build::Artifact {
        name: "runner".to_owned(),
        program: trials.candidate.program.clone(),
        args: vec!["bare".to_owned()],
        env: trials.candidate.env.clone(),
        provenance: harness::build::Provenance {
            digest: String::new(),
            inputs: Value::Null,
            log: Value::Null,
        },
    };
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("stderr.log");
    let options = SessionOptions {
        timeout: Duration::from_secs(600),
        stderr_log: Some(log.clone()),
        memory_limit_bytes: None,
    };
    let load = Load {
        model_dir: trials.model_dir.to_string_lossy().into_owned(),
        precision: Precision::Source,
        device: Device::Cpu,
    };
    let prompt_ids = (0..trials.context).map(|i| (i * 37 + 11) % 4000).collect();
    let time = Time { prompt_ids, tokens: trials.probe.max_tokens };
    let mut session = Session::start(&artifact, &options)?;
    let ended = |session: Session| format!("the engine ended: {}", session.finish().label());
    if session.hello().is_none() || session.load(&load).is_none() {
        return Err(ended(session).into());
    }
    let mut seen = Vec::new();
    // One more, since every turn but the first lies between two bare loops.
    for _ in 0..=trials.probe.requests {
        let here = own_cpu_s();
        let Some(timed) = session.time(&time) else { return Err(ended(session).into()) };
        seen.push((timed, own_cpu_s() - here));
    }
    session.finish();
    let text = fs::read_to_string(&log)?;
    let bare: Vec<Bare> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if bare.len() != seen.len() {
        return Err(format!("{} bare loops beside {} requests:\n{text}", bare.len(), seen.len()).into());
    }
    let middle = |one: f64, other: f64| (one * other).sqrt();
    let id_s = |bare: &Bare| bare.decode_s / (bare.ids - 1) as f64;
    Ok(seen[1..]
        .iter()
        .zip(bare.windows(2))
        .map(|((timed, here_s), around)| {
            let decode_s: f64 = timed.token_times_s.iter().sum();
            let cpu = |bare: &Bare| bare.cpu_s.unwrap_or(f64::NAN);
            Turn {
                id_s: [
                    decode_s / timed.token_times_s.len() as f64,
                    middle(id_s(&around[0]), id_s(&around[1])),
                ],
                cpu_s: [timed.cpu_s.unwrap_or(f64::NAN), middle(cpu(&around[0]), cpu(&around[1]))],
                request_s: timed.ttft_s + decode_s,
                here_s: *here_s,
            }
        })
        .collect())
}

/// Processor time of all threads of this process, where Linux tells.
fn own_cpu_s() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}
