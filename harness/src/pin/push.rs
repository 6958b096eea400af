//! Pushes a rebased stack: only from where it is known to start, with the old head kept on the remote first, and with a
//! look at what the remote has afterwards. Nothing that somebody else pushed is ever overwritten.

use std::{collections::BTreeSet, path::PathBuf};

use serde::Serialize;

use crate::{
    config::fork::PushSpec,
    rebase::outcome::SyncResult,
    tools::git::{
        ids::{CommitId, PatchId},
        remote::{self, PushAnswer, RefUpdate, RemoteError},
        store::{Store, StoreError},
    },
};

/// What is pushed where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushPlan {
    /// The fork's name.
    pub fork: String,
    /// The repository.
    pub address: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The head that the stack was read from.
    pub old_head: Option<CommitId>,
    /// Whether the branch is the one that the stack was read from.
    pub place: Place,
    /// The new head.
    pub new_head: CommitId,
    /// The upstream commit below the new stack.
    pub onto: CommitId,
    /// The upstream commit below the old stack.
    pub base: CommitId,
    /// Every patch that the new stack carries.
    pub carried: Vec<CarriedPatch>,
    /// The old stack's commits; a head made of these alone may be replaced.
    pub known: BTreeSet<CommitId>,
}

/// Which branch is pushed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The branch that the stack was read from.
    Own,
    /// Another branch.
    Beside,
}

/// A patch that has to be on the remote after a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CarriedPatch {
    /// Its subject.
    pub subject: String,
    /// Its patch-id.
    pub patch_id: PatchId,
}

/// A push that was done and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The repository.
    pub repository: String,
    /// The branch.
    pub branch: String,
    /// Where the branch was; `None` when it is new.
    pub old_head: Option<CommitId>,
    /// Where it is.
    pub new_head: CommitId,
    /// The ref on the remote that keeps the old head.
    pub backup: Option<String>,
    /// How many patches were found there afterwards.
    pub patches: usize,
    /// Whether the branch was there already, so that nothing was sent.
    pub was_there: bool,
}

