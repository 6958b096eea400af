//! Gives a fork up: when every patch is retired or accepted as lost, the consumers are rewritten to plain upstream, each on
//! a branch of its own with the reasons in the commit message. Nothing that is checked out moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Serialize;

use super::{
    edit::{NewPin, same_repository},
    material::{MaterialError, material},
    plan::{FilePlace, Material, OldPin, PinFinding, Weight, plan_pin},
    update::{
        Home, HomeUpdate, PinUpdate, UpdateError, author, causes, home_label, not_served, open_home,
        set_branch,
    },
};
use crate::{
    config::fork::{ConsumerHome, ConsumerSpec, ForkSpec, PinKind, StackSpec},
    event::{Event, EventSink},
    evidence::{
        report::{ForkReport, PatchReport, PatchState, Recommendation, Truth},
        retirement::declared,
    },
    fork::open::Source,
    rebase::{replay::Step, sync::NamedCommit},
    tools::git::{
        ids::{CommitId, EntryId, TreeId},
        store::{Entry, MODE_FILE, MODE_SUBMODULE, Store, StoreError},
        tree_path::TreePath,
    },
};

/// Whether a fork can be given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "decision")]
pub enum Decision {
    /// Every patch may go.
    Ready {
        /// Why each may.
        reasons: Vec<Reason>,
    },
    /// Something stands against it.
    Refused {
        /// The patches that are still needed.
        live: Vec<Reason>,
        /// What else is missing, as sentences without stop.
        missing: Vec<String>,
    },
}

/// A patch, and why it may go or must stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Its number.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// Why.
    pub why: String,
}

/// Decides from a report; `accepted` are patches that somebody gives up knowingly, with the reason.
pub fn decide(report: &ForkReport, accepted: &BTreeMap<usize, String>) -> Decision {
    let (mut reasons, mut live) = (Vec::new(), Vec::new());
    for patch in &report.patches {
        let (number, subject) = (patch.forecast.number, patch.forecast.subject.clone());
        let retired =
            retired(patch).or_else(|| Some(format!("accepted as lost: {}", accepted.get(&number)?)));
        match retired {
            Some(why) => reasons.push(Reason { number, subject, why }),
            None => live.push(Reason { number, subject, why: missing(patch) }),
        }
    }
    let known: BTreeSet<usize> = report.patches.iter().map(|patch| patch.forecast.number).collect();
    let mut missing: Vec<String> = accepted
        .keys()
        .filter(|number| !known.contains(number))
        .map(|number| format!("patch {number} is accepted as lost, and there is none of that number"))
        .collect();
    // Conditions of the fork as a whole hold besides those of its patches; the outermost stands for what it combines.
    let open =
        report.retirement.iter().filter(|condition| condition.depth == 0 && condition.holds != Truth::True);
    missing.extend(open.map(|condition| {
        format!("the fork's own condition is not met: {}: {}", condition.condition, condition.why)
    }));
    match live.is_empty() && missing.is_empty() {
        true => Decision::Ready { reasons },
        false => Decision::Refused { live, missing },
    }
}

/// The losses that `fork.toml` and a command line accept, by patch, with the reason.
pub fn accepted_losses(spec: &ForkSpec, steps: &[Step], asked: &[usize]) -> BTreeMap<usize, String> {
    let mut accepted: BTreeMap<usize, String> =
        asked.iter().map(|number| (*number, "--accept-loss".to_owned())).collect();
    for step in steps {
        let declared = declared(&spec.patches, step).and_then(|declared| declared.accepted_loss.as_ref());
        // A reason says more than an option does.
        accepted.extend(declared.map(|reason| (step.number, format!("{reason} (fork.toml)"))));
    }
    accepted
}

