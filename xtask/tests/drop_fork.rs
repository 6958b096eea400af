//! `drop-fork` on small real repositories: a consumer that cargo builds goes to plain upstream, and a fork that is needed
//! stays.

#![allow(clippy::unwrap_used, reason = "the helpers of tests")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use common::{commit, git};

const LIBRARY: &str = "[package]\nname = \"lib\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n";
const BASE: &str = "pub fn one() -> u32 {\n    1\n}\n";
const WITH_TWO: &str = "pub fn one() -> u32 {\n    1\n}\n\npub fn two() -> u32 {\n    2\n}\n";

/// What upstream did with the fork's patch.
#[derive(Clone, Copy, PartialEq)]
enum Upstream {
    TookIt,
    DidNot,
}

/// A checkout of Regraft with the fork `f`, the repositories of upstream and fork, and a crate that uses the fork.
struct Setting {
    folder: TempDir,
}

impl Setting {
    fn new(upstream: Upstream) -> Self {
        let setting = Self { folder: TempDir::new().unwrap() };
        let (up, fork) = (setting.path("up/lib"), setting.path("ours/lib"));
        fs::create_dir_all(up.join("src")).unwrap();
        git(&up, &["init", "-q", "-b", "main"]);
        commit(&up, "base", &[("Cargo.toml", LIBRARY), ("src/lib.rs", BASE), ("notes", "")]);
        git(&up, &["clone", "-q", ".", fork.to_str().unwrap()]);
        commit(&fork, "Add two", &[("src/lib.rs", WITH_TWO)]);
        commit(&up, "Notes", &[("notes", "n\n")]);
        if upstream == Upstream::TookIt {
            commit(&up, "Add two (#7)", &[("src/lib.rs", WITH_TWO)]);
        }
        git(&up, &["tag", "v1.1.0"]);
        setting.consumer(&git(&fork, &["rev-parse", "HEAD"]));
        setting.checkout();
        setting
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn consumer(&self, head: &str) {
        let app = self.path("app");
        fs::create_dir_all(app.join("src")).unwrap();
        git(&app, &["init", "-q", "-b", "main"]);
        let manifest = format!(
            "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\n# The fork.\n[dependencies]\n\
             lib = {{ git = \"{}\", rev = \"{head}\" }}\n",
            self.address("ours/lib")
        );
        let main = "fn main() {\n    assert_eq!(lib::two(), 2);\n}\n";
        fs::write(app.join("Cargo.toml"), manifest).unwrap();
        fs::write(app.join("src/main.rs"), main).unwrap();
        cargo(&app, self.folder.path(), &["generate-lockfile"]);
        git(&app, &["add", "."]);
        git(&app, &["commit", "-q", "-m", "app"]);
    }

    fn checkout(&self) {
        let root = self.path("root");
        for folder in ["harness", "matrices", "patches/f"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("Cargo.toml"), "").unwrap();
        fs::write(root.join("harness/Cargo.toml"), "").unwrap();
        let fork = format!(
            "summary = \"\"\n[upstream]\nrepository = \"{}\"\nbranch = \"main\"\ntag-prefix = \"v\"\n\
             [stack]\nkind = \"branch\"\nrepository = \"{}\"\nbranch = \"main\"\n\
             [[consumers]]\nkind = \"cargo-git\"\ncheckout = \"{}\"\nfiles = [\"Cargo.toml\", \"Cargo.lock\"]\n",
            self.address("up/lib"),
            self.address("ours/lib"),
            self.path("app").display()
        );
        fs::write(root.join("patches/f/fork.toml"), fork).unwrap();
    }

    /// Writes `fork.toml` anew with more at its end.
    fn declare(&self, more: &str) {
        self.checkout();
        let file = self.path("root/patches/f/fork.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + more).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "a test may start the program that it tests")]
    fn drop_fork(&self, more: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["drop-fork", "f", "--format", "json"])
            .args(more)
            .current_dir(self.path("root"))
            .env_remove("CARGO_MANIFEST_DIR")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("the program starts")
    }
}

#[expect(clippy::disallowed_methods, reason = "a test may build what the program under test has changed")]
fn cargo(folder: &Path, home: &Path, args: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(folder)
        .env("CARGO_HOME", home.join("cargo-home"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_consumer_of_a_fork_that_upstream_has_taken_builds_from_plain_upstream() {
    let setting = Setting::new(Upstream::TookIt);
    let app = setting.path("app");
    let before = git(&app, &["rev-parse", "HEAD"]);
    let refused = setting.drop_fork(&[]);
    assert_eq!(refused.status.code(), Some(1), "no gate has passed upstream");
    // The fork's own conditions have to hold, too.
    setting.declare("[retirement]\nall = [{ version = \"2.0\" }, { symbol = \"two\" }]\n");
    let refused = setting.drop_fork(&["--unvalidated"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(json(&refused)["missing"][0].as_str().unwrap().contains("own condition is not met"));
    setting.declare("[retirement]\nall = [{ version = \"1.1.0\" }, { symbol = \"two\" }]\n");
    let output = setting.drop_fork(&["--unvalidated"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(&output)["decision"], "ready");
    // What is checked out has not moved.
    assert_eq!(
        (git(&app, &["rev-parse", "HEAD"]), git(&app, &["status", "--short"])),
        (before, String::new())
    );
    let message = git(&app, &["log", "-1", "--format=%B", "regraft/drop-f"]);
    for part in
        ["Use plain upstream v1.1.0 instead of fork f", "1. Add two", "upstream has it", "--unvalidated"]
    {
        assert!(message.contains(part), "{part} is missing in\n{message}");
    }
    git(&app, &["checkout", "-q", "regraft/drop-f"]);
    let manifest = fs::read_to_string(app.join("Cargo.toml")).unwrap();
    let onto = git(&setting.path("up/lib"), &["rev-parse", "HEAD"]);
    assert!(manifest.contains(&setting.address("up/lib")) && manifest.contains(&onto), "{manifest}");
    assert!(manifest.contains("# The fork.") && !manifest.contains("ours/lib"), "{manifest}");
    cargo(&app, setting.folder.path(), &["run", "--quiet", "--locked"]);
}

#[test]
fn a_live_patch_keeps_the_fork_and_is_named() {
    let setting = Setting::new(Upstream::DidNot);
    let output = setting.drop_fork(&["--unvalidated"]);
    assert_eq!(output.status.code(), Some(1));
    let document = json(&output);
    assert_eq!(
        (&document["decision"], &document["live"][0]["subject"]),
        (&"refused".into(), &"Add two".into())
    );
    assert!(document["live"][0]["why"].as_str().unwrap().contains("upstream has nothing like it"));
    assert_eq!(git(&setting.path("app"), &["branch", "--list", "regraft/*"]), "");
    // Giving it up knowingly is something else, and the commit says so.
    let output = setting.drop_fork(&["--unvalidated", "--accept-loss", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let message = git(&setting.path("app"), &["log", "-1", "--format=%B", "regraft/drop-f"]);
    assert!(message.contains("accepted as lost"), "{message}");
    setting.declare("[[patch]]\npatch = \"Add two\"\naccept-loss = \"nobody calls it\"\n");
    let output = setting.drop_fork(&["--unvalidated"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let message = git(&setting.path("app"), &["log", "-1", "--format=%B", "regraft/drop-f"]);
    assert!(message.contains("accepted as lost: nobody calls it (fork.toml)"), "{message}");
}