/// Why nothing was pushed, or why what was pushed is not whole. In every case what others pushed is still there.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The branch is protected.
    #[error("branch `{branch}` is protected by `{pattern}`")]
    Protected {
        /// The branch.
        branch: String,
        /// The entry in fork.toml.
        pattern: String,
    },
    /// Findings of the rebase wait for a person.
    #[error("{count} findings of the rebase wait for a person")]
    OpenFindings {
        /// How many.
        count: usize,
    },
    /// No gate has passed the result.
    #[error("no gate has passed {head}")]
    NotValidated {
        /// The new head.
        head: CommitId,
    },
    /// The branch is not where it was when the stack was read.
    #[error("branch `{branch}` was moved by somebody else: it is at {found}, not {}", .expected.map_or("absent".to_owned(), |id| id.to_string()))]
    Moved {
        /// The branch.
        branch: String,
        /// Where it should be.
        expected: Option<CommitId>,
        /// Where it is.
        found: CommitId,
        /// Subjects of the commits there that the new stack does not have.
        foreign: Vec<String>,
    },
    /// The branch that the stack was read from is gone.
    #[error("branch `{branch}` is gone; it was at {expected}")]
    Gone {
        /// The branch.
        branch: String,
        /// Where it was.
        expected: CommitId,
    },
    /// The branch moved between the look at it and the push.
    #[error("branch `{branch}` moved while it was pushed to, from {expected}; nothing was overwritten", expected = .expected.map_or("absent".to_owned(), |id| id.to_string()))]
    LeaseLost {
        /// The branch.
        branch: String,
        /// Where it was expected.
        expected: Option<CommitId>,
        /// Where it is.
        found: Option<CommitId>,
    },
    /// The old head could not be kept on the remote, so the branch was not touched.
    #[error("the old head {head} could not be kept as `{name}`, so `{branch}` was not touched: {reason}")]
    NoBackup {
        /// The branch.
        branch: String,
        /// The old head.
        head: CommitId,
        /// The backup ref.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The stack was read from a branch that lacks patches of the last push; nothing was sent.
    #[error("`{branch}` lacks patches that the last push, {head}, carried: {}", .lost.join(", "))]
    Shorter {
        /// The branch.
        branch: String,
        /// The head that was pushed last.
        head: CommitId,
        /// The subjects of the missing patches.
        lost: Vec<String>,
        /// The ref that remembers the last push.
        record: String,
        /// The repository with that ref.
        store: PathBuf,
    },
    /// The remote refused.
    #[error("the remote refused `{branch}`: {reason}")]
    Refused {
        /// The branch.
        branch: String,
        /// The remote's words.
        reason: String,
    },
    /// After the push, patches are missing on the remote.
    #[error("after the push, `{branch}` is at {found} and lacks {}", .lost.join(", "))]
    Lost {
        /// The branch.
        branch: String,
        /// Where it is.
        found: CommitId,
        /// The subjects of the missing patches.
        lost: Vec<String>,
        /// The ref that keeps the old head.
        backup: Option<String>,
    },
    /// The result itself lacks a patch that it should carry; nothing was sent.
    #[error("the result {head} lacks {}", .lost.join(", "))]
    Incomplete {
        /// The new head.
        head: CommitId,
        /// The subjects of the missing patches.
        lost: Vec<String>,
    },
    /// The remote gave no answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Objects could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PushError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Protected { .. } => "name another branch in fork.toml's [push], and merge from there".to_owned(),
            Self::OpenFindings { .. } => {
                "read them in the run's report and accept or resolve each, then push".to_owned()
            }
            Self::NotValidated { .. } => {
                "write a `[[build]]` of it (its exported patches by `patches = \"FORK\"`, or its commit) and run `cargo xtask \
                 gate --candidate BUILD`; --unvalidated pushes all the same, and is written into the report"
                    .to_owned()
            }
            Self::Moved { foreign, .. } if !foreign.is_empty() => {
                format!("run sync-upstream again, so that it takes along: {}", foreign.join(", "))
            }
            Self::Moved { .. } | Self::LeaseLost { .. } => {
                "run sync-upstream again: it starts from what is there now".to_owned()
            }
            Self::Gone { .. } => "find out who deleted it before anything is pushed there".to_owned(),
            Self::NoBackup { .. } => "the remote must accept refs below refs/regraft/backup/".to_owned(),
            Self::Shorter { branch, head, record, store, .. } => format!(
                "give them back (`git push` {head} to `{branch}`, from {store}) and run again; if they are meant to be \
                 gone: `git --git-dir {store} update-ref -d {record}`",
                store = store.display()
            ),
            Self::Refused { .. } => "the remote protects the branch, or a hook of it said no".to_owned(),
            Self::Lost { backup: Some(backup), .. } => {
                format!(
                    "something on the remote took them out; the head before the push is kept as `{backup}`, and all \
                     patches are in the result here; mend it before anybody builds from the branch"
                )
            }
            Self::Lost { .. } => "look at the branch before anybody builds from it".to_owned(),
            Self::Incomplete { .. } => "run sync-upstream again; this is a fault of Regraft's".to_owned(),
            Self::Remote(error) => return error.hint(),
            Self::Store(error) => return error.hint(),
        })
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Remote(_) | Self::Store(_))
    }
}

/// The plan for a result, checked against everything that can be known without the remote. `own` is the repository and
/// branch that the stack was read from; `validated` tells whether a gate passed the result or a person said to go on.
///
/// # Errors
/// When the branch is protected, findings are open, or nobody vouches for the result.
pub fn push_plan(
    result: &SyncResult,
    target: &PushSpec,
    own: Option<(&str, &str)>,
    validation: Option<&super::proof::Validation>,
) -> Result<PushPlan, PushError> {
    refuse_protected(target)?;
    if result.open_findings > 0 {
        return Err(PushError::OpenFindings { count: result.open_findings });
    }
    if validation.is_none() {
        return Err(PushError::NotValidated { head: result.new_head });
    }
    let carried = result.patches.iter().filter(|patch| patch.outcome.is_carried());
    let carried = carried
        .filter_map(|patch| Some(CarriedPatch { subject: patch.subject.clone(), patch_id: patch.patch_id? }))
        .collect();
    let place = match own == Some((target.repository.as_str(), target.branch.as_str())) {
        true => Place::Own,
        false => Place::Beside,
    };
    Ok(PushPlan {
        fork: result.fork.clone(),
        address: target.repository.clone(),
        branch: target.branch.clone(),
        old_head: result.old_head,
        place,
        new_head: result.new_head,
        onto: result.onto.commit,
        base: result.base.commit,
        carried,
        known: result.patches.iter().filter_map(|patch| patch.old_commit).chain(result.old_head).collect(),
    })
}