/// Why the evidence alone lets a patch go.
fn retired(patch: &PatchReport) -> Option<String> {
    let met =
        patch.retirement.iter().find(|condition| condition.depth == 0 && condition.holds == Truth::True);
    if let Some(condition) = met {
        return Some(format!("retired: {}: {}", condition.condition, condition.why));
    }
    match patch.state {
        PatchState::Landed => {
            let commits: Vec<String> = patch
                .landed
                .iter()
                .map(|landing| format!("{} {}", landing.commit.short(), landing.subject))
                .collect();
            Some(format!("upstream has it: {}", commits.join(", ")))
        }
        PatchState::Absorbed => Some("merging it into upstream changes nothing".to_owned()),
        PatchState::Dead => Some("later patches undo all of it".to_owned()),
        _ if patch.recommendation == Recommendation::Drop => Some(patch.reason.clone()),
        _ => None,
    }
}

/// What a live patch lacks.
fn missing(patch: &PatchReport) -> String {
    let conditions = patch.retirement.iter().filter(|condition| condition.depth == 0);
    let open: Vec<String> =
        conditions.map(|condition| format!("{}: {}", condition.condition, condition.why)).collect();
    match (&open[..], patch.state) {
        ([], PatchState::PartlyLanded) => {
            let left: Vec<String> =
                patch.left.iter().map(|left| format!("{} ({} lines)", left.path, left.lines)).collect();
            format!("upstream lacks a part of it: {}", left.join(", "))
        }
        ([], PatchState::Superseded) => {
            "upstream has something else under the same names: a person must look".to_owned()
        }
        ([], PatchState::Unknown) => "it cannot be known whether upstream has it".to_owned(),
        ([], _) => "upstream has nothing like it".to_owned(),
        (open, _) => format!("its condition is not met: {}", open.join("; ")),
    }
}

/// The branch, in every consumer, that the edits for giving up a fork go onto.
pub fn drop_branch(fork: &str) -> String {
    format!("refs/heads/regraft/drop-{fork}")
}

/// What consumers name when a fork is gone, and what it was.
pub struct Dropped<'f> {
    /// The fork.
    pub spec: &'f ForkSpec,
    /// The store that holds upstream's commit.
    pub store: &'f Store,
    /// The upstream commit that the patches were judged against.
    pub onto: NamedCommit,
    /// The fork's newest commit; the base for a stack of patch files.
    pub head: CommitId,
    /// The message of the commits.
    pub message: String,
}

/// The message that a consumer's commit carries: what goes, why each patch may, and who vouches for upstream.
pub fn message(report: &ForkReport, onto: &NamedCommit, reasons: &[Reason], validated: &str) -> String {
    let name = onto.tag.clone().unwrap_or_else(|| onto.commit.short());
    let mut text =
        format!("Use plain upstream {name} instead of fork {}\n\n{}\n\n", report.name, onto.commit);
    for Reason { number, subject, why } in reasons {
        text += &format!("{number}. {subject}\n   {why}\n");
    }
    text += &format!("\n{validated}\n");
    text
}

/// Rewrites the pins of every consumer of a fork to plain upstream.
///
/// # Errors
/// See [`UpdateError`]; what is wrong with one pin is a finding.
pub fn drop_fork(
    root: &Path,
    dropped: &Dropped<'_>,
    known: &BTreeMap<String, ForkSpec>,
    source: &Source,
    events: &dyn EventSink,
) -> Result<Vec<HomeUpdate>, UpdateError> {
    let mut homes: Vec<&ConsumerHome> = Vec::new();
    for consumer in &dropped.spec.consumers {
        if !homes.contains(&&consumer.home) {
            homes.push(&consumer.home);
        }
    }
    homes.into_iter().map(|home| drop_in_home(root, home, dropped, known, source, events)).collect()
}

