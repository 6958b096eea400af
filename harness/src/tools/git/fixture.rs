//! Small real repositories for tests: a base, upstream's commits after it and a fork's patches on it, with fixed author
//! and dates and no configuration of a user or system.

use std::{collections::BTreeMap, path::Path};

use tempfile::TempDir;

use super::{
    ids::{CommitId, TreeId},
    store::{Entry, MODE_FILE, Person, Store},
    tree_path::TreePath,
};

/// One file's change: its new text, or `None` to delete it.
pub(crate) type Edit<'t> = (&'t str, Option<&'t str>);

/// A base, upstream's history after it, and a fork's.
pub(crate) struct ForkFixture {
    dir: TempDir,
    pub(crate) store: Store,
    pub(crate) base: CommitId,
    pub(crate) upstream: Vec<CommitId>,
    pub(crate) fork: Vec<CommitId>,
    commits: i64,
}

impl ForkFixture {
    /// A repository whose base holds `files`.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        let store = Store::open(&dir.path().join("owner+name/repo"), &[]).unwrap();
        let empty = store.empty_tree().unwrap();
        let edits: Vec<Edit<'_>> = files.iter().map(|&(path, text)| (path, Some(text))).collect();
        let tree = edited(&store, empty, &edits);
        let base = store.write_commit(tree, &[], &person(0), "base\n").unwrap();
        Self { dir, store, base, upstream: vec![base], fork: vec![base], commits: 0 }
    }

    /// A commit of upstream's.
    pub(crate) fn advance(mut self, subject: &str, edits: &[Edit<'_>]) -> Self {
        let parent = self.upstream[self.upstream.len() - 1];
        let commit = self.commit(&[parent], subject, edits);
        self.upstream.push(commit);
        self
    }

    /// A patch of the fork's.
    pub(crate) fn patch(mut self, subject: &str, edits: &[Edit<'_>]) -> Self {
        let parent = self.fork[self.fork.len() - 1];
        let commit = self.commit(&[parent], subject, edits);
        self.fork.push(commit);
        self
    }

    /// A commit over the first of `parents`.
    pub(crate) fn commit(&mut self, parents: &[CommitId], subject: &str, edits: &[Edit<'_>]) -> CommitId {
        self.commits += 1;
        let tree = edited(&self.store, self.store.commit(parents[0]).unwrap().tree, edits);
        self.store.write_commit(tree, parents, &person(self.commits * 60), &format!("{subject}\n")).unwrap()
    }

    /// The folder below which the repository lies as a mirror of `owner/name`.
    pub(crate) fn mirror_root(&self) -> &Path {
        self.dir.path()
    }

    /// Lets a ref, such as `refs/tags/v1`, lead to a commit.
    pub(crate) fn name(&self, reference: &str, commit: CommitId) {
        self.store.repo.reference(reference, commit.oid(), true, "").unwrap();
    }

    /// Upstream's newest commit.
    pub(crate) fn onto(&self) -> CommitId {
        self.upstream[self.upstream.len() - 1]
    }

    /// The fork's newest commit.
    pub(crate) fn head(&self) -> CommitId {
        self.fork[self.fork.len() - 1]
    }

    /// The text of a file in a tree.
    pub(crate) fn text(&self, tree: TreeId, path: &str) -> Option<String> {
        let entry = self.store.entry(tree, &TreePath::new(path).unwrap()).unwrap()?;
        Some(String::from_utf8(self.store.blob(entry.id).unwrap()).unwrap())
    }
}

fn edited(store: &Store, tree: TreeId, edits: &[Edit<'_>]) -> TreeId {
    let edits: BTreeMap<TreePath, Option<Entry>> = edits
        .iter()
        .map(|&(path, text)| {
            let entry =
                text.map(|text| Entry { id: store.write_blob(text.as_bytes()).unwrap(), mode: MODE_FILE });
            (TreePath::new(path).unwrap(), entry)
        })
        .collect();
    store.edited_tree(tree, &edits).unwrap()
}

fn person(later_s: i64) -> Person {
    Person {
        name: "A Person".to_owned(),
        email: "a@example.org".to_owned(),
        time_s: 1_700_000_000 + later_s,
        offset_min: 60,
    }
}
