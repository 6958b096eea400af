//! Whole rebases on small repositories: resolved, replayed, killed, given up.

use std::process::ExitStatus;

use super::*;
use crate::{
    config::fork::parse_fork,
    event::Silent,
    evidence::cost::read_record,
    tools::{
        git::{
            fixture::{Edit, ForkFixture},
            store::{MODE_EXECUTABLE, MODE_FILE, MODE_LINK, Person},
        },
        process::Invocation,
    },
};

const FIVE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// A checkout with one fork, `fork`.
struct Checkout {
    root: tempfile::TempDir,
    mirrors: PathBuf,
    base: CommitId,
    tables: String,
}

const BRANCH: &str =
    "[stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n";
const FOLDER: &str = "[stack]\nkind = \"folder\"\norder = \"number\"\n";

impl Checkout {
    fn new(fixture: &ForkFixture, tables: &str) -> Self {
        fixture.name("refs/heads/main", fixture.onto());
        fixture.name("refs/heads/fork", fixture.head());
        fixture.name("refs/tags/v2", fixture.onto());
        let root = tempfile::tempdir().unwrap();
        let mirrors = fixture.mirror_root().to_owned();
        let checkout = Self { root, mirrors, base: fixture.base, tables: tables.to_owned() };
        checkout.write("fork.toml", checkout.toml().as_bytes());
        checkout
    }

    fn toml(&self) -> String {
        format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
             tag-prefix = \"v\"\n[base]\ncommit = \"{}\"\n{}",
            self.base, self.tables
        )
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        replace_file(&self.root.path().join("patches/fork").join(name), bytes).unwrap();
    }

    /// A patch file for each of the fixture's patches.
    fn with_patch_files(self, fixture: &ForkFixture) -> Self {
        let mails = fixture.store.mails(&fixture.fork[1..], None).unwrap();
        for (number, mail) in (1..).zip(mails) {
            self.write(&format!("{number:04}-patch.patch"), &mail);
        }
        self
    }

    fn run_with(&self, action: Action, faults: &Faults, findings: Findings) -> Result<SyncOutcome, RunError> {
        self.run_as(action, faults, findings, Sign::Never)
    }

    fn run_signed(&self, action: Action, faults: &Faults) -> Result<SyncOutcome, RunError> {
        self.run_as(action, faults, Findings::Open, Sign::AsConfigured)
    }

    fn run_as(
        &self,
        action: Action,
        faults: &Faults,
        findings: Findings,
        sign: Sign,
    ) -> Result<SyncOutcome, RunError> {
        let text = fs::read_to_string(self.root.path().join("patches/fork/fork.toml")).unwrap();
        let spec = parse_fork("fork", "fork.toml", &text).unwrap();
        let request = SyncRequest {
            onto: (action == Action::Start).then_some("v2"),
            source: Some(Source::Mirrors(self.mirrors.clone())),
            action,
            findings,
            sign,
            reports: &self.root.path().join("reports"),
            generated_by: "test",
            render: &|record| format!("{}\n", record.head),
            faults,
        };
        sync_fork(self.root.path(), spec, &request, &Silent)
    }

    fn run(&self, action: Action) -> Result<SyncOutcome, RunError> {
        self.run_with(action, &Faults::none(), Findings::Open)
    }

    fn finished(&self, action: Action) -> RunRecord {
        match self.run(action).unwrap() {
            SyncOutcome::Finished(record) => *record,
            other => panic!("not finished: {other:?}"),
        }
    }

    fn waits(&self, action: Action) -> Waiting {
        match self.run(action).unwrap() {
            SyncOutcome::Waits(waiting) => *waiting,
            other => panic!("nothing waits: {other:?}"),
        }
    }

    fn work_tree(&self) -> PathBuf {
        sync_folder(self.root.path(), "fork").join("worktree")
    }

    fn resolve(&self, path: &str, text: &str) {
        fs::write(self.work_tree().join(path), text).unwrap();
    }

    fn git(&self, args: &[&str]) -> ExitStatus {
        Invocation::new("git").args(args).cwd(self.work_tree()).run().unwrap().status
    }

    fn store(&self) -> Store {
        Store::open_existing(&self.root.path().join("target/regraft/forks/fork.borrowed.git")).unwrap()
    }

    /// Everything that a person or a later command sees of a finished run.
    fn outcome(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for folder in ["patches", "reports", "target/regraft/sync"] {
            collect(self.root.path(), &self.root.path().join(folder), &mut files);
        }
        files.retain(|name, _| !name.ends_with("/lock"));
        for (name, commit) in self.store().refs("refs/heads/").unwrap() {
            files.insert(name, commit.to_string().into_bytes());
        }
        files
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}

fn edit<'t>(path: &'t str, text: &'t str) -> [Edit<'t>; 1] {
    [(path, Some(text))]
}

/// Upstream changes line 5; of three patches the second changes it too.
fn conflicting() -> ForkFixture {
    ForkFixture::new(&[("f", FIVE), ("g", "g\n")])
        .patch("first", &edit("g", "g\nfirst\n"))
        .patch("second", &edit("f", &FIVE.replace('5', "five")))
        .patch("third", &edit("f", &FIVE.replace('5', "five").replace('9', "nine")))
        .advance("elsewhere", &edit("h", "h\n"))
        .advance("culprit", &edit("f", &FIVE.replace('5', "FIVE")))
}

const RESOLVED: &str = "1\n2\n3\n4\nFIVE, five\n6\n7\n8\n9\n";

