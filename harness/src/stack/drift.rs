//! The drift of a vendored copy: what a copy of upstream's tree holds beyond the upstream commit nearest to it, file by
//! file, and as a stack of patches.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{Change, Patch, PatchStack};
use crate::{
    config::fork::{VendoredCopy, VendoredPatches},
    fork::{
        ForkError,
        open::{Fork, vendored_tree},
    },
    tools::git::{
        ids::{CommitId, TreeId},
        store::{Entry, PathChange, Person, Store, StoreError},
        tree_path::TreePath,
    },
};

/// How a copy differs from the upstream commit nearest to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The upstream commit.
    pub nearest: CommitId,
    /// The copy's tree.
    pub tree: TreeId,
    /// How many files are equal.
    pub equal: usize,
    /// Every other file.
    pub files: Vec<DriftFile>,
    /// Lines that only the copy has.
    pub added_lines: usize,
    /// Lines that only upstream has.
    pub removed_lines: usize,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriftFile {
    /// Its path in the copy.
    pub path: String,
    /// What it is.
    pub state: DriftState,
}

/// What a file of a copy is, that differs from the nearest upstream commit's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftState {
    /// Upstream had it so earlier.
    Older,
    /// Upstream has it so later.
    Newer,
    /// Upstream never had it so.
    Custom,
    /// Upstream's commit has no such file.
    Added,
    /// The copy has no such file.
    Missing,
}

/// Compares a copy with an upstream commit. `head` is upstream's newest commit: the history in which older and newer
/// versions of files are looked for.
///
/// # Errors
/// When objects are missing.
pub fn drift(store: &Store, copy: TreeId, nearest: CommitId, head: CommitId) -> Result<Drift, StoreError> {
    let tree = store.commit(nearest)?.tree;
    let changes = store.changes(tree, copy)?;
    let versions = Versions::of(store, nearest, head, &changes)?;
    let files = changes
        .iter()
        .map(|change| DriftFile { path: change.path.to_string(), state: versions.state(change) })
        .collect();
    let (added_lines, removed_lines) = store.line_counts(tree, copy)?;
    let of = store.changes(store.empty_tree()?, copy)?.len();
    let differing = changes.iter().filter(|change| change.new.is_some()).count();
    Ok(Drift { nearest, tree: copy, equal: of - differing, files, added_lines, removed_lines })
}

/// The drift of an opened fork whose stack is a vendored copy.
///
/// # Errors
/// When the folder or objects are missing.
pub fn fork_drift(fork: &Fork, copy: &VendoredCopy) -> Result<Drift, ForkError> {
    let base = fork.base.commit;
    let tree = vendored_tree(&fork.store, copy, fork.head.unwrap_or(base))?;
    let head = fork.upstream.branches.get(&fork.spec.upstream.branch).copied().unwrap_or(base);
    Ok(drift(&fork.store, tree, base, head)?)
}

/// The drift as a stack over the fork's base.
///
/// # Errors
/// When the folder or objects are missing.
pub fn vendored_stack(fork: &Fork, copy: &VendoredCopy) -> Result<PatchStack, ForkError> {
    let (store, base) = (&fork.store, fork.base);
    let head = fork.head.unwrap_or(base.commit);
    let tree = vendored_tree(store, copy, head)?;
    let changes = store.changes(base.tree, tree)?;
    let info = store.commit(head)?;
    let author = Person {
        name: "Regraft".to_owned(),
        email: "regraft@localhost".to_owned(),
        time_s: info.committed_s,
        offset_min: info.offset_min,
    };
    let folder = &copy.folder;
    let steps: Vec<(String, &[PathChange])> = match copy.patches {
        _ if changes.is_empty() => Vec::new(),
        VendoredPatches::One => vec![(format!("drift of {folder} at {}", head.short()), &changes[..])],
        VendoredPatches::PerFile => {
            changes.chunks(1).map(|one| (format!("drift of {}", one[0].path), one)).collect()
        }
    };
    let (mut parent, mut tree) = (base.commit, base.tree);
    let mut patches = Vec::new();
    for (number, (subject, changes)) in (1..).zip(steps) {
        let edits: BTreeMap<TreePath, Option<Entry>> =
            changes.iter().map(|change| (change.path.clone(), change.new)).collect();
        tree = store.edited_tree(tree, &edits)?;
        let message = format!("{subject}\n");
        parent = store.write_commit(tree, &[parent], &author, &message)?;
        let change = Change::Commit(parent);
        patches.push(Patch { number, subject, file: None, author: None, message, change });
    }
    Ok(PatchStack { patches })
}

/// Which contents upstream's history holds at the paths in question.
struct Versions {
    before: HashMap<TreePath, HashSet<Entry>>,
    after: HashMap<TreePath, HashSet<Entry>>,
}

impl Versions {
    fn of(
        store: &Store,
        nearest: CommitId,
        head: CommitId,
        changes: &[PathChange],
    ) -> Result<Self, StoreError> {
        let paths: HashSet<&TreePath> = changes.iter().map(|change| &change.path).collect();
        let collect = |commits: Vec<CommitId>| -> Result<HashMap<TreePath, HashSet<Entry>>, StoreError> {
            let mut held: HashMap<TreePath, HashSet<Entry>> = HashMap::new();
            for commit in commits {
                let info = store.commit(commit)?;
                let parent = match info.parents.first() {
                    Some(parent) => store.commit(*parent)?.tree,
                    None => store.empty_tree()?,
                };
                for change in store.changes(parent, info.tree)? {
                    if let (true, Some(new)) = (paths.contains(&change.path), change.new) {
                        held.entry(change.path).or_default().insert(new);
                    }
                }
            }
            Ok(held)
        };
        Ok(Self {
            before: collect(store.commits_between(&[], nearest)?)?,
            after: collect(store.commits_between(&[nearest], head)?)?,
        })
    }

