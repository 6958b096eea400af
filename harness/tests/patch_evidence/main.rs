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
use harness::tools::git::{
    ids::{CommitId, PatchId},
    store::Store,
};

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

fn measure(seed: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("owner+name/repo");
    let start = Instant::now();
    let made = fork::make(&repository, seed, SIZE);
    let made_in = start.elapsed();
    let store = Store::open(&repository, &[]).unwrap();
    let start = Instant::now();
    let rungs = [("patch-id", by_patch_id(&store, &made))];
    println!(
        "seed {seed}: {} patches on {} upstream commits; made in {:.1} s, judged in {:.1} s",
        made.patches.len(),
        store.mainline(made.base, made.upstream).unwrap().len(),
        made_in.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    let is_backport = |number: usize| matches!(made.patches[number - 1].kind, Kind::Backport(_));
    let backports = (1..=made.patches.len()).filter(|number| is_backport(*number)).count();
    let mut faults = Vec::new();
    println!("  {:<12} {:>5} {:>10} {:>7}  forms found", "rung", "said", "precision", "recall");
    for (rung, said) in &rungs {
        let right: Vec<usize> = said.keys().copied().filter(|number| is_backport(*number)).collect();
        let share = |part: usize, of: usize| if of == 0 { 1.0 } else { part as f64 / of as f64 };
        let mut forms: BTreeMap<Form, usize> = BTreeMap::new();
        for number in &right {
            if let Kind::Backport(form) = made.patches[number - 1].kind {
                *forms.entry(form).or_default() += 1;
            }
        }
        let forms: Vec<String> =
            forms.iter().map(|(form, count)| format!("{count} {form:?}").to_lowercase()).collect();
        println!(
            "  {rung:<12} {:>5} {:>10.2} {:>7.2}  {}",
            said.len(),
            share(right.len(), said.len()),
            share(right.len(), backports),
            forms.join(", ")
        );
        for (number, commits) in said {
            let patch = &made.patches[number - 1];
            let named = commits.iter().all(|commit| patch.landed_in.contains(commit));
            if !is_backport(*number) || !named {
                faults.push(format!(
                    "seed {seed}, {rung}: patch {number} {} is said to be in {commits:?}",
                    patch.told()
                ));
            }
        }
    }
    for (number, patch) in (1..).zip(&made.patches) {
        if patch.kind == Kind::Backport(Form::Verbatim) && !rungs[0].1.contains_key(&number) {
            faults.push(format!(
                "seed {seed}: patch {number} {} has the id of no upstream commit",
                patch.told()
            ));
        }
    }
    faults
}

fn by_patch_id(store: &Store, made: &SyntheticFork) -> Said {
    let id = |commit: CommitId| -> PatchId {
        let info = store.commit(commit).unwrap();
        store.patch_id(store.commit(info.parents[0]).unwrap().tree, info.tree).unwrap()
    };
    let upstream = store.mainline(made.base, made.upstream).unwrap();
    let upstream: BTreeMap<PatchId, CommitId> =
        upstream.into_iter().map(|commit| (id(commit), commit)).collect();
    let patches = (1..).zip(store.mainline(made.base, made.head).unwrap());
    patches
        .filter_map(|(number, commit)| Some((number, BTreeSet::from([*upstream.get(&id(commit))?]))))
        .collect()
}
