//! MLX's own test program, compiled from the sources of the release against the official library that a build links to, and
//! run. Where MLX is compiled into the crates there is no library to test beside it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rayon::prelude::*;

use super::{
    compile::{BuildError, read_text},
    git,
    layout::Layout,
    provision::MlxWheel,
    store::StoreError,
    suites::{Counted, Suite, SuiteKind, SuiteStatus, first_error},
};
use crate::{event::EventSink, tools::process::Invocation};

/// The test framework that MLX's list fetches; the list names the version.
const DOCTEST: &str = "https://github.com/doctest/doctest";

/// How long one file may take to compile, or the tests to run.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Compiles and runs the tests; `runner` starts programs in an engine's environment.
pub(super) fn mlx_suite(
    wheel: &MlxWheel,
    layout: &Layout,
    home: &Path,
    runner: &Path,
    sink: &dyn EventSink,
) -> Suite {
    let name = format!("MLX {}", wheel.version);
    let sources = match sources(&wheel.version, layout, sink) {
        Ok(sources) => sources,
        Err(error) => {
            let why = format!("its sources cannot be had: {error}");
            return Suite::not_applicable(&name, SuiteKind::Doctest, &why);
        }
    };
    let log = home.join("logs/mlx.log");
    let objects = home.join("doctest");
    let made = fs::create_dir_all(&objects).map_err(StoreError::at("make", &objects));
    let program = objects.join("tests");
    let commands = commands(&sources, wheel, &objects, &program);
    let compiled = made.map_err(|error| (SuiteStatus::Broken, error.to_string())).and_then(|()| {
        let run = |command: &Invocation| {
            let done = command.run_ok();
            done.map(|_| ()).map_err(|error| match error.killed() {
                Some(killed) => (SuiteStatus::Killed, killed.to_string()),
                None => {
                    let why = first_error(error.stderr_tail()).unwrap_or_else(|| error.to_string());
                    (SuiteStatus::Broken, why)
                }
            })
        };
        let (compiles, link) = &commands;
        compiles.par_iter().map(run).collect::<Result<(), _>>()?;
        run(link)
    });
    if let Err((status, why)) = compiled {
        return Suite { status, why, ..Suite::not_applicable(&name, SuiteKind::Doctest, "") };
    }
    let mut test =
        Invocation::new(runner).arg(&program).arg("--no-colors").cwd(&objects).log(&log).timeout(TIMEOUT);
    if !cfg!(target_os = "macos") {
        test = test.env("DEVICE", "cpu");
    }
    super::suites::suite_of(&name, SuiteKind::Doctest, test.run(), &log)
}

/// Where what is compiled lies.
struct Sources {
    mlx: PathBuf,
    doctest: PathBuf,
    /// The test files, below MLX's `tests`.
    files: Vec<String>,
}

fn sources(version: &str, layout: &Layout, sink: &dyn EventSink) -> Result<Sources, BuildError> {
    let mlx = git::tagged(git::MLX, &format!("v{version}"), layout, sink)?;
    let mlx = git::checkout(&mlx, layout, sink)?;
    let list = read_text(&mlx.join("tests/CMakeLists.txt"))?;
    let tag = doctest_tag(&list).unwrap_or("v2.4.12");
    let doctest = git::checkout(&git::tagged(DOCTEST, tag, layout, sink)?, layout, sink)?;
    Ok(Sources { mlx, doctest, files: test_files(&list) })
}

/// The version of the framework that MLX's list names.
fn doctest_tag(list: &str) -> Option<&str> {
    let after = list.split("doctest.git").nth(1)?.split("GIT_TAG").nth(1)?;
    after.split([')', ' ', '\n']).find(|word| !word.is_empty())
}

/// The files of the program `tests` in MLX's list. Those for GPUs are left out: a build for the CPU has none, and the gate's
/// cells are about theirs.
fn test_files(list: &str) -> Vec<String> {
    let until = list.find("add_test").unwrap_or(list.len());
    let words = list[..until].split(|c: char| c.is_whitespace() || "()".contains(c));
    let files =
        words.filter(|word| word.ends_with(".cpp")).map(|word| word.rsplit('/').next().unwrap_or(word));
    files.filter(|file| *file != "gpu_tests.cpp").map(str::to_owned).collect()
}