/// Refuses a branch that fork.toml protects.
///
/// # Errors
/// When it is protected.
pub fn refuse_protected(target: &PushSpec) -> Result<(), PushError> {
    let branch = target.branch.clone();
    match target.protection_of(&branch) {
        Some(pattern) => Err(PushError::Protected { pattern: pattern.to_owned(), branch }),
        None => Ok(()),
    }
}

/// Where the old head of a branch is kept on the remote.
pub fn backup_ref(branch: &str, head: CommitId) -> String {
    format!("refs/regraft/backup/{branch}/{head}")
}

/// Carries a plan out.
///
/// # Errors
/// See [`PushError`].
pub fn push(store: &Store, plan: &PushPlan) -> Result<Pushed, PushError> {
    let lost = missing(store, plan.onto, plan.new_head, &plan.carried)?;
    if !lost.is_empty() {
        return Err(PushError::Incomplete { head: plan.new_head, lost });
    }
    let (address, branch) = (plan.address.as_str(), plan.branch.as_str());
    let name = format!("refs/heads/{branch}");
    let found = remote::remote_ref(store, address, &name)?;
    if plan.place == Place::Own {
        check_last(store, plan)?;
    }
    if found == Some(plan.new_head) {
        remember(store, plan)?;
        return Ok(done(plan, found, None, true));
    }
    check_start(store, plan, &name, found)?;
    let backup = found.map(|head| keep(store, plan, head)).transpose()?;
    let update = RefUpdate { name: name.clone(), expected: found, new: plan.new_head };
    // Written before it is sent: whoever is killed in between still knows it as ours.
    store.move_ref(&format!("{}{}", pushed_prefix(&plan.fork), plan.new_head), None, plan.new_head)?;
    match remote::push(store, address, &[update])? {
        PushAnswer::Done => {}
        answer => {
            // A server that looked at its hooks first may call a branch that moved meanwhile by any name.
            let (branch, expected) = (branch.to_owned(), found);
            let found = remote::remote_ref(store, address, &name)?;
            return Err(match answer {
                PushAnswer::Refused(reason) if found == expected => PushError::Refused { branch, reason },
                _ => PushError::LeaseLost { branch, expected, found },
            });
        }
    }
    remember(store, plan)?;
    verify(store, plan, &name, backup.as_deref())?;
    Ok(done(plan, found, backup, false))
}

fn done(plan: &PushPlan, old_head: Option<CommitId>, backup: Option<String>, was_there: bool) -> Pushed {
    Pushed {
        repository: plan.address.clone(),
        branch: plan.branch.clone(),
        old_head,
        new_head: plan.new_head,
        backup,
        patches: plan.carried.len(),
        was_there,
    }
}

/// The branch has to be where the stack was read from, or hold nothing that the new stack lacks.
fn check_start(store: &Store, plan: &PushPlan, name: &str, found: Option<CommitId>) -> Result<(), PushError> {
    let branch = || plan.branch.clone();
    match (plan.place, found, plan.old_head) {
        (Place::Own, found, expected) if found == expected => Ok(()),
        (Place::Own, None, Some(expected)) => Err(PushError::Gone { branch: branch(), expected }),
        (Place::Beside, None, _) => Ok(()),
        (place, Some(found), expected) => {
            let temporary = format!("refs/regraft/seen/{}", plan.branch);
            remote::fetch_ref(store, &plan.address, name, &temporary)?;
            let foreign = foreign(store, plan, found)?;
            match place {
                Place::Beside if foreign.is_empty() => Ok(()),
                _ => Err(PushError::Moved { branch: branch(), expected, found, foreign }),
            }
        }
        (Place::Own, None, None) => Ok(()),
    }
}

/// The refs of the store below which every head that a rebase made is kept, as `rebase::run` names them.
fn made_prefix(fork: &str) -> String {
    format!("refs/regraft/{fork}/made/")
}

