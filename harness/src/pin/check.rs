//! Does what depends on a pin still build, and what does it measure? The commands of `[[consumers]] check` and `[[probes]]`, run
//! in a clone of the consumer in which the pins have moved. The consumer itself is not touched, and how a command ends is a
//! value.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use regex::Regex;
use serde::Serialize;

use super::update::{HomeUpdate, Planned, pins_in};
use crate::{
    config::fork::{CommandLine, ConsumerHome, ProbeSpec},
    event::{Event, EventSink},
    fork::open::Source,
    tools::{
        git::{clone, ids::CommitId, mirror},
        process::{Invocation, ProcessError},
    },
};

/// How long a declared command may take.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Variables by which a surrounding cargo would choose toolchain, package and output of a consumer's own cargo.
const OF_CARGO: [&str; 6] = [
    "CARGO",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_MANIFEST_DIR",
    "RUSTUP_TOOLCHAIN",
    "RUSTC",
];

/// What is declared about one consumer, and what it showed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HomeChecks {
    /// The consumer.
    pub consumer: String,
    /// Its commit that was checked: the one with the pins moved.
    pub commit: CommitId,
    /// Every command, in the order of `fork.toml`, checks first.
    pub runs: Vec<CheckRun>,
}

/// One command and how it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckRun {
    /// The probe's name; absent for a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// The command, as `fork.toml` has it.
    pub command: String,
    /// How it went.
    pub result: CheckResult,
    /// Its exit code, where it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What shows the result.
    pub why: String,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The figures that a probe's patterns found in what it printed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, f64>,
    /// Everything that it printed; absent when it was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}

/// How a command went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// It ended with code 0, and every figure was found.
    Pass,
    /// It did not.
    Fail,
    /// It was not run.
    Skipped,
}

impl CheckResult {
    /// The word for it in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }
}

/// Why nothing could be run.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The clone could not be made.
    #[error("cannot clone `{}` for its checks", .repository.display())]
    Clone {
        /// The consumer's repository.
        repository: PathBuf,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// A folder could not be made.
    #[error("cannot make a folder for the checks of {consumer}")]
    Folder {
        /// The consumer.
        consumer: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl CheckError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Clone { source, .. } => source.hint(),
            Self::Folder { source, .. } => crate::tools::disk::hint(source),
        }
    }
}

impl HomeChecks {
    /// Whether every command passed.
    pub fn all_pass(&self) -> bool {
        self.runs.iter().all(|run| run.result == CheckResult::Pass)
    }
}

/// What is to be run in one home.
#[derive(Debug, Clone, Default)]
pub struct Declared<'p> {
    /// The checks of its consumers, each once.
    pub checks: Vec<&'p CommandLine>,
    /// Its probes.
    pub probes: Vec<&'p ProbeSpec>,
}

impl<'p> Declared<'p> {
    /// What the forks of `planned` declare about `home`.
    pub fn of(home: &ConsumerHome, planned: &'p [Planned]) -> Self {
        let mut checks: Vec<&CommandLine> = Vec::new();
        for line in pins_in(home, planned).into_iter().flat_map(|(_, consumer)| &consumer.check) {
            if !checks.contains(&line) {
                checks.push(line);
            }
        }
        let probes = planned.iter().flat_map(|fork| &fork.spec.probes).filter(|probe| probe.home == *home);
        Self { checks, probes: probes.collect() }
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.probes.is_empty()
    }

    fn each(&self) -> impl Iterator<Item = (Option<&'p ProbeSpec>, &'p CommandLine)> {
        let probes = self.probes.iter().map(|probe| (Some(*probe), &probe.command));
        self.checks.iter().map(|line| (None, *line)).chain(probes)
    }
}

