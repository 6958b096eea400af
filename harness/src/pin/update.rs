//! Moves pins: for every consumer of a fork whose head moved, the edits go as commits onto a branch of the consumer. No
//! work tree, index or checked out branch is touched, and no pin is set to a commit that its remote does not serve.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    edit::NewPin,
    material::{MaterialError, material},
    plan::{FilePlace, Leftover, OldPin, PinFinding, Weight, plan_pin, still_there},
};
use crate::{
    config::fork::{ConsumerHome, ConsumerSpec, ForkSpec, Named, PinKind, StackSpec},
    event::{Event, EventSink},
    fork::{
        ForkError,
        open::{Source, open_fork},
    },
    rebase::outcome::{OutcomeError, SyncResult},
    tools::git::{
        checkout::open_checkout,
        ids::CommitId,
        mirror::{self, MirrorError},
        remote::{self, RemoteError},
        store::{Person, Store, StoreError},
    },
};

/// The branch, in every consumer, that the edits go onto.
pub const PINS_BRANCH: &str = "refs/heads/regraft/pins";

/// A fork whose head moved.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What its fork.toml says.
    pub spec: ForkSpec,
    /// What its rebase left behind.
    pub result: SyncResult,
    /// Its new head: the rebased stack's, or the commit with pins on top of it.
    pub head: CommitId,
}

/// What became of one consumer's pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinUpdate {
    /// The fork that is pinned.
    pub fork: String,
    /// Where the pin stands.
    pub consumer: String,
    /// The kind of pin, as fork.toml has it.
    pub kind: &'static str,
    /// The commit that it names now, or should.
    pub to: CommitId,
    /// The commit with the edit; absent where nothing changed.
    pub commit: Option<CommitId>,
    /// The changed places.
    pub edits: Vec<FilePlace>,
    /// What a person has to know.
    pub findings: Vec<PinFinding>,
    /// Where the old pin still stands.
    pub leftovers: Vec<Leftover>,
}

impl PinUpdate {
    /// An update of which nothing is known yet.
    pub(super) fn new(fork: &str, label: &str, consumer: &ConsumerSpec, to: CommitId) -> Self {
        Self {
            fork: fork.to_owned(),
            consumer: label.to_owned(),
            kind: consumer.pin.word(),
            to,
            commit: None,
            edits: Vec::new(),
            findings: Vec::new(),
            leftovers: Vec::new(),
        }
    }
}

/// The pins of one consumer, moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HomeUpdate {
    /// Where they stand.
    pub consumer: String,
    /// The repository that holds the branch.
    pub repository: PathBuf,
    /// The branch, and its newest commit; absent where nothing changed.
    pub branch: Option<(String, CommitId)>,
    /// The ref that keeps what the branch led to before; absent where nothing gave way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// The commit that the branch starts from.
    pub from: CommitId,
    /// Each pin.
    pub pins: Vec<PinUpdate>,
}

/// Why pins could not be moved. What is wrong with one pin is a finding instead.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The branch for pins is checked out, and moving it would make its work tree look changed.
    #[error("`{branch}` is checked out in `{}`", .path.display())]
    CheckedOut {
        /// The branch.
        branch: String,
        /// The checkout.
        path: PathBuf,
    },
    /// The branch for pins holds commits that this program did not make.
    #[error("`{branch}` in `{}` holds commits of somebody else: {}", .repository.display(), .foreign.join(", "))]
    NotOurs {
        /// The branch.
        branch: String,
        /// The repository.
        repository: PathBuf,
        /// Their subjects.
        foreign: Vec<String>,
    },
    /// The consumer's checkout is not there.
    #[error("checkout `{named}` of a consumer is not there: no folder `{}`", .path.display())]
    NoCheckout {
        /// What fork.toml says.
        named: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The consumer has no such branch.
    #[error("consumer `{consumer}` has no branch `{branch}`")]
    NoBranch {
        /// The consumer.
        consumer: String,
        /// The branch.
        branch: String,
    },
    /// A fork that is a consumer keeps patch files only.
    #[error("fork `{0}` is a consumer and has no branch that a pin could be edited in")]
    NoHead(String),
    /// A repository could not be had.
    #[error(transparent)]
    Fork(Box<ForkError>),
    /// A remote gave no answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A consumer's repository could not be had.
    #[error(transparent)]
    Mirror(Box<MirrorError>),
    /// The result of a fork's rebase cannot be read.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ForkError> for UpdateError {
    fn from(error: ForkError) -> Self {
        Self::Fork(Box::new(error))
    }
}