#[test]
fn a_conflict_is_resolved_once_and_replayed_elsewhere() {
    let fixture = conflicting();
    let here = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
    let waiting = here.waits(Action::Start);
    assert_eq!((waiting.number, waiting.of, waiting.conflicts[0].path.as_str()), (2, 3, "f"));
    assert_eq!(waiting.conflicts[0].culprit.as_ref().unwrap().commit, fixture.onto());
    let shown = fs::read_to_string(here.work_tree().join("f")).unwrap();
    let marked = "<<<<<<< upstream\nFIVE\n||||||| before the patch\n5\n=======\nfive\n>>>>>>> the patch\n";
    assert_eq!(shown, FIVE.replace("5\n", marked));
    assert_eq!(
        fs::read_to_string(here.work_tree().join("g")).unwrap(),
        "g\nfirst\n",
        "the rest is checked out"
    );
    assert_eq!(fs::read_to_string(here.work_tree().join("h")).unwrap(), "h\n");

    let refused = here.run(Action::Continue).unwrap_err();
    assert!(refused.waits_for_a_person());
    assert_eq!(refused.to_string(), "conflict markers are left in `f` (line 5, 7, 11)");
    here.resolve("f", RESOLVED);
    assert_eq!(here.waits(Action::Start), waiting, "asking again shows the same and takes nothing");
    let record = here.finished(Action::Continue);
    let outcomes: Vec<PatchOutcome> = record.patches.iter().map(|patch| patch.outcome).collect();
    assert_eq!(outcomes, [PatchOutcome::Applied, PatchOutcome::Resolved, PatchOutcome::Applied]);
    let text = fixture_text(&here, record.tree, "f");
    assert_eq!(text, RESOLVED.replace('9', "nine"));
    assert!(!here.work_tree().exists());
    let result = SyncResult::load(here.root.path(), "fork").unwrap().unwrap();
    assert_eq!((result.new_head, result.onto.commit, result.open_findings), (record.head, fixture.onto(), 0));
    assert_eq!(here.store().reference(&result.branch).unwrap(), Some(record.head));

    // The queue now sits on the target, and goes there again without any conflict.
    let again = here.finished(Action::Start);
    assert_eq!((again.base.commit, again.tree), (fixture.onto(), record.tree));
    assert!(again.exported.unwrap().written.is_empty(), "nothing is rewritten");

    // What the way there cost is on record, and a run that goes nowhere leaves it as it is.
    let syncs = read_record(&record_file(here.root.path(), "fork")).unwrap();
    let cost: Vec<_> =
        syncs.iter().map(|sync| (sync.onto, sync.patches.len(), sync.conflicted.len())).collect();
    assert_eq!(cost, [(fixture.onto(), 3, 1)]);

    // Elsewhere only the resolutions are there.
    let there = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
    let resolutions = here.root.path().join("patches/fork/resolutions");
    let mut recorded = BTreeMap::new();
    collect(&resolutions, &resolutions, &mut recorded);
    assert_eq!(recorded.len(), 1);
    for (name, bytes) in &recorded {
        there.write(&format!("resolutions/{name}"), bytes);
    }
    let replayed = there.finished(Action::Start);
    assert_eq!((replayed.head, replayed.patches[1].outcome), (record.head, PatchOutcome::Replayed));
    let name = recorded.keys().next().unwrap();
    assert_eq!(replayed.patches[1].replayed[0].resolution, *name);
    assert_eq!(
        replayed.patches[1].replayed[0].missing,
        ["five"],
        "the patch's own line is not in the result as it was"
    );

    // A resolution that no longer stands the test is not used.
    let third = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
    for (name, bytes) in &recorded {
        let broken = String::from_utf8(bytes.clone()).unwrap().replace("+FIVE, five", "+FIVE, five {");
        third.write(&format!("resolutions/{name}"), broken.as_bytes());
    }
    let waiting = third.waits(Action::Start);
    assert!(waiting.refused[0].1.contains("brackets"), "{:?}", waiting.refused);
}

fn fixture_text(checkout: &Checkout, tree: TreeId, path: &str) -> String {
    let store = checkout.store();
    let entry = store.entry(tree, &TreePath::new(path).unwrap()).unwrap().unwrap();
    String::from_utf8(store.blob(entry.id).unwrap()).unwrap()
}

#[test]
fn ended_at_any_point_the_next_run_comes_to_the_same_end() {
    let fixture = conflicting();
    let whole = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
    whole.waits(Action::Start);
    whole.resolve("f", RESOLVED);
    whole.finished(Action::Continue);
    let expected = whole.outcome();
    let ended = |outcome: &Result<SyncOutcome, RunError>| {
        matches!(outcome, Err(RunError::Execute(ExecuteError::Ended)))
    };
    let mut points = 0;
    for (before, of) in [(true, "start"), (false, "continue")] {
        for point in 0.. {
            let checkout = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
            let start = Faults::after(if before { point } else { usize::MAX });
            let first = checkout.run_with(Action::Start, &start, Findings::Open);
            if before {
                if !ended(&first) {
                    assert!(point > 3, "{first:?}");
                    break;
                }
                checkout.waits(Action::Start);
            }
            checkout.resolve("f", RESOLVED);
            let second = match before {
                true => checkout.run(Action::Continue),
                false => checkout.run_with(Action::Continue, &Faults::after(point), Findings::Open),
            };
            if !before {
                if !ended(&second) {
                    assert!(point > 10, "{second:?}");
                    break;
                }
                // A person goes on where there is something to go on with, and otherwise asks again.
                match checkout.run(Action::Continue) {
                    Ok(SyncOutcome::Finished(_)) => {}
                    // Only what was ended before it began to decide, or after its end, has nothing to go on with.
                    Err(RunError::NothingWaits { last: Some(_), .. }) => {}
                    other => panic!("{of} {point}: {other:?}"),
                }
            }
            points += 1;
            let found = checkout.outcome();
            for (name, bytes) in &expected {
                let text = String::from_utf8_lossy(bytes);
                let other = found.get(name).map(|bytes| String::from_utf8_lossy(bytes));
                assert_eq!(other.as_deref(), Some(&*text), "{of} {point}: {name}");
            }
            assert_eq!(found.len(), expected.len(), "{of} {point}: {:?}", found.keys());
        }
    }
    assert!(points >= 20, "only {points} points");
}

