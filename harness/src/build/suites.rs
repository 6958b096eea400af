//! Runs the wrapper's own test suites against what a build is made of: the same crates with the same patches, the same MLX.
//! A suite that fails is a result; so is one that does not compile, and a package that was published without tests.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    build::{
        artifact::Artifact,
        compile::{self, BuildError, Ingredients, Purpose, RECORD},
        doctests, git,
        layout::Layout,
        provision::Toolbox,
        recipe::{self, CratePlan},
        steps::{Phase, step},
        store::{self, StoreError},
    },
    config::spec::BuildSpec,
    event::EventSink,
    tools::process::{Completed, Invocation, ProcessError},
};

/// How long one suite may take, compiling included.
const TIMEOUT: Duration = Duration::from_secs(5400);

/// One test suite and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// The crate, or what else is tested.
    pub name: String,
    /// What runs it.
    pub kind: SuiteKind,
    /// How it went.
    pub status: SuiteStatus,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out by whoever wrote them.
    pub ignored: u64,
    /// The names of those that failed, in the order of the output.
    pub failing: Vec<String>,
    /// What a person has to know beside the figures; empty where there is nothing.
    pub why: String,
    /// How long it took, compiling included, in seconds.
    pub took_s: f64,
    /// Everything that was printed; absent where nothing was run.
    pub log: Option<PathBuf>,
}

/// What runs a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SuiteKind {
    /// `cargo test`.
    Cargo,
    /// MLX's own doctest program.
    Doctest,
    /// `swift test`.
    Swift,
}

/// How a suite went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SuiteStatus {
    /// All its tests passed.
    Passed,
    /// Some did not, or the program that runs them died.
    Failed,
    /// It does not compile.
    Broken,
    /// It was killed, so that nothing is known.
    Killed,
    /// The package holds no test.
    NoTests,
    /// It cannot run here, or not for this build.
    NotApplicable,
}

impl Suite {
    pub(super) fn not_applicable(name: &str, kind: SuiteKind, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            status: SuiteStatus::NotApplicable,
            passed: 0,
            failed: 0,
            ignored: 0,
            failing: Vec::new(),
            why: why.to_owned(),
            took_s: 0.0,
            log: None,
        }
    }

    /// Whether it speaks against the build.
    pub fn is_bad(&self) -> bool {
        matches!(self.status, SuiteStatus::Failed | SuiteStatus::Broken)
    }

    /// Status and figures, for people.
    pub fn summary(&self) -> String {
        let figures = || {
            let Self { passed, failed, ignored, took_s, .. } = self;
            format!("{passed} passed, {failed} failed, {ignored} ignored, {took_s:.0} s")
        };
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        match self.status {
            SuiteStatus::Passed | SuiteStatus::Failed => figures() + &why,
            SuiteStatus::Broken => format!("does not compile{why}"),
            SuiteStatus::Killed => format!("no result{why}"),
            SuiteStatus::NoTests => "no tests in the package".to_owned(),
            SuiteStatus::NotApplicable => format!("not run{why}"),
        }
    }
}