impl From<MirrorError> for UpdateError {
    fn from(error: MirrorError) -> Self {
        Self::Mirror(Box::new(error))
    }
}

impl UpdateError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CheckedOut { .. } => Some("check out another branch there first".to_owned()),
            Self::NotOurs { branch, repository, .. } => Some(format!(
                "merge them, or keep them under another name: `git -C {} branch -m {} NAME`; then run again",
                repository.display(),
                branch.trim_start_matches("refs/heads/")
            )),
            Self::NoCheckout { .. } => Some(
                "clone it there, or correct `checkout` in fork.toml: relative paths start at the repository root"
                    .to_owned(),
            ),
            Self::NoBranch { .. } => Some("correct `branch` of the consumer in fork.toml".to_owned()),
            Self::NoHead(_) => {
                Some("give the consumer as `repository` or `checkout` in fork.toml".to_owned())
            }
            Self::Fork(error) => error.hint(),
            Self::Remote(error) => error.hint(),
            Self::Mirror(error) => error.hint(),
            Self::Outcome(error) => error.hint(),
            Self::Store(error) => error.hint(),
        }
    }

    /// Whether what was asked for cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::CheckedOut { .. } | Self::NotOurs { .. } | Self::NoBranch { .. } | Self::NoHead(_) => true,
            Self::Fork(error) => error.is_refusal(),
            Self::Mirror(error) => matches!(**error, MirrorError::Address(_)),
            Self::Remote(error) => matches!(error, RemoteError::Address(_)),
            Self::NoCheckout { .. } | Self::Outcome(_) | Self::Store(_) => false,
        }
    }
}

impl HomeUpdate {
    /// Whether every pin moved or stood right already.
    pub fn is_whole(&self) -> bool {
        let findings = self.pins.iter().flat_map(|pin| &pin.findings);
        findings.into_iter().all(|finding| finding.weight != Weight::Error)
    }
}

/// The consumers of `planned` forks that have one home, and the forks that they name; in the order of `planned`.
pub fn pins_in<'p>(home: &ConsumerHome, planned: &'p [Planned]) -> Vec<(&'p Planned, &'p ConsumerSpec)> {
    let of = |fork: &'p Planned| fork.spec.consumers.iter().map(move |consumer| (fork, consumer));
    planned.iter().flat_map(of).filter(|(_, consumer)| consumer.home == *home).collect()
}

/// Every home of a consumer of `planned` that is no fork known here.
pub fn homes_outside(planned: &[Planned]) -> Vec<ConsumerHome> {
    let mut homes: Vec<ConsumerHome> = Vec::new();
    for consumer in planned.iter().flat_map(|fork| &fork.spec.consumers) {
        if !matches!(consumer.home, ConsumerHome::Fork(_)) && !homes.contains(&consumer.home) {
            homes.push(consumer.home.clone());
        }
    }
    homes
}

