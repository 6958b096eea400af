//! How fast the evidence on a stack is weighed, beside `git cherry` on the same repository: 40 patches against 700
//! upstream commits made from a seed. `REGRAFT_BENCH_MIRRORS` names a folder of mirrors to report on the forks in
//! `REGRAFT_BENCH_FORKS` (names below `patches/`, with spaces between) too.

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    reason = "a benchmark; the generator has more than it needs"
)]

#[path = "../tests/patch_evidence/fork.rs"]
mod fork;
#[path = "../tests/patch_evidence/sources.rs"]
mod sources;
#[path = "../tests/patch_evidence/words.rs"]
mod words;

use std::{fs, hint::black_box, path::Path};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use harness::{
    config::{fork::parse_fork, load_fork},
    event::Silent,
    evidence::{landed, report_fork},
    fork::{Milestone, open::Source, target::Onto},
    rebase::replay::replay_stack,
    stack::branch::read_branch,
    tools::{git::store::Store, host, process::Invocation},
};

const FORK: &str = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
    [stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n";

/// Which patches are upstream by patch-id, from opening the repository on.
fn landed_by_patch_id(repository: &Path) -> usize {
    let store = Store::open(repository, &[]).unwrap();
    let heads = store.refs("refs/heads/").unwrap();
    let (main, fork) = (heads["main"], heads["fork"]);
    let base = store.merge_base(main, fork).unwrap().unwrap();
    let milestone = |commit| Milestone { commit, tree: store.commit(commit).unwrap().tree };
    let stack = read_branch(&store, base, fork, &[main]).unwrap();
    let replayed = replay_stack(&store, base, milestone(base).tree, &stack, &Silent).unwrap();
    let history: Vec<Milestone> = store.mainline(base, main).unwrap().into_iter().map(milestone).collect();
    let touching = landed::touching(&store, milestone(base).tree, &history, &replayed.steps, &[]).unwrap();
    let landed = landed::by_patch_id(&store, &replayed.steps, &touching).unwrap();
    landed.iter().flatten().count()
}

fn git_cherry(repository: &Path) -> usize {
    let cherry = Invocation::new("git").cwd(repository).args(["cherry", "main", "fork"]);
    let out = cherry.run_ok().unwrap().stdout_bytes;
    out.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"-")).count()
}

fn evidence(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("owner+name/repo");
    fork::make(&repository, 1, fork::Size { files: 240, upstream_commits: 700 });
    // As after a fetch: packed, where git is at its best.
    Invocation::new("git").cwd(&repository).args(["repack", "-adq"]).run_ok().unwrap();
    assert_eq!(landed_by_patch_id(&repository), git_cherry(&repository));

    let mut group = c.benchmark_group("evidence");
    group.sample_size(10);
    group.bench_function("patch-id", |b| b.iter(|| black_box(landed_by_patch_id(&repository))));
    group.bench_function("git cherry", |b| b.iter(|| black_box(git_cherry(&repository))));
    let source = Source::Mirrors(folder.path().to_owned());
    let report = |root: &Path| {
        let spec = parse_fork("synthetic", "fork.toml", FORK).unwrap();
        report_fork(root, spec, &Onto::Latest, &source, &Silent).unwrap()
    };
    // A folder of its own each time, and nothing is deleted: ext4 makes whoever writes after a deletion look for inodes
    // that are not freshly freed, a third of the whole time.
    let mut folders = 0;
    let mut fresh = || {
        folders += 1;
        folder.path().join(folders.to_string())
    };
    group.bench_function("report, cold", |b| {
        b.iter_batched(&mut fresh, |root| report(&root), BatchSize::PerIteration);
    });
    let report = || report(folder.path());
    report();
    group.bench_function("report, warm", |b| b.iter(report));

    let (mirrors, forks) = (host::variable("REGRAFT_BENCH_MIRRORS"), host::variable("REGRAFT_BENCH_FORKS"));
    if let (Some(mirrors), Some(forks)) = (mirrors, forks) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let source = Source::Mirrors(mirrors.into());
        for name in forks.split_whitespace() {
            let report = || {
                report_fork(root, load_fork(root, name).unwrap(), &Onto::Latest, &source, &Silent).unwrap()
            };
            let forget = || {
                let _ = fs::remove_dir_all(root.join("target/regraft/evidence").join(name));
            };
            group.bench_function(format!("{name}, cold"), |b| {
                b.iter_batched(forget, |()| report(), BatchSize::PerIteration);
            });
            report();
            group.bench_function(format!("{name}, warm"), |b| b.iter(report));
        }
    }
    group.finish();
}

criterion_group!(benches, evidence);
criterion_main!(benches);
