//! Replays a stack on its own old base, so that every patch has a tree before and a tree after it: the ancestors that
//! three-way merges need. It does not look at any other upstream.

use std::collections::{BTreeMap, BTreeSet};

use super::text::counted;
use crate::{
    event::{Event, EventSink},
    stack::{
        Change, Patch, PatchStack,
        apply::{self, Misfit},
        mail::Author,
        patch_file::{Origin, PatchFile},
    },
    tools::git::{
        ids::{CommitId, EntryId, TreeId},
        merge::{Favour, MergeError, Pick},
        store::{Entry, MODE_FILE, MODE_FOLDER, MODE_SUBMODULE, PathChange, Person, Store, StoreError},
        tree_path::TreePath,
    },
};

/// A stack on its own base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The base's tree.
    pub base: TreeId,
    /// The patches, each with the trees around it.
    pub steps: Vec<Step>,
}

/// One patch of a replayed stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The patch's number in the stack.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// Its file's name, for a patch read from a file.
    pub file: Option<String>,
    /// The commit that it was read from, for a patch of a branch.
    pub commit: Option<CommitId>,
    /// The tree before it.
    pub before: TreeId,
    /// The tree after it.
    pub after: TreeId,
    /// What it changes.
    pub changes: Vec<PathChange>,
}

/// Why a stack does not fit its own base.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A patch does not fit what the base and the patches before it make.
    #[error("patch {number} `{subject}` does not apply to its own base: {path}")]
    Misfit {
        /// The patch's number.
        number: usize,
        /// Its subject.
        subject: String,
        /// The file that it fails on.
        path: TreePath,
        /// What does not fit.
        #[source]
        source: Misfit,
    },
    /// Trees could not be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Misfit { .. } => Some(
                "fork.toml's [base] or the order in its [stack] is not what the patches were made for"
                    .to_owned(),
            ),
            Self::Merge(error) => error.hint(),
            Self::Store(error) => error.hint(),
        }
    }
}

/// Replays `stack` on `base_tree`, the tree of `base`.
///
/// # Errors
/// When a patch does not fit. Where flattening a merge meets a conflict, the commit's own version is kept and the rest
/// comes with the merge.
pub fn replay_stack(
    store: &Store,
    base: CommitId,
    base_tree: TreeId,
    stack: &PatchStack,
    events: &dyn EventSink,
) -> Result<Replayed, ReplayError> {
    let mut steps: Vec<Step> = Vec::new();
    let mut tree = base_tree;
    let (mut miscounted, mut own_versions) = (Vec::new(), 0);
    for patch in &stack.patches {
        let (after, commit) = match &patch.change {
            Change::Diff(file) => {
                miscounted.extend(Some(file.miscounted_hunks()).filter(|hunks| *hunks > 0));
                (with_patch_file(store, tree, patch, file)?, None)
            }
            Change::Commit(id) => {
                let (after, flattening) = with_commit(store, tree, *id)?;
                own_versions += usize::from(flattening == Flattening::OwnVersion);
                (after, Some(*id))
            }
            Change::MergeRest(merge) => match merge_rest(store, base, tree, *merge)? {
                Some(rest) => {
                    let (id, subject) = (merge.short(), &patch.subject);
                    events.emit(Event::Note(format!("merge {id} holds changes of its own: {subject}")));
                    (rest, Some(*merge))
                }
                None => continue,
            },
        };
        let (subject, file) = (patch.subject.clone(), patch.file.clone());
        let changes = store.changes(tree, after)?;
        steps.push(Step { number: steps.len() + 1, subject, file, commit, before: tree, after, changes });
        tree = after;
    }
    if !miscounted.is_empty() {
        let hunks = miscounted.iter().sum();
        events.emit(Event::Note(format!(
            "{} of {} count lines wrong; recounted",
            counted(hunks, "hunk", "hunks"),
            counted(miscounted.len(), "patch", "patches"),
        )));
    }
    if own_versions > 0 {
        events.emit(Event::Note(format!(
            "{} in conflict while the branch is flattened; their own versions are kept",
            counted(own_versions, "commit", "commits"),
        )));
    }
    Ok(Replayed { base: base_tree, steps })
}