fn drop_in_home(
    root: &Path,
    home: &ConsumerHome,
    dropped: &Dropped<'_>,
    known: &BTreeMap<String, ForkSpec>,
    source: &Source,
    events: &dyn EventSink,
) -> Result<HomeUpdate, UpdateError> {
    let label = home_label(home);
    events.emit(Event::StepStarted { step: format!("plain upstream in {label}") });
    let own = match home {
        ConsumerHome::Fork(name) => known.get(name).map(|spec| (spec, None)),
        _ => None,
    };
    let branch = drop_branch(&dropped.spec.name);
    let Home { store, tip } = open_home(root, home, own, source, &branch, events)?;
    let base = store.commit(tip)?.tree;
    let mut tree = base;
    let mut pins = Vec::new();
    for consumer in dropped.spec.consumers.iter().filter(|consumer| consumer.home == *home) {
        let update;
        (tree, update) = drop_pin(&store, tree, consumer, dropped, source, &label)?;
        pins.push(update);
    }
    let (mut moved, mut backup) = (None, None);
    // A consumer that still names the fork somewhere is no consumer of plain upstream.
    if pins.iter().all(is_done) && tree != base {
        let who = author(dropped.store, dropped.onto.commit)?;
        let commit = store.write_commit(tree, &[tip], &who, &dropped.message)?;
        backup = set_branch(&store, &branch, commit)?;
        pins.iter_mut().for_each(|pin| pin.commit = Some(commit));
        moved = Some((branch, commit));
    }
    let repository = store.path().to_owned();
    Ok(HomeUpdate { consumer: label, repository, branch: moved, backup, from: tip, pins })
}

/// Whether nothing stood in the way of a pin.
pub fn is_done(update: &PinUpdate) -> bool {
    update.findings.iter().all(|finding| finding.weight != Weight::Error)
}

/// A consumer's tree with one pin on plain upstream, and what became of the pin.
fn drop_pin(
    store: &Store,
    tree: TreeId,
    consumer: &ConsumerSpec,
    dropped: &Dropped<'_>,
    source: &Source,
    label: &str,
) -> Result<(TreeId, PinUpdate), UpdateError> {
    let upstream = &dropped.spec.upstream;
    let version = dropped.onto.tag.as_ref().and_then(|tag| tag.strip_prefix(&upstream.tag_prefix));
    let pin = NewPin {
        repository: upstream.repository.clone(),
        commit: dropped.onto.commit,
        tag: dropped.onto.tag.clone(),
        version: version
            .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
            .map(str::to_owned),
    };
    let mut update = PinUpdate::new(&dropped.spec.name, label, consumer, pin.commit);
    if let Some(finding) = not_served(store, consumer, &pin, source)? {
        update.findings.push(finding);
        return Ok((tree, update));
    }
    if let PinKind::Vendored { path } = &consumer.pin {
        let (tree, place) = pinned_again(store, tree, path, &pin)?;
        update.edits.extend(place);
        return Ok((tree, update));
    }
    let needed = match material(&consumer.pin, &pin, dropped.store, store) {
        Ok(needed) => needed,
        Err(MaterialError::Store(error)) => return Err(error.into()),
        Err(error) => {
            let message = format!("{error}{}", causes(&error));
            update.findings.push(PinFinding::error(None, message, error.hint()));
            return Ok((tree, update));
        }
    };
    let (pointed, mut places) = match fork_repository(dropped.spec) {
        Some(old) => repointed(store, tree, &consumer.pin, old, &pin.repository)?,
        None => (tree, Vec::new()),
    };
    let old = OldPin { commit: dropped.head, tag: None };
    let plan = plan_pin(store, pointed, &consumer.pin, &pin, &old, &Material { tree: None, ..needed })?;
    let failed = plan.findings.iter().any(|finding| finding.weight == Weight::Error);
    update.findings = plan.findings;
    update.leftovers = plan.leftovers;
    if failed {
        return Ok((tree, update));
    }
    places.extend(plan.edits);
    update.edits = places;
    Ok((plan.tree, update))
}

/// Where consumers have taken the fork from.
fn fork_repository(spec: &ForkSpec) -> Option<&str> {
    let of_stack = match &spec.stack {
        StackSpec::Branch { repository, .. } => Some(repository),
        _ => None,
    };
    spec.push.as_ref().map(|push| &push.repository).or(of_stack).map(String::as_str)
}

