//! Times a rebase in memory and a forecast on a made-up repository of MLX's size and shape: 2,200 commits, 1,300 files.
//! Targets on two cores: 40 clean patches over 700 commits in the time of `git replay`, which `peers.sh` measures;
//! a forecast with 10 conflicts and their culprits in 1 s. Every round opens the store and starts git anew.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group};
use harness::{
    event::Silent,
    fork::{Milestone, target::Target},
    rebase::{
        forecast::{Cause, carried_on, forecast},
        replay::{Replayed, replay_stack},
    },
    stack::branch::read_branch,
    tools::{
        git::{
            ids::{CommitId, TreeId},
            store::{Person, Store},
        },
        process::Invocation,
    },
};

const COMMITS: usize = 2_200;
const AFTER_BASE: usize = 700;
const FILES: usize = 1_300;
const PATCHES: usize = 40;
const CONFLICTS: usize = 10;

/// Numbers that look random and are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Writes history in the language of `git fast-import`.
struct Import {
    stream: String,
    files: BTreeMap<String, Vec<String>>,
    marks: usize,
}

impl Import {
    fn commit(&mut self, branch: &str, parent: Option<usize>, subject: &str, changed: &[String]) -> usize {
        self.marks += 1;
        let (mark, date) = (self.marks, 1_700_000_000 + self.marks * 600);
        let _ = write!(
            self.stream,
            "commit refs/heads/{branch}\nmark :{mark}\nauthor A Person <a@example.org> {date} +0000\n\
             committer A Person <a@example.org> {date} +0000\ndata {}\n{subject}\n\n",
            subject.len() + 1
        );
        if let Some(parent) = parent {
            let _ = writeln!(self.stream, "from :{parent}");
        }
        for path in changed {
            match self.files.get(path) {
                Some(lines) => {
                    let text = lines.concat();
                    let _ = write!(self.stream, "M 100644 inline {path}\ndata {}\n{text}\n", text.len());
                }
                None => {
                    let _ = writeln!(self.stream, "D {path}");
                }
            }
        }
        mark
    }
}

