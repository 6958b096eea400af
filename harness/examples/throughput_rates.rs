//! Prints how often the throughput rule errs, by simulation: `cargo run --release -p harness --example throughput_rates`.
//! An argument sets how many comparisons each row has.
#![allow(clippy::print_stdout, reason = "this program is its output")]

use harness::judge::throughput::{
    rule::{Limit, MOST_RUNS, runs_wanted},
    simulate::{Design, Noise, Rates, rates},
};
use rayon::prelude::*;

const LIMIT: Limit = Limit { max_regression: 0.05, power: 0.95 };

fn main() {
    let of = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(4_000);
    println!(
        "limit 5 %, level .01 one-sided (.005 beyond 12 runs), floor 2 %, red cells confirmed in a second session"
    );
    println!(
        "noise: log-normal, 4 % drift in a session, 3 % outliers of 5 to 20 %; {of} comparisons a row\n"
    );
    println!(
        "| CV | loss | runs an arm | red once | worse | passed | worse by Holm of 120 | nights of 120 cells, red once | the same, worse |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for design in [Design::Fixed(12), Design::Sequential] {
        for deviation in [0.01, 0.02, 0.03, 0.05] {
            for loss in [0.0, 0.03, 0.05, 0.08] {
                rows.push((design, deviation, loss));
            }
        }
    }
    let seeded: Vec<(u64, _)> = (1..).zip(rows).collect();
    let results: Vec<_> = seeded
        .into_par_iter()
        .map(|(seed, (design, deviation, loss))| {
            (design, deviation, loss, rates(Noise::with_deviation(deviation), loss, LIMIT, design, of, seed))
        })
        .collect();
    for (design, deviation, loss, rates) in results {
        print_row(design, deviation, loss, &rates);
    }
    println!("\nruns an arm that a power of .95 takes at a limit of 5 % (at most {MOST_RUNS} are made):");
    for deviation in [0.01, 0.02, 0.03, 0.04, 0.05, 0.06] {
        println!("  CV {} %: {:.1}", deviation * 100.0, runs_wanted(deviation, &LIMIT));
    }
}

fn print_row(design: Design, deviation: f64, loss: f64, r: &Rates) {
    let runs = match design {
        Design::Fixed(pairs) => pairs.to_string(),
        Design::Sequential => format!("by pilot, {:.1} in all", r.runs as f64 / r.of as f64),
    };
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    let nights = |count| if loss == 0.0 { percent(r.of_nights(count, 120)) } else { "–".to_owned() };
    println!(
        "| {:.0} % | {:.0} % | {runs} | {} | {} | {} | {} | {} | {} |",
        deviation * 100.0,
        loss * 100.0,
        percent(r.share(r.red_once)),
        percent(r.share(r.worse)),
        percent(r.share(r.passed)),
        percent(r.share(r.worse_by_holm)),
        nights(r.red_once),
        nights(r.worse)
    );
}
