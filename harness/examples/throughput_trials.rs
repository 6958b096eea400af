//! Holds many comparisons of two engines by the gate's own throughput rule and counts what they say: how often it cries over
//! nothing, and how often it sees a loss that was put there. `cargo run -p harness --example throughput_trials -- TRIALS.json`,
//! where the file holds the fields of `Trials` below. One line a comparison, then the counts.
#![allow(clippy::print_stdout, reason = "this program is its output")]

use std::{collections::BTreeMap, error::Error, path::PathBuf, time::Duration, time::Instant};

use harness::{
    build::{Artifact, Provenance},
    config::spec::Thresholds,
    engine::protocol::Precision,
    event::Silent,
    gate::throughput::{Contest, hold},
    judge::{judge_cell, throughput::rule::Outcome},
    matrix::{Backend, Cell, ObserveOptions, Probe, throughput::ThroughputSpec},
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Trials {
    candidate: Engine,
    baseline: Engine,
    reference: Option<Engine>,
    model_dir: PathBuf,
    backend: Backend,
    context: usize,
    probe: ThroughputSpec,
    comparisons: usize,
    logs: PathBuf,
    /// No further comparison begins after this many seconds.
    budget_s: f64,
}

#[derive(Deserialize)]
struct Engine {
    program: PathBuf,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl Engine {
    fn artifact(&self, name: &str) -> Artifact {
        Artifact {
            name: name.to_owned(),
            program: self.program.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            provenance: Provenance { digest: name.to_owned(), inputs: Value::Null, log: Value::Null },
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the trials' file is missing")?;
    let trials: Trials = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let cell = Cell::new(
        "model",
        Precision::Source,
        trials.context,
        "throughput",
        Probe::Throughput(trials.probe.clone()),
        trials.backend,
    );
    let (candidate, baseline) =
        (trials.candidate.artifact("candidate"), trials.baseline.artifact("baseline"));
    let reference = trials.reference.as_ref().map(|engine| engine.artifact("reference"));
    let options = ObserveOptions { timeout: Duration::from_secs(600), log_dir: trials.logs.clone() };
    let contest = Contest {
        cell: &cell,
        spec: &trials.probe,
        candidate: &candidate,
        baseline: &baseline,
        reference: reference.as_ref(),
        model_dir: &trials.model_dir,
        options: &options,
    };
    let begun = Instant::now();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut held = 0;
    while held < trials.comparisons && begun.elapsed().as_secs_f64() < trials.budget_s {
        let seen = hold(&contest, &Silent)?;
        let judgement = judge_cell(&cell, &seen, &Thresholds::default());
        let speed = judgement.throughput.as_ref().ok_or("the cell was judged as something else")?;
        let errors: Vec<&str> = judgement
            .findings
            .iter()
            .filter(|finding| finding.severity == harness::judge::Severity::Error)
            .map(|finding| finding.code.as_str())
            .collect();
        let says = match (errors.is_empty(), speed.outcome) {
            (false, _) | (_, Outcome::Worse) => "fail",
            (true, Outcome::Pass) => "pass",
            (true, Outcome::Inconclusive) => "inconclusive",
        };
        *counts.entry(says).or_default() += 1;
        held += 1;
        println!("{held:3} {says:12} {:6.1} s {}", begun.elapsed().as_secs_f64(), speed.reason);
        for m in &speed.metrics {
            let Some(look) =
                m.confirmation.or(m.first).filter(|_| held <= 2 || m.metric.name().starts_with("decode"))
            else {
                if held <= 2 {
                    println!(
                        "      {:<26} {:10.3} | {:10.3}",
                        m.metric.name(),
                        m.metric.shown(m.candidate.median),
                        m.metric.shown(m.baseline.median)
                    );
                }
                continue;
            };
            println!(
                "      {:<26} {:10.3} | {:10.3}  ratio {:.4} ({:.4} to {:.4})  CV {:.2} / {:.2} %  {} runs  p {:.1e}  visible {:.2} %",
                m.metric.name(),
                m.metric.shown(m.candidate.median),
                m.metric.shown(m.baseline.median),
                look.ratio,
                look.lower,
                look.upper.unwrap_or(f64::INFINITY),
                m.candidate.cv * 100.0,
                m.baseline.cv * 100.0,
                m.candidate.runs,
                m.p.unwrap_or(1.0),
                look.detectable * 100.0
            );
        }
        if !errors.is_empty() {
            println!("      findings: {}", errors.join(", "));
        }
    }
    println!("\n{held} comparisons in {:.0} s: {counts:?}", begun.elapsed().as_secs_f64());
    Ok(())
}