#[test]
fn what_is_left_out_or_given_up_is_kept() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    assert!(matches!(checkout.run(Action::Skip), Err(RunError::NothingWaits { .. })));
    checkout.waits(Action::Start);
    checkout.resolve("f", "half done\n");
    // The third patch changes what the second left behind, and the line beside it is upstream's.
    let record = match checkout.run(Action::Skip).unwrap() {
        SyncOutcome::Finished(record) => *record,
        other => panic!("{other:?}"),
    };
    assert_eq!(record.patches[1].outcome, PatchOutcome::Skipped);
    assert_eq!(fixture_text(&checkout, record.tree, "f"), FIVE.replace('5', "FIVE").replace('9', "nine"));
    let kept = checkout.store().refs("refs/regraft/fork/kept/").unwrap();
    let tree = checkout.store().commit(*kept.values().next().unwrap()).unwrap().tree;
    assert_eq!(fixture_text(&checkout, tree, "f"), "half done\n");

    let other = Checkout::new(&fixture, BRANCH);
    other.waits(Action::Start);
    other.resolve("f", "given up\n");
    let SyncOutcome::Aborted { kept: Some(kept), .. } = other.run(Action::Abort).unwrap() else { panic!() };
    let commit = other.store().reference(&kept).unwrap().unwrap();
    assert_eq!(fixture_text(&other, other.store().commit(commit).unwrap().tree, "f"), "given up\n");
    assert!(!other.work_tree().exists() && SyncState::load(other.root.path(), "fork").unwrap().is_none());
}

#[test]
fn a_run_whose_files_are_broken_can_be_given_up() {
    let fixture = conflicting();
    for (broken, half) in [
        ("state.json", &b"{\"onto_asked\": \"v2\", \"on"[..]),
        ("finish.json", b"{}"),
        ("result.json", b"\xff"),
        ("beside.json", b""),
    ] {
        let checkout = Checkout::new(&fixture, BRANCH);
        checkout.waits(Action::Start);
        checkout.resolve("f", "given up\n");
        let folder = sync_folder(checkout.root.path(), "fork");
        fs::write(folder.join(broken), half).unwrap();
        for action in [Action::Start, Action::Continue, Action::Skip] {
            // What was finished before is not needed by an unfinished run.
            if broken == "result.json" {
                continue;
            }
            let hint = checkout.run(action).unwrap_err().hint().unwrap();
            assert!(hint.contains("sync-upstream fork --abort"), "{broken}: {hint}");
        }
        let SyncOutcome::Aborted { kept: Some(kept), set_aside } = checkout.run(Action::Abort).unwrap()
        else {
            panic!("{broken}")
        };
        assert_eq!(set_aside, [folder.join(format!("kept/{broken}-1"))]);
        assert_eq!(fs::read(&set_aside[0]).unwrap(), half, "{broken}");
        let commit = checkout.store().reference(&kept).unwrap().unwrap();
        let tree = checkout.store().commit(commit).unwrap().tree;
        assert_eq!(fixture_text(&checkout, tree, "f"), "given up\n");
        checkout.waits(Action::Start);
    }
}

#[test]
fn a_work_tree_that_git_cannot_read_is_moved_aside_with_what_it_holds() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    for (number, spoil) in [(1, ".git/index"), (2, ".git/HEAD")] {
        checkout.waits(Action::Start);
        checkout.resolve("f", "given up\n");
        let path = checkout.work_tree().join(spoil);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let SyncOutcome::Aborted { kept: None, set_aside } = checkout.run(Action::Abort).unwrap() else {
            panic!("{spoil}")
        };
        let place = sync_folder(checkout.root.path(), "fork").join(format!("kept/worktree-{number}"));
        assert_eq!(set_aside, std::slice::from_ref(&place));
        assert_eq!(fs::read_to_string(place.join("f")).unwrap(), "given up\n");
    }
}

#[test]
fn a_result_branch_that_somebody_moved_is_left_alone() {
    let fixture = ForkFixture::new(&[("f", FIVE)])
        .patch("p", &edit("f", &FIVE.replace('1', "one")))
        .advance("u", &edit("f", &FIVE.replace('9', "nine")));
    let checkout = Checkout::new(&fixture, BRANCH);
    let record = checkout.finished(Action::Start);
    assert_eq!(checkout.finished(Action::Start).head, record.head, "done twice, it comes out the same");
    let store = checkout.store();
    store.move_ref(&record.branch, Some(record.head), fixture.base).unwrap();
    let refused = checkout.run(Action::Start).unwrap_err();
    assert!(refused.is_refusal() && refused.hint().unwrap().contains("git branch -m"), "{refused}");
    assert_eq!(store.reference(&record.branch).unwrap(), Some(fixture.base));
}