/// Writes the replayed stack as commits over `base`; gives the ids in the stack's order. Equal stacks give equal ids.
///
/// # Errors
/// When an object cannot be written.
pub fn write_commits(
    store: &Store,
    base: CommitId,
    stack: &PatchStack,
    replayed: &Replayed,
) -> Result<Vec<CommitId>, StoreError> {
    let by_file: BTreeMap<&str, &Patch> =
        stack.patches.iter().filter_map(|patch| Some((patch.file.as_deref()?, patch))).collect();
    let mut parent = base;
    let mut commits = Vec::new();
    for step in &replayed.steps {
        let patch = step.file.as_deref().and_then(|file| by_file.get(file));
        let author = patch.and_then(|patch| patch.author.as_ref());
        let message = patch.map_or_else(|| format!("{}\n", step.subject), |patch| patch.message.clone());
        parent = store.write_commit(step.after, &[parent], &person(author), &message)?;
        commits.push(parent);
    }
    Ok(commits)
}

pub(super) fn person(author: Option<&Author>) -> Person {
    match author {
        Some(Author { name, email, time_s, offset_min }) => Person {
            name: if name.is_empty() { email.clone() } else { name.clone() },
            email: email.clone(),
            time_s: *time_s,
            offset_min: *offset_min,
        },
        // A bare diff tells neither author nor date; fixed ones keep ids reproducible.
        None => Person { name: "unknown".to_owned(), email: "unknown".to_owned(), time_s: 0, offset_min: 0 },
    }
}

fn with_patch_file(
    store: &Store,
    tree: TreeId,
    patch: &Patch,
    file: &PatchFile,
) -> Result<TreeId, ReplayError> {
    let mut removed: BTreeSet<TreePath> = BTreeSet::new();
    let mut written: BTreeMap<TreePath, Entry> = BTreeMap::new();
    for diff in &file.files {
        let named = diff.new_path.as_ref().or(diff.old_path.as_ref()).expect("a diff names a path");
        let misfit = |source| {
            let (number, subject, path) = (patch.number, patch.subject.clone(), named.clone());
            ReplayError::Misfit { number, subject, path, source }
        };
        // A file may come twice in a patch, so what was done to it before counts; moves and copies start from what was
        // there before the whole patch, so that two files can change places.
        let source = diff.old_path.as_ref().unwrap_or(named);
        let old = match written.get(source) {
            Some(entry) if diff.origin == Origin::InPlace => Some(*entry),
            None if diff.origin == Origin::InPlace && removed.contains(source) => None,
            _ => store.entry(tree, source)?,
        };
        let old_bytes = match old {
            None => None,
            // A new file may stand where a folder goes in the same patch; what is left of the folder is found below.
            Some(entry) if entry.mode == MODE_FOLDER => None,
            Some(entry) if entry.mode == MODE_SUBMODULE => Some(submodule_text(entry.id)),
            Some(entry) => Some(store.blob(entry.id)?),
        };
        let new = apply::applied(diff, old_bytes.as_deref()).map_err(misfit)?;
        if let (Some(old_path), true) =
            (&diff.old_path, diff.origin == Origin::Renamed || diff.new_path.is_none())
        {
            if diff.origin == Origin::InPlace {
                written.remove(old_path);
            }
            removed.insert(old_path.clone());
        }
        if let (Some(new_path), Some(bytes)) = (&diff.new_path, new) {
            let mode = diff.new_mode.or(old.map(|entry| entry.mode)).unwrap_or(MODE_FILE);
            let id = match submodule_id(mode, &bytes) {
                Some(id) => id,
                None if mode == MODE_SUBMODULE => return Err(misfit(Misfit::NoSubmodule)),
                None => store.write_blob(&bytes)?,
            };
            written.insert(new_path.clone(), Entry { id, mode });
        }
    }
    let mut edits: BTreeMap<TreePath, Option<Entry>> = removed.into_iter().map(|path| (path, None)).collect();
    edits.extend(written.into_iter().map(|(path, entry)| (path, Some(entry))));
    let made = store.edited_tree(tree, &edits)?;
    // Of a link or file and a path below it, both from the same patch, only one can be there.
    for (path, entry) in &edits {
        if entry.is_some() && store.entry(made, path)? != *entry {
            let is_above = |above: &&TreePath| {
                path.as_bytes().strip_prefix(above.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
            };
            let path = edits.keys().find(is_above).unwrap_or(path).clone();
            let (number, subject) = (patch.number, patch.subject.clone());
            return Err(ReplayError::Misfit { number, subject, path, source: Misfit::InTheWay });
        }
    }
    // A file cannot be written where a folder is, nor through a link: what stood in the way would go unseen.
    match store.changes(tree, made)?.into_iter().find(|change| !edits.contains_key(&change.path)) {
        None => Ok(made),
        Some(PathChange { path, .. }) => {
            let (number, subject) = (patch.number, patch.subject.clone());
            Err(ReplayError::Misfit { number, subject, path, source: Misfit::InTheWay })
        }
    }
}

/// What git shows of a submodule in a diff.
fn submodule_text(id: EntryId) -> Vec<u8> {
    format!("Subproject commit {id}\n").into_bytes()
}

fn submodule_id(mode: u32, bytes: &[u8]) -> Option<EntryId> {
    let text = std::str::from_utf8(bytes).ok().filter(|_| mode == MODE_SUBMODULE)?;
    text.strip_prefix("Subproject commit ")?.trim_end().parse().ok()
}

/// How a commit of a branch came onto the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flattening {
    Clean,
    OwnVersion,
}

