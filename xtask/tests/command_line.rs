//! The built program: what it says where, and the code that it ends with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use harness::{
    config::spec::Thresholds,
    report::{self, Report, ReportInput},
    verdict::decide,
};
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// Runs the program in the repository with arguments that hold no spaces.
#[expect(clippy::disallowed_methods, reason = "a test may start the program that it tests")]
fn xtask(dir: &Path, args: &str) -> Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(args.split_whitespace())
        .current_dir(dir)
        .env_remove("CARGO_MANIFEST_DIR")
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

#[test]
fn plan_as_json_is_the_only_thing_on_stdout_and_stderr_is_silent() {
    let output = xtask(&repository(), "gate --plan --format json");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema"], serde_json::json!({"name": "gate-plan", "version": 1}));
    assert_eq!((&plan["candidate"], &plan["baseline"]), (&Value::from("patched"), &Value::from("published")));
    let first = &plan["cells"][0];
    assert_eq!(first["id"], "qwen3/source/8/logits/cpu");
    let (keys, run): (Vec<&String>, _) = (first.as_object().unwrap().keys().collect(), &first["run"]);
    assert_eq!(
        keys,
        ["id", "model", "precision", "context", "probe", "backend", "engine_role", "run", "why_not"]
    );
    assert_eq!(run, true);
}

#[test]
fn a_filter_and_a_candidate_change_the_plan() {
    let output = xtask(
        &repository(),
        "gate --plan --candidate published --filter */capital/cpu --filter llama/source/8",
    );
    assert_eq!(output.status.code(), Some(0));
    let plan = text(&output.stdout);
    assert!(
        plan.starts_with("matrix smoke: candidate published against baseline published, reference mlx-lm\n")
    );
    let runs = plan.split("\n\n").nth(1).unwrap();
    for cell in ["llama/source/8/logits/cpu", "llama/source/8/greedy/cpu", "smollm2/source/0/capital/cpu"] {
        assert!(runs.contains(cell), "{plan}");
    }
    assert!(!runs.contains("qwen3"), "{plan}");
}