#[test]
fn deleted_files_and_submodules_wait_until_somebody_decides() {
    let mut fixture = ForkFixture::new(&[("gone", "a\n"), ("keep", "k\n"), ("sub/file", "s\n")])
        .patch("edits what upstream deletes", &edit("gone", "a\nb\n"))
        .advance("deletes", &[("gone", None)]);
    // Upstream puts a submodule where the patch changes a file of a folder.
    let store = &fixture.store;
    let tree = store.commit(fixture.onto()).unwrap().tree;
    let link = Entry { id: "c".repeat(40).parse().unwrap(), mode: MODE_SUBMODULE };
    let sub = TreePath::new("sub").unwrap();
    let with_link = store.edited_tree(tree, &BTreeMap::from([(sub.clone(), Some(link))])).unwrap();
    let person =
        Person { name: "A".to_owned(), email: "a@b".to_owned(), time_s: 1_700_000_500, offset_min: 0 };
    let commit = store.write_commit(with_link, &[fixture.onto()], &person, "submodule\n").unwrap();
    fixture.upstream.push(commit);
    let fixture = fixture.patch("edits below the submodule", &edit("sub/file", "s\nt\n"));
    let checkout = Checkout::new(&fixture, BRANCH);
    let waiting = checkout.waits(Action::Start);
    assert_eq!((waiting.conflicts[0].kind.as_str(), waiting.conflicts[0].places), ("modify/delete", 0));
    let refused = checkout.run(Action::Continue).unwrap_err();
    assert_eq!(refused.to_string(), "nobody has decided about `gone`");
    assert!(checkout.git(&["rm", "--quiet", "gone"]).success());
    let waiting = checkout.waits(Action::Continue);
    assert_eq!(waiting.number, 2);
    assert_eq!(waiting.done, [(1, PatchOutcome::Absorbed)], "what was resolved to nothing is not carried");
    let told: Vec<&str> = waiting.conflicts.iter().map(|conflict| conflict.kind.as_str()).collect();
    assert!(!told.is_empty(), "{waiting:?}");
    assert!(checkout.run(Action::Continue).unwrap_err().waits_for_a_person());
    for conflict in &waiting.conflicts {
        checkout.git(&["rm", "--quiet", "--cached", "-r", "--ignore-unmatch", &conflict.path]);
        let _ = fs::remove_file(checkout.work_tree().join(&conflict.path));
    }
    assert!(
        checkout.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", link.id)]).success()
    );
    let record = checkout.finished(Action::Continue);
    assert_eq!(checkout.store().entry(record.tree, &sub).unwrap(), Some(link));
    let resolutions = Resolutions::read(&checkout.root.path().join(resolutions_folder("fork"))).unwrap();
    assert_ne!(resolutions, Resolutions::default());
}

#[test]
fn generated_files_are_made_anew_and_stale_ones_named() {
    let made = |text: &str| text.to_uppercase();
    let fixture = ForkFixture::new(&[
        ("source", "a\n"),
        ("made", &made("a\n")),
        ("make.sh", "tr a-z A-Z <source >made\n"),
    ])
    .patch("ours", &[("source", Some("a\no\n")), ("made", Some(&made("a\no\n")))])
    .advance("theirs", &[("source", Some("a\nt\n")), ("made", Some(&made("a\nt\n")))]);
    // Both sides of `source` are kept by a resolution; `made` needs none.
    let tables = format!("{BRANCH}[[generated]]\ncommand = [\"sh\", \"make.sh\"]\npaths = [\"made\"]\n");
    let checkout = Checkout::new(&fixture, &tables);
    let waiting = checkout.waits(Action::Start);
    assert_eq!((waiting.conflicts.len(), &waiting.generated[..]), (1, &["made".to_owned()][..]));
    checkout.resolve("source", "a\no\nt\n");
    let record = checkout.finished(Action::Continue);
    assert_eq!(record.stale_generated, ["made"], "a person's resolution does not run the command");

    let again = Checkout::new(&fixture, &tables);
    let resolutions = checkout.root.path().join("patches/fork/resolutions");
    let mut recorded = BTreeMap::new();
    collect(&resolutions, &resolutions, &mut recorded);
    recorded.iter().for_each(|(name, bytes)| again.write(&format!("resolutions/{name}"), bytes));
    let record = again.finished(Action::Start);
    assert_eq!(fixture_text(&again, record.tree, "made"), "A\nO\nT\n");
    assert_eq!((record.patches[0].regenerated.len(), record.stale_generated.len()), (1, 0));
}

#[test]
fn a_stack_on_a_folder_gives_commits_of_the_whole_tree() {
    let fixture = ForkFixture::new(&[("part/f", FIVE), ("other", "o\n")])
        .advance("u", &[("part/f", Some(&FIVE.replace('9', "nine"))), ("other", Some("p\n"))]);
    let checkout = Checkout::new(&fixture, FOLDER);
    let toml = checkout.toml().replace("branch = \"main\"\n", "branch = \"main\"\nfolder = \"part\"\n");
    checkout.write("fork.toml", toml.as_bytes());
    let patch = "Subject: one\nFrom: A <a@b>\n\n---\n\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n";
    checkout.write("0007-one.patch", patch.as_bytes());
    let record = checkout.finished(Action::Start);
    assert_eq!(fixture_text(&checkout, record.tree, "part/f"), FIVE.replace('9', "nine").replace('1', "one"));
    assert_eq!(fixture_text(&checkout, record.tree, "other"), "p\n");
    let written = record.exported.unwrap();
    assert_eq!(
        (written.written, written.unchanged),
        (vec!["fork.toml".to_owned()], vec!["0007-one.patch".to_owned()])
    );
    let toml = fs::read_to_string(checkout.root.path().join("patches/fork/fork.toml")).unwrap();
    assert!(toml.contains(&format!("commit = \"{}\"\ntag = \"v2\"\n", fixture.onto())), "{toml}");
}

#[test]
fn a_changed_meaning_is_exported_only_when_somebody_has_looked() {
    // The second patch undoes a part of the first; without the first, a file of it is not touched any more.
    let fixture = ForkFixture::new(&[("f", FIVE), ("g", "g\n")])
        .patch("first", &edit("f", &FIVE.replace('5', "five")))
        .patch("second", &[("f", Some(&FIVE.replace('5', "FIVE"))), ("g", Some("g\nh\n"))])
        .advance("culprit", &edit("f", &format!("0\n{}", FIVE.replace('5', "FIVE"))));
    let checkout = Checkout::new(&fixture, BRANCH);
    checkout.waits(Action::Start);
    let record = checkout.finished(Action::Skip);
    let codes: Vec<_> =
        record.patches[1].findings.iter().map(|finding| (finding.code, finding.weight)).collect();
    assert!(codes.contains(&(super::super::meaning::MeaningCode::PathDropped, Weight::Look)), "{codes:?}");
    assert!(record.exported.is_none() && record.open_findings > 0);
    let result = SyncResult::load(checkout.root.path(), "fork").unwrap().unwrap();
    assert_eq!(result.open_findings, record.open_findings);
    let outcome = checkout.run_with(Action::Start, &Faults::none(), Findings::Accepted).unwrap();
    let SyncOutcome::Finished(accepted) = outcome else { panic!("{outcome:?}") };
    assert_eq!((accepted.head, accepted.open_findings), (record.head, 0));
    assert!(accepted.exported.is_some());
    assert!(SyncState::load(checkout.root.path(), "fork").unwrap().is_none());
}

