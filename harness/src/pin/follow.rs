//! What follows a finished rebase: in the order of the graph, each fork gets the pins of what it builds on, then is
//! pushed; at last the consumers elsewhere are moved. What was done is written beside the run's report as it happens.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    check::{CheckError, CheckResult, Declared, HomeChecks, check_home},
    plan::Weight,
    proof::{Candidate, Validation, ValidationRecord, find_proof},
    push::{PushError, Pushed, push, push_plan},
    update::{HomeUpdate, Planned, UpdateError, home_label, homes_outside, pins_in, update_home},
};
use crate::{
    config::fork::{ConsumerHome, ForkSpec, StackSpec},
    event::{Event, EventSink},
    fork::open::Source,
    rebase::outcome::{OutcomeError, SyncResult, replace_file},
    report::markdown::inline,
    tools::{
        file::{self, Most},
        git::{
            mirror,
            store::{Store, StoreError},
        },
    },
};

/// What is to follow.
#[derive(Debug, Clone)]
pub struct FollowRequest<'a> {
    /// Whether results are pushed.
    pub push: Pushing,
    /// Whether pins are moved.
    pub pins: Pins,
    /// Whether what depends on a moved pin is built and tested.
    pub checks: Checks,
    /// Where repositories are read from.
    pub source: Source,
    /// The folder of the gates' reports.
    pub reports: &'a Path,
}

/// Whether results are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushing {
    /// They stay here.
    No,
    /// Those that a gate passed.
    Validated,
    /// All, and the report says so.
    Unvalidated,
}

/// Whether pins are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pins {
    /// They stay.
    Leave,
    /// Every consumer's is moved.
    Move,
}

/// Whether the commands of `[[consumers]] check` and `[[probes]]` are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// They are not.
    Leave,
    /// In a clone of each consumer, once its pins have moved.
    Run,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Followed {
    /// For each fork, in the order in which they were worked on.
    pub forks: Vec<FollowedFork>,
    /// The consumers that are no forks.
    pub consumers: Vec<HomeUpdate>,
    /// What the consumers' own commands showed, for those that declare any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<HomeChecks>,
}

/// What was done for one fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowedFork {
    /// Its name.
    pub fork: String,
    /// The pins in it that moved, on top of its stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<HomeUpdate>,
    /// Its push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushRecord>,
}

/// A push, and who vouched for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushRecord {
    /// What was pushed.
    #[serde(flatten)]
    pub pushed: Pushed,
    /// Who vouched.
    pub validation: ValidationRecord,
}

/// Why it did not go on. What was done before is in the report's folder.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The fork has no finished rebase.
    #[error("fork `{0}` has no finished rebase")]
    NoResult(String),
    /// The fork has nowhere to be pushed to.
    #[error("fork `{0}` has no [push] in fork.toml")]
    NoTarget(String),
    /// The push.
    #[error("cannot push fork `{fork}`")]
    Push {
        /// The fork.
        fork: String,
        /// Why.
        #[source]
        source: Box<PushError>,
    },
    /// The pins.
    #[error("cannot move the pins in {consumer}")]
    Pins {
        /// Where.
        consumer: String,
        /// Why.
        #[source]
        source: Box<UpdateError>,
    },
    /// The checks.
    #[error("cannot check {consumer}")]
    Checks {
        /// Which consumer.
        consumer: String,
        /// Why.
        #[source]
        source: CheckError,
    },
    /// A result cannot be read.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// Objects could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was done cannot be written down.
    #[error("cannot write `{}`", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl FollowError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoResult(fork) => Some(format!("run `cargo xtask sync-upstream {fork}` to its end first")),
            Self::NoTarget(_) => {
                Some("name repository and branch in a [push] section, or leave out --push".to_owned())
            }
            Self::Push { source, .. } => source.hint(),
            Self::Pins { source, .. } => source.hint(),
            Self::Checks { source, .. } => source.hint(),
            Self::Outcome(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Record { .. } => None,
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NoResult(_) | Self::NoTarget(_) => true,
            Self::Push { source, .. } => source.is_refusal(),
            Self::Pins { source, .. } => source.is_refusal(),
            Self::Checks { .. } | Self::Outcome(_) | Self::Store(_) | Self::Record { .. } => false,
        }
    }
}