/// Runs every suite of a build's sources, one after the other, and adds what came of them to the build's record.
///
/// # Errors
/// When the sources cannot be had. How the suites go is in the result.
pub fn upstream_tests(
    spec: &BuildSpec,
    artifact: &Artifact,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<Vec<Suite>, BuildError> {
    let steps = u64::try_from(spec.crates.len()).unwrap_or_default();
    let phase = Phase::start(sink, format!("upstream tests of {}", spec.name), steps);
    let Ingredients { mlx, crates, toolchain } = compile::ingredients(spec, layout, toolbox, sink)?;
    let _lock = compile::wait_for_other_builds(layout, sink)?;
    let (copies, _) = compile::patched_sources(spec, &crates, layout, sink)?;
    let home = layout.work.join("suites").join(&spec.name);
    if home.exists() {
        fs::remove_dir_all(&home).map_err(StoreError::at("clear away", &home))?;
    }
    // Dependencies are found compiled where the build has left them.
    let package = compile::scratch_copy(spec, &home, &copies, layout)?;
    let command =
        compile::cargo_on(spec, &package, &mlx, layout, toolbox, &toolchain, Purpose::Test)?.invocation;
    let tools = Tools::write(&home, &command, mlx.linked_library().as_deref(), toolbox)?;
    let command = tools.put_into(command, &toolchain.target);
    let lock = compile::read_text(&package.join("Cargo.lock"))?;
    let features = Features::read(&compile::read_text(&package.join("Cargo.toml"))?);
    let revision = home.join("revision");
    if let Some(source) = &spec.git {
        fs::create_dir_all(&revision).map_err(StoreError::at("make", &revision))?;
        git::unpack(source, layout, &revision, sink)?;
        store::write_whole(&revision.join("Cargo.lock"), lock.as_bytes())?;
    }
    let mut suites = Vec::new();
    for plan in &crates {
        let folder = match &plan.folder {
            Some(inner) => revision.join(inner),
            None => own_copy(plan, &copies, &home, &lock)?,
        };
        let name = format!("{} {}", plan.name, plan.version);
        let log = home.join("logs").join(format!("{}.log", plan.name));
        let test = Invocation { args: Vec::new(), ..command.clone() }
            .args(["test", "--release", "--no-fail-fast", "--package", plan.name.as_str()])
            .args(features.of(&plan.name))
            .cwd(&folder)
            .timeout(TIMEOUT)
            .log(&log);
        let suite = step(sink, format!("tests of {name}"), Suite::summary, || {
            Ok::<_, BuildError>(suite_of(&name, SuiteKind::Cargo, test.run(), &log))
        })?;
        suites.push(suite);
    }
    suites.push(match mlx.wheel() {
        Some(wheel) => step(sink, format!("tests of MLX {}", wheel.version), Suite::summary, || {
            Ok::<_, BuildError>(doctests::mlx_suite(wheel, layout, &home, &tools.runner, sink))
        })?,
        None => Suite::not_applicable(
            "MLX",
            SuiteKind::Doctest,
            "it is compiled into the crates, and no library is left to test",
        ),
    });
    suites.extend(swift_tests(&revision, &home, sink)?);
    record(artifact, &suites)?;
    phase.finish();
    Ok(suites)
}

/// The Swift package of a revision, if it is one.
fn swift_tests(revision: &Path, home: &Path, sink: &dyn EventSink) -> Result<Option<Suite>, BuildError> {
    if !revision.join("Package.swift").is_file() {
        return Ok(None);
    }
    if !cfg!(target_os = "macos") {
        return Ok(Some(Suite::not_applicable("swift", SuiteKind::Swift, "`swift test` needs macOS")));
    }
    let log = home.join("logs/swift.log");
    let test = Invocation::new("swift").arg("test").cwd(revision).timeout(TIMEOUT).log(&log);
    step(sink, "swift test", Suite::summary, || Ok(suite_of("swift", SuiteKind::Swift, test.run(), &log)))
        .map(Some)
}

/// A copy of a crate from a registry as a package of its own: with the build's lock, and with the build's copies of the
/// crates that it needs.
fn own_copy(
    plan: &CratePlan,
    copies: &[(CratePlan, PathBuf)],
    home: &Path,
    lock: &str,
) -> Result<PathBuf, BuildError> {
    let folder = home.join("crates").join(&plan.name);
    fs::create_dir_all(&folder).map_err(StoreError::at("make", &folder))?;
    compile::patched_copy(plan, &folder)?;
    let others: Vec<(String, PathBuf)> = copies
        .iter()
        .filter(|(copy, _)| copy.name != plan.name)
        .map(|(copy, path)| (copy.name.clone(), path.clone()))
        .collect();
    let manifest = folder.join("Cargo.toml");
    let text = compile::read_text(&manifest)?;
    let alone = if text.lines().any(|line| line.trim() == "[workspace]") { "" } else { "\n[workspace]\n" };
    store::write_whole(&manifest, format!("{text}{alone}{}", recipe::patch_table(&others)).as_bytes())?;
    store::write_whole(&folder.join("Cargo.lock"), lock.as_bytes())?;
    Ok(folder)
}

/// The features that the runner asks of each crate: a suite is run with those that ship.
struct Features(toml::Table);

impl Features {
    fn read(manifest: &str) -> Self {
        let manifest: toml::Table = manifest.parse().unwrap_or_default();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        Self(dependencies.cloned().unwrap_or_default())
    }

    fn of(&self, package: &str) -> Vec<String> {
        let Some(table) = self.0.get(package).and_then(toml::Value::as_table) else { return Vec::new() };
        let mut args = Vec::new();
        if table.get("default-features").and_then(toml::Value::as_bool) == Some(false) {
            args.push("--no-default-features".to_owned());
        }
        let features = table.get("features").and_then(toml::Value::as_array);
        let features: Vec<&str> = features.into_iter().flatten().filter_map(toml::Value::as_str).collect();
        if !features.is_empty() {
            args.extend(["--features".to_owned(), features.join(",")]);
        }
        args
    }
}

/// Two small scripts in cargo's way: a linker that adds the MLX library, which the crates leave to whoever links a program,
/// and a runner that gives tests the environment that engines have. With them the compiled dependencies of the build serve.
struct Tools {
    linker: PathBuf,
    runner: PathBuf,
}

impl Tools {
    fn write(
        home: &Path,
        command: &Invocation,
        library: Option<&Path>,
        toolbox: &Toolbox,
    ) -> Result<Self, BuildError> {
        let empty = command.env.get(std::ffi::OsStr::new("REGRAFT_LINK_DIR"));
        let empty = empty.map_or_else(String::new, |dir| dir.to_string_lossy().into_owned());
        // rustc tells from a linker's name which options it takes.
        let tools = Self { linker: home.join("tools/cc"), runner: home.join("tools/run") };
        let env: Vec<(String, String)> = toolbox.engine_env().into_iter().collect();
        for (path, text) in
            [(&tools.linker, linker_script(&empty, library)), (&tools.runner, runner_script(&env))]
        {
            store::write_whole(path, text.as_bytes())?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
                .map_err(StoreError::at("make executable", path))?;
        }
        Ok(tools)
    }

    fn put_into(&self, command: Invocation, target: &str) -> Invocation {
        let target = target.to_uppercase().replace(['-', '.'], "_");
        command
            .env(format!("CARGO_TARGET_{target}_LINKER"), &self.linker)
            .env(format!("CARGO_TARGET_{target}_RUNNER"), &self.runner)
    }
}

fn linker_script(empty_libraries: &str, library: Option<&Path>) -> String {
    let quoted =
        |text: &str| shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned);
    let beside = library.map_or_else(String::new, |library| {
        let folder = library.parent().unwrap_or(Path::new(".")).to_string_lossy();
        // Build scripts and macros are linked by it, too; they do not need the library and shall not load it.
        let as_needed = if cfg!(target_os = "macos") { "-Wl,-dead_strip_dylibs" } else { "-Wl,--as-needed" };
        format!(
            " {as_needed} {} {}",
            quoted(&library.to_string_lossy()),
            quoted(&format!("-Wl,-rpath,{folder}"))
        )
    });
    format!("#!/bin/sh\nexec cc -L{} \"$@\"{beside}\n", quoted(empty_libraries))
}

