//! What evidence needs of git: how files differ line by line, which commits touch watched paths, and what commits say
//! about themselves. It follows history but merges nothing.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid};

use super::{
    ids::{CommitId, EntryId, TreeId},
    store::{Entry, PathChange, Person, Store, StoreError, failed},
    tree_path::TreePath,
};

/// One run of lines in which two files differ; both ranges count from 0, and either may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineBlock {
    /// The lines of the old file that go.
    pub old: std::ops::Range<usize>,
    /// The lines of the new file that come in their place.
    pub new: std::ops::Range<usize>,
}

/// Who wrote a commit, and its whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitText {
    /// The author and the author's date.
    pub author: Person,
    /// The message; bytes that are not UTF-8 are replaced.
    pub message: String,
}

/// Paths to look at, by folder, so that whole folders can be passed over.
#[derive(Debug, Default)]
pub struct Watch {
    children: BTreeMap<Vec<u8>, Watch>,
    path: Option<TreePath>,
}

impl<'p> FromIterator<&'p TreePath> for Watch {
    fn from_iter<I: IntoIterator<Item = &'p TreePath>>(paths: I) -> Self {
        let mut watch = Self::default();
        for path in paths {
            let mut node = &mut watch;
            for part in path.as_bytes().split(|&byte| byte == b'/') {
                node = node.children.entry(part.to_vec()).or_default();
            }
            node.path = Some(path.clone());
        }
        watch
    }
}

impl Store {
    /// The runs of lines in which two blobs differ, as git's own diff without context sees them; a side that is not
    /// there counts as empty. Binary files have no lines.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn line_blocks(
        &self,
        old: Option<EntryId>,
        new: Option<EntryId>,
    ) -> Result<Vec<LineBlock>, StoreError> {
        let doing = || format!("compare blobs {old:?} and {new:?}");
        let find = |id: EntryId| self.repo.find_blob(id.oid()).map_err(|e| failed(doing(), e));
        let (old, new) = (old.map(find).transpose()?, new.map(find).transpose()?);
        let mut options = git2::DiffOptions::new();
        options.context_lines(0).interhunk_lines(0).indent_heuristic(true);
        let mut blocks = Vec::new();
        let mut seen = |_: git2::DiffDelta<'_>, hunk: git2::DiffHunk<'_>| {
            blocks.push(LineBlock {
                old: range(hunk.old_start(), hunk.old_lines()),
                new: range(hunk.new_start(), hunk.new_lines()),
            });
            true
        };
        self.repo
            .diff_blobs(
                old.as_ref(),
                None,
                new.as_ref(),
                None,
                Some(&mut options),
                None,
                None,
                Some(&mut seen),
                None,
            )
            .map_err(|e| failed(doing(), e))?;
        Ok(blocks)
    }

    /// The watched paths at which two trees differ, in byte order. Folders that are the same on both sides, or hold
    /// nothing watched, are not opened.
    ///
    /// # Errors
    /// When a tree is missing.
    pub fn changes_among(
        &self,
        old: TreeId,
        new: TreeId,
        watch: &Watch,
    ) -> Result<Vec<PathChange>, StoreError> {
        let mut changes = Vec::new();
        self.differing(Some(old.oid()), Some(new.oid()), watch, &mut changes)?;
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(changes)
    }

    fn differing(
        &self,
        old: Option<Oid>,
        new: Option<Oid>,
        watch: &Watch,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), StoreError> {
        if old == new {
            return Ok(());
        }
        let read = |oid: Option<Oid>| {
            oid.map(|oid| self.repo.find_tree(oid).map_err(|e| failed(format!("read tree {oid}"), e)))
                .transpose()
        };
        let (old, new) = (read(old)?, read(new)?);
        for (name, child) in &watch.children {
            let (old, new) = (child_of(old.as_ref(), name), child_of(new.as_ref(), name));
            if old == new {
                continue;
            }
            let file = |entry: Option<(Oid, u32)>| {
                let (id, mode) = entry.filter(|(_, mode)| *mode != FOLDER)?;
                Some(Entry { id: EntryId::of(id), mode })
            };
            if let Some(path) = &child.path
                && (file(old), file(new)) != (None, None)
            {
                changes.push(PathChange { path: path.clone(), old: file(old), new: file(new) });
            }
            let folder =
                |entry: Option<(Oid, u32)>| entry.filter(|(_, mode)| *mode == FOLDER).map(|(id, _)| id);
            if !child.children.is_empty() {
                self.differing(folder(old), folder(new), child, changes)?;
            }
        }
        Ok(())
    }

    /// A commit and its ancestors along first parents, newest first; ends early where the history at hand is cut off.
    ///
    /// # Errors
    /// When the commit itself is missing.
    pub fn first_parents(&self, head: CommitId) -> Result<Vec<CommitId>, StoreError> {
        let mut commits = Vec::new();
        let mut next =
            Some(self.repo.find_commit(head.oid()).map_err(|e| failed(format!("read commit {head}"), e))?);
        while let Some(commit) = next {
            commits.push(CommitId::of(commit.id()));
            next = commit.parent(0).ok();
        }
        Ok(commits)
    }

    /// `tree` with the folder at `path` replaced by another tree.
    ///
    /// # Errors
    /// When a tree is missing or cannot be written.
    pub fn with_folder(&self, tree: TreeId, path: &TreePath, folder: TreeId) -> Result<TreeId, StoreError> {
        let entry = Entry { id: EntryId::of(folder.oid()), mode: FOLDER };
        self.edited_tree(tree, &BTreeMap::from([(path.clone(), Some(entry))]))
    }

    /// Every file and submodule below a tree, with its entry.
    ///
    /// # Errors
    /// When a tree is missing or holds a path that must not be used.
    pub fn files(&self, tree: TreeId) -> Result<BTreeMap<TreePath, Entry>, StoreError> {
        let empty = self.empty_tree()?;
        let changes = self.changes(empty, tree)?;
        Ok(changes.into_iter().filter_map(|change| Some((change.path, change.new?))).collect())
    }

    /// The plain files right inside a folder of a tree (not below its sub-folders); empty when there is no such folder.
    ///
    /// # Errors
    /// When a tree on the way is missing.
    pub fn folder_files(&self, tree: TreeId, folder: &[u8]) -> Result<Vec<(TreePath, EntryId)>, StoreError> {
        let tree = match TreePath::new(folder) {
            Ok(path) => match self.folder(tree, &path)? {
                Some(tree) => tree,
                None => return Ok(Vec::new()),
            },
            Err(_) => tree,
        };
        let read = self.repo.find_tree(tree.oid()).map_err(|e| failed(format!("read tree {tree}"), e))?;
        let mut files = Vec::new();
        for entry in read.iter().filter(|entry| entry.kind() == Some(ObjectType::Blob)) {
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(entry.name_bytes());
            if let Ok(path) = TreePath::new(path) {
                files.push((path, EntryId::of(entry.id())));
            }
        }
        Ok(files)
    }

    /// Who wrote a commit, and its message.
    ///
    /// # Errors
    /// When the commit is not there.
    pub fn commit_text(&self, id: CommitId) -> Result<CommitText, StoreError> {
        let commit = self.repo.find_commit(id.oid()).map_err(|e| failed(format!("read commit {id}"), e))?;
        let author = commit.author();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(CommitText {
            author: Person {
                name: text(author.name_bytes()),
                email: text(author.email_bytes()),
                time_s: author.when().seconds(),
                offset_min: author.when().offset_minutes(),
            },
            message: text(commit.message_bytes()),
        })
    }
}