fn with_commit(store: &Store, tree: TreeId, id: CommitId) -> Result<(TreeId, Flattening), ReplayError> {
    let commit = store.commit(id)?;
    let base = match commit.parents.first() {
        Some(parent) => store.commit(*parent)?.tree,
        None => store.empty_tree()?,
    };
    let pick = Pick { base, ours: tree, theirs: commit.tree };
    let picked = store.pick(pick, Favour::Neither)?;
    if picked.conflicts.is_empty() {
        return Ok((picked.tree, Flattening::Clean));
    }
    Ok((store.carry(pick)?, Flattening::OwnVersion))
}

/// What a merge commit holds beyond the changes before it; `None` for nothing, and for a merge made on an older base,
/// where that cannot be told from upstream's own changes.
fn merge_rest(
    store: &Store,
    base: CommitId,
    tree: TreeId,
    id: CommitId,
) -> Result<Option<TreeId>, ReplayError> {
    let merge = store.commit(id)?;
    Ok((merge.tree != tree && store.is_ancestor(base, id)?).then_some(merge.tree))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;
    use crate::{
        event::Silent,
        stack::{branch::read_branch, mail::read_mail},
        tools::{git::fixture::ForkFixture, process::Invocation},
    };

    /// What one name may hold in one of two states.
    #[derive(Debug, Clone)]
    enum Content {
        Nothing,
        File(Vec<u8>),
        Program(Vec<u8>),
        Link(Vec<u8>),
        Submodule(u8),
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let lines =
            select(vec!["a\n", "b\n", "c\n", "\n", "}\n", "-- \n", "crlf\r\n", "+x\n", "@@ -1 +1 @@\n"]);
        let text = (vec(lines, 0..40), select(vec!["", "", "open end"]))
            .prop_map(|(lines, end)| [lines.concat(), end.to_owned()].concat().into_bytes());
        // Long enough, and alike enough in both states, for git to write a delta.
        let binary = (vec(any::<u8>(), 1..6), 0usize..400).prop_map(|(head, length)| {
            let tail = (0..length).map(|at| (at * at % 251) as u8);
            head.into_iter().chain([0]).chain(tail).collect()
        });
        prop_oneof![4 => text, 1 => binary, 1 => Just(Vec::new())]
    }

    fn content() -> impl Strategy<Value = Content> {
        prop_oneof![
            2 => Just(Content::Nothing),
            6 => bytes().prop_map(Content::File),
            2 => bytes().prop_map(Content::Program),
            1 => select(vec!["x", "../y", "a b"]).prop_map(|to| Content::Link(to.as_bytes().to_vec())),
            1 => (1u8..4).prop_map(Content::Submodule),
        ]
    }

    const NAMES: [&[u8]; 8] = [
        b"plain",
        b"with space",
        b"tab\tand \"quote\"",
        b"caf\xe9",
        b"folder/plain",
        b"folder/deep/x b/x",
        b"place",
        b"place2/below",
    ];

    fn tree_of(store: &Store, contents: &[Content]) -> TreeId {
        let blob = |bytes: &[u8], mode| Some(Entry { id: store.write_blob(bytes).unwrap(), mode });
        let entry = |content: &Content| match content {
            Content::Nothing => None,
            Content::File(bytes) => blob(bytes, MODE_FILE),
            Content::Program(bytes) => blob(bytes, 0o100_755),
            Content::Link(to) => blob(to, 0o120_000),
            Content::Submodule(digit) => {
                Some(Entry { id: format!("{digit}").repeat(40).parse().unwrap(), mode: MODE_SUBMODULE })
            }
        };
        let edits = NAMES.iter().zip(contents);
        let edits = edits.map(|(name, content)| (TreePath::new(*name).unwrap(), entry(content))).collect();
        store.edited_tree(store.empty_tree().unwrap(), &edits).unwrap()
    }

    fn git_diff(store: &Store, old: TreeId, new: TreeId, options: &[&str]) -> Vec<u8> {
        let git = Invocation::new("git").arg("--git-dir").arg(store.path());
        let git = git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        git.args(["diff-tree", "-p", "-r", "--binary", "--full-index"])
            .args(options)
            .args([old.to_string(), new.to_string()])
            .run_ok()
            .unwrap()
            .stdout_bytes
    }

    fn patch_of(bytes: &[u8]) -> (Patch, PatchFile) {
        let file = PatchFile::parse(bytes).unwrap();
        assert_eq!(file.render(), bytes);
        assert_eq!(file.miscounted_hunks(), 0);
        let (subject, message) = (String::new(), String::new());
        let change = Change::Diff(file.clone());
        (Patch { number: 1, subject, file: None, author: None, message, change }, file)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

        #[test]
        fn what_git_writes_between_two_trees_makes_one_of_the_other(
            states in vec((content(), content(), 0usize..4), NAMES.len()),
            moved in any::<bool>(),
        ) {
            let fixture = ForkFixture::new(&[]);
            let store = &fixture.store;
            let old: Vec<Content> = states.iter().map(|(old, ..)| old.clone()).collect();
            let mut new: Vec<Content> =
                states.iter().map(|(old, new, which)| if *which == 0 { old } else { new }.clone()).collect();
            if moved {
                // Contents change places, which git may tell as renames and copies.
                let from = old.clone();
                new[0] = from[4].clone();
                new[4] = from[0].clone();
                new[5] = from[1].clone();
            }
            let (old, new) = (tree_of(store, &old), tree_of(store, &new));
            if old != new {
                for options in [&["--no-renames"][..], &["-M"], &["-C", "-C", "-B"], &["-U0"], &["-M", "-U1"]] {
                    let bytes = git_diff(store, old, new, options);
                    let (patch, file) = patch_of(&bytes);
                    let made = with_patch_file(store, old, &patch, &file);
                    prop_assert_eq!(made.ok(), Some(new), "{:?}: {}", options, String::from_utf8_lossy(&bytes));
                }
            }
        }
    }

    #[test]
    fn files_that_change_places_are_moved_from_what_was_there_before() {
        let fixture = ForkFixture::new(&[("a", "1\n2\n3\n"), ("b", "x\ny\nz\n")]);
        let tree = fixture.store.commit(fixture.base).unwrap().tree;
        let swap = "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n\
                    diff --git a/b b/a\nsimilarity index 100%\nrename from b\nrename to a\n";
        let (patch, file) = patch_of(swap.as_bytes());
        let swapped = with_patch_file(&fixture.store, tree, &patch, &file).unwrap();
        assert_eq!(fixture.text(swapped, "a").as_deref(), Some("x\ny\nz\n"));
        assert_eq!(fixture.text(swapped, "b").as_deref(), Some("1\n2\n3\n"));
    }

    #[test]
    fn a_delta_and_a_literal_are_applied_as_git_wrote_them() {
        let fixture = ForkFixture::new(&[]);
        let store = &fixture.store;
        let mut noise = 1u32;
        let mut old: Vec<u8> = (0..70_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        let tree = |bytes: &[u8]| tree_of(store, &[Content::File(bytes.to_vec())]);
        let before = tree(&old);
        old[40_000] ^= 0xff;
        old.truncate(69_000);
        let after = tree(&old);
        let bytes = git_diff(store, before, after, &[]);
        assert!(bytes.windows(7).any(|window| window == b"\ndelta "), "git wrote a delta");
        for (from, to) in [(before, after), (after, before), (tree(b"\0"), after)] {
            let (patch, file) = patch_of(&git_diff(store, from, to, &[]));
            assert_eq!(with_patch_file(store, from, &patch, &file).unwrap(), to);
        }
        let (patch, file) = patch_of(&bytes);
        let error = with_patch_file(store, tree(b"another file\0"), &patch, &file).unwrap_err();
        assert!(matches!(error, ReplayError::Misfit { source: Misfit::Binary(_), .. }), "{error}");
    }

    #[test]
    fn hostile_patches_are_told_off_and_nothing_hangs() {
        let fixture = ForkFixture::new(&[("f", "a\nb\nc\n")]);
        let tree = fixture.store.commit(fixture.base).unwrap().tree;
        let deep = format!("{}x", "d/".repeat(3_000));
        for bad in [
            "--- a/f\n+++ b/f\n@@ -9223372036854775809 +1 @@\n-a\n+b\n".to_owned(),
            "--- a/f\n+++ b/f\n@@ -18446744073709551615,18446744073709551615 +1 @@\n-x\n+b\n".to_owned(),
            "--- a/f\n+++ b/f\n@@ -99999999999999999999999 +1 @@\n-a\n+b\n".to_owned(),
            "--- a/f\n+++ b/f\n@@ -4000000000,1 +4000000000,1 @@\n-q\n+b\n".to_owned(),
            "--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-a\n+b\n".to_owned(),
            "diff --git a/.git/config b/.git/config\nnew file mode 100644\n--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1 @@\n+a\n"
                .to_owned(),
            "diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+no commit\n".to_owned(),
            "diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\ndelta 99999999999999\nzcmZ\n\n".to_owned(),
            "diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 5\nIcmZPo\n\n".to_owned(),
            "diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\n".to_owned(),
            format!("--- a/{deep}\n+++ b/{deep}\n@@ -1 +1 @@\n-a\n+b\n"),
        ] {
            let fault = match PatchFile::parse(bad.as_bytes()) {
                Err(error) => error.to_string(),
                Ok(file) => {
                    let change = Change::Diff(file.clone());
                    let (subject, message) = (String::new(), String::new());
                    let patch = Patch { number: 1, subject, file: None, author: None, message, change };
                    with_patch_file(&fixture.store, tree, &patch, &file).unwrap_err().to_string()
                }
            };
            assert!(!fault.is_empty(), "{bad}");
        }
    }

    #[test]
    fn a_file_cannot_be_written_through_a_link() {
        let fixture = ForkFixture::new(&[]);
        let store = &fixture.store;
        let link = Content::Link(b"/etc".to_vec());
        let tree = tree_of(store, &[link]);
        let add = "diff --git a/plain/x b/plain/x\nnew file mode 100644\n--- /dev/null\n+++ b/plain/x\n@@ -0,0 +1 @@\n+a\n";
        let (patch, file) = patch_of(add.as_bytes());
        let error = with_patch_file(store, tree, &patch, &file).unwrap_err();
        assert!(matches!(error, ReplayError::Misfit { source: Misfit::InTheWay, .. }), "{error}");
    }

    #[test]
    fn a_file_below_a_link_of_the_same_patch_is_refused() {
        let fixture = ForkFixture::new(&[]);
        let store = &fixture.store;
        let link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/tmp\n\\ No newline at end of file\n";
        let below = "diff --git a/l/evil b/l/evil\nnew file mode 100644\n--- /dev/null\n+++ b/l/evil\n@@ -0,0 +1 @@\n+a\n";
        for text in [[link, below], [below, link]] {
            let (patch, file) = patch_of(text.concat().as_bytes());
            let error = with_patch_file(store, store.empty_tree().unwrap(), &patch, &file).unwrap_err();
            assert!(
                matches!(&error, ReplayError::Misfit { path, source: Misfit::InTheWay, .. } if path.to_string() == "l"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_takes_the_place_of_a_folder_that_goes_as_a_whole() {
        let fixture = ForkFixture::new(&[]);
        let store = &fixture.store;
        let below = |name| {
            format!(
                "diff --git a/place/{name} b/place/{name}\ndeleted file mode 100644\n--- a/place/{name}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
            )
        };
        let add = "diff --git a/place b/place\nnew file mode 100644\n--- /dev/null\n+++ b/place\n@@ -0,0 +1 @@\n+b\n";
        let blob = store.write_blob(b"a\n").unwrap();
        let entry = Some(Entry { id: blob, mode: MODE_FILE });
        let path = |text: &str| TreePath::new(text).unwrap();
        let edits = BTreeMap::from([(path("place/f"), entry), (path("place/g"), entry)]);
        let tree = store.edited_tree(store.empty_tree().unwrap(), &edits).unwrap();
        for text in [[below("f"), below("g"), add.to_owned()], [add.to_owned(), below("f"), below("g")]] {
            let (patch, file) = patch_of(text.concat().as_bytes());
            let made = with_patch_file(store, tree, &patch, &file).unwrap();
            assert_eq!(fixture.text(made, "place").as_deref(), Some("b\n"));
        }
        let (patch, file) = patch_of([below("f"), add.to_owned()].concat().as_bytes());
        let error = with_patch_file(store, tree, &patch, &file).unwrap_err();
        assert!(matches!(error, ReplayError::Misfit { source: Misfit::InTheWay, .. }), "{error}");
    }

    #[test]
    fn octopus_and_criss_cross_merges_are_flattened_without_loss() {
        let ten: Vec<String> = (0..40).map(|line| format!("{line}\n")).collect();
        let with = |changes: &[usize]| {
            let line =
                |at: usize| if changes.contains(&at) { "changed\n".to_owned() } else { ten[at].clone() };
            (0..40).map(line).collect::<String>()
        };
        let mut fixture = ForkFixture::new(&[("f", &ten.concat())]);
        let base = fixture.base;
        let mut on = |parents: &[CommitId], changes: &[usize]| {
            let text = with(changes);
            fixture.commit(parents, "c", &[("f", Some(&text))])
        };
        let (a, b, c) = (on(&[base], &[1]), on(&[base], &[9]), on(&[base], &[17]));
        let octopus = on(&[a, b, c], &[1, 9, 17]);
        let (left, right) = (on(&[octopus], &[1, 9, 17, 25]), on(&[octopus], &[1, 9, 17, 33]));
        let (one, other) = (on(&[left, right], &[1, 9, 17, 25, 33]), on(&[right, left], &[1, 9, 17, 25, 33]));
        let head = on(&[one, other], &[1, 9, 17, 25, 33, 37]);
        let store = &fixture.store;
        let stack = read_branch(store, base, head, &[]).unwrap();
        let replayed = replay_stack(store, base, store.commit(base).unwrap().tree, &stack, &Silent).unwrap();
        assert_eq!(replayed.steps.last().map(|step| step.after), Some(store.commit(head).unwrap().tree));
        // Five commits, and the line that only the last merge holds.
        assert_eq!(replayed.steps.len(), 6, "{:?}", replayed.steps);
    }

    #[test]
    fn messages_in_other_encodings_are_read_as_the_mail_says() {
        let mail = b"From: =?ISO-8859-1?Q?J=FCrgen?= <j@example.org>\nSubject: s\nMIME-Version: 1.0\n\
            Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n\nGr\xfc\xdfe\n---\n f | 1 +\n\n";
        let mail = read_mail(mail).unwrap().unwrap();
        assert_eq!(mail.author.map(|author| author.name).as_deref(), Some("J\u{fc}rgen"));
        assert_eq!(mail.message, "s\n\nGr\u{fc}\u{df}e\n");
    }

    #[test]
    fn every_patch_of_our_own_is_rendered_as_it_was_read() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../patches");
        let mut seen = 0;
        for folder in fs::read_dir(own).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            for file in fs::read_dir(folder.path()).unwrap().flatten() {
                if file.path().extension().is_some_and(|ending| ending == "patch") {
                    let bytes = fs::read(file.path()).unwrap();
                    assert_eq!(PatchFile::parse(&bytes).unwrap().render(), bytes);
                    seen += 1;
                }
            }
        }
        assert!(seen > 0, "the repository carries patches");
    }
}