fn runner_script(env: &[(String, String)]) -> String {
    let quoted =
        |text: &str| shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned);
    let words: String =
        env.iter().map(|(name, value)| format!("{} ", quoted(&format!("{name}={value}")))).collect();
    format!("#!/bin/sh\nexec env {words}\"$@\"\n")
}

/// What a suite's output says.
pub(super) fn suite_of(
    name: &str,
    kind: SuiteKind,
    ran: Result<Completed, ProcessError>,
    log: &Path,
) -> Suite {
    let none = Suite { log: Some(log.to_owned()), ..Suite::not_applicable(name, kind, "") };
    let done = match ran {
        Ok(done) => done,
        Err(ProcessError::TimedOut { timeout, .. }) => {
            let (took_s, why) = (timeout.as_secs_f64(), format!("ended after {} s", timeout.as_secs()));
            return Suite { status: SuiteStatus::Failed, why, took_s, ..none };
        }
        Err(error) => return Suite { status: SuiteStatus::Broken, why: error.to_string(), ..none },
    };
    let counted = match kind {
        SuiteKind::Swift => count_swift(&format!("{}\n{}", done.stdout, done.stderr_tail)),
        SuiteKind::Doctest => doctests::count(&done.stdout),
        SuiteKind::Cargo => count_libtest(&done.stdout),
    };
    let Counted { passed, failed, ignored, failing, reports } = counted;
    if let (Some(killed), 0) = (done.killed(), failed) {
        let (status, why, took_s) = (SuiteStatus::Killed, killed.to_string(), done.took.as_secs_f64());
        return Suite { status, passed, ignored, why, took_s, ..none };
    }
    let complaint = || first_error(&done.stderr_tail).unwrap_or_else(|| done.status.to_string());
    let (status, why) = match (done.status.success(), reports, failed) {
        (true, _, 0) if passed + ignored == 0 => (SuiteStatus::NoTests, String::new()),
        (true, ..) => (SuiteStatus::Passed, String::new()),
        (false, 0, _) => (SuiteStatus::Broken, complaint()),
        (false, _, 0) => (SuiteStatus::Failed, complaint()),
        // Tests that failed, and perhaps a program that died on top.
        (false, ..) => (SuiteStatus::Failed, killed(&done.stderr_tail).unwrap_or_default()),
    };
    Suite { status, passed, failed, ignored, failing, why, took_s: done.took.as_secs_f64(), ..none }
}