/// One compile a file, then the link.
fn commands(
    sources: &Sources,
    wheel: &MlxWheel,
    objects: &Path,
    program: &Path,
) -> (Vec<Invocation>, Invocation) {
    let object = |file: &String| objects.join(format!("{file}.o"));
    let compile = |file: &String| {
        Invocation::new("c++")
            .args(["-std=c++20", "-O0", "-w", "-I"])
            .arg(wheel.folder.join("mlx/include"))
            .arg("-I")
            .arg(&sources.doctest)
            .arg("-c")
            .arg(sources.mlx.join("tests").join(file))
            .arg("-o")
            .arg(object(file))
            .timeout(TIMEOUT)
    };
    let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
    rpath.push(wheel.lib_dir());
    let link = Invocation::new("c++")
        .args(sources.files.iter().map(object))
        .arg(wheel.lib_dir().join(&wheel.library))
        .arg(rpath)
        .args(if cfg!(target_os = "linux") { &["-pthread"][..] } else { &[] })
        .arg("-o")
        .arg(program)
        .timeout(TIMEOUT);
    (sources.files.iter().map(compile).collect(), link)
}

/// Reads doctest's last lines, and which cases an error was told in.
pub(super) fn count(stdout: &str) -> Counted {
    let mut counted = Counted::default();
    let mut current = "";
    let mut failing: BTreeMap<&str, usize> = BTreeMap::new();
    for line in stdout.lines() {
        if let Some(name) = line.strip_prefix("TEST CASE:") {
            current = name.trim();
        } else if line.contains(": ERROR:") || line.contains(": FATAL ERROR:") {
            let order = failing.len();
            failing.entry(current).or_insert(order);
        } else if let Some(cases) = line.strip_prefix("[doctest] test cases:") {
            let figure = |word: &str| {
                let part = cases.split('|').find_map(|part| part.trim().strip_suffix(word));
                part.and_then(|figure| figure.trim().parse().ok()).unwrap_or(0)
            };
            counted.passed = figure(" passed");
            counted.failed = figure(" failed");
            counted.ignored = figure(" skipped");
            counted.reports += 1;
        }
    }
    let mut failing: Vec<(usize, &str)> = failing.into_iter().map(|(name, order)| (order, name)).collect();
    failing.sort_unstable();
    counted.failing = failing.into_iter().map(|(_, name)| name.to_owned()).collect();
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "FetchContent_Declare(\n  doctest\n  GIT_REPOSITORY https://example.org/doctest.git\n  GIT_TAG v2.4.12)\n\
        add_executable(tests ${PROJECT_SOURCE_DIR}/tests/tests.cpp)\nif(MLX_BUILD_METAL)\n  set(METAL_TEST_SOURCES gpu_tests.cpp)\n\
        endif()\ntarget_sources(\n  tests\n  PRIVATE a_tests.cpp\n          b_tests.cpp\n          ${METAL_TEST_SOURCES})\n\
        add_test(NAME tests COMMAND tests)\nadd_executable(test_teardown test_teardown.cpp)\n";

    #[test]
    fn framework_and_files_are_read_from_the_list() {
        assert_eq!(doctest_tag(LIST), Some("v2.4.12"));
        assert_eq!(test_files(LIST), ["tests.cpp", "a_tests.cpp", "b_tests.cpp"]);
        assert_eq!(doctest_tag("project(x)"), None);
    }

    #[test]
    fn cases_are_counted_and_those_with_errors_named() {
        let output = "====\na_tests.cpp:3:\nTEST CASE:  test allocator\n\na_tests.cpp:5: ERROR: CHECK( a ) is NOT correct!\n\
            a_tests.cpp:6: ERROR: CHECK( b ) is NOT correct!\n====\nb_tests.cpp:1:\nTEST CASE:  test noisy\n\nb.cpp:2: MESSAGE: hi\n\
            ====\nb_tests.cpp:9:\nTEST CASE:  test add\n  zero\n\nb_tests.cpp:9: FATAL ERROR: REQUIRE( c ) is NOT correct!\n====\n\
            [doctest] test cases:  215 |  213 passed | 2 failed | 1 skipped\n[doctest] assertions: 9 | 6 passed | 3 failed |\n\
            [doctest] Status: FAILURE!\n";
        let counted = count(output);
        assert_eq!((counted.passed, counted.failed, counted.ignored, counted.reports), (213, 2, 1, 1));
        assert_eq!(counted.failing, ["test allocator", "test add"]);
    }
}