/// The refs of the store below which every head that was sent is kept.
fn pushed_prefix(fork: &str) -> String {
    format!("refs/regraft/{fork}/pushed/")
}

/// The refs of the store that remember the last push to the stack's own branch: its head, and upstream's below it.
fn last_push(plan: &PushPlan) -> [String; 2] {
    ["head", "onto"].map(|what| format!("refs/regraft/{}/last-push/{}/{what}", plan.fork, plan.branch))
}

/// Remembers a push to the branch that the stack is read from.
fn remember(store: &Store, plan: &PushPlan) -> Result<(), StoreError> {
    if plan.place == Place::Own {
        let [head, onto] = last_push(plan);
        for (name, commit) in [(onto, plan.onto), (head, plan.new_head)] {
            store.lead_ref(&name, store.reference(&name)?, commit)?;
        }
    }
    Ok(())
}

/// The branch that the stack was read from has to hold every patch of the last push, changed or not; one that a server
/// dropped would otherwise be gone without a word. A patch that was changed is known by its subject.
fn check_last(store: &Store, plan: &PushPlan) -> Result<(), PushError> {
    let [record, onto] = last_push(plan);
    let (Some(head), Some(onto), Some(read)) =
        (store.reference(&record)?, store.reference(&onto)?, plan.old_head)
    else {
        return Ok(());
    };
    let described = |commit: CommitId| -> Result<(Option<PatchId>, String), StoreError> {
        Ok((patch_id(store, commit)?, store.commit(commit)?.subject))
    };
    let describe_all =
        |commits: Vec<CommitId>| commits.into_iter().map(described).collect::<Result<Vec<_>, _>>();
    let mut there = describe_all(store.commits_between(&[onto, head], read)?)?;
    let mut lost = describe_all(store.commits_between(&[onto, plan.base, plan.onto, read], head)?)?;
    let same_change = |one: &(Option<PatchId>, String), other: &(Option<PatchId>, String)| one.0 == other.0;
    let same_subject = |one: &(Option<PatchId>, String), other: &(Option<PatchId>, String)| one.1 == other.1;
    for same in [&same_change as &dyn Fn(&_, &_) -> bool, &same_subject] {
        lost.retain(|patch| match there.iter().position(|known| same(known, patch)) {
            Some(at) => {
                there.swap_remove(at);
                false
            }
            None => true,
        });
    }
    let lost: Vec<String> = lost.into_iter().map(|(_, subject)| subject).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(PushError::Shorter {
            branch: plan.branch.clone(),
            head,
            lost,
            record,
            store: store.path().to_owned(),
        }),
    }
}

/// The subjects of the commits of a remote head that are neither upstream's, nor the old stack's, nor in the new one, nor
/// in a head that this program made. A merge is somebody's, unless it is known by its id.
fn foreign(store: &Store, plan: &PushPlan, head: CommitId) -> Result<Vec<String>, StoreError> {
    let carried: BTreeSet<PatchId> = plan.carried.iter().map(|patch| patch.patch_id).collect();
    let mut ours = vec![plan.onto, plan.base, plan.new_head];
    for prefix in [made_prefix(&plan.fork), pushed_prefix(&plan.fork)] {
        ours.extend(store.refs(&prefix)?.into_values());
    }
    let mut foreign = Vec::new();
    for commit in store.commits_between(&ours, head)? {
        let known = plan.known.contains(&commit)
            || patch_id(store, commit)?.is_some_and(|patch_id| carried.contains(&patch_id));
        if !known {
            foreign.push(store.commit(commit)?.subject);
        }
    }
    Ok(foreign)
}