/// What test programs said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    pub(super) failing: Vec<String>,
    /// How many programs said how they went.
    pub(super) reports: usize,
}

/// Adds up what Rust's test programs print: one summary each, and where a program died before it, its lines.
fn count_libtest(stdout: &str) -> Counted {
    let mut counted = Counted::default();
    // Passed, failed and ignored of the program that speaks.
    let mut open = [0_u64; 3];
    let add = |counted: &mut Counted, [passed, failed, ignored]: [u64; 3]| {
        counted.passed += passed;
        counted.failed += failed;
        counted.ignored += ignored;
    };
    for line in stdout.lines() {
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            let figure = |word: &str| {
                let part = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
                part.and_then(|figure| figure.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            add(&mut counted, [figure(" passed"), figure(" failed"), figure(" ignored")]);
            counted.reports += 1;
            open = [0; 3];
        } else if line.starts_with("running ") {
            add(&mut counted, std::mem::take(&mut open));
        } else if let Some((name, end)) =
            line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "))
        {
            match end.split([',', ' ']).next() {
                Some("ok") => open[0] += 1,
                Some("FAILED") => {
                    open[1] += 1;
                    counted.failing.push(name.to_owned());
                }
                Some("ignored") => open[2] += 1,
                _ => {}
            }
        }
    }
    if open != [0; 3] {
        counted.reports += 1;
    }
    add(&mut counted, open);
    counted
}

/// Reads XCTest's words: a line for each test that failed, and `Executed N tests, with M failures` for each suite, the whole
/// last.
fn count_swift(output: &str) -> Counted {
    let mut counted = Counted::default();
    for line in output.lines() {
        if let Some(rest) = line.trim().strip_prefix("Executed ") {
            let number =
                |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            let all = number(rest).unwrap_or(0);
            let failed = rest.split_once("with ").and_then(|(_, rest)| number(rest)).unwrap_or(0);
            (counted.passed, counted.failed) = (all.saturating_sub(failed), failed);
            counted.reports += 1;
        } else if let Some(rest) = line.trim().strip_prefix("Test Case '")
            && let Some((name, "failed")) = rest
                .split_once('\'')
                .map(|(name, rest)| (name, rest.trim().split(' ').next().unwrap_or_default()))
        {
            counted.failing.push(name.to_owned());
        }
    }
    counted
}

/// How a program was killed, else the first complaint of a compiler, else the first of cargo.
pub(super) fn first_error(stderr: &str) -> Option<String> {
    let lines = || stderr.lines().map(str::trim);
    let of_compiler = |line: &&str| line.starts_with("error[") || line.contains(": error: ");
    killed(stderr).or_else(|| {
        let found = lines().find(of_compiler).or_else(|| lines().find(|line| line.starts_with("error")));
        found.map(str::to_owned)
    })
}

/// That a test program was killed, and what it said before.
fn killed(stderr: &str) -> Option<String> {
    let lines: Vec<&str> = stderr.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.contains("(signal: "))?;
    let signal = lines[at].rsplit_once("(signal: ").map_or("", |(_, signal)| signal.trim_end_matches(')'));
    let said = lines[..at].iter().rfind(|line| line.starts_with("what():") || line.contains("panicked"));
    Some(format!(
        "a test program ended with signal {signal}{}",
        said.map_or_else(String::new, |said| format!(": {said}"))
    ))
}