/// Runs what is declared about one home in a clone of it. Where a pin did not move, nothing is run: it would not be the
/// candidate that is checked.
///
/// # Errors
/// When the clone cannot be made. How commands end is in the result.
pub fn check_home(
    declared: &Declared<'_>,
    update: &HomeUpdate,
    planned: &[Planned],
    source: &Source,
    logs: &Path,
    events: &dyn EventSink,
) -> Result<HomeChecks, CheckError> {
    let commit = update.branch.as_ref().map_or(update.from, |(_, head)| *head);
    let consumer = update.consumer.clone();
    if !update.is_whole() {
        let runs = declared.each().map(|(probe, line)| skipped(probe, line, "a pin did not move")).collect();
        return Ok(HomeChecks { consumer, commit, runs });
    }
    let folder = |source| CheckError::Folder { consumer: update.consumer.clone(), source };
    fs::create_dir_all(logs).map_err(folder)?;
    // Not below the checkout: cargo would take its workspace for the consumer's.
    let scratch = tempfile::tempdir().map_err(folder)?;
    let files = scratch.path().join("consumer");
    clone::scratch_clone(&update.repository, commit, &files).map_err(|source| CheckError::Clone {
        repository: update.repository.clone(),
        source: Box::new(source),
    })?;
    let variables = variables(planned, source);
    let mut runs = Vec::new();
    let mut broken = None;
    if files.join(".gitmodules").is_file() {
        let words = ["git", "submodule", "update", "--init", "--recursive"].map(str::to_owned).to_vec();
        let line = CommandLine { text: words.join(" "), words };
        let run = run(None, &line, &files, &variables, &logs.join("submodules.log"), events);
        broken = (run.result == CheckResult::Fail).then_some("its submodules could not be had");
        runs.push(run);
    }
    for (number, (probe, line)) in (1..).zip(declared.each()) {
        runs.push(match broken {
            Some(why) => skipped(probe, line, why),
            None => run(probe, line, &files, &variables, &logs.join(format!("{number}.log")), events),
        });
    }
    Ok(HomeChecks { consumer, commit, runs })
}

/// With local mirrors, git and cargo read the pinned repositories from there, too.
fn variables(planned: &[Planned], source: &Source) -> Vec<(String, String)> {
    let Source::Mirrors(mirrors) = source else { return Vec::new() };
    let of = |fork: &Planned| {
        let mut addresses = vec![fork.spec.upstream.repository.clone()];
        addresses.extend(fork.spec.push.as_ref().map(|push| push.repository.clone()));
        addresses.extend(fork.spec.stack.repository().map(str::to_owned));
        addresses
    };
    let mut local: Vec<(String, PathBuf)> = planned
        .iter()
        .flat_map(of)
        .filter_map(|address| Some((address.clone(), mirror::find_mirror(mirrors, &address).ok()?)))
        .collect();
    local.sort();
    local.dedup();
    let inherited = env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    let mut variables = clone::redirections(&local, inherited);
    variables.push(("CARGO_NET_GIT_FETCH_WITH_CLI".to_owned(), "true".to_owned()));
    variables
}

fn skipped(probe: Option<&ProbeSpec>, line: &CommandLine, why: &str) -> CheckRun {
    CheckRun {
        probe: probe.map(|probe| probe.name.clone()),
        command: line.text.clone(),
        result: CheckResult::Skipped,
        exit_code: None,
        why: why.to_owned(),
        took_s: 0.0,
        numbers: BTreeMap::new(),
        log: None,
    }
}

fn run(
    probe: Option<&ProbeSpec>,
    line: &CommandLine,
    files: &Path,
    variables: &[(String, String)],
    log: &Path,
    events: &dyn EventSink,
) -> CheckRun {
    events.emit(Event::Note(format!("running `{}`", line.text)));
    let ended = run_words(&line.words, files, variables, log);
    let mut run = CheckRun {
        result: if ended.passed { CheckResult::Pass } else { CheckResult::Fail },
        exit_code: ended.exit_code,
        why: ended.why.clone(),
        took_s: ended.took_s,
        log: Some(log.to_owned()),
        ..skipped(probe, line, "")
    };
    for (name, pattern) in probe.into_iter().flat_map(|probe| &probe.numbers) {
        match last_number(pattern, &ended.printed) {
            Some(figure) => {
                run.numbers.insert(name.clone(), figure);
            }
            None if run.result == CheckResult::Pass => {
                run.result = CheckResult::Fail;
                run.why = format!("it passed and printed no {name}: nothing matches `{pattern}`");
            }
            None => {}
        }
    }
    run
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Whether with code 0.
    pub passed: bool,
    /// The code, where it ended by itself.
    pub exit_code: Option<i32>,
    /// The time that it took, or how it ended and its last words.
    pub why: String,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// What it printed: all of stdout, and the end of stderr.
    pub printed: String,
    /// Why nothing is known of it: there is no such program or no log, or it was killed.
    pub no_answer: Option<Box<ProcessError>>,
}