/// Keeps the old head on the remote, for good.
fn keep(store: &Store, plan: &PushPlan, head: CommitId) -> Result<String, PushError> {
    let name = backup_ref(&plan.branch, head);
    let failed = |reason: String| PushError::NoBackup {
        branch: plan.branch.clone(),
        head,
        name: name.clone(),
        reason,
    };
    let there = remote::remote_ref(store, &plan.address, &name)?;
    if there.is_none() {
        if !store.has(head) {
            let temporary = format!("refs/regraft/seen/{}", plan.branch);
            remote::fetch_ref(store, &plan.address, &format!("refs/heads/{}", plan.branch), &temporary)?;
        }
        let update = RefUpdate { name: name.clone(), expected: None, new: head };
        match remote::push(store, &plan.address, &[update])? {
            PushAnswer::Done => {}
            PushAnswer::Stale => return Err(failed("somebody else made it at the same time".to_owned())),
            PushAnswer::Refused(reason) => return Err(failed(reason)),
        }
    }
    match remote::remote_ref(store, &plan.address, &name)? {
        Some(kept) if kept == head => Ok(name),
        Some(other) => Err(failed(format!("it leads to {other}"))),
        None => Err(failed("the remote took it and does not have it".to_owned())),
    }
}

/// Reads back what the remote has now.
fn verify(store: &Store, plan: &PushPlan, name: &str, backup: Option<&str>) -> Result<(), PushError> {
    let branch = plan.branch.clone();
    let Some(found) = remote::remote_ref(store, &plan.address, name)? else {
        let expected = plan.new_head;
        return Err(PushError::Gone { branch, expected });
    };
    let temporary = format!("refs/regraft/verify/{}", plan.branch);
    remote::fetch_ref(store, &plan.address, name, &temporary)?;
    let found = store.reference(&temporary)?.unwrap_or(found);
    let lost = missing(store, plan.onto, found, &plan.carried)?;
    match lost.is_empty() {
        true => Ok(()),
        false => Err(PushError::Lost { branch, found, lost, backup: backup.map(str::to_owned) }),
    }
}

/// The subjects of the patches that are not between `onto` and `head`.
fn missing(
    store: &Store,
    onto: CommitId,
    head: CommitId,
    carried: &[CarriedPatch],
) -> Result<Vec<String>, StoreError> {
    let mut there: Vec<PatchId> = Vec::new();
    for commit in store.commits_between(&[onto], head)? {
        there.extend(patch_id(store, commit)?);
    }
    let mut lost = Vec::new();
    for patch in carried {
        // Two patches may make the same change; each needs a commit of its own.
        match there.iter().position(|known| *known == patch.patch_id) {
            Some(at) => drop(there.swap_remove(at)),
            None => lost.push(patch.subject.clone()),
        }
    }
    Ok(lost)
}