/// Upstream edits the first 60 % of a file, patches that do not conflict the last 30 %.
fn history() -> String {
    let mut numbers = Numbers(7);
    let mut import = Import { stream: String::new(), files: BTreeMap::new(), marks: 0 };
    let path = |at: usize| format!("part{}/folder{}/file{at}.cpp", at % 7, at % 83);
    let text = |numbers: &mut Numbers, at: usize| -> Vec<String> {
        let lines = if at.is_multiple_of(60) { 2_500 } else { 60 + numbers.below(350) };
        (0..lines)
            .map(|line| match line % 9 {
                0 => "}\n".to_owned(),
                4 => "\n".to_owned(),
                _ => format!("  auto value_{} = compute(input_{line}, {});\n", numbers.below(900), at % 40),
            })
            .collect()
    };
    let early = FILES - 200;
    for at in 0..early {
        let lines = text(&mut numbers, at);
        import.files.insert(path(at), lines);
    }
    let all: Vec<String> = import.files.keys().cloned().collect();
    let mut head = import.commit("main", None, "all files", &all);
    let mut base = (head, import.files.clone());
    let mut touched: Vec<String> = Vec::new();
    for number in 1..COMMITS {
        let known: Vec<String> = import.files.keys().cloned().collect();
        let mut changed = Vec::new();
        for _ in 0..=numbers.below(5) {
            let name = known[numbers.below(known.len())].clone();
            let lines = import.files.get_mut(&name).expect("the file is known");
            let at = numbers.below(lines.len() * 6 / 10);
            lines[at] = format!("  changed_by({number}, {});\n", numbers.below(1_000_000));
            if numbers.below(3) == 0 {
                lines.insert(at, format!("  added_by({number});\n"));
            }
            changed.push(name);
        }
        if number % 11 == 0 && early + number / 11 < FILES {
            let (name, lines) = (path(early + number / 11), text(&mut numbers, number));
            import.files.insert(name.clone(), lines);
            changed.push(name);
        }
        if number % 120 == 0 {
            let old = known[numbers.below(known.len())].clone();
            let lines = import.files.remove(&old).expect("the file is known");
            let new = old.replace("file", "moved");
            import.files.insert(new.clone(), lines);
            changed.extend([old, new]);
        }
        head = import.commit("main", Some(head), &format!("upstream {number}"), &changed);
        if number == COMMITS - 1 - AFTER_BASE {
            base = (head, import.files.clone());
        } else if number > COMMITS - 1 - AFTER_BASE {
            touched.extend(changed.into_iter().filter(|name| base.1.contains_key(name)));
        }
    }
    let kept: Vec<String> = touched.iter().filter(|name| import.files.contains_key(*name)).cloned().collect();
    let latest = import.files.clone();
    for (branch, conflicts) in [("clean", 0), ("conflicting", CONFLICTS)] {
        import.files.clone_from(&base.1);
        let mut tip = base.0;
        let quiet: Vec<String> = base.1.keys().filter(|name| latest.contains_key(*name)).cloned().collect();
        for number in 0..PATCHES {
            let mut changed = vec![kept[number * 31 % kept.len()].clone()];
            changed.extend((0..1 + number % 3).map(|_| quiet[numbers.below(quiet.len())].clone()));
            for name in &changed {
                let lines = import.files.get_mut(name).expect("the file is known");
                let from = lines.len() * 7 / 10;
                let at = from + numbers.below(lines.len() - from);
                lines[at] = format!("  patched_by({number}, {});\n", numbers.below(1_000_000));
            }
            if number % 4 == 0 && number / 4 < conflicts {
                // A line that upstream changed in the meantime.
                let name = &changed[0];
                let (old, new) = (&base.1[name], &latest[name]);
                let at = old.iter().zip(new).position(|(old, new)| old != new).unwrap_or_default();
                let lines = import.files.get_mut(name).expect("the file is known");
                lines[at] = format!("  conflicts({number});\n");
            }
            if number % 5 == 0 {
                let name = format!("own/patch{number}.cpp");
                let lines = text(&mut numbers, number);
                import.files.insert(name.clone(), lines);
                changed.push(name);
            }
            changed.sort_unstable();
            changed.dedup();
            tip = import.commit(branch, Some(tip), &format!("patch {number}"), &changed);
        }
    }
    let _ = write!(import.stream, "reset refs/heads/base\nfrom :{}\n\n", base.0);
    import.stream
}

/// The repository, made where it is not there yet.
fn repository() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rebase-bench.git");
    let whole = folder.join("whole");
    if !whole.is_file() {
        let _ = fs::remove_dir_all(&folder);
        let git = |args: &[&str]| Invocation::new("git").arg("--git-dir").arg(&folder).args(args);
        git(&["init", "--quiet", "--bare"]).run_ok().expect("git makes a repository");
        git(&["fast-import", "--quiet"]).stdin(history()).run_ok().expect("git takes the history in");
        git(&["repack", "-adq"]).run_ok().expect("git packs");
        fs::write(whole, "").expect("the folder can be written");
    }
    folder
}

struct Stack {
    store: Store,
    base: CommitId,
    onto: CommitId,
    replayed: Replayed,
}

impl Stack {
    fn read(repository: &Path, branch: &str) -> Self {
        let store = Store::open(repository, &[]).expect("the repository is there");
        let refs = store.refs("refs/heads/").expect("it has refs");
        let (base, onto) = (refs["base"], refs["main"]);
        let stack = read_branch(&store, base, refs[branch], &[onto]).expect("it has history");
        let tree = store.commit(base).expect("the base is there").tree;
        let replayed = replay_stack(&store, base, tree, &stack, &Silent).expect("the stack fits its base");
        Self { store, base, onto, replayed }
    }

    fn milestone(&self, commit: CommitId) -> Milestone {
        Milestone { commit, tree: self.store.commit(commit).expect("the commit is there").tree }
    }

    fn rebased(&self) -> Vec<TreeId> {
        let author =
            Person { name: "A Person".into(), email: "a@example.org".into(), time_s: 0, offset_min: 0 };
        let onto = self.milestone(self.onto);
        let stops = carried_on(&self.store, &self.replayed.steps, onto.tree).expect("git merges");
        assert!(stops.iter().all(|stop| stop.conflicts.is_empty()), "all patches are clean");
        let mut parent = onto.commit;
        for (step, stop) in self.replayed.steps.iter().zip(&stops) {
            let written = self.store.write_commit(stop.tree, &[parent], &author, &step.subject);
            parent = written.expect("the store can be written");
        }
        stops.iter().map(|stop| stop.tree).collect()
    }