const FOLDER: u32 = 0o040_000;

fn child_of(tree: Option<&git2::Tree<'_>>, name: &[u8]) -> Option<(Oid, u32)> {
    let tree = tree?;
    let seen = |entry: &git2::TreeEntry<'_>| {
        let mode = match entry.kind() {
            Some(ObjectType::Tree) => FOLDER,
            _ => entry.filemode_raw() as u32,
        };
        (entry.id(), mode)
    };
    match std::str::from_utf8(name) {
        Ok(name) => tree.get_name(name).map(|entry| seen(&entry)),
        Err(_) => tree.iter().find(|entry| entry.name_bytes() == name).map(|entry| seen(&entry)),
    }
}

/// A hunk's lines as a range from 0. An empty side is named by the line before it.
fn range(start: u32, lines: u32) -> std::ops::Range<usize> {
    let (start, lines) = (start as usize, lines as usize);
    let start = if lines == 0 { start } else { start.saturating_sub(1) };
    start..start + lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn only_watched_paths_are_reported_whether_they_come_go_or_change() {
        let fixture = ForkFixture::new(&[("a/b/one", "1"), ("a/two", "2"), ("three", "3")]).advance(
            "all change",
            &[("a/b/one", Some("!")), ("a/two", None), ("three", Some("!")), ("a/new/four", Some("4"))],
        );
        let tree = |commit| fixture.store.commit(commit).unwrap().tree;
        let watched: Vec<TreePath> =
            ["a/b/one", "a/two", "a/new/four", "absent"].iter().map(|p| TreePath::new(*p).unwrap()).collect();
        let changes = fixture
            .store
            .changes_among(tree(fixture.base), tree(fixture.onto()), &watched.iter().collect())
            .unwrap();
        let whole = fixture.store.changes(tree(fixture.base), tree(fixture.onto())).unwrap();
        let expected: Vec<PathChange> =
            whole.into_iter().filter(|change| watched.contains(&change.path)).collect();
        assert_eq!(changes, expected);
        assert_eq!(changes.len(), 3);
    }

    #[test]
    fn line_blocks_have_ranges_from_zero_and_empty_sides() {
        let fixture = ForkFixture::new(&[]);
        let blob = |text: &str| Some(fixture.store.write_blob(text.as_bytes()).unwrap());
        let told = |old: &str, new: &str| {
            let blocks = fixture.store.line_blocks(blob(old), blob(new)).unwrap();
            blocks.iter().map(|block| format!("{:?}>{:?} ", block.old, block.new)).collect::<String>()
        };
        assert_eq!(told("a\nb\nc\n", "a\nB\nc\nd\n"), "1..2>1..2 3..3>3..4 ");
        assert_eq!(told("a\nb\nc\n", "c\n"), "0..2>0..0 ");
        assert_eq!(told("", "x\ny\n"), "0..0>0..2 ");
        assert_eq!(fixture.store.line_blocks(None, blob("x\n")).unwrap().len(), 1);
    }
}