/// Puts the suites into the record beside the program.
fn record(artifact: &Artifact, suites: &[Suite]) -> Result<(), BuildError> {
    let Some(folder) = artifact.program.parent() else { return Ok(()) };
    let path = folder.join(RECORD);
    let text = compile::read_text(&path)?;
    let mut record: Value = serde_json::from_str(&text)
        .map_err(|source| BuildError::Read { path: path.clone(), source: source.into() })?;
    record["log"]["upstream_tests"] = json!(suites);
    Ok(store::write_whole(&path, format!("{record:#}\n").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn done(code: i32, stdout: &str, stderr: &str) -> Result<Completed, ProcessError> {
        Ok(Completed {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: stdout.to_owned(),
            stdout_bytes: Vec::new(),
            stderr_tail: stderr.to_owned(),
            took: Duration::from_secs(3),
        })
    }

    fn suite(code: i32, stdout: &str, stderr: &str) -> Suite {
        suite_of("s 1", SuiteKind::Cargo, done(code, stdout, stderr), Path::new("/l"))
    }

    const ONE: &str = "running 3 tests\ntest a::b ... ok\ntest a::c ... ignored\ntest a::d ... ok\n\n\
        test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
    const TWO: &str = "running 2 tests\ntest src/lib.rs - f (line 3) ... FAILED\ntest e ... ok\n\nfailures:\n    e\n\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";

    #[test]
    fn the_figures_of_all_programs_of_a_suite_are_added_up() {
        let passed = suite(0, &format!("{ONE}{ONE}"), "");
        assert_eq!((passed.status, passed.passed, passed.ignored), (SuiteStatus::Passed, 4, 2));
        let failed = suite(101, &format!("{ONE}{TWO}"), "error: 1 target failed:\n    `--doc`\n");
        assert_eq!((failed.status, failed.passed, failed.failed), (SuiteStatus::Failed, 3, 1));
        assert_eq!(failed.failing, ["src/lib.rs - f (line 3)"]);
        assert!(failed.is_bad() && !passed.is_bad());
        assert_eq!(failed.summary(), "3 passed, 1 failed, 1 ignored, 3 s");
    }

    #[test]
    fn a_program_that_dies_a_suite_that_does_not_compile_and_a_package_without_tests_are_told_apart() {
        let stderr = "error: test failed, to rerun pass `--lib`\n\nCaused by:\n  process didn't exit successfully: \
                      `x` (signal: 6, SIGABRT: process abort signal)\nerror: 1 target failed:\n";
        let died = suite(101, ONE, stderr);
        assert_eq!(died.status, SuiteStatus::Failed);
        assert_eq!(died.why, "a test program ended with signal 6, SIGABRT: process abort signal");
        // It died in the middle of its tests, after one had failed; the doctests then ran to their end.
        let cut = "running 9 tests\ntest a ... ok\ntest b - should panic ... ok\ntest c ... FAILED\n";
        let said = format!("terminate called\n  what():  no stream\n{stderr}");
        let died = suite(101, &format!("{cut}{ONE}"), &said);
        assert_eq!((died.passed, died.failed, died.ignored), (4, 1, 1));
        assert!(died.why.ends_with("process abort signal: what():  no stream"), "{}", died.why);
        assert_eq!(suite(101, cut, stderr).status, SuiteStatus::Failed);
        let broken = suite(101, "", "error[E0432]: unresolved import `x`\nerror: could not compile `s`\n");
        assert_eq!(broken.status, SuiteStatus::Broken);
        assert_eq!(broken.summary(), "does not compile: error[E0432]: unresolved import `x`");
        let stderr = "error: could not compile `s`\n\nCaused by:\n  process didn't exit successfully: `rustc` (signal: 9, \
                      SIGKILL: kill)\n";
        // Tests that failed before stay failures.
        assert_eq!(suite(101, cut, stderr).status, SuiteStatus::Failed);
        let ended = suite(101, "", stderr);
        assert_eq!(ended.status, SuiteStatus::Killed);
        assert_eq!(ended.summary(), "no result: ended by SIGKILL, most likely because memory ran out");
        let empty =
            "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(suite(0, empty, "").status, SuiteStatus::NoTests);
        assert!(!suite(0, empty, "").is_bad());
    }

    #[test]
    fn the_last_count_of_xctest_is_that_of_the_whole() {
        let output = "Test Case 'ArrayTests.testSum' failed (0.1 seconds)\nTest Case 'ArrayTests.testMul' passed (0.1 s)\n\
             \t Executed 2 tests, with 1 failure (0 unexpected) in 0.2 (0.2) seconds\n\
             \t Executed 12 tests, with 1 failure (0 unexpected) in 0.4 (0.4) seconds\n";
        let counted = count_swift(output);
        assert_eq!((counted.passed, counted.failed), (11, 1));
        assert_eq!(counted.failing, ["ArrayTests.testSum"]);
    }

    #[test]
    fn a_suite_has_the_features_that_the_runner_asks_for() {
        let features = Features::read(
            "[dependencies]\na = { version = \"1\", default-features = false, features = [\"x\", \"y\"] }\nb = \"2\"\n",
        );
        assert_eq!(features.of("a"), ["--no-default-features", "--features", "x,y"]);
        assert_eq!((features.of("b"), features.of("c")), (Vec::<String>::new(), Vec::new()));
    }

    #[test]
    fn scripts_quote_what_they_hold() {
        let script = runner_script(&[("LD_PRELOAD".to_owned(), "/a b/lib.so".to_owned())]);
        assert_eq!(script, "#!/bin/sh\nexec env 'LD_PRELOAD=/a b/lib.so' \"$@\"\n");
        assert_eq!(runner_script(&[]), "#!/bin/sh\nexec env \"$@\"\n");
        let script = linker_script("/e", Some(Path::new("/a b/lib/libmlx.so")));
        if cfg!(target_os = "linux") {
            assert_eq!(
                script,
                "#!/bin/sh\nexec cc -L/e \"$@\" -Wl,--as-needed '/a b/lib/libmlx.so' '-Wl,-rpath,/a b/lib'\n"
            );
        }
    }
}