/// Moves the pins that stand in one home. For a fork known here, `own` is its spec and, when it was rebased, its result.
///
/// # Errors
/// See [`UpdateError`].
pub fn update_home(
    root: &Path,
    home: &ConsumerHome,
    own: Option<(&ForkSpec, Option<&SyncResult>)>,
    pins: &[(&Planned, &ConsumerSpec)],
    source: &Source,
    events: &dyn EventSink,
) -> Result<HomeUpdate, UpdateError> {
    let label = home_label(home);
    events.emit(Event::StepStarted { step: format!("pins in {label}") });
    let Home { store, tip } = open_home(root, home, own, source, PINS_BRANCH, events)?;
    let mut head = tip;
    let mut updates = Vec::new();
    for (fork, consumer) in pins {
        let (pin, old) = pin_of(fork, consumer.names);
        let mut update = PinUpdate::new(&fork.spec.name, &label, consumer, pin.commit);
        let from = Store::open_existing(&root.join(&fork.result.store))?;
        if let Some(finding) = not_served(&store, consumer, &pin, source)? {
            update.findings.push(finding);
            updates.push(update);
            continue;
        }
        let needed = match material(&consumer.pin, &pin, &from, &store) {
            Ok(needed) => needed,
            Err(MaterialError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let message = format!("{error}{}", causes(&error));
                update.findings.push(PinFinding::error(None, message, error.hint()));
                updates.push(update);
                continue;
            }
        };
        let tree = store.commit(head)?.tree;
        let plan = plan_pin(&store, tree, &consumer.pin, &pin, &old, &needed)?;
        if plan.tree != tree {
            head =
                store.write_commit(plan.tree, &[head], &author(&from, pin.commit)?, &message(fork, &pin))?;
            update.commit = Some(head);
        }
        (update.edits, update.findings, update.leftovers) = (plan.edits, plan.findings, plan.leftovers);
        updates.push(update);
    }
    let tree = store.commit(head)?.tree;
    for update in &mut updates {
        // A place that a later pin of the same consumer moved is none that is left.
        update.leftovers = still_there(&store, tree, std::mem::take(&mut update.leftovers))?;
    }
    let (mut branch, mut backup) = (None, None);
    if head != tip {
        backup = set_branch(&store, PINS_BRANCH, head)?;
        branch = Some((PINS_BRANCH.to_owned(), head));
    }
    let repository = store.path().to_owned();
    Ok(HomeUpdate { consumer: label, repository, branch, backup, from: tip, pins: updates })
}

/// What people call a home.
pub fn home_label(home: &ConsumerHome) -> String {
    match home {
        ConsumerHome::Fork(name) => format!("fork {name}"),
        ConsumerHome::Repository { address, branch } => format!("{address} ({branch})"),
        ConsumerHome::Checkout { path, .. } => path.clone(),
    }
}

pub(super) struct Home {
    pub(super) store: Store,
    pub(super) tip: CommitId,
}

/// Opens a consumer; `goes_to` is the branch that the edits will go onto.
pub(super) fn open_home(
    root: &Path,
    home: &ConsumerHome,
    own: Option<(&ForkSpec, Option<&SyncResult>)>,
    source: &Source,
    goes_to: &str,
    events: &dyn EventSink,
) -> Result<Home, UpdateError> {
    let no_branch =
        |branch: &str| UpdateError::NoBranch { consumer: home_label(home), branch: branch.to_owned() };
    match home {
        ConsumerHome::Fork(name) => match own {
            Some((_, Some(result))) => {
                Ok(Home { store: Store::open_existing(&root.join(&result.store))?, tip: result.new_head })
            }
            Some((spec, None)) => {
                let fork = open_fork(root, spec.clone(), source, events)?;
                let is_branch = matches!(spec.stack, StackSpec::Branch { .. });
                let tip = fork.head.filter(|_| is_branch).ok_or_else(|| UpdateError::NoHead(name.clone()))?;
                Ok(Home { store: fork.store, tip })
            }
            None => Err(UpdateError::NoHead(name.clone())),
        },
        ConsumerHome::Repository { address, branch } => {
            let name =
                mirror::owner_and_name(address).ok_or_else(|| MirrorError::Address(address.clone()))?;
            let name = name.replace('/', "+");
            let folder =
                |ending: &str| root.join("target/regraft/consumers").join(format!("{name}.{ending}"));
            let (store, refs) = match source {
                Source::Mirrors(mirrors) => {
                    let found = mirror::find_mirror(mirrors, address)?;
                    let store = Store::open(&folder("borrowed.git"), std::slice::from_ref(&found))?;
                    (store, mirror::mirror_refs(&found)?)
                }
                Source::Remotes => {
                    let store = Store::open(&folder("git"), &[])?;
                    let refs = mirror::fetch(&store, "consumer", address)?;
                    (store, refs)
                }
            };
            let tip = refs.branches.get(branch).copied().ok_or_else(|| no_branch(branch))?;
            Ok(Home { store, tip })
        }
        ConsumerHome::Checkout { path, branch } => {
            let (named, path) = (path.clone(), root.join(path));
            if !path.is_dir() {
                return Err(UpdateError::NoCheckout { named, path });
            }
            let checkout = open_checkout(&path)?;
            if checkout.checked_out.iter().any(|name| name == goes_to) {
                return Err(UpdateError::CheckedOut { branch: goes_to.to_owned(), path });
            }
            let tip = match branch {
                Some(branch) => {
                    let named = checkout.store.reference(&format!("refs/heads/{branch}"))?;
                    named.ok_or_else(|| no_branch(branch))?
                }
                None => checkout.head,
            };
            Ok(Home { store: checkout.store, tip })
        }
    }
}