/// Refuses forks that have nowhere to be pushed to, as far as fork.toml tells.
///
/// # Errors
/// When a fork has no `[push]`, or the branch there is protected.
pub fn check_targets(specs: &[ForkSpec]) -> Result<(), FollowError> {
    for spec in specs {
        let target = spec.push.as_ref().ok_or_else(|| FollowError::NoTarget(spec.name.clone()))?;
        super::push::refuse_protected(target)
            .map_err(|source| FollowError::Push { fork: spec.name.clone(), source: Box::new(source) })?;
    }
    Ok(())
}

/// Does what is to follow for `specs`, which come in the order of the graph.
///
/// # Errors
/// See [`FollowError`].
pub fn follow(
    root: &Path,
    specs: &[ForkSpec],
    request: &FollowRequest<'_>,
    events: &dyn EventSink,
) -> Result<Followed, FollowError> {
    let mut followed = Followed::default();
    let mut planned: Vec<Planned> = Vec::new();
    let mut homes: Vec<(ConsumerHome, HomeUpdate)> = Vec::new();
    for spec in specs {
        let result = SyncResult::load(root, &spec.name)?;
        let result = result.ok_or_else(|| FollowError::NoResult(spec.name.clone()))?;
        if request.push != Pushing::No && spec.push.is_none() {
            return Err(FollowError::NoTarget(spec.name.clone()));
        }
        let mut fork = Planned { spec: spec.clone(), head: result.new_head, result };
        let mut done = FollowedFork { fork: spec.name.clone(), pins: None, push: None };
        let home = ConsumerHome::Fork(spec.name.clone());
        let pins = pins_in(&home, &planned);
        if request.pins == Pins::Move && !pins.is_empty() {
            let own = Some((spec, Some(&fork.result)));
            let update = moved(root, &home, own, &pins, request, events)?;
            if let Some((_, head)) = &update.branch {
                fork.head = *head;
            }
            record(root, &fork.result, "pins.json", &update)?;
            summarize(root, &fork.result, &pins_section(&update))?;
            homes.push((home, update.clone()));
            done.pins = Some(update);
        }
        if request.push != Pushing::No {
            let pushed = push_fork(root, &fork, request, events)?;
            record(root, &fork.result, "push.json", &pushed)?;
            summarize(root, &fork.result, &push_section(&pushed))?;
            done.push = Some(pushed);
        }
        followed.forks.push(done);
        planned.push(fork);
    }
    if request.pins == Pins::Move {
        let not_here = planned.iter().flat_map(|fork| &fork.spec.consumers).map(|consumer| &consumer.home);
        let names: Vec<&String> = specs.iter().map(|spec| &spec.name).collect();
        let mut left: Vec<&ConsumerHome> = Vec::new();
        for home in not_here {
            if matches!(home, ConsumerHome::Fork(name) if !names.contains(&name)) && !left.contains(&home) {
                left.push(home);
            }
        }
        for home in left {
            if let ConsumerHome::Fork(name) = home {
                events.emit(Event::Note(format!("fork {name} was not asked for: its pins stay")));
            }
        }
        for home in homes_outside(&planned) {
            let pins = pins_in(&home, &planned);
            let update = moved(root, &home, None, &pins, request, events)?;
            for fork in &planned {
                if pins.iter().any(|(pinned, _)| pinned.spec.name == fork.spec.name) {
                    record(root, &fork.result, &format!("pins-{}.json", file_name(&home)), &update)?;
                    summarize(root, &fork.result, &pins_section(&update))?;
                }
            }
            homes.push((home, update.clone()));
            followed.consumers.push(update);
        }
    }
    if request.checks == Checks::Run {
        for (home, update) in &homes {
            followed.checks.extend(checked(root, home, update, &planned, request, events)?);
        }
    }
    Ok(followed)
}