/// Puts upstream's address where a pin's files name the fork's, so that the editors find upstream's entries.
fn repointed(
    store: &Store,
    tree: TreeId,
    pin: &PinKind,
    old: &str,
    new: &str,
) -> Result<(TreeId, Vec<FilePlace>), StoreError> {
    let files = match pin {
        PinKind::CargoGit { files } | PinKind::Swift { files } => files,
        _ => return Ok((tree, Vec::new())),
    };
    let (mut edits, mut places) = (BTreeMap::new(), Vec::new());
    for path in files {
        let Some(entry) = store.entry(tree, path)? else { continue };
        let Ok(text) = String::from_utf8(store.blob(entry.id)?) else { continue };
        let (edited, changed) = with_addresses(&text, old, new);
        if edited != text {
            let id = store.write_blob(edited.as_bytes())?;
            edits.insert(path.clone(), Some(Entry { id, mode: entry.mode }));
        }
        let file = path.to_string();
        places.extend(changed.into_iter().map(|(line, old)| {
            let (file, line, new) = (file.clone(), Some(line), new.to_owned());
            FilePlace { file, line, old, new }
        }));
    }
    Ok((store.edited_tree(tree, &edits)?, places))
}

/// A text with one repository's address in place of another's, however that is spelled; with the lines and what stood there.
fn with_addresses(text: &str, old: &str, new: &str) -> (String, Vec<(usize, String)>) {
    let ends =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '?' | '#' | ',' | ')' | '(' | '>' | '<');
    let (mut out, mut places) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.find(ends).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let address = word.strip_prefix("git+").unwrap_or(word);
        if address.contains(['/', ':']) && same_repository(address, old) {
            places.push((out.matches('\n').count() + 1, address.to_owned()));
            out += &word[..word.len() - address.len()];
            out += new;
        } else {
            out += word;
        }
        let mark = after.chars().next().map_or(0, char::len_utf8);
        out += &after[..mark];
        rest = &after[mark..];
    }
    (out, places)
}

/// A vendored copy replaced by a submodule at the same place.
fn pinned_again(
    store: &Store,
    tree: TreeId,
    path: &TreePath,
    pin: &NewPin,
) -> Result<(TreeId, Option<FilePlace>), StoreError> {
    let name = path.to_string();
    let was = match store.folder(tree, path)? {
        Some(folder) => folder.to_string(),
        None => return Ok((tree, None)),
    };
    let id: EntryId = pin.commit.to_string().parse().expect("a commit's id is an id");
    let modules = TreePath::new(".gitmodules").expect("a plain name");
    let mut text = match store.entry(tree, &modules)? {
        Some(entry) => String::from_utf8_lossy(&store.blob(entry.id)?).into_owned(),
        None => String::new(),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += &format!("[submodule \"{name}\"]\n\tpath = {name}\n\turl = {}\n", pin.repository);
    let file = Entry { id: store.write_blob(text.as_bytes())?, mode: MODE_FILE };
    let edits =
        BTreeMap::from([(path.clone(), Some(Entry { id, mode: MODE_SUBMODULE })), (modules, Some(file))]);
    let place = FilePlace { file: name, line: None, old: format!("the files of {was}"), new: id.to_string() };
    Ok((store.edited_tree(tree, &edits)?, Some(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_replaced_however_they_are_spelled() {
        let text = "a = { git = \"https://example.org/ours/lib.git\", rev = \"1\" }\n\
                    source = \"git+https://example.org/Ours/lib?rev=1#1\"\n\
                    b = { git = \"https://example.org/ours/lib2\" }\n";
        let (edited, places) =
            with_addresses(text, "https://example.org/ours/lib", "https://example.org/up/lib");
        assert_eq!(
            edited,
            "a = { git = \"https://example.org/up/lib\", rev = \"1\" }\n\
             source = \"git+https://example.org/up/lib?rev=1#1\"\n\
             b = { git = \"https://example.org/ours/lib2\" }\n"
        );
        assert_eq!(
            places,
            [
                (1, "https://example.org/ours/lib.git".to_owned()),
                (2, "https://example.org/Ours/lib".to_owned())
            ]
        );
    }
}