/// Lets a branch of ours lead to `head`; gives the ref that keeps what it led to before. A branch on which somebody else
/// put commits is left alone.
pub(super) fn set_branch(store: &Store, branch: &str, head: CommitId) -> Result<Option<String>, UpdateError> {
    let old = store.reference(branch)?;
    let short = branch.trim_start_matches("refs/heads/");
    let made = format!("refs/regraft/made/{short}/");
    let mut backup = None;
    if let Some(old) = old.filter(|old| *old != head) {
        let mut ours: Vec<CommitId> = store.refs(&made)?.into_values().collect();
        ours.push(head);
        if !ours.contains(&old) {
            let foreign = store.commits_between(&ours, old)?.into_iter();
            let foreign: Vec<String> = foreign
                .map(|commit| store.commit(commit).map(|info| info.subject))
                .collect::<Result<_, _>>()?;
            if !foreign.is_empty() {
                let repository = store.path().to_owned();
                return Err(UpdateError::NotOurs { branch: branch.to_owned(), repository, foreign });
            }
        }
        let name = format!("refs/regraft/backup/{short}/{old}");
        if store.reference(&name)?.is_none() {
            store.lead_ref(&name, None, old)?;
        }
        backup = Some(name);
    }
    // Written first: whoever is killed before the branch moves still knows the commit as ours.
    store.move_ref(&format!("{made}{head}"), None, head)?;
    if old != Some(head) {
        store.lead_ref(branch, old, head)?;
    }
    Ok(backup)
}

/// What a consumer is to name, and what it named.
fn pin_of(fork: &Planned, names: Named) -> (NewPin, OldPin) {
    let Planned { spec, result, head } = fork;
    let version = |tag: &Option<String>| {
        let version = tag.as_ref()?.strip_prefix(&spec.upstream.tag_prefix)?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    };
    // A stack of which nothing is left is upstream itself.
    if names == Named::Upstream || *head == result.onto.commit {
        let (onto, base) = (&result.onto, &result.base);
        let pin = NewPin {
            repository: spec.upstream.repository.clone(),
            commit: onto.commit,
            tag: onto.tag.clone(),
            version: version(&onto.tag),
        };
        return (pin, OldPin { commit: base.commit, tag: base.tag.clone() });
    }
    let pushed_to = spec.push.as_ref().map(|push| push.repository.as_str());
    let repository = pushed_to.or_else(|| spec.stack.repository());
    let repository = repository.unwrap_or(&spec.upstream.repository).to_owned();
    let pin = NewPin { repository, commit: *head, tag: None, version: None };
    (pin, OldPin { commit: result.old_head.unwrap_or(result.base.commit), tag: None })
}