/// Runs what is declared about one home, and writes down what it showed beside the reports of the forks that declare it.
fn checked(
    root: &Path,
    home: &ConsumerHome,
    update: &HomeUpdate,
    planned: &[Planned],
    request: &FollowRequest<'_>,
    events: &dyn EventSink,
) -> Result<Option<HomeChecks>, FollowError> {
    let declared = Declared::of(home, planned);
    if declared.is_empty() {
        return Ok(None);
    }
    let name = file_name(home);
    events.emit(Event::StepStarted { step: format!("checks of {}", update.consumer) });
    let logs = root.join("target/regraft/checks").join(&name);
    let checks = check_home(&declared, update, planned, &request.source, &logs, events)
        .map_err(|source| FollowError::Checks { consumer: update.consumer.clone(), source })?;
    for fork in planned {
        let probes = fork.spec.probes.iter().any(|probe| probe.home == *home);
        if probes || fork.spec.consumers.iter().any(|consumer| consumer.home == *home) {
            record(root, &fork.result, &format!("checks-{name}.json"), &checks)?;
            summarize(root, &fork.result, &checks_section(&checks))?;
        }
    }
    Ok(Some(checks))
}

impl Followed {
    /// Whether every pin that was asked for moved or stood right already, and what depends on it still passes its checks.
    pub fn is_whole(&self) -> bool {
        let of_forks = self.forks.iter().filter_map(|fork| fork.pins.as_ref());
        of_forks.chain(&self.consumers).all(HomeUpdate::is_whole)
            && self.checks.iter().all(HomeChecks::all_pass)
    }
}

fn moved(
    root: &Path,
    home: &ConsumerHome,
    own: Option<(&ForkSpec, Option<&SyncResult>)>,
    pins: &[(&Planned, &crate::config::fork::ConsumerSpec)],
    request: &FollowRequest<'_>,
    events: &dyn EventSink,
) -> Result<HomeUpdate, FollowError> {
    update_home(root, home, own, pins, &request.source, events).map_err(|source| FollowError::Pins {
        consumer: super::update::home_label(home),
        source: Box::new(source),
    })
}

fn push_fork(
    root: &Path,
    fork: &Planned,
    request: &FollowRequest<'_>,
    events: &dyn EventSink,
) -> Result<PushRecord, FollowError> {
    let Planned { spec, result, head } = fork;
    let failed = |source: PushError| FollowError::Push { fork: spec.name.clone(), source: Box::new(source) };
    let target = spec.push.as_ref().ok_or_else(|| FollowError::NoTarget(spec.name.clone()))?;
    events.emit(Event::StepStarted {
        step: format!("push {} to {} {}", spec.name, target.repository, target.branch),
    });
    let store = Store::open_existing(&root.join(&result.store))?;
    let mut candidate = Candidate::of(root, result);
    if *head != result.new_head {
        // With pins on top it is another thing than the patches alone.
        candidate = Candidate { head: *head, tree: store.commit(*head)?.tree, patches: Vec::new() };
    }
    let validation = match (find_proof(request.reports, &candidate), request.push) {
        (Some(proof), _) => Some(Validation::Passed(proof)),
        (None, Pushing::Unvalidated) => Some(Validation::Unvalidated),
        (None, _) => None,
    };
    let own = match &spec.stack {
        StackSpec::Branch { repository, branch, .. } => Some((repository.as_str(), branch.as_str())),
        _ => None,
    };
    let mut plan = push_plan(result, target, own, validation.as_ref()).map_err(failed)?;
    plan.new_head = *head;
    let pushed = push(&store, &plan).map_err(failed)?;
    let validation = validation.unwrap_or(Validation::Unvalidated).record(root);
    Ok(PushRecord { pushed, validation })
}

fn record(root: &Path, result: &SyncResult, name: &str, value: &impl Serialize) -> Result<(), FollowError> {
    let path = root.join(&result.report).join(name);
    let mut text = serde_json::to_string_pretty(value).expect("a record has text keys only");
    text.push('\n');
    let write = || {
        fs::create_dir_all(root.join(&result.report))?;
        replace_file(&path, text.as_bytes())
    };
    write().map_err(|source| FollowError::Record { path: path.clone(), source })
}

/// Writes a section into the run's summary, in place of the one with the same heading.
fn summarize(root: &Path, result: &SyncResult, section: &Section) -> Result<(), FollowError> {
    let path = root.join(&result.report).join("summary.md");
    let summary = file::text(&path, Most::Record).unwrap_or_default();
    let text = with_section(&summary, section);
    replace_file(&path, text.as_bytes()).map_err(|source| FollowError::Record { path: path.clone(), source })
}

