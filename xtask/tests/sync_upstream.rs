//! `sync-upstream` as a process: killed at random moments, it comes to the same end.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How often the program is killed.
const KILLS: u32 = 20;

/// A mirror of `owner/name` with a branch of twelve patches, and upstream's commits after their base.
struct Mirror {
    dir: tempfile::TempDir,
    base: String,
}

#[expect(clippy::disallowed_methods, reason = "a test may start the programs that it needs")]
fn command(program: &str) -> Command {
    Command::new(program)
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = command("git")
        .args(["-c", "user.name=A Person", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_DATE", "1700000000 +0100")
        .env("GIT_COMMITTER_DATE", "1700000000 +0100")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn numbers(change: impl Fn(u32) -> String) -> String {
    (0..200).map(|number| change(number) + "\n").collect()
}

impl Mirror {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("owner+name");
        fs::create_dir(&repo).unwrap();
        git(&repo, &["init", "--quiet", "--initial-branch=main"]);
        let commit = |subject: &str, text: String| {
            fs::write(repo.join("f"), text).unwrap();
            git(&repo, &["add", "f"]);
            git(&repo, &["commit", "--quiet", "--message", subject]);
        };
        commit("base", numbers(|number| number.to_string()));
        let base = git(&repo, &["rev-parse", "HEAD"]);
        git(&repo, &["checkout", "--quiet", "-b", "fork"]);
        for patch in 1..=12 {
            let change = |number: u32| {
                if number.is_multiple_of(10) && number / 10 < patch {
                    format!("{number} ours")
                } else {
                    number.to_string()
                }
            };
            commit(&format!("patch {patch}"), numbers(change));
        }
        git(&repo, &["checkout", "--quiet", "main"]);
        // Line 60 is the seventh patch's.
        commit(
            "culprit",
            numbers(
                |number| {
                    if matches!(number, 60 | 155) { format!("{number} theirs") } else { number.to_string() }
                },
            ),
        );
        git(&repo, &["tag", "v2"]);
        Self { dir, base }
    }
}

/// A checkout with the fork `f`.
struct Checkout {
    dir: tempfile::TempDir,
    mirrors: PathBuf,
}

impl Checkout {
    fn new(mirror: &Mirror) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["harness", "matrices", "patches/f"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in ["Cargo.toml", "harness/Cargo.toml"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let toml = format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
             tag-prefix = \"v\"\n[base]\ncommit = \"{}\"\n[stack]\nkind = \"branch\"\n\
             repository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n",
            mirror.base
        );
        fs::write(dir.path().join("patches/f/fork.toml"), toml).unwrap();
        Self { dir, mirrors: mirror.dir.path().to_owned() }
    }

    fn start(&self, args: &[&str]) -> Command {
        let mut xtask = command(env!("CARGO_BIN_EXE_xtask"));
        xtask
            .arg("--root")
            .arg(self.dir.path())
            .args(["sync-upstream", "f"])
            .args(args)
            .arg("--mirror-root")
            .arg(&self.mirrors)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null());
        xtask
    }

    fn run(&self, args: &[&str]) -> Output {
        self.start(args).output().unwrap()
    }

    fn resolve(&self) {
        let file = self.dir.path().join("target/regraft/sync/f/worktree/f");
        let text = fs::read_to_string(&file).unwrap();
        let (before, rest) = text.split_once("<<<<<<< ").unwrap();
        let (_, after) = rest.split_once(">>>>>>> the patch\n").unwrap();
        fs::write(file, format!("{before}60 theirs, ours\n{after}")).unwrap();
    }

    /// Starts the program, kills it after a while, and gives whether it was still running then.
    fn killed_after(&self, args: &[&str], time: Duration) -> bool {
        let mut child = self.start(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(time);
        let running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        running
    }

    /// What a person or a later command finds at the end.
    fn outcome(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for folder in ["patches", "reports", "target/regraft/sync/f"] {
            collect(self.dir.path(), &self.dir.path().join(folder), &mut files);
        }
        let store = self.dir.path().join("target/regraft/forks/f.borrowed.git");
        files.insert("refs".to_owned(), git(&store, &["for-each-ref", "--format=%(objectname) %(refname)"]));
        files
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.insert(name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned());
        }
    }
}

#[test]
fn killed_at_twenty_moments_it_comes_to_the_same_end() {
    let mirror = Mirror::new();
    let whole = Checkout::new(&mirror);
    let began = Instant::now();
    let output = whole.run(&["--onto", "v2"]);
    let to_stop = began.elapsed();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.starts_with("f: patch 7 of 12 needs a person on v2 (") && said.contains("culprit"),
        "{said}"
    );
    let refused = whole.run(&["--continue"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("conflict markers are left in `f`"));
    whole.resolve();
    let began = Instant::now();
    let output = whole.run(&["--continue"]);
    let to_end = began.elapsed();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = whole.outcome();
    assert!(
        expected.contains_key("reports/sync-f-v2/sync.json")
            && expected.contains_key("patches/f/0012-patch-12.patch")
    );

    let mut hit = 0;
    for kill in 0..KILLS {
        let checkout = Checkout::new(&mirror);
        // Moments spread over the run, half of them before the person comes and half after.
        let share = f64::from(kill / 2 + 1) / f64::from(KILLS / 2 + 1);
        if kill % 2 == 0 {
            hit += u32::from(checkout.killed_after(&["--onto", "v2"], to_stop.mul_f64(share)));
        }
        let output = checkout.run(&["--onto", "v2"]);
        assert_eq!(output.status.code(), Some(3), "{kill}: {}", String::from_utf8_lossy(&output.stderr));
        checkout.resolve();
        if kill % 2 == 1 {
            hit += u32::from(checkout.killed_after(&["--continue"], to_end.mul_f64(share)));
        }
        let output = checkout.run(&["--continue"]);
        let said = String::from_utf8_lossy(&output.stderr);
        // The kill may have come after the last step; a finished rebase is named, and not begun again.
        let ended = output.status.code() == Some(2) && said.contains("the last one is finished");
        assert!(ended || output.status.code() == Some(0), "{kill}: {said}");
        let found = checkout.outcome();
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{kill}");
        for (name, text) in &expected {
            assert_eq!(&found[name], text, "{kill}: {name}");
        }
    }
    assert!(hit > KILLS / 2, "only {hit} of {KILLS} runs were still running when they were killed");
}