#[test]
fn a_file_that_a_patch_moves_while_upstream_edits_it_means_the_same() {
    let fixture = ForkFixture::new(&[("old", FIVE), ("edited", FIVE)])
        .patch("moves", &[("old", None), ("new", Some(FIVE))])
        .patch("moves and edits", &[("edited", None), ("d/edited", Some(&FIVE.replace('1', "one")))])
        .advance("u", &edit("old", &FIVE.replace('5', "five")))
        .advance("v", &edit("edited", &FIVE.replace('9', "nine")));
    let record = Checkout::new(&fixture, BRANCH).finished(Action::Start);
    let found: Vec<_> = record.patches.iter().map(|patch| (patch.outcome, patch.findings.clone())).collect();
    assert_eq!(found, [(PatchOutcome::Merged, vec![]), (PatchOutcome::Merged, vec![])]);
}

#[test]
fn a_file_that_a_patch_makes_a_folder_is_no_hindrance() {
    let fixture = ForkFixture::new(&[("x", "x\n"), ("f", FIVE)])
        .patch("a folder", &[("x", None), ("x/in", Some("in\n")), ("f", Some(&FIVE.replace('1', "one")))])
        .advance("u", &edit("f", &FIVE.replace('4', "four")));
    let record = Checkout::new(&fixture, BRANCH).finished(Action::Start);
    assert_eq!(record.open_findings, 0);
}

#[test]
fn a_conflicting_file_that_a_person_makes_a_folder_is_taken_and_not_recorded() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    checkout.waits(Action::Start);
    fs::remove_file(checkout.work_tree().join("f")).unwrap();
    fs::create_dir(checkout.work_tree().join("f")).unwrap();
    checkout.resolve("f/in", "in\n");
    assert!(checkout.git(&["add", "--all"]).success());
    let waiting = checkout.waits(Action::Continue);
    assert_eq!((waiting.number, waiting.done[1].1), (3, PatchOutcome::Resolved));
    let tree = checkout
        .store()
        .commit(SyncState::load(checkout.root.path(), "fork").unwrap().unwrap().written[&2].commit);
    assert_eq!(fixture_text(&checkout, tree.unwrap().tree, "f/in"), "in\n");
    assert!(!checkout.root.path().join("patches/fork/resolutions").exists());
}

#[test]
fn an_absorbed_patch_goes_with_its_proof() {
    let fixture = ForkFixture::new(&[("f", FIVE), ("g", "g\n")])
        .patch("landed", &edit("f", &FIVE.replace('5', "five")))
        .patch("stays", &edit("g", "g\nh\n"))
        .advance("other", &edit("x", "x\n"))
        .advance("lands", &edit("f", &FIVE.replace('5', "five")));
    let checkout = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
    let record = checkout.finished(Action::Start);
    let commit = CulpritEntry { commit: fixture.onto(), subject: "lands".to_owned() };
    assert_eq!(record.patches[0].proof, Some(super::super::record::Proof::PatchId { commit }));
    let exported = record.exported.unwrap();
    assert_eq!(
        (exported.removed, exported.unchanged),
        (vec!["0001-patch.patch".to_owned()], vec!["0002-patch.patch".to_owned()])
    );
    assert!(!checkout.root.path().join("patches/fork/0001-patch.patch").exists());
}

/// A fork whose patches hold what patch tools get wrong.
fn awkward() -> ForkFixture {
    let crlf = "a\r\nb\r\nc\r\n";
    let mut fixture = ForkFixture::new(&[
        ("dos", crlf),
        ("old/name", FIVE),
        ("tool", "#!/bin/sh\n"),
        ("end", "no newline"),
    ]);
    let mut tree = fixture.store.commit(fixture.base).unwrap().tree;
    let changes: [(&str, u32, Option<&[u8]>); 9] = [
        ("dos", MODE_FILE, Some(b"a\r\nB\r\nc\r\n")),
        ("old/name", MODE_FILE, None),
        ("new/name", MODE_FILE, Some(FIVE.as_bytes())),
        ("tool", MODE_EXECUTABLE, Some(b"#!/bin/sh\n")),
        ("end", MODE_FILE, Some(b"still none")),
        ("link", MODE_LINK, Some(b"dos")),
        ("empty", MODE_FILE, Some(b"")),
        ("caf\u{e9} \"x\"", MODE_FILE, Some(b"quoted\n")),
        ("binary", MODE_FILE, Some(b"\0\x01\xff\n\0")),
    ];
    for (number, (path, mode, bytes)) in changes.into_iter().enumerate() {
        let store = &fixture.store;
        let entry = bytes.map(|bytes| Entry { id: store.write_blob(bytes).unwrap(), mode });
        tree = store.edited_tree(tree, &BTreeMap::from([(TreePath::new(path).unwrap(), entry)])).unwrap();
        // The rename is one patch.
        if path == "old/name" {
            continue;
        }
        let text = crate::tools::git::commits::CommitBytes {
            author: format!("J\u{fc}rgen <j@example.org> {} -0130", 1_600_000_000 + number).into_bytes(),
            encoding: None,
            message: format!("patch: {path}\n\nWhy.\n\nReviewed-by: R <r@example.org>\n").into_bytes(),
        };
        let committer = b"C <c@example.org> 1700000000 +0000";
        let commit = store.write_commit_bytes(tree, fixture.head(), &text, committer).unwrap();
        fixture.fork.push(commit);
    }
    fixture.advance("u", &edit("elsewhere", "u\n"))
}