/// A finding when the pin would name a commit that cannot be had from its remote. Kinds that hold the files themselves
/// need no remote.
pub(super) fn not_served(
    store: &Store,
    consumer: &ConsumerSpec,
    pin: &NewPin,
    source: &Source,
) -> Result<Option<PinFinding>, UpdateError> {
    let holds_files = match &consumer.pin {
        PinKind::Vendored { .. } | PinKind::CargoVersion { .. } => true,
        PinKind::CmakeArchive { archive, .. } => !archive.contains("{commit}") || !archive.contains("://"),
        _ => false,
    };
    if holds_files {
        return Ok(None);
    }
    let served = match source {
        Source::Mirrors(mirrors) => {
            remote::local_serves(&mirror::find_mirror(mirrors, &pin.repository)?, pin.commit)?
        }
        Source::Remotes => remote::serves(store, &pin.repository, pin.commit)?,
    };
    match served {
        true => Ok(None),
        false => Ok(Some(PinFinding::error(
            None,
            format!("`{}` does not serve {}", pin.repository, pin.commit),
            Some("push the result first (`--push`), then move the pins".to_owned()),
        ))),
    }
}

/// Whoever moves a pin does it at the time of the commit that it names, so that equal input gives equal commits.
pub(super) fn author(from: &Store, commit: CommitId) -> Result<Person, StoreError> {
    let info = from.commit(commit)?;
    Ok(Person {
        name: "Regraft".to_owned(),
        email: "regraft@localhost".to_owned(),
        time_s: info.committed_s,
        offset_min: info.offset_min,
    })
}

fn message(fork: &Planned, pin: &NewPin) -> String {
    let name = pin.tag.clone().unwrap_or_else(|| pin.commit.short());
    format!("Move {} to {name}\n\n{}\n", fork.spec.name, pin.commit)
}

pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::{
        config::fork::parse_fork,
        event::Silent,
        rebase::sync::NamedCommit,
        tools::{
            git::{fixture::ForkFixture, store::Entry, store::MODE_SUBMODULE, tree_path::TreePath},
            process::Invocation,
        },
    };

    fn git(folder: &Path, args: &[&str]) -> String {
        let command = Invocation::new("git")
            .args(["-c", "user.name=U", "-c", "user.email=u@example.org", "-c", "protocol.file.allow=always"])
            .args(args)
            .cwd(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_DATE", "1700000000 +0000")
            .env("GIT_COMMITTER_DATE", "1700000000 +0000");
        command.run_ok().unwrap().stdout
    }

    /// A fork `f` whose stack of one patch went onto upstream's newest commit, in a repository below `owner+name/repo`.
    fn planned(fixture: &mut ForkFixture, consumers: &str) -> Planned {
        let onto = fixture.onto();
        let head = fixture.commit(&[onto], "patch", &[("p", Some("p\n"))]);
        let text = format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/up/name\"\nbranch = \"main\"\n\
             tag-prefix = \"v\"\n[stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\n\
             branch = \"fork\"\n{consumers}"
        );
        let spec = parse_fork("f", "fork.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let named = |commit, tag: &str| NamedCommit { commit, tag: Some(tag.to_owned()) };
        let result = SyncResult {
            schema: SyncResult::current_schema(),
            fork: "f".to_owned(),
            base: named(fixture.base, "v1"),
            onto: named(onto, "v2"),
            old_head: Some(fixture.head()),
            new_head: head,
            tree: fixture.store.commit(head).unwrap().tree,
            store: PathBuf::from("owner+name/repo"),
            branch: String::new(),
            patches: Vec::new(),
            open_findings: 0,
            report: PathBuf::new(),
        };
        Planned { spec, result, head }
    }

    fn fork() -> ForkFixture {
        ForkFixture::new(&[("f", "f\n")])
            .patch("patch", &[("p", Some("p\n"))])
            .advance("up", &[("f", Some("g\n"))])
    }

    #[test]
    fn a_checkout_gets_a_branch_and_keeps_everything_else() {
        let mut fixture = fork();
        let consumers = "[[consumers]]\nkind = \"text\"\ncheckout = \"user\"\nfiles = [\"pin.txt\"]\n\
            [[consumers]]\nkind = \"submodule\"\ncheckout = \"user\"\npath = \"deps/n\"\n\
            [[consumers]]\nkind = \"vendored\"\ncheckout = \"user\"\npath = \"copy\"\n\
            [[consumers]]\nkind = \"cmake-tag\"\ncheckout = \"user\"\nname = \"n\"\nfiles = [\"CMakeLists.txt\"]\n";
        let planned = planned(&mut fixture, consumers);
        let (root, old) = (fixture.mirror_root(), fixture.head());
        let user = root.join("user");
        fs::create_dir_all(user.join("copy/deep")).unwrap();
        fs::write(user.join("pin.txt"), format!("{old}\n")).unwrap();
        fs::write(user.join("notes.md"), format!("built from {old}.\n")).unwrap();
        fs::write(user.join("copy/deep/own"), "own\n").unwrap();
        let modules = "[submodule \"n\"]\n\tpath = deps/n\n\turl = https://example.org/owner/name\n";
        fs::write(user.join(".gitmodules"), modules).unwrap();
        git(&user, &["init", "-q", "-b", "main"]);
        git(&user, &["add", "."]);
        git(&user, &["update-index", "--add", "--cacheinfo", &format!("160000,{old},deps/n")]);
        git(&user, &["commit", "-q", "-m", "user"]);
        // Work in progress: a change in the index, one beside it, and a file that git does not know.
        fs::write(user.join("notes.md"), "staged\n").unwrap();
        git(&user, &["add", "notes.md"]);
        fs::write(user.join("notes.md"), "not staged\n").unwrap();
        fs::write(user.join("new"), "new\n").unwrap();
        let state = || {
            let index = fs::read(user.join(".git/index")).unwrap();
            (
                index,
                fs::read(user.join(".git/HEAD")).unwrap(),
                git(&user, &["rev-parse", "main"]),
                fs::read(user.join("notes.md")).unwrap(),
            )
        };
        let before = state();
        let run = || {
            let list = [planned.clone()];
            let home = &planned.spec.consumers[0].home;
            let source = Source::Mirrors(root.to_owned());
            update_home(root, home, None, &pins_in(home, &list), &source, &Silent).unwrap()
        };
        // No branch of the remote leads to the new head yet.
        let unserved = run();
        assert!(unserved.pins[0].findings[0].message.contains("does not serve"), "{unserved:?}");
        assert!(unserved.pins[2].commit.is_some(), "a copy needs no remote");
        fixture.name("refs/heads/fork", planned.head);
        let update = run();
        let (branch, head) = update.branch.clone().unwrap();
        assert_eq!((branch.as_str(), update.pins.len()), (PINS_BRANCH, 4));
        let show = |path: &str| git(&user, &["show", &format!("{head}:{path}")]);
        assert_eq!(show("pin.txt").trim(), planned.head.to_string());
        assert_eq!((show("copy/p").as_str(), show("copy/f").as_str()), ("p\n", "g\n"));
        assert!(
            git(&user, &["ls-tree", "-r", "--name-only", &head.to_string()])
                .lines()
                .all(|path| path != "copy/deep/own")
        );
        assert!(git(&user, &["ls-tree", &head.to_string(), "deps/n"]).contains(&planned.head.to_string()));
        let leftover = &update.pins[0].leftovers;
        assert!(leftover.iter().any(|left| left.file == "notes.md" && left.line == 1), "{leftover:?}");
        // The one that stands nowhere is told, and hinders no other.
        let message = &update.pins[3].findings[0].message;
        assert!(message.contains("no file `CMakeLists.txt`") && update.pins[3].commit.is_none(), "{message}");
        assert_eq!(state(), before);
        assert_eq!(git(&user, &["rev-parse", "regraft/pins"]).trim(), head.to_string());
        assert_eq!(run(), HomeUpdate { backup: None, ..update.clone() }, "the same again");
        // What was made here gives way, and stays; what somebody put on top of it does not.
        let (_, before) = unserved.branch.unwrap();
        assert_eq!(update.backup, Some(format!("refs/regraft/backup/regraft/pins/{before}")));
        let theirs = format!("{head}^{{tree}}");
        let theirs = git(&user, &["commit-tree", "-p", &head.to_string(), "-m", "theirs", &theirs]);
        git(&user, &["update-ref", PINS_BRANCH, theirs.trim()]);
        let home = &planned.spec.consumers[0].home;
        let (list, source) = ([planned.clone()], Source::Mirrors(root.to_owned()));
        let error = update_home(root, home, None, &pins_in(home, &list), &source, &Silent).unwrap_err();
        let UpdateError::NotOurs { ref foreign, .. } = error else { panic!("{error}") };
        assert!(foreign[..] == ["theirs"] && error.is_refusal(), "{error}");
        assert_eq!(git(&user, &["rev-parse", "regraft/pins"]), theirs);
        git(&user, &["stash", "-q", "-u"]);
        git(&user, &["checkout", "-q", "regraft/pins"]);
        let list = [planned.clone()];
        let home = &planned.spec.consumers[0].home;
        let source = Source::Mirrors(root.to_owned());
        let error = update_home(root, home, None, &pins_in(home, &list), &source, &Silent).unwrap_err();
        assert!(matches!(error, UpdateError::CheckedOut { .. }), "{error}");
    }

    #[test]
    fn a_fork_that_builds_on_another_gets_its_pins_on_top_of_its_own_planned_head() {
        let mut fixture = fork();
        let list =
            [planned(&mut fixture, "[[consumers]]\nkind = \"submodule\"\nfork = \"g\"\npath = \"deps/n\"\n")];
        fixture.name("refs/heads/fork", list[0].head);
        let store = &fixture.store;
        let old = fixture.head();
        let modules = b"[submodule \"n\"]\n\tpath = deps/n\n\turl = https://example.org/up/name\n";
        let entry = |id, mode| Some(Entry { id, mode });
        let edits = BTreeMap::from([
            (TreePath::new(".gitmodules").unwrap(), entry(store.write_blob(modules).unwrap(), 0o100_644)),
            (TreePath::new("deps/n").unwrap(), entry(old.to_string().parse().unwrap(), MODE_SUBMODULE)),
        ]);
        let tree = store.edited_tree(store.empty_tree().unwrap(), &edits).unwrap();
        let author = author(store, pin_of(&list[0], Named::Fork).0.commit).unwrap();
        let tip = store.write_commit(tree, &[], &author, "g\n").unwrap();
        let own = SyncResult { fork: "g".to_owned(), new_head: tip, tree, ..list[0].result.clone() };
        let home = ConsumerHome::Fork("g".to_owned());
        let source = Source::Mirrors(fixture.mirror_root().to_owned());
        let pins = pins_in(&home, &list);
        let update = update_home(
            fixture.mirror_root(),
            &home,
            Some((&list[0].spec, Some(&own))),
            &pins,
            &source,
            &Silent,
        )
        .unwrap();
        let (_, head) = update.branch.unwrap();
        let info = store.commit(head).unwrap();
        assert_eq!((info.parents, update.from), (vec![tip], tip));
        let gitlink = store.entry(info.tree, &TreePath::new("deps/n").unwrap()).unwrap().unwrap();
        assert_eq!((gitlink.id.to_string(), gitlink.mode), (list[0].head.to_string(), MODE_SUBMODULE));
        let modules = fixture.text(info.tree, ".gitmodules").unwrap();
        assert!(modules.contains("https://example.org/owner/name\n"), "{modules}");
        assert_eq!(homes_outside(&list), []);
    }
}