/// Runs a command in `files`, as a person would there: no variable of a surrounding cargo chooses anything for it.
pub fn run_words(words: &[String], files: &Path, variables: &[(String, String)], log: &Path) -> Ended {
    let failed = |why: String, took_s| Ended {
        passed: false,
        exit_code: None,
        why,
        took_s,
        printed: String::new(),
        no_answer: None,
    };
    let Some((program, args)) = words.split_first() else {
        return failed("the command is empty".to_owned(), 0.0);
    };
    // Logs are added to; this one is to hold one run.
    let _ = fs::remove_file(log);
    let mut invocation = Invocation::new(program).args(args).cwd(files).log(log).timeout(TIMEOUT);
    invocation = invocation.env_remove(OF_CARGO);
    for (name, value) in variables {
        invocation = invocation.env(name, value);
    }
    match invocation.run() {
        Ok(done) => {
            let took_s = done.took.as_secs_f64();
            let exit_code = done.status.code();
            let printed = format!("{}\n{}", done.stdout, done.stderr_tail);
            if done.status.success() {
                return Ended {
                    passed: true,
                    exit_code,
                    why: format!("{took_s:.1} s"),
                    printed,
                    ..failed(String::new(), took_s)
                };
            }
            let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
            let last = last(&done.stderr_tail).or_else(|| last(&done.stdout));
            let last = last.unwrap_or_else(|| "it printed nothing".to_owned());
            let (why, no_answer) = match done.killed() {
                Some(killed) => (killed.to_string(), Some(Box::new(invocation.failure(&done)))),
                None => (format!("{}: {}", done.status, last.trim()), None),
            };
            Ended { exit_code, printed, no_answer, ..failed(why, took_s) }
        }
        Err(ProcessError::TimedOut { timeout, .. }) => {
            failed(format!("ended after {} s", timeout.as_secs()), timeout.as_secs_f64())
        }
        Err(error) => {
            let why = format!("{error}{}", super::update::causes(&error));
            Ended { no_answer: Some(Box::new(error)), ..failed(why, 0.0) }
        }
    }
}

/// The number in the first group of the last match.
fn last_number(pattern: &str, text: &str) -> Option<f64> {
    let found = Regex::new(pattern).ok()?.captures_iter(text).last()?;
    found.get(1)?.as_str().replace(['_', ','], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Silent;

    fn line(text: &str) -> CommandLine {
        CommandLine { text: text.to_owned(), words: shlex::split(text).unwrap() }
    }

    #[test]
    fn how_a_command_ends_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let run = |text: &str| run_words(&line(text).words, dir.path(), &[], &dir.path().join("log"));
        let passed = run("true");
        assert!(passed.passed && passed.exit_code == Some(0), "{passed:?}");
        let failed = run("sh -c 'echo warming up; echo no such kernel >&2; exit 7'");
        assert_eq!((failed.exit_code, failed.why.as_str()), (Some(7), "exit status: 7: no such kernel"));
        let killed = run("sh -c 'kill -9 $$'");
        assert!(!killed.passed && killed.no_answer.is_some(), "{killed:?}");
        assert_eq!(killed.why, "ended by SIGKILL, most likely because memory ran out");
        let absent = run("regraft-no-such-program");
        assert!(absent.no_answer.is_some() && absent.why.starts_with("cannot start `"), "{absent:?}");
    }

    #[test]
    fn the_figures_of_a_probe_are_those_of_the_last_match_and_a_missing_one_fails_it() {
        let dir = tempfile::tempdir().unwrap();
        let probe = |name: &str, pattern: &str| ProbeSpec {
            name: name.to_owned(),
            home: ConsumerHome::Fork("x".to_owned()),
            command: line("sh -c 'echo decode: 7.5 tok/s; echo decode: 1,208.25 tok/s'"),
            numbers: BTreeMap::from([("tok_s".to_owned(), pattern.to_owned())]),
        };
        let run = |probe: &ProbeSpec| {
            let log = dir.path().join(&probe.name);
            super::run(Some(probe), &probe.command, dir.path(), &[], &log, &Silent)
        };
        let found = run(&probe("a", r"decode: ([0-9.,]+) tok/s"));
        assert_eq!((found.result, found.numbers["tok_s"]), (CheckResult::Pass, 1208.25));
        let missing = run(&probe("b", r"prefill: ([0-9.]+)"));
        assert_eq!((missing.result, missing.exit_code), (CheckResult::Fail, Some(0)));
        assert!(missing.why.contains("printed no tok_s"), "{}", missing.why);
    }
}
