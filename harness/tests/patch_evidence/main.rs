//! How well the evidence ladder does on forks whose truth is known: prints precision and recall of every rung for each
//! seed (`cargo test -p harness --test patch_evidence -- 5 6` for others), and fails when a patch that upstream took is
//! found by no rung, or a rung that proves calls one of the fork's own patches upstream's.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test that prints what it measured")]

mod fork;
mod sources;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::ExitCode,
    time::Instant,
};

use fork::{Form, Kind, Size, SyntheticFork};
use harness::{
    config::fork::parse_fork,
    event::Silent,
    evidence::{
        report::{ForkReport, LandedHow, PatchReport, Recommendation},
        report_fork,
    },
    fork::{open::Source, target::Onto},
    rebase::forecast::PatchFate,
    tools::git::ids::CommitId,
};

const FORK: &str = r#"
summary = "A fork made from a seed."
[upstream]
repository = "https://example.org/owner/name"
branch = "main"
[stack]
kind = "branch"
repository = "https://example.org/owner/name"
branch = "fork"
"#;
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const SIZE: Size = Size { files: 240, upstream_commits: 300 };

/// What one rung said: by patch number, the upstream commits that it named.
type Said = BTreeMap<usize, BTreeSet<CommitId>>;

fn main() -> ExitCode {
    let asked: Vec<u64> = env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let seeds = if asked.is_empty() { SEEDS.to_vec() } else { asked };
    let faults: Vec<String> = seeds.into_iter().flat_map(measure).collect();
    for fault in &faults {
        println!("FAULT {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One rung: its name, and what it says about a patch.
type Rung = (&'static str, fn(&PatchReport) -> Option<BTreeSet<CommitId>>);

const RUNGS: [Rung; 4] = [
    ("patch-id", |patch| landings(patch, |how| how == LandedHow::PatchId)),
    ("absorbed", |patch| (patch.forecast.fate == PatchFate::Absorbed).then(BTreeSet::new)),
    ("content", |patch| landings(patch, |how| how != LandedHow::PatchId)),
    ("names", |patch| {
        let named: BTreeSet<CommitId> = patch.superseded_by.iter().map(|upstream| upstream.commit).collect();
        (!named.is_empty()).then_some(named)
    }),
];

fn landings(patch: &PatchReport, wanted: fn(LandedHow) -> bool) -> Option<BTreeSet<CommitId>> {
    let named: BTreeSet<CommitId> =
        patch.landed.iter().filter(|landing| wanted(landing.how)).map(|landing| landing.commit).collect();
    (!named.is_empty()).then_some(named)
}

fn measure(seed: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let made = fork::make(&folder.path().join("owner+name/repo"), seed, SIZE);
    let made_in = start.elapsed();
    let start = Instant::now();
    let spec = parse_fork("synthetic", "fork.toml", FORK).unwrap();
    let source = Source::Mirrors(folder.path().to_owned());
    let report = report_fork(folder.path(), spec, &Onto::Latest, &source, &Silent).unwrap();
    println!(
        "seed {seed}: {} patches against {} upstream commits; made in {:.1} s, judged in {:.1} s",
        made.patches.len(),
        report.frontier.as_ref().map_or(0, |frontier| frontier.of),
        made_in.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    assert_eq!(report.patches.len(), made.patches.len());
    println!("  {:<10} {:>4} {:>9} {:>6}  found", "rung", "said", "precision", "recall");
    for (rung, says) in RUNGS {
        let said: Said =
            report.patches.iter().filter_map(|patch| Some((patch.forecast.number, says(patch)?))).collect();
        print_rung(rung, &said, &made);
    }
    let any = report.patches.iter().filter_map(|patch| {
        let named: Vec<BTreeSet<CommitId>> = RUNGS.iter().filter_map(|(_, says)| says(patch)).collect();
        (!named.is_empty()).then(|| (patch.forecast.number, named.into_iter().flatten().collect()))
    });
    let any: Said = any.collect();
    print_rung("any", &any, &made);
    let dropped = report.patches.iter().filter(|patch| patch.recommendation == Recommendation::Drop);
    let dropped: Said = dropped.map(|patch| (patch.forecast.number, BTreeSet::new())).collect();
    print_rung("drop", &dropped, &made);
    faults(seed, &made, &report, &any)
}

fn print_rung(rung: &str, said: &Said, made: &SyntheticFork) {
    let form = |number: &usize| match made.patches[number - 1].kind {
        Kind::Backport(form) => Some(form),
        Kind::Own(_) => None,
    };
    let mut forms: BTreeMap<Form, usize> = BTreeMap::new();
    for form in said.keys().filter_map(form) {
        *forms.entry(form).or_default() += 1;
    }
    let right: usize = forms.values().sum();
    let all = made.patches.iter().filter(|patch| matches!(patch.kind, Kind::Backport(_))).count();
    let share = |part: usize, of: usize| if of == 0 { 1.0 } else { part as f64 / of as f64 };
    let forms: Vec<String> =
        forms.iter().map(|(form, count)| format!("{count} {form:?}").to_lowercase()).collect();
    println!(
        "  {rung:<10} {:>4} {:>9.2} {:>6.2}  {}",
        said.len(),
        share(right, said.len()),
        share(right, all),
        forms.join(", ")
    );
}

fn faults(seed: u64, made: &SyntheticFork, report: &ForkReport, any: &Said) -> Vec<String> {
    let mut faults = Vec::new();
    for (patch, judged) in made.patches.iter().zip(&report.patches) {
        let number = judged.forecast.number;
        let mut fault = |what: &str| {
            let told = patch.told();
            faults.push(format!(
                "seed {seed}: patch {number} {told} {what}: {:?}, {}",
                judged.state, judged.reason
            ));
        };
        match patch.kind {
            Kind::Own(_) if judged.recommendation == Recommendation::Drop => {
                fault("is recommended for dropping")
            }
            Kind::Own(_) => {}
            Kind::Backport(_) if !any.contains_key(&number) => fault("is found by no rung"),
            Kind::Backport(_) => {
                let named = &any[&number];
                if !named.is_empty() && named.is_disjoint(&patch.landed_in.iter().copied().collect()) {
                    fault("is said to be in other commits");
                }
            }
        }
    }
    faults
}
