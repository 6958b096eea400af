//! `sync-upstream` on real remotes and mirrors: fetched through `insteadOf`, shallow, partial, and hostile input refused.

#![allow(clippy::unwrap_used, reason = "the helpers of tests")]

mod common;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use common::{commit, git};

/// A Regraft checkout of one fork, and remotes below `remotes/` beside it.
struct Setting {
    folder: TempDir,
}

const FORK: &str = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/up/name\"\nbranch = \"main\"\n\
    tag-prefix = \"v\"\n";
const BRANCH: &str =
    "[stack]\nkind = \"branch\"\nrepository = \"https://example.org/fork/name\"\nbranch = \"main\"\n";

impl Setting {
    /// Upstream has a base, a change of `a` and one of `b`; the fork changes `b` on the base, in a place of its own.
    fn new(fork_toml: &str) -> Self {
        let setting = Self { folder: TempDir::new().unwrap() };
        let root = setting.root();
        for folder in ["harness", "matrices", "patches/f"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("Cargo.toml"), "").unwrap();
        fs::write(root.join("harness/Cargo.toml"), "").unwrap();
        fs::write(root.join("patches/f/fork.toml"), fork_toml).unwrap();
        let up = setting.remote("up");
        fs::create_dir_all(&up).unwrap();
        git(&up, &["init", "-q", "-b", "main"]);
        commit(&up, "base", &[("a", "a\n"), ("b", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
        git(&up, &["tag", "v1"]);
        let fork = setting.remote("fork");
        git(&up, &["clone", "-q", ".", fork.to_str().unwrap()]);
        commit(&fork, "patch", &[("b", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n")]);
        commit(&up, "a", &[("a", "A\n")]);
        commit(&up, "b", &[("b", "one\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
        setting
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn remote(&self, owner: &str) -> PathBuf {
        self.folder.path().join("remotes").join(owner).join("name")
    }

    /// Runs `sync-upstream f --dry-run`.
    fn sync(&self, more: &[&str]) -> Output {
        self.run(&[&["f", "--dry-run"], more].concat())
    }

    /// Runs `sync-upstream` with addresses at example.org redirected to the remotes.
    fn run(&self, args: &[&str]) -> Output {
        self.xtask("sync-upstream", args)
    }

    fn xtask(&self, command: &str, args: &[&str]) -> Output {
        let redirect = format!("url.file://{}/remotes/.insteadOf", self.folder.path().display());
        #[expect(clippy::disallowed_methods, reason = "a test may start the program that it tests")]
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg(command)
            .args(args)
            .current_dir(self.root())
            .env_remove("CARGO_MANIFEST_DIR")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", redirect)
            .env("GIT_CONFIG_VALUE_0", "https://example.org/")
            .output()
            .expect("the program starts")
    }

    /// Local mirrors, made by `git clone --bare` with `options`.
    fn mirrors(&self, options: &[&str]) -> PathBuf {
        let mirrors = self.folder.path().join("mirrors");
        for owner in ["up", "fork"] {
            let remote = self.remote(owner);
            git(&remote, &["config", "uploadpack.allowFilter", "true"]);
            let (from, to) =
                (format!("file://{}", remote.display()), mirrors.join(format!("{owner}/name.git")));
            let mut args = vec!["clone", "-q", "--bare"];
            args.extend(options);
            args.extend([from.as_str(), to.to_str().unwrap()]);
            git(&remote, &args);
        }
        mirrors
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_fork_that_shares_no_history_is_never_reported_as_well() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let fork = setting.remote("fork");
    git(&fork, &["checkout", "-q", "--orphan", "other"]);
    commit(&fork, "unrelated", &[("a", "a\n")]);
    git(&fork, &["branch", "-M", "main"]);
    let output = setting.xtask("patch-report", &["f"]);
    assert_eq!(output.status.code(), Some(4), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("share no commit"));
}

#[test]
fn a_store_or_patch_that_cannot_be_read_is_told_with_what_to_try() {
    let folder = "[stack]\nkind = \"folder\"\norder = \"number\"\n[base]\ntag = \"v1\"\n";
    let setting = Setting::new(&format!("{FORK}{folder}"));
    let up = setting.remote("up");
    let base = text(&git(&up, &["rev-parse", "v1"]).into_bytes());
    let toml = format!("{FORK}{}", folder.replace("tag = \"v1\"", &format!("commit = \"{}\"", base.trim())));
    fs::write(setting.root().join("patches/f/fork.toml"), toml).unwrap();
    fs::write(setting.root().join("patches/f/0001-x.patch"), "no diff\n").unwrap();
    let output = setting.sync(&[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("hint: write the patch again"), "{}", text(&output.stderr));
    let store = setting.root().join("target/regraft/forks/f.git");
    fs::remove_dir_all(&store).unwrap();
    fs::write(&store, "a file").unwrap();
    let output = setting.sync(&[]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("hint: something else stands in its place"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn remotes_are_fetched_where_insteadof_says() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let output = setting.sync(&["--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fork = &document["forks"][0];
    assert_eq!(
        (&fork["base"]["tag"], &fork["patches"][0]["fate"]),
        (&Value::from("v1"), &Value::from("applied"))
    );
    // What was fetched stays; what moved is fetched again.
    commit(&setting.remote("up"), "c", &[("b", "one\n2\n3\n4\n5\n6\n7\n8\nIX\n")]);
    let output = setting.sync(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn a_history_without_the_base_is_refused_with_how_to_deepen_it() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let base = git(&setting.remote("up"), &["rev-parse", "v1"]);
    let mirrors = setting.mirrors(&["--depth", "1"]);
    let mirrors = ["--mirror-root", mirrors.to_str().unwrap()];
    let refused = |told: &str| {
        let output = setting.sync(&mirrors);
        let told_there = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told_there}");
        assert!(told_there.contains(told) && told_there.contains("git fetch --unshallow"), "{told_there}");
    };
    refused("shallow");
    let with_base = format!("{FORK}[base]\ncommit = \"{}\"\n{BRANCH}", base.trim());
    fs::write(setting.root().join("patches/f/fork.toml"), with_base).unwrap();
    refused("which is shallow");
}

#[test]
fn a_shallow_remote_is_told_apart_from_one_that_cannot_be_reached() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let (up, whole) = (setting.remote("up"), setting.remote("whole"));
    fs::create_dir_all(whole.parent().unwrap()).unwrap();
    fs::rename(&up, &whole).unwrap();
    git(
        &whole,
        &["clone", "-q", "--depth", "1", &format!("file://{}", whole.display()), up.to_str().unwrap()],
    );
    let output = setting.sync(&[]);
    let told = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("shallow"), "{told}");
    fs::remove_dir_all(&up).unwrap();
    let output = setting.sync(&[]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(told.contains("cannot fetch `https://example.org/up/name`"), "{told}");
}

#[test]
fn a_partial_copy_works_until_a_missing_file_is_needed_and_then_says_which() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let mirrors = setting.mirrors(&["--filter=blob:none"]);
    let mirrors = ["--mirror-root", mirrors.to_str().unwrap()];
    // On the base and past a commit that touches other files nothing has to be read.
    let output = setting.sync(&[&mirrors[..], &["--onto", "base"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = setting.sync(&mirrors);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(told.contains("unable to read") && told.contains("partial copy"), "{told}");
}

#[test]
fn what_reads_as_an_option_is_a_name_like_any_other() {
    let setting = Setting::new(&format!("{FORK}{BRANCH}"));
    let marker = setting.folder.path().join("ran");
    let option = format!("--upload-pack=touch {}", marker.display());
    let output = setting.sync(&["--onto", &format!("={option}")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = setting.sync(&[&format!("--onto={option}")]);
    assert!(text(&output.stderr).contains("no tag, branch or commit"), "{}", text(&output.stderr));
    for (from, to) in [
        ("https://example.org/up/name", option.as_str()),
        ("https://example.org/up/name", "ext::sh -c touch% ran/x"),
        ("branch = \"main\"\ntag", &format!("branch = \"{option}\"\ntag")),
    ] {
        let file = format!("{FORK}{BRANCH}").replacen(from, to, 1);
        fs::write(setting.root().join("patches/f/fork.toml"), file).unwrap();
        let output = setting.sync(&[]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", text(&output.stderr));
    }
    assert!(!marker.exists());
}

#[test]
fn a_patch_that_leaves_the_tree_or_touches_git_is_refused() {
    for path in ["../outside", ".git/hooks/post-checkout", "sub/.GIT/config"] {
        let stack = "[stack]\nkind = \"folder\"\norder = \"number\"\n";
        let setting = Setting::new("");
        let base = git(&setting.remote("up"), &["rev-parse", "v1"]);
        let file = format!("{FORK}[base]\ncommit = \"{}\"\n{stack}", base.trim());
        fs::write(setting.root().join("patches/f/fork.toml"), file).unwrap();
        let patch = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
        );
        fs::write(setting.root().join("patches/f/0001-x.patch"), patch).unwrap();
        let output = setting.sync(&[]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{path}: {told}");
        assert!(told.contains("0001-x.patch"), "{told}");
    }
}

#[test]
fn a_rebased_fork_is_pushed_and_the_pins_follow_and_nothing_of_others_is_overwritten() {
    let more = "[push]\nrepository = \"https://example.org/fork/name\"\nbranch = \"regraft\"\nprotected = [\"main\"]\n\
        [[consumers]]\nkind = \"text\"\ncheckout = \"../user\"\nfiles = [\"pin\"]\n";
    let setting = Setting::new(&format!("{FORK}{BRANCH}{more}"));
    let (fork, user) = (setting.remote("fork"), setting.folder.path().join("user"));
    fs::create_dir_all(&user).unwrap();
    git(&user, &["init", "-q", "-b", "main"]);
    commit(&user, "pin", &[("pin", &git(&fork, &["rev-parse", "main"]))]);
    let failed = |args: &[&str], code: i32, told: &str| {
        let output = setting.run(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(told), "{stderr}");
    };
    failed(&["f", "--push"], 1, "no gate has passed");
    // What fork.toml rules out is told before anything is rebased.
    let unpushed = Setting::new(&format!("{FORK}{BRANCH}"));
    let output = unpushed.run(&["f", "--push"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has no [push]"), "{}", text(&output.stderr));
    assert!(!unpushed.root().join("reports").exists());
    let everything = ["f", "--push", "--unvalidated", "--update-pins"];
    let output = setting.run(&[&everything[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let push = &document["followed"]["forks"][0]["push"];
    let head = push["new_head"].as_str().unwrap();
    assert_eq!(
        (&push["patches"], &push["validation"]["kind"]),
        (&Value::from(1), &Value::from("unvalidated"))
    );
    assert_eq!(git(&fork, &["rev-parse", "regraft"]).trim(), head);
    assert_eq!(git(&user, &["show", "regraft/pins:pin"]).trim(), head);
    assert_eq!(git(&user, &["status", "--short"]), "");
    let reports = fs::read_dir(setting.root().join("reports")).unwrap();
    let report = reports.map(|entry| entry.unwrap().path()).find(|path| path.join("push.json").exists());
    let summary = fs::read_to_string(report.unwrap().join("summary.md")).unwrap();
    for told in ["## Push\n", "UNVALIDATED", &format!("is at `{head}`"), "## Pins in ../user\n"] {
        assert_eq!(summary.matches(told).count(), 1, "{told}: {summary}");
    }
    // Somebody else works on the pushed branch, and upstream goes on.
    git(&fork, &["checkout", "-q", "regraft"]);
    commit(&fork, "theirs", &[("t", "t\n")]);
    git(&fork, &["checkout", "-q", "main"]);
    let theirs = git(&fork, &["rev-parse", "regraft"]);
    commit(&setting.remote("up"), "c", &[("a", "AA\n")]);
    failed(&everything, 2, "moved by somebody else");
    assert_eq!(git(&fork, &["rev-parse", "regraft"]), theirs);
    // Once it is taken back, the old head gives way and stays under its backup ref.
    git(&fork, &["update-ref", "refs/heads/regraft", head]);
    let output = setting.run(&everything);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(git(&fork, &["rev-parse", &format!("refs/regraft/backup/regraft/{head}")]).trim(), head);
}

#[test]
fn what_depends_on_a_moved_pin_is_built_tested_and_measured_in_a_clone_of_it() {
    let declared = "[[consumers]]\nkind = \"text\"\ncheckout = \"../user\"\nfiles = [\"pin\"]\n\
        check = [\"sh build.sh\", \"test -f nothing\"]\n\
        [[probes]]\nname = \"bench\"\ncheckout = \"../user\"\ncommand = \"sh bench.sh\"\n\
        [probes.numbers]\ndecode_tok_s = 'decode ([0-9.]+) tok/s'\n";
    let push = "[push]\nrepository = \"https://example.org/fork/name\"\nbranch = \"regraft\"\n";
    let setting = Setting::new(&format!("{FORK}{BRANCH}{push}{declared}"));
    let (fork, user) = (setting.remote("fork"), setting.folder.path().join("user"));
    fs::create_dir_all(&user).unwrap();
    git(&user, &["init", "-q", "-b", "main"]);
    let old = git(&fork, &["rev-parse", "main"]);
    // The build sees the new pin, and that it is in no place that a person works in.
    let build = format!("test \"$(cat pin)\" != {} || exit 9\ntouch built\n", old.trim());
    commit(
        &user,
        "pin",
        &[
            ("pin", &old),
            ("build.sh", &build),
            ("bench.sh", "test -f built || exit 3\necho decode 41.5 tok/s\n"),
        ],
    );
    let output = setting.run(&["f", "--push", "--unvalidated", "--update-pins", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "a failed check is a finding: {}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = &document["followed"]["checks"][0];
    let moved = git(&user, &["rev-parse", "regraft/pins"]);
    assert_eq!(
        (checks["consumer"].as_str(), checks["commit"].as_str()),
        (Some("../user"), Some(moved.trim()))
    );
    let told: Vec<(&str, &str)> = checks["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["command"].as_str().unwrap(), run["result"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("sh build.sh", "pass"), ("test -f nothing", "fail"), ("sh bench.sh", "pass")]);
    assert_eq!(checks["runs"][2]["probe"], "bench");
    assert_eq!(checks["runs"][2]["numbers"]["decode_tok_s"], 41.5);
    assert_eq!(git(&user, &["status", "--short"]), "", "nothing of it lands in the checkout");
    let reports = fs::read_dir(setting.root().join("reports")).unwrap();
    let report = reports.map(|entry| entry.unwrap().path()).find(|path| path.join("push.json").exists());
    let report = report.unwrap();
    let summary = fs::read_to_string(report.join("summary.md")).unwrap();
    assert!(
        summary.contains("## Checks of ../user\n") && summary.contains("test -f nothing: **FAIL**"),
        "{summary}"
    );
    let kept = fs::read_dir(&report)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("checks-"));
    assert!(kept, "the record lies beside the report");

    let output = setting.run(&["f", "--update-pins", "--no-checks"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = setting.run(&["f", "--update-pins"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(
        told.contains("FAIL    test -f nothing (exit status: 1") && told.contains("decode_tok_s 41.5"),
        "{told}"
    );
}