#[test]
fn everything_about_a_patch_survives_and_git_am_makes_the_same_tree_of_the_export() {
    let fixture = awkward();
    let checkout = Checkout::new(&fixture, BRANCH);
    let record = checkout.finished(Action::Start);
    let store = checkout.store();
    for (patch, old) in record.patches.iter().zip(&fixture.fork[1..]) {
        let new = patch.new_commit.unwrap();
        assert_eq!(store.commit_bytes(new).unwrap(), fixture.store.commit_bytes(*old).unwrap());
        assert_eq!((patch.outcome, &patch.findings[..]), (PatchOutcome::Applied, &[][..]));
    }
    let clone = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let git = Invocation::new("git").args([
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@y",
            "-c",
            "core.autocrlf=false",
        ]);
        git.args(args).cwd(clone.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").run_ok().unwrap().stdout
    };
    git(&["clone", "--quiet", fixture.mirror_root().join("owner+name/repo").to_str().unwrap(), "."]);
    git(&["checkout", "--quiet", &fixture.onto().to_string()]);
    let mut files: Vec<PathBuf> = fs::read_dir(checkout.root.path().join("patches/fork"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "patch"))
        .collect();
    files.sort();
    let mut args = vec!["am", "--quiet", "--keep-cr"];
    args.extend(files.iter().map(|file| file.to_str().unwrap()));
    git(&args);
    assert_eq!(git(&["rev-parse", "HEAD^{tree}"]).trim(), record.tree.to_string());
    let log = git(&["log", "-1", "--format=%an <%ae> %ad%n%B", "--date=raw"]);
    assert!(
        log.starts_with("J\u{fc}rgen <j@example.org> 1600000008 -0130\npatch: binary\n\nWhy.\n\nReviewed-by"),
        "{log}"
    );
    // As a folder's stack it is the same again, and no file is rewritten.
    let folder = Checkout::new(&fixture, FOLDER);
    for file in &files {
        folder.write(file.file_name().unwrap().to_str().unwrap(), &fs::read(file).unwrap());
    }
    folder.write("fork.toml", with_onto(&folder.toml(), &fixture).as_bytes());
    let again = folder.finished(Action::Start);
    assert_eq!(
        (again.tree, again.exported.unwrap().written.len()),
        (record.tree, 1),
        "only the tag is new in fork.toml"
    );
}

#[test]
fn a_message_that_quotes_a_diff_is_exported_and_read_back_as_it_was() {
    let message = format!(
        "quotes\n\ndiff --git a/x b/x\n--- a/x\n---\nIndex: f\nFrom {} Mon Sep 17 00:00:00 2001\nend",
        "0123456789".repeat(4)
    );
    let fixture = ForkFixture::new(&[("f", FIVE)])
        .patch(&message, &edit("f", &FIVE.replace('1', "one")))
        .patch("second", &edit("f", &FIVE.replace('1', "ONE")))
        .advance("u", &edit("u", "u\n"));
    let checkout = Checkout::new(&fixture, BRANCH);
    let record = checkout.finished(Action::Start);
    let notes = record.exported.unwrap().notes;
    assert!(notes[0].starts_with("patch 1 `quotes`: line 3, 4, 5, 6, 7 of its message"), "{notes:?}");
    let clone = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let git = Invocation::new("git").args(["-c", "user.name=x", "-c", "user.email=x@y"]);
        git.args(args).cwd(clone.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").run_ok().unwrap().stdout
    };
    git(&["clone", "--quiet", fixture.mirror_root().join("owner+name/repo").to_str().unwrap(), "."]);
    git(&["checkout", "--quiet", &fixture.onto().to_string()]);
    let files = ["0001-quotes.patch", "0002-second.patch"];
    let paths = files.map(|name| checkout.root.path().join("patches/fork").join(name));
    git(&["am", "--quiet", paths[0].to_str().unwrap(), paths[1].to_str().unwrap()]);
    assert_eq!(git(&["rev-parse", "HEAD^{tree}"]).trim(), record.tree.to_string());
    let for_git: String = message.lines().enumerate().fold(String::new(), |text, (at, line)| {
        text + if (2..7).contains(&at) { " " } else { "" } + line + "\n"
    });
    assert_eq!(git(&["log", "-1", "--format=%B", "HEAD~1"]).trim_end(), for_git.trim_end());

    let folder = Checkout::new(&fixture, FOLDER);
    for (name, path) in files.iter().zip(&paths) {
        folder.write(name, &fs::read(path).unwrap());
    }
    folder.write("fork.toml", with_onto(&folder.toml(), &fixture).as_bytes());
    let again = folder.finished(Action::Start);
    let read = folder.store().commit_bytes(again.patches[0].new_commit.unwrap()).unwrap().message;
    assert_eq!(String::from_utf8(read).unwrap(), format!("{message}\n"));
}

