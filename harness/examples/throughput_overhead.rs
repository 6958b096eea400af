//! What speaking the protocol costs: decode rate through it beside the bare loop of the same runner, by turns.
//! `cargo run -p harness --example throughput_overhead -- TRIALS.json` takes the file of `throughput_trials` and uses its
//! candidate, model, context and probe; `comparisons` is the number of runs an arm.
#![allow(clippy::print_stdout, reason = "this program is its output")]

use std::{collections::BTreeMap, error::Error, path::PathBuf, time::Duration};

use harness::{
    engine::{
        Session, SessionOptions,
        protocol::{Device, Load, Precision, Time},
    },
    judge::throughput::{
        rule::{Limit, look},
        stats::{coefficient_of_variation, median},
    },
    tools::process::Invocation,
};
use serde::Deserialize;
use serde_json::Value;

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
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the trials' file is missing")?;
    let trials: Trials = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let load = Load {
        model_dir: trials.model_dir.to_string_lossy().into_owned(),
        precision: Precision::Source,
        device: Device::Cpu,
    };
    let prompt_ids = (0..trials.context).map(|i| (i * 37 + 11) % 4000).collect();
    let time = Time { prompt_ids, tokens: trials.probe.max_tokens };
    let (mut through, mut bare) = (Vec::new(), Vec::new());
    for run in 0..trials.comparisons {
        // Each goes first every other time.
        for first in [run % 2 == 0, run % 2 != 0] {
            if first {
                through.push(by_protocol(&trials, &load, &time)?);
            } else {
                bare.push(by_itself(&trials, &load, &time)?);
            }
        }
    }
    let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
    let looked = look(&logs(&through), &logs(&bare), &Limit { max_regression: 0.01, power: 0.95 });
    println!(
        "decode tok/s: {:.1} through the protocol (CV {:.2} %), {:.1} bare (CV {:.2} %), {} runs each",
        median(&through),
        100.0 * coefficient_of_variation(&through),
        median(&bare),
        100.0 * coefficient_of_variation(&bare),
        through.len()
    );
    println!(
        "ratio {:.4} (90 % confidence: {:.4} to {:.4}); overhead {:.2} %",
        looked.ratio,
        looked.lower,
        looked.upper.unwrap_or(f64::INFINITY),
        100.0 * (1.0 - looked.ratio)
    );
    Ok(())
}

fn by_protocol(trials: &Trials, load: &Load, time: &Time) -> Result<f64, Box<dyn Error>> {
    let artifact = harness::build::Artifact {
        name: "runner".to_owned(),
        program: trials.candidate.program.clone(),
        args: Vec::new(),
        env: trials.candidate.env.clone(),
        provenance: harness::build::Provenance {
            digest: String::new(),
            inputs: Value::Null,
            log: Value::Null,
        },
    };
    let options =
        SessionOptions { timeout: Duration::from_secs(600), stderr_log: None, memory_limit_bytes: None };
    let mut session = Session::start(&artifact, &options)?;
    let ended = |session: Session| format!("the engine ended: {}", session.finish().label());
    if session.hello().is_none() || session.load(load).is_none() || session.time(time).is_none() {
        return Err(ended(session).into());
    }
    let (mut ids, mut seconds) = (0, 0.0);
    for _ in 0..trials.probe.requests {
        let Some(timed) = session.time(time) else { return Err(ended(session).into()) };
        ids += timed.token_times_s.len();
        seconds += timed.token_times_s.iter().sum::<f64>();
    }
    session.finish();
    Ok(ids as f64 / seconds)
}

fn by_itself(trials: &Trials, load: &Load, time: &Time) -> Result<f64, Box<dyn Error>> {
    let mut invocation = Invocation::new(&trials.candidate.program)
        .args(["bare".to_owned(), serde_json::to_string(load)?, serde_json::to_string(time)?])
        .arg(trials.probe.requests.to_string());
    for (name, value) in &trials.candidate.env {
        invocation = invocation.env(name, value);
    }
    let runs: Vec<Bare> = serde_json::from_str(&invocation.run_ok()?.stdout)?;
    let ids: usize = runs.iter().map(|run| run.ids - 1).sum();
    Ok(ids as f64 / runs.iter().map(|run| run.decode_s).sum::<f64>())
}