    fn state(&self, change: &PathChange) -> DriftState {
        let Some(new) = change.new else { return DriftState::Missing };
        let held = |versions: &HashMap<TreePath, HashSet<Entry>>| {
            versions.get(&change.path).is_some_and(|entries| entries.contains(&new))
        };
        match () {
            () if held(&self.after) => DriftState::Newer,
            () if held(&self.before) => DriftState::Older,
            () if change.old.is_none() => DriftState::Added,
            () => DriftState::Custom,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::fork::{StackSpec, parse_fork},
        event::Silent,
        fork::open::{Source, open_fork},
        tools::git::{fixture::ForkFixture, store::MODE_FILE},
    };

    /// Upstream and, below `vendor/n` of the fork's branch, a copy of its second commit with edits.
    fn vendored(patches: &str) -> (ForkFixture, Fork, VendoredCopy) {
        let mut fixture = ForkFixture::new(&[
            ("a", "a0\n"),
            ("b", "b0\n"),
            ("c", "c0\n"),
            ("d", "d\n"),
            ("e", "e\n"),
            ("s/e", "e\n"),
        ])
        .advance("a", &[("a", Some("a1\n"))])
        .advance("b", &[("b", Some("b1\n")), ("e", Some("e1\n"))])
        .advance("c", &[("c", Some("c1\n")), ("e", Some("e2\n")), ("s/e", Some("e2\n"))]);
        let copied = fixture.upstream[2];
        let copy = fixture.commit(
            &[copied],
            "copy",
            &[
                ("a", Some("a0\n")),
                ("b", Some("own\n")),
                ("c", Some("c1\n")),
                ("d", None),
                ("z", Some("z\n")),
            ],
        );
        let store = &fixture.store;
        let copy_tree = store.commit(copy).unwrap().tree;
        let files = store.changes(store.empty_tree().unwrap(), copy_tree).unwrap();
        let edits = files
            .into_iter()
            .map(|file| (TreePath::new(format!("vendor/n/{}", file.path)).unwrap(), file.new))
            .chain([(
                TreePath::new("own").unwrap(),
                Some(Entry { id: store.write_blob(b"x").unwrap(), mode: MODE_FILE }),
            )])
            .collect();
        let tree = store.edited_tree(store.empty_tree().unwrap(), &edits).unwrap();
        let author = Person {
            name: "B".to_owned(),
            email: "b@example.org".to_owned(),
            time_s: 1_700_001_000,
            offset_min: 0,
        };
        let carrier = store.write_commit(tree, &[], &author, "carrier\n").unwrap();
        fixture.name("refs/heads/main", fixture.onto());
        fixture.name("refs/heads/carrier", carrier);
        let text = format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
             [stack]\nkind = \"vendored\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"carrier\"\n\
             folder = \"vendor/n\"\npatches = \"{patches}\"\n"
        );
        let spec = parse_fork("fork", "fork.toml", &text).unwrap();
        let StackSpec::Vendored(copy) = spec.stack.clone() else { panic!("not vendored") };
        let source = Source::Mirrors(fixture.mirror_root().to_owned());
        let fork = open_fork(fixture.mirror_root(), spec, &source, &Silent).unwrap();
        (fixture, fork, copy)
    }

    #[test]
    fn the_base_is_found_and_every_file_is_told_apart() {
        let (fixture, fork, copy) = vendored("one");
        assert_eq!(fork.base.commit, fixture.upstream[2]);
        let drift = fork_drift(&fork, &copy).unwrap();
        let states: Vec<(&str, DriftState)> =
            drift.files.iter().map(|file| (file.path.as_str(), file.state)).collect();
        assert_eq!(
            states,
            [
                ("a", DriftState::Older),
                ("b", DriftState::Custom),
                ("c", DriftState::Newer),
                ("d", DriftState::Missing),
                ("z", DriftState::Added)
            ]
        );
        assert_eq!((drift.equal, drift.added_lines, drift.removed_lines), (2, 4, 4));
    }

    #[test]
    fn the_stack_gives_the_copy_back_whole_or_file_by_file() {
        for (patches, count) in [("one", 1), ("per-file", 5)] {
            let (_fixture, fork, copy) = vendored(patches);
            let stack = vendored_stack(&fork, &copy).unwrap();
            assert_eq!(stack.patches.len(), count);
            let Some(Change::Commit(last)) = stack.patches.last().map(|patch| patch.change.clone()) else {
                panic!("no commit")
            };
            let tree = vendored_tree(&fork.store, &copy, fork.head.unwrap()).unwrap();
            assert_eq!(fork.store.commit(last).unwrap().tree, tree, "{patches}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_refused() {
        let (_fixture, fork, copy) = vendored("one");
        let gone = VendoredCopy { folder: TreePath::new("vendor/m").unwrap(), ..copy };
        let error = vendored_stack(&fork, &gone).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("no folder `vendor/m`"), "{error}");
    }
}