#[test]
fn commits_are_signed_when_git_is_configured_to_and_no_signature_is_made_twice() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    let folder = checkout.root.path().join("target/regraft/forks/fork.borrowed.git");
    Store::open(&folder, &[]).unwrap();
    // Signs with the time in nanoseconds and a random number, so that two signatures differ.
    let program = checkout.root.path().join("sign");
    let script = "#!/bin/sh\ncat >/dev/null\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\n\
                  printf -- '-----BEGIN PGP SIGNATURE-----\\n\\n%s\\n-----END PGP SIGNATURE-----\\n' \
                  \"$(od -An -N8 -tx8 /dev/urandom)\"\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    for (key, value) in [
        ("commit.gpgSign", "true"),
        ("gpg.format", "openpgp"),
        ("gpg.program", program),
        ("user.signingKey", "x"),
        ("user.name", "Signer"),
        ("user.email", "s@example.org"),
    ] {
        let git = Invocation::new("git").arg("--git-dir").arg(&folder).args(["config", key, value]);
        git.run_ok().unwrap();
    }
    let run = |action, faults: &Faults| checkout.run_signed(action, faults);
    assert!(matches!(run(Action::Start, &Faults::none()), Ok(SyncOutcome::Waits(_))));
    let first = SyncState::load(checkout.root.path(), "fork").unwrap().unwrap().written[&1].commit;
    checkout.resolve("f", RESOLVED);
    assert!(run(Action::Continue, &Faults::after(6)).is_err());
    let SyncOutcome::Finished(record) = run(Action::Start, &Faults::none()).unwrap() else { panic!() };
    assert_eq!(record.patches[0].new_commit, Some(first));
    let raw = Invocation::new("git").arg("--git-dir").arg(&folder).args([
        "cat-file",
        "-p",
        &record.head.to_string(),
    ]);
    let raw = raw.run_ok().unwrap().stdout;
    assert!(raw.contains("\ngpgsig -----BEGIN PGP SIGNATURE-----\n"), "{raw}");
    assert!(
        raw.contains("\nauthor A Person <a@example.org>")
            && raw.contains("\ncommitter Signer <s@example.org> "),
        "{raw}"
    );
}

fn with_onto(toml: &str, fixture: &ForkFixture) -> String {
    toml.replace(&fixture.base.to_string(), &fixture.onto().to_string())
}

#[test]
fn what_git_rerere_recorded_settles_the_same_conflict() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    let clone = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let git = Invocation::new("git").args([
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@y",
            "-c",
            "rerere.enabled=true",
        ]);
        git.args(args)
            .cwd(clone.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_EDITOR", "true")
            .run()
            .unwrap()
            .status
    };
    assert!(
        git(&["clone", "--quiet", fixture.mirror_root().join("owner+name/repo").to_str().unwrap(), "."])
            .success()
    );
    assert!(git(&["checkout", "--quiet", &fixture.onto().to_string()]).success());
    assert!(!git(&["cherry-pick", &fixture.fork[2].to_string()]).success());
    fs::write(clone.path().join("f"), RESOLVED).unwrap();
    assert!(git(&["commit", "--quiet", "--all", "--message", "x"]).success());
    let folder = checkout.root.path().join(resolutions_folder("fork"));
    let made =
        super::super::resolution::import_rr_cache(&clone.path().join(".git/rr-cache"), &folder).unwrap();
    assert_eq!(made.len(), 1);
    let record = checkout.finished(Action::Start);
    assert_eq!(record.patches[1].outcome, PatchOutcome::Replayed);
    assert_eq!(fixture_text(&checkout, record.tree, "f"), RESOLVED.replace('9', "nine"));
}

#[test]
fn new_files_that_were_not_added_are_kept_when_a_resolution_is_taken() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    checkout.waits(Action::Start);
    checkout.resolve("f", RESOLVED);
    checkout.resolve("new", "work of an hour\n");
    let record = checkout.finished(Action::Continue);
    let store = checkout.store();
    assert_eq!(store.entry(record.tree, &TreePath::new("new").unwrap()).unwrap(), None, "the patch lacks it");
    let kept = store.refs("refs/regraft/fork/kept/").unwrap();
    let tree = store.commit(*kept.values().next().unwrap()).unwrap().tree;
    assert_eq!(fixture_text(&checkout, tree, "new"), "work of an hour\n");
    assert_eq!(fixture_text(&checkout, tree, "f"), RESOLVED);
}

#[test]
fn locks_that_a_killed_run_left_on_its_refs_are_swept() {
    let fixture = conflicting();
    let whole = Checkout::new(&fixture, BRANCH);
    whole.waits(Action::Start);
    whole.resolve("f", RESOLVED);
    let record = whole.finished(Action::Continue);
    let result = SyncResult::load(whole.root.path(), "fork").unwrap().unwrap();
    let refs = [format!("refs/regraft/fork/made/{}", record.head), result.branch];
    for point in 0.. {
        let checkout = Checkout::new(&fixture, BRANCH);
        checkout.waits(Action::Start);
        checkout.resolve("f", RESOLVED);
        if checkout.run_with(Action::Continue, &Faults::after(point), Findings::Open).is_ok() {
            assert!(point > 3, "only {point} moments");
            break;
        }
        let store = checkout.store();
        for name in &refs {
            let lock = store.path().join(format!("{name}.lock"));
            fs::create_dir_all(lock.parent().unwrap()).unwrap();
            fs::write(&lock, "").unwrap();
        }
        // A kill before the resolution was taken leaves a rebase that waits, one after it a rebase to go on with.
        assert_eq!(checkout.finished(Action::Continue).head, record.head, "{point}");
    }
}

#[test]
fn a_file_edited_after_the_end_was_decided_is_not_overwritten() {
    let fixture = conflicting();
    let file = "patches/fork/0002-patch.patch";
    let mut refusals = 0;
    for point in 0.. {
        let checkout = Checkout::new(&fixture, FOLDER).with_patch_files(&fixture);
        checkout.waits(Action::Start);
        checkout.resolve("f", RESOLVED);
        if checkout.run_with(Action::Continue, &Faults::after(point), Findings::Open).is_ok() {
            break;
        }
        let folder = sync_folder(checkout.root.path(), "fork");
        if !folder.join("finish.json").exists() {
            continue;
        }
        let path = checkout.root.path().join(file);
        let before = fs::read(&path).unwrap();
        let edited = [b"a note of mine\n", &before[..]].concat();
        fs::write(&path, &edited).unwrap();
        let refused = checkout.run(Action::Continue).unwrap_err();
        assert!(refused.is_refusal() && refused.to_string().contains(file), "{refused}");
        assert!(refused.hint().unwrap().contains("nothing was overwritten"));
        assert_eq!(fs::read(&path).unwrap(), edited);
        fs::write(&path, &before).unwrap();
        checkout.finished(Action::Continue);
        refusals += 1;
    }
    assert!(refusals > 3, "only {refusals}");
}