/// The patch-id of a commit's change; `None` for merges, which hold no change of their own to compare.
fn patch_id(store: &Store, commit: CommitId) -> Result<Option<PatchId>, StoreError> {
    let info = store.commit(commit)?;
    let parent = match &info.parents[..] {
        [] => store.empty_tree()?,
        [parent] => store.commit(*parent)?.tree,
        _ => return Ok(None),
    };
    store.patch_id(parent, info.tree).map(Some)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;
    use crate::{
        pin::proof::Validation,
        rebase::{
            outcome::{PatchOutcome, SyncedPatch},
            sync::NamedCommit,
        },
        tools::git::fixture::ForkFixture,
    };

    /// A fork of two patches, rebased by hand onto upstream's next commit, and a bare remote that has the old stack.
    struct Setting {
        fixture: ForkFixture,
        result: SyncResult,
        remote: PathBuf,
    }

    const BRANCH: &str = "refs/heads/main";

    fn setting() -> Setting {
        let mut fixture = ForkFixture::new(&[("f", "a\nb\nc\n"), ("g", "g\n")])
            .patch("one", &[("f", Some("a\nB\nc\n"))])
            .patch("two", &[("h", Some("h\n"))])
            .advance("up", &[("g", Some("G\n"))]);
        let onto = fixture.onto();
        let one = fixture.commit(&[onto], "one", &[("f", Some("a\nB\nc\n"))]);
        let two = fixture.commit(&[one], "two", &[("h", Some("h\n"))]);
        let remote = fixture.mirror_root().join("remote/fork.git");
        Store::open(&remote, &[]).unwrap();
        send(&fixture.store, &remote, BRANCH, None, fixture.head());
        let store = &fixture.store;
        let patch = |number: usize, old: CommitId, new: CommitId| SyncedPatch {
            number,
            subject: store.commit(new).unwrap().subject,
            old_commit: Some(old),
            file: None,
            outcome: PatchOutcome::Applied,
            new_commit: Some(new),
            patch_id: patch_id(store, new).unwrap(),
            exported: None,
        };
        let named = |commit| NamedCommit { commit, tag: None };
        let result = SyncResult {
            schema: SyncResult::current_schema(),
            fork: "f".to_owned(),
            base: named(fixture.base),
            onto: named(onto),
            old_head: Some(fixture.head()),
            new_head: two,
            tree: store.commit(two).unwrap().tree,
            store: PathBuf::new(),
            branch: String::new(),
            patches: vec![patch(1, fixture.fork[1], one), patch(2, fixture.fork[2], two)],
            open_findings: 0,
            report: PathBuf::new(),
        };
        Setting { fixture, result, remote }
    }

    fn send(store: &Store, remote: &std::path::Path, name: &str, expected: Option<CommitId>, new: CommitId) {
        let update = RefUpdate { name: name.to_owned(), expected, new };
        let answer = remote::push(store, &remote.display().to_string(), &[update]).unwrap();
        assert_eq!(answer, PushAnswer::Done);
    }

    impl Setting {
        fn spec(&self, branch: &str, protected: &[&str]) -> PushSpec {
            PushSpec {
                repository: self.remote.display().to_string(),
                branch: branch.to_owned(),
                protected: protected.iter().map(|&p| p.to_owned()).collect(),
            }
        }

        fn plan(&self, branch: &str) -> PushPlan {
            let spec = self.spec(branch, &[]);
            let own = (spec.repository.as_str(), "main");
            push_plan(&self.result, &spec, Some(own), Some(&Validation::Unvalidated)).unwrap()
        }

        fn on_remote(&self, name: &str) -> Option<CommitId> {
            Store::open_existing(&self.remote).unwrap().reference(name).unwrap()
        }

        fn hook(&self, name: &str, script: &str) {
            let path = self.remote.join("hooks").join(name);
            fs::create_dir_all(self.remote.join("hooks")).unwrap();
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn the_branch_moves_and_the_old_head_stays_under_its_backup_ref() {
        let setting = setting();
        let pushed = push(&setting.fixture.store, &setting.plan("main")).unwrap();
        assert_eq!(setting.on_remote(BRANCH), Some(setting.result.new_head));
        let backup = backup_ref("main", setting.fixture.head());
        assert_eq!((pushed.backup.as_deref(), pushed.patches), (Some(backup.as_str()), 2));
        assert_eq!(setting.on_remote(&backup), Some(setting.fixture.head()));
        // Once more: it is there, and nothing is sent.
        assert!(push(&setting.fixture.store, &setting.plan("main")).unwrap().was_there);
    }

    #[test]
    fn what_another_party_pushed_is_never_overwritten() {
        let mut setting = setting();
        let old = setting.fixture.head();
        let theirs = setting.fixture.commit(&[old], "theirs", &[("t", Some("t\n"))]);
        send(&setting.fixture.store, &setting.remote, BRANCH, Some(old), theirs);
        for branch in ["main", "beside"] {
            if branch == "beside" {
                send(&setting.fixture.store, &setting.remote, "refs/heads/beside", None, theirs);
            }
            let error = push(&setting.fixture.store, &setting.plan(branch)).unwrap_err();
            let PushError::Moved { found, ref foreign, .. } = error else { panic!("{error}") };
            assert_eq!((found, &foreign[..]), (theirs, &["theirs".to_owned()][..]));
            assert!(error.is_refusal() && error.hint().unwrap().contains("theirs"));
            assert_eq!(setting.on_remote(&format!("refs/heads/{branch}")), Some(theirs));
        }
    }

    #[test]
    fn a_merge_of_somebody_is_theirs_even_when_it_brings_nothing_else() {
        let mut setting = setting();
        let (old, onto) = (setting.fixture.head(), setting.fixture.onto());
        let text = [("f", Some("a\nB\nc\n")), ("g", Some("theirs\n"))];
        let merge = setting.fixture.commit(&[old, onto], "Merge upstream", &text);
        send(&setting.fixture.store, &setting.remote, "refs/heads/beside", None, merge);
        let error = push(&setting.fixture.store, &setting.plan("beside")).unwrap_err();
        let PushError::Moved { ref foreign, .. } = error else { panic!("{error}") };
        assert_eq!(&foreign[..], ["Merge upstream"]);
        assert_eq!(setting.on_remote("refs/heads/beside"), Some(merge));
    }

    #[test]
    fn a_head_that_was_pushed_before_gives_way_to_changed_patches_and_back() {
        let mut setting = setting();
        let beside = "refs/heads/beside";
        push(&setting.fixture.store, &setting.plan("beside")).unwrap();
        let before = setting.result.clone();
        // The patches change on the way to a newer upstream, as they do where a person resolves a conflict.
        let onto = setting.fixture.onto();
        let further = setting.fixture.commit(&[onto], "further", &[("f", Some("a\nb\nc\nd\n"))]);
        let one = setting.fixture.commit(&[further], "one", &[("f", Some("a\nB!\nc\nd\n"))]);
        let two = setting.fixture.commit(&[one], "two", &[("h", Some("h!\n"))]);
        setting.result.onto.commit = further;
        setting.result.new_head = two;
        for (patch, commit) in setting.result.patches.iter_mut().zip([one, two]) {
            patch.new_commit = Some(commit);
            patch.patch_id = patch_id(&setting.fixture.store, commit).unwrap();
        }
        let pushed = push(&setting.fixture.store, &setting.plan("beside")).unwrap();
        assert_eq!((pushed.old_head, setting.on_remote(beside)), (Some(before.new_head), Some(two)));
        setting.result = before;
        let pushed = push(&setting.fixture.store, &setting.plan("beside")).unwrap();
        assert_eq!((pushed.old_head, pushed.backup), (Some(two), Some(backup_ref("beside", two))));
        // Something on top of what was pushed is not ours.
        let head = setting.result.new_head;
        let theirs = setting.fixture.commit(&[head], "theirs", &[("t", Some("t\n"))]);
        send(&setting.fixture.store, &setting.remote, beside, Some(head), theirs);
        assert!(matches!(
            push(&setting.fixture.store, &setting.plan("beside")),
            Err(PushError::Moved { .. })
        ));
    }

    #[test]
    fn a_party_that_pushes_at_the_same_moment_wins() {
        let mut setting = setting();
        let old = setting.fixture.head();
        let theirs = setting.fixture.commit(&[old], "theirs", &[("t", Some("t\n"))]);
        send(&setting.fixture.store, &setting.remote, "refs/heads/theirs", None, theirs);
        // The backup's arrival is the moment at which somebody else moves the branch.
        setting.hook(
            "post-receive",
            &format!("grep -q refs/regraft/backup && git update-ref {BRANCH} {theirs} || true"),
        );
        let error = push(&setting.fixture.store, &setting.plan("main")).unwrap_err();
        let PushError::LeaseLost { found, .. } = error else { panic!("{error}") };
        assert_eq!((found, setting.on_remote(BRANCH)), (Some(theirs), Some(theirs)));
    }

    #[test]
    fn a_branch_that_moves_while_the_servers_hook_runs_is_told_as_moved() {
        let mut setting = setting();
        let old = setting.fixture.head();
        let theirs = setting.fixture.commit(&[old], "theirs", &[("t", Some("t\n"))]);
        send(&setting.fixture.store, &setting.remote, "refs/heads/theirs", None, theirs);
        // A hook itself may move no ref while objects are in quarantine; another process may.
        let moved = format!("env -u GIT_QUARANTINE_PATH git update-ref {BRANCH} {theirs}");
        setting.hook("pre-receive", &format!("if grep -q {BRANCH}; then {moved}; fi"));
        let error = push(&setting.fixture.store, &setting.plan("main")).unwrap_err();
        let PushError::LeaseLost { found, .. } = error else { panic!("{error}") };
        assert_eq!((found, setting.on_remote(BRANCH)), (Some(theirs), Some(theirs)));
    }

    #[test]
    fn a_patch_that_is_lost_on_the_remote_is_named() {
        let setting = setting();
        let first = setting.result.patches[0].new_commit.unwrap();
        // Whatever is pushed, the server keeps the first patch only.
        setting.hook("post-receive", &format!("grep -q {BRANCH} && git update-ref {BRANCH} {first} || true"));
        let error = push(&setting.fixture.store, &setting.plan("main")).unwrap_err();
        let PushError::Lost { found, ref lost, ref backup, .. } = error else { panic!("{error}") };
        assert_eq!((found, &lost[..]), (first, &["two".to_owned()][..]));
        assert_eq!(setting.on_remote(backup.as_ref().unwrap()), Some(setting.fixture.head()));
        // The next run reads a shorter stack from there, and says so until a person decides.
        let mut next = setting.plan("main");
        (next.old_head, next.base, next.new_head) = (Some(first), next.onto, first);
        next.carried.truncate(1);
        let error = push(&setting.fixture.store, &next).unwrap_err();
        let PushError::Shorter { ref lost, ref record, .. } = error else { panic!("{error}") };
        assert_eq!(&lost[..], ["two"]);
        assert!(error.hint().unwrap().contains(record), "{error}");
        fs::remove_file(setting.fixture.store.path().join(record)).unwrap();
        assert!(push(&setting.fixture.store, &next).unwrap().was_there);
        let mut plan = setting.plan("main");
        plan.new_head = first;
        assert!(matches!(push(&setting.fixture.store, &plan), Err(PushError::Incomplete { .. })));
    }

    #[test]
    fn without_a_backup_the_branch_is_not_touched() {
        let setting = setting();
        setting.hook("pre-receive", "if grep -q refs/regraft/backup; then echo no room >&2; exit 1; fi");
        let error = push(&setting.fixture.store, &setting.plan("main")).unwrap_err();
        assert!(matches!(error, PushError::NoBackup { .. }), "{error}");
        assert_eq!(setting.on_remote(BRANCH), Some(setting.fixture.head()));
        setting.hook("pre-receive", "if grep -q refs/heads; then echo closed >&2; exit 1; fi");
        let error = push(&setting.fixture.store, &setting.plan("main")).unwrap_err();
        assert!(matches!(&error, PushError::Refused { reason, .. } if reason.contains("closed")), "{error}");
        assert_eq!(setting.on_remote(BRANCH), Some(setting.fixture.head()));
    }

    #[test]
    fn a_branch_beside_is_made_and_replaced_while_it_holds_nothing_of_others() {
        let mut setting = setting();
        let pushed = push(&setting.fixture.store, &setting.plan("beside")).unwrap();
        assert_eq!((pushed.old_head, pushed.backup), (None, None));
        // The next rebase of the same patches may replace it.
        let (first, onto) = (setting.result.new_head, setting.fixture.onto());
        let further = setting.fixture.commit(&[onto], "further", &[("g", Some("GG\n"))]);
        let one = setting.fixture.commit(&[further], "one", &[("f", Some("a\nB\nc\n"))]);
        let two = setting.fixture.commit(&[one], "two", &[("h", Some("h\n"))]);
        setting.result.onto.commit = further;
        setting.result.new_head = two;
        let pushed = push(&setting.fixture.store, &setting.plan("beside")).unwrap();
        assert_eq!((pushed.old_head, setting.on_remote("refs/heads/beside")), (Some(first), Some(two)));
    }

    #[test]
    fn protected_branches_open_findings_and_unproven_results_are_refused_before_any_contact() {
        let mut setting = setting();
        let yes = Validation::Unvalidated;
        let refuse = |result: &SyncResult, spec: &PushSpec, validation| {
            push_plan(result, spec, None, validation).unwrap_err()
        };
        let spec = setting.spec("main", &["ma*"]);
        assert!(matches!(refuse(&setting.result, &spec, Some(&yes)), PushError::Protected { .. }));
        let spec = setting.spec("main", &[]);
        assert!(matches!(refuse(&setting.result, &spec, None), PushError::NotValidated { .. }));
        setting.result.open_findings = 2;
        assert!(matches!(refuse(&setting.result, &spec, Some(&yes)), PushError::OpenFindings { count: 2 }));
        let hostile = PushPlan {
            address: "ext::sh -c x".to_owned(),
            ..{
                setting.result.open_findings = 0;
                setting.plan("main")
            }
        };
        assert!(matches!(
            push(&setting.fixture.store, &hostile),
            Err(PushError::Remote(RemoteError::Address(_)))
        ));
    }
}