/// A part of a summary.
struct Section {
    heading: String,
    lines: Vec<String>,
}

fn with_section(summary: &str, section: &Section) -> String {
    let heading = format!("\n## {}\n", section.heading);
    let mut text = summary.to_owned();
    if let Some(start) = summary.rfind(&heading) {
        let after = start + heading.len();
        let end = summary[after..].find("\n## ").map_or(summary.len(), |found| after + found);
        text.replace_range(start..end, "");
    }
    text.push_str(&heading);
    text.push('\n');
    for line in &section.lines {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

fn push_section(record: &PushRecord) -> Section {
    let PushRecord { pushed, validation } = record;
    let mut lines = vec![format!(
        "{} of {} is at `{}`",
        inline(&pushed.branch),
        inline(&pushed.repository),
        pushed.new_head
    )];
    lines.extend(
        pushed.backup.as_ref().map(|backup| format!("the old head is kept there as {}", inline(backup))),
    );
    lines.push(match validation {
        ValidationRecord::Passed { matrix, report, .. } => {
            format!("passed {} ({})", inline(matrix), inline(report))
        }
        ValidationRecord::Unvalidated => "**UNVALIDATED: no gate has passed it**".to_owned(),
    });
    Section { heading: "Push".to_owned(), lines }
}

fn pins_section(update: &HomeUpdate) -> Section {
    let mut lines = match &update.branch {
        Some((branch, head)) => vec![format!("{} is at `{head}`", inline(branch))],
        None => vec!["nothing changed".to_owned()],
    };
    for pin in &update.pins {
        let whole = pin.findings.iter().all(|finding| finding.weight != Weight::Error);
        let state = match (pin.commit, whole) {
            (Some(_), _) => "moved",
            (None, true) => "stands right already",
            (None, false) => "**NOT moved**",
        };
        lines.push(format!("{} ({}) to `{}`: {state}", inline(&pin.fork), pin.kind, pin.to));
        lines.extend(pin.findings.iter().map(|finding| inline(&finding.message)));
    }
    Section { heading: format!("Pins in {}", update.consumer.replace('\n', " ")), lines }
}

fn checks_section(checks: &HomeChecks) -> Section {
    let lines = checks.runs.iter().map(|run| {
        let state = match run.result {
            CheckResult::Pass => "pass",
            CheckResult::Fail => "**FAIL**",
            CheckResult::Skipped => "skipped",
        };
        let name = run.probe.as_ref().map_or_else(String::new, |probe| format!("probe {}: ", inline(probe)));
        let numbers: String =
            run.numbers.iter().map(|(name, figure)| format!("; {} {figure}", inline(name))).collect();
        format!("{name}{}: {state} ({}){numbers}", inline(&run.command), inline(&run.why))
    });
    let heading = format!("Checks of {}", checks.consumer.replace('\n', " "));
    Section { heading, lines: lines.collect() }
}

/// A consumer's name as part of a file name.
fn file_name(home: &ConsumerHome) -> String {
    let name = match home {
        ConsumerHome::Repository { address, branch } => mirror::owner_and_name(address)
            .map_or_else(|| address.clone(), |name| format!("{}-{branch}", name.replace('/', "+"))),
        other => home_label(other),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+') { c } else { '_' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_its_older_self() {
        let section =
            |heading: &str, line: &str| Section { heading: heading.to_owned(), lines: vec![line.to_owned()] };
        let first = with_section("# f\n", &section("Push", "old"));
        let both = with_section(&first, &section("Pins in a", "pin"));
        assert_eq!(both, "# f\n\n## Push\n\n- old\n\n## Pins in a\n\n- pin\n");
        let again = with_section(&with_section(&both, &section("Push", "new")), &section("Pins in a", "pin"));
        assert_eq!(again, "# f\n\n## Push\n\n- new\n\n## Pins in a\n\n- pin\n");
    }

    #[test]
    fn a_consumer_gives_its_file_a_readable_name() {
        let address = "https://example.org/owner/name.git".to_owned();
        let home = ConsumerHome::Repository { address, branch: "main".to_owned() };
        assert_eq!(file_name(&home), "owner+name-main");
        let home = ConsumerHome::Checkout { path: "../user".to_owned(), branch: None };
        assert_eq!(file_name(&home), ".._user");
    }
}