#[test]
fn a_patch_that_changes_nothing_is_told_and_has_no_file() {
    let fixture = ForkFixture::new(&[("f", FIVE)])
        .patch("changes", &edit("f", &FIVE.replace('1', "one")))
        .patch("only words", &[])
        .advance("u", &edit("g", "g\n"));
    let checkout = Checkout::new(&fixture, BRANCH);
    let record = checkout.finished(Action::Start);
    let exported = record.exported.unwrap();
    assert_eq!(exported.written, ["0001-changes.patch", "exported.toml"]);
}

#[test]
fn what_a_killed_run_left_half_written_beside_patches_is_swept() {
    let fixture = ForkFixture::new(&[("f", FIVE)])
        .patch("p", &edit("f", &FIVE.replace('1', "one")))
        .advance("u", &edit("g", "g\n"));
    let checkout = Checkout::new(&fixture, BRANCH);
    for name in [".series.regraft-new", "resolutions/.a.resolution.regraft-new", "resolutions/.mine"] {
        checkout.write(name, b"half");
    }
    checkout.finished(Action::Start);
    let folder = checkout.root.path().join("patches/fork");
    let mut left = BTreeMap::new();
    collect(&folder, &folder, &mut left);
    let hidden: Vec<&str> =
        left.keys().map(String::as_str).filter(|name| name.contains("/.") || name.starts_with('.')).collect();
    assert_eq!(hidden, ["resolutions/.mine"], "a person's own file stays");
}

#[test]
fn files_that_a_partial_copy_lacks_are_left_out_of_the_work_tree_and_stay_in_the_result() {
    let fixture = ForkFixture::new(&[("f", FIVE), ("far/away", "large\n"), ("picture", "\0old")])
        .patch("patch", &[("f", Some(&FIVE.replace('5', "five")))])
        .advance("upstream", &[("f", Some(&FIVE.replace('5', "FIVE")))]);
    let here = Checkout::new(&fixture, BRANCH);
    let store = &fixture.store;
    let tree = store.commit(fixture.onto()).unwrap().tree;
    for name in ["far/away", "picture"] {
        let id = store.entry(tree, &TreePath::new(name).unwrap()).unwrap().unwrap().id.to_string();
        fs::remove_file(store.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
    }
    assert_eq!(here.waits(Action::Start).conflicts.len(), 1);
    assert!(!here.work_tree().join("far/away").exists());
    here.resolve("f", FIVE);
    fs::write(here.work_tree().join("new"), "").unwrap();
    let record = here.finished(Action::Skip);
    assert_eq!(record.tree, tree);

    let here = Checkout::new(&fixture, BRANCH);
    here.waits(Action::Start);
    here.resolve("f", &FIVE.replace('5', "both"));
    let record = here.finished(Action::Continue);
    let changes = store_changes(&here, tree, record.tree);
    assert_eq!(changes, ["f"], "what is lacking is neither gone nor changed");
}

fn store_changes(checkout: &Checkout, old: TreeId, new: TreeId) -> Vec<String> {
    checkout.store().changes(old, new).unwrap().iter().map(|change| change.path.to_string()).collect()
}

#[test]
fn a_lacking_file_that_is_to_be_resolved_is_named() {
    let fixture = ForkFixture::new(&[("f", FIVE)])
        .patch("patch", &[("f", Some("fork\n"))])
        .advance("upstream", &[("f", None)]);
    let store = &fixture.store;
    let path = TreePath::new("f").unwrap();
    let tree = store.commit(fixture.head()).unwrap().tree;
    let entry = store.entry(tree, &path).unwrap();
    let id = entry.unwrap().id.to_string();
    fs::remove_file(store.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
    let conflict = PathConflict {
        path: path.clone(),
        merged_as: path,
        kind: "modify/delete".to_owned(),
        base: None,
        ours: None,
        theirs: entry,
    };
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("tree");
    let refused = WorkTree::make(store, &place, fixture.head(), tree, &[conflict]).unwrap_err();
    assert!(refused.to_string().starts_with(&format!("`f` ({id}) is to be resolved")), "{refused}");
    assert!(refused.hint().unwrap().contains("--no-filter") && !place.exists());
}

#[test]
fn left_conflict_markers_are_told_one_file_a_line() {
    let left = |name: &str| (name.to_owned(), vec![1, 2]);
    let text = RunError::Leftover(vec![left("a"), left("b")]).to_string();
    assert_eq!(text, "conflict markers are left in\n`a` (line 1, 2)\n`b` (line 1, 2)");
}

#[test]
fn what_was_changed_beside_a_conflict_is_there_again_when_the_same_rebase_is_run_again_here() {
    let fixture = conflicting();
    let checkout = Checkout::new(&fixture, BRANCH);
    checkout.waits(Action::Start);
    checkout.resolve("f", RESOLVED);
    checkout.resolve("h", "h\nbeside\n");
    let first = checkout.finished(Action::Continue);
    assert_eq!(fixture_text(&checkout, first.tree, "h"), "h\nbeside\n");
    let again = checkout.finished(Action::Start);
    assert_eq!((again.head, again.tree), (first.head, first.tree));
    // Without it the record of the conflict settles the conflict alone.
    fs::remove_file(super::super::state::Beside::path(checkout.root.path(), "fork")).unwrap();
    let alone = checkout.finished(Action::Start);
    assert_eq!(fixture_text(&checkout, alone.tree, "h"), "h\n");
}