    fn target(&self) -> Target {
        let history = self.store.mainline(self.base, self.onto).expect("it has history");
        let history = history.into_iter().map(|commit| self.milestone(commit)).collect();
        Target { base: self.milestone(self.base), onto: self.milestone(self.onto), history }
    }
}

fn forecast_conflicting(repository: &Path) {
    let stack = Stack::read(repository, "conflicting");
    let forecast = forecast(&stack.store, &stack.replayed, &stack.target()).expect("git merges");
    let conflicts = forecast.patches.iter().flat_map(|patch| &patch.conflicts);
    let upstream = conflicts.filter(|conflict| conflict.cause == Cause::Upstream);
    assert!(upstream.filter(|conflict| conflict.culprit.is_some()).count() >= CONFLICTS);
}

fn benches(c: &mut Criterion) {
    let repository = repository();
    let mut group = c.benchmark_group("rebase");
    group.sample_size(20).measurement_time(Duration::from_secs(8));
    group.bench_function("clean", |b| b.iter(|| Stack::read(&repository, "clean").rebased()));
    group.bench_function("forecast", |b| {
        b.iter(|| forecast_conflicting(&repository));
    });
    group.finish();
}

/// Times of what is done in turns: this crate, `git replay` and `git rebase`, on a machine that others use as well.
#[expect(clippy::print_stdout, reason = "a bench says what it measured")]
fn in_turns(rounds: usize) {
    let repository = repository();
    let scratch = tempfile::tempdir().expect("a temporary folder can be made");
    let git = |folder: &Path, args: &[&str]| {
        let command = Invocation::new("git").args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let command = command.arg("-C").arg(folder).args(args);
        let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.run_ok().expect("git does it").stdout
    };
    let work = scratch.path().join("work");
    git(
        &repository,
        &["clone", "--quiet", "--no-hardlinks", "--branch", "clean", ".", &work.to_string_lossy()],
    );
    for branch in ["main", "base"] {
        git(&work, &["branch", "--quiet", branch, &format!("origin/{branch}")]);
    }
    let (mut own, mut trees) = (Vec::new(), Vec::new());
    let (mut replay, mut replayed) = (Vec::new(), String::new());
    let (mut rebase, mut forecasts) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        own.push(timed(|| trees = Stack::read(&repository, "clean").rebased()));
        replay.push(timed(|| replayed = git(&repository, &["replay", "--onto", "main", "base..clean"])));
        forecasts.push(timed(|| forecast_conflicting(&repository)));
        git(&work, &["checkout", "--quiet", "--detach", "clean"]);
        rebase.push(timed(|| _ = git(&work, &["rebase", "--quiet", "--onto", "main", "base"])));
    }
    let head = replayed.split(' ').nth(2).expect("it names the new head");
    let of_git = git(&repository, &["log", "--reverse", "--format=%T", &format!("main..{head}")]);
    let same = trees.iter().map(ToString::to_string).eq(of_git.lines());
    println!("| {rounds} rounds in turns, ms | least | median |\n|---|---|---|");
    for (name, times) in [
        ("40 clean patches over 700 commits, in memory", &mut own),
        ("the same by `git replay`", &mut replay),
        ("the same by `git rebase`", &mut rebase),
        ("forecast with 10 conflicts and their culprits", &mut forecasts),
    ] {
        times.sort_unstable();
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        println!("| {name} | {:.1} | {:.1} |", ms(0), ms(rounds / 2));
    }
    println!("\nThe trees of `git replay` are the same: {}.", if same { "yes" } else { "no" });
    assert!(same, "both have to come to the same trees");
}

fn timed(act: impl FnOnce()) -> Duration {
    let began = Instant::now();
    act();
    began.elapsed()
}

fn main() {
    let mut args = std::env::args().skip_while(|arg| arg != "--in-turns").skip(1);
    match args.next().and_then(|rounds| rounds.parse().ok()) {
        Some(rounds) if rounds > 0 => in_turns(rounds),
        _ => {
            rebase();
            Criterion::default().configure_from_args().final_summary();
        }
    }
}

criterion_group!(rebase, benches);
