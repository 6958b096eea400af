//! What follows a finished rebase: in the order of the graph, each fork gets the pins of what it builds on, then is
//! pushed; at last the consumers elsewhere are moved. What was done is written beside the run's report as it happens.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    proof::{Candidate, Validation, ValidationRecord, find_proof},
    push::{PushError, Pushed, push, push_plan},
    update::{HomeUpdate, Planned, UpdateError, homes_outside, pins_in, update_home},
};
use crate::{
    config::fork::{ConsumerHome, ForkSpec, StackSpec},
    event::{Event, EventSink},
    fork::open::Source,
    rebase::outcome::{OutcomeError, SyncResult, replace_file},
    tools::git::store::{Store, StoreError},
};

/// What is to follow.
#[derive(Debug, Clone)]
pub struct FollowRequest<'a> {
    /// Whether results are pushed.
    pub push: Pushing,
    /// Whether pins are moved.
    pub pins: Pins,
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

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Followed {
    /// For each fork, in the order in which they were worked on.
    pub forks: Vec<FollowedFork>,
    /// The consumers that are no forks.
    pub consumers: Vec<HomeUpdate>,
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
            Self::Outcome(_) | Self::Store(_) | Self::Record { .. } => false,
        }
    }
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
            done.pins = Some(update);
        }
        if request.push != Pushing::No {
            let pushed = push_fork(root, &fork, request, events)?;
            record(root, &fork.result, "push.json", &pushed)?;
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
                    record(
                        root,
                        &fork.result,
                        &format!("pins-{}.json", file_name(&update.consumer)),
                        &update,
                    )?;
                }
            }
            followed.consumers.push(update);
        }
    }
    Ok(followed)
}

impl Followed {
    /// Whether every pin that was asked for moved or stood right already.
    pub fn is_whole(&self) -> bool {
        let of_forks = self.forks.iter().filter_map(|fork| fork.pins.as_ref());
        of_forks.chain(&self.consumers).all(HomeUpdate::is_whole)
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

/// A consumer's name as part of a file name.
fn file_name(consumer: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    consumer.chars().map(plain).collect()
}