#[test]
fn the_checkout_is_found_from_a_folder_below_it() {
    let output = xtask(&repository().join("harness/src"), "gate --plan");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn wrong_names_end_with_code_2_and_the_near_name() {
    let cases = [
        ("gate --plan --matrix smok", "error: there is no matrix `smok`\n  hint: did you mean `smoke`?\n"),
        (
            "gate --plan --candidate publishd",
            "error: there is no build `publishd`\n  hint: did you mean `published`?\n",
        ),
        (
            "gate --plan --filter qwen4",
            "error: no cell matches filter `qwen4`\n  hint: did you mean `qwen3`? (`--plan` lists all cells)\n",
        ),
    ];
    for (args, said) in cases {
        let output = xtask(&repository(), args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert_eq!(text(&output.stderr), said, "{args}");
        assert_eq!(text(&output.stdout), "", "{args}");
    }
    for args in ["gate --paln", "", "gate --plan --format yaml", "gate --filter="] {
        let output = xtask(&repository(), args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert_eq!(text(&output.stdout), "", "{args}");
    }
}

#[test]
fn three_mistakes_in_a_matrix_are_reported_together_with_line_and_column() {
    let smoke = fs::read_to_string(repository().join("matrices/smoke.toml")).unwrap();
    let broken = smoke
        .replacen("kv-heads = 2", "kv-heads = 3", 1)
        .replacen("contexts = [64]", "contexts = [0]", 1)
        .replacen("precisions", "quantisation", 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.toml");
    fs::write(&path, &broken).unwrap();
    let output = xtask(&repository(), &format!("gate --plan --format json --matrix {}", path.display()));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr).replace(path.to_str().unwrap(), "broken.toml");
    insta::assert_snapshot!(said, @"
    error: cannot read matrix `broken`
      caused by: broken.toml:19:12: `kv-heads` must divide `heads`, and 3 does not divide 4
                 broken.toml:117:1: `cells` lacks `precisions`
                 broken.toml:119:1: unknown axis `quantisation`; the axes of `cells` are models, precisions, contexts, probes, backends, exclude, timeout-s, memory-mib
                 broken.toml:127:13: probe `logits-short` needs a context of at least 1 token
      hint: correct broken.toml and try again
    ");
}

#[test]
fn outside_a_checkout_the_error_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = xtask(dir.path(), "gate --plan");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no Regraft checkout at or above"));
}

#[test]
fn help_is_on_stdout_and_ends_with_code_0() {
    let output = xtask(&repository(), "gate --help");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert!(text(&output.stdout).contains("--filter <PATTERN>"));
}

#[test]
fn what_is_meant_by_nothing_or_by_several_is_refused_with_what_there_is() {
    for (args, error, hint) in [
        ("judge /nope", "there is no run `/nope`", "its report.json"),
        ("history --report-dir nosuch", "there is no history below `nosuch`", "cargo xtask gate"),
        ("compare nosuch nosuch", "there is no run `nosuch`", "its report.json"),
        ("selftest --quick --only nosuch", "`nosuch`", "wrong-answer"),
        ("patch-report --explain 1", "patch 1 of which fork?", "name one fork: "),
        ("patch-report safemlx-lm safemlx-sys --trial", "they are of one fork", "FORK --trial"),
        ("patch-report safemlx-lm --filter qwen4 --trial", "no cell matches filter `qwen4`", "`qwen3`"),
        ("build --build publishd", "there is no build `publishd`", "`published`"),
        ("symbols Cargo.toml Cargo.toml", "`Cargo.toml` is not a static archive", "`!<arch>`"),
    ] {
        let output = xtask(&repository(), args);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{args}: {told}");
        assert!(told.contains(error) && told.contains(hint), "{args}: {told}");
    }
}

#[cfg(not(target_os = "macos"))]
#[test]
fn a_backend_that_this_system_has_no_library_for_is_refused() {
    let output = xtask(&repository(), "build --build published --backend metal");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("a build for metal cannot be made on linux\n  hint: this system builds for cpu"),
        "{told}"
    );
}

/// A finished run without cells on a machine with this processor, as a folder below `dir`.
fn finished_run(dir: &Path, name: &str, cpu: &str) -> String {
    let input = ReportInput {
        generated_by: "xtask 0".into(),
        command: "cargo xtask gate".into(),
        matrix: "smoke".into(),
        candidate: "patched".into(),
        baseline: "published".into(),
        reference: "mlx-lm".into(),
        builds: [].into(),
        thresholds: Thresholds::default(),
        environment: [("cpu".to_owned(), cpu.into()), ("threads".to_owned(), 2.into())].into(),
        started: "2026-01-01T00:00:00Z".into(),
        finished: "2026-01-01T00:01:00Z".into(),
    };
    let folder = dir.join(name);
    report::write(&folder, &Report::new(input, &[], &decide(&[])), &[]).expect("a folder can be written");
    folder.to_str().expect("the folder's name is text").to_owned()
}

#[test]
fn runs_of_different_machines_are_not_compared_and_those_of_one_are() {
    let dir = tempfile::tempdir().unwrap();
    let [here, again, there] = [("here", "cpu A"), ("again", "cpu A"), ("there", "cpu B")]
        .map(|(name, cpu)| finished_run(dir.path(), name, cpu));
    let output = xtask(&repository(), &format!("compare {here} {there}"));
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(4), ""));
    insta::assert_snapshot!(text(&output.stderr), @r#"
    error: the runs cannot be compared
           different machines: cpu is "cpu A" in the one and "cpu B" in the other
      hint: run both on one machine, with builds of one profile
    "#);
    let output = xtask(&repository(), &format!("compare {here} {again}"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("# patched beside patched"));
}
