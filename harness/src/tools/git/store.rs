//! Reads and writes git objects without a work tree: commits, trees, blobs, history. It holds no refs of the user's and
//! starts no process; merging is in `merge`, fetching in `mirror`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    rc::Rc,
};

use git2::{ObjectType, Oid, Repository, Sort};

use super::{
    attributes::KnownRules,
    ids::{CommitId, EntryId, PatchId, TreeId},
    merge::{Contest, Favour, Merged, Merger},
    tree_path::TreePath,
};
use crate::tools::disk;

/// A bare repository used as an object store.
pub struct Store {
    pub(super) repo: Repository,
    entries: RefCell<KnownEntries>,
    pub(super) known: RefCell<KnownChanges>,
    pub(super) contests: RefCell<HashMap<(Contest, Favour), Merged>>,
    pub(super) mergers: RefCell<BTreeMap<(Favour, usize), Merger>>,
    pub(super) merge_rules: RefCell<KnownRules>,
    pub(super) without_rules: RefCell<HashSet<Oid>>,
}

/// What folders hold under a name, as far as it was looked up.
type KnownEntries = HashMap<(Oid, Vec<u8>), Option<Entry>>;
/// How trees differ, as far as they were compared.
type KnownChanges = HashMap<(TreeId, TreeId), Rc<Vec<PathChange>>>;
/// Paths below a folder with what they are to hold.
type Edits<'p> = Vec<(&'p [u8], Option<Entry>)>;

/// What a tree holds at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The object.
    pub id: EntryId,
    /// Git's file mode: `100644`, `100755`, `120000`, `160000` (submodule) or `40000`, all octal.
    pub mode: u32,
}

impl Entry {
    /// Whether it is a file, executable or not.
    pub fn is_file(self) -> bool {
        matches!(self.mode, MODE_FILE | MODE_EXECUTABLE)
    }
}

/// The mode of a plain file.
pub const MODE_FILE: u32 = 0o100_644;
/// The mode of an executable file.
pub const MODE_EXECUTABLE: u32 = 0o100_755;
/// The mode of a symbolic link.
pub const MODE_LINK: u32 = 0o120_000;
/// The mode of a submodule.
pub const MODE_SUBMODULE: u32 = 0o160_000;
/// The mode of a folder.
pub const MODE_FOLDER: u32 = 0o040_000;

/// One path at which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChange {
    /// The path.
    pub path: TreePath,
    /// What the first tree holds there.
    pub old: Option<Entry>,
    /// What the second tree holds there.
    pub new: Option<Entry>,
}

/// One place at which the lines of two files differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineChange {
    /// The lines of the old file, counted from 0.
    pub old: Range<usize>,
    /// The lines of the new file that stand for them.
    pub new: Range<usize>,
}

/// What a commit says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// The commit.
    pub id: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// Its parents, first parent first.
    pub parents: Vec<CommitId>,
    /// The first line of its message; bytes that are not UTF-8 are replaced.
    pub subject: String,
    /// The committer's date, in seconds since 1970.
    pub committed_s: i64,
    /// The committer's clock, in minutes ahead of UTC.
    pub offset_min: i32,
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store could not be made or opened.
    #[error("cannot open the object store `{}`", .path.display())]
    Open {
        /// The store's folder.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An object could not be read or written.
    #[error("cannot {doing}")]
    Object {
        /// What was being done, on which object.
        doing: String,
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// A tree names a path that must not be used.
    #[error("cannot {doing}")]
    Path {
        /// What was being done.
        doing: String,
        /// What is wrong with the path.
        #[source]
        source: super::tree_path::BadPath,
    },
}

impl StoreError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Object { source, .. }
                if source.code() == git2::ErrorCode::NotFound || source.class() == git2::ErrorClass::Odb => Some(
                "the repository is a shallow or partial copy: fetch it whole (`git fetch --unshallow`), or drop --mirror-root"
                    .to_owned(),
            ),
            Self::Object { source, .. } => of_system(source),
            Self::Open { path, source } => {
                let from_git = || path.exists().then(|| "no git repository stands there: move it away, and it is made again".to_owned());
                source
                    .downcast_ref::<io::Error>()
                    .and_then(disk::hint)
                    .or_else(|| of_system(source.downcast_ref::<git2::Error>()?))
                    .or_else(from_git)
            }
            _ => None,
        }
    }
}

impl Store {
    /// Opens the bare repository at `path`, made when it is not there. Objects of the repositories in `borrow` can be
    /// read as if they were its own; nothing is ever written to those.
    ///
    /// # Errors
    /// When the folder cannot be written or is no repository.
    pub fn open(path: &Path, borrow: &[PathBuf]) -> Result<Self, StoreError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        if !path.join("objects").is_dir() {
            init_whole(path).map_err(failed)?;
        }
        write_borrowed(path, borrow).map_err(|error| failed(error.into()))?;
        Self::open_existing(path)
    }

    /// Opens a repository that is there already, exactly as it is.
    ///
    /// # Errors
    /// When it is no repository.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        // A partial copy lacks files that a tree may name all the same.
        git2::opts::strict_object_creation(false);
        // Git hashed every object when it fetched it; to hash each again when it is read costs more than the reading.
        git2::opts::strict_hash_verification(false);
        let repo = Repository::open_bare(path)
            .map_err(|error| StoreError::Open { path: path.to_owned(), source: error.into() })?;
        Ok(Self {
            repo,
            entries: RefCell::default(),
            known: RefCell::default(),
            contests: RefCell::default(),
            mergers: RefCell::default(),
            merge_rules: RefCell::default(),
            without_rules: RefCell::default(),
        })
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        self.repo.path()
    }

    /// The commit that a full or abbreviated id names, if there is exactly one.
    pub fn find_commit(&self, id: &str) -> Option<CommitId> {
        let hex = id.len() >= 4 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let object = self.repo.revparse_single(id).ok().filter(|_| hex)?;
        object.peel_to_commit().ok().map(|commit| CommitId::of(commit.id()))
    }

    /// What a commit says about itself.
    ///
    /// # Errors
    /// When the commit is not there.
    pub fn commit(&self, id: CommitId) -> Result<CommitInfo, StoreError> {
        let commit = self.repo.find_commit(id.oid()).map_err(|e| failed(format!("read commit {id}"), e))?;
        let subject = commit.summary_bytes().unwrap_or_default();
        Ok(CommitInfo {
            id,
            tree: TreeId::of(commit.tree_id()),
            parents: commit.parent_ids().map(CommitId::of).collect(),
            subject: String::from_utf8_lossy(subject).trim().to_owned(),
            committed_s: commit.time().seconds(),
            offset_min: commit.time().offset_minutes(),
        })
    }

    /// Whether `ancestor` is `descendant` or one of its ancestors.
    ///
    /// # Errors
    /// When history is missing.
    pub fn is_ancestor(&self, ancestor: CommitId, descendant: CommitId) -> Result<bool, StoreError> {
        if ancestor == descendant {
            return Ok(true);
        }
        match self.repo.graph_descendant_of(descendant.oid(), ancestor.oid()) {
            Ok(found) => Ok(found),
            // libgit2 looks for the parents beyond the end of a shallow history.
            Err(_) if self.is_shallow() && self.has(descendant) => Ok(false),
            Err(error) => Err(failed(format!("follow history from {descendant} to {ancestor}"), error)),
        }
    }

    /// The best common ancestor of two commits.
    ///
    /// # Errors
    /// When history is missing. No common ancestor is `None`.
    pub fn merge_base(&self, one: CommitId, other: CommitId) -> Result<Option<CommitId>, StoreError> {
        match self.repo.merge_base(one.oid(), other.oid()) {
            Ok(base) => Ok(Some(CommitId::of(base))),
            Err(error)
                if (error.code() == git2::ErrorCode::NotFound || self.is_shallow())
                    && self.has(one)
                    && self.has(other) =>
            {
                Ok(None)
            }
            Err(error) => Err(failed(format!("find a common ancestor of {one} and {other}"), error)),
        }
    }

    /// Whether the commit itself is there.
    pub fn has(&self, id: CommitId) -> bool {
        self.repo.find_commit(id.oid()).is_ok()
    }

    /// The commits after `base` up to `head` along first parents, oldest first; the whole way back when `base` is not
    /// on it, without whatever `base` reaches.
    ///
    /// # Errors
    /// When history is missing.
    pub fn mainline(&self, base: CommitId, head: CommitId) -> Result<Vec<CommitId>, StoreError> {
        let doing = || format!("list the commits from {base} to {head}");
        let walk = || -> Result<Vec<CommitId>, git2::Error> {
            let mut walk = self.repo.revwalk()?;
            walk.simplify_first_parent()?;
            walk.push(head.oid())?;
            walk.hide(base.oid())?;
            walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
            walk.map(|id| id.map(CommitId::of)).collect()
        };
        walk().map_err(|e| failed(doing(), e))
    }

    /// The commits that `head` reaches and none of `hidden` does, parents before children.
    ///
    /// # Errors
    /// When history is missing.
    pub fn commits_between(&self, hidden: &[CommitId], head: CommitId) -> Result<Vec<CommitId>, StoreError> {
        let walk = || -> Result<Vec<CommitId>, git2::Error> {
            let mut walk = self.repo.revwalk()?;
            walk.push(head.oid())?;
            for id in hidden {
                walk.hide(id.oid())?;
            }
            walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
            walk.map(|id| id.map(CommitId::of)).collect()
        };
        walk().map_err(|e| failed(format!("list the commits below {head}"), e))
    }

    /// Whether a file's object is there; a partial copy lacks some.
    pub fn has_blob(&self, id: EntryId) -> bool {
        self.repo.odb().is_ok_and(|objects| objects.exists(id.oid()))
    }

    /// What a tree holds at a path; `None` when nothing is there.
    ///
    /// # Errors
    /// When a tree on the way is missing.
    pub fn entry(&self, tree: TreeId, path: &TreePath) -> Result<Option<Entry>, StoreError> {
        let mut folder = tree.oid();
        let mut parts = path.as_bytes().split(|&byte| byte == b'/').peekable();
        while let Some(part) = parts.next() {
            let found = self.child(folder, part)?;
            match found {
                Some(entry) if parts.peek().is_none() => return Ok(Some(entry)),
                Some(entry) if entry.mode == MODE_FOLDER => folder = entry.id.oid(),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The tree of a folder inside a tree.
    ///
    /// # Errors
    /// When a tree on the way is missing.
    pub fn folder(&self, tree: TreeId, path: &TreePath) -> Result<Option<TreeId>, StoreError> {
        let entry = self.entry(tree, path)?.filter(|entry| entry.mode == MODE_FOLDER);
        Ok(entry.map(|entry| TreeId::of(entry.id.oid())))
    }

    /// Whether the history at hand is cut off somewhere.
    pub fn is_shallow(&self) -> bool {
        self.repo.is_shallow()
    }

    /// Whether a tree has a folder at a path; the root always is one.
    ///
    /// # Errors
    /// When a tree on the way is missing.
    pub fn has_folder(&self, tree: TreeId, folder: &[u8]) -> Result<bool, StoreError> {
        match TreePath::new(folder) {
            Err(_) => Ok(folder.is_empty()),
            Ok(path) => Ok(self.entry(tree, &path)?.is_some_and(|entry| entry.mode == MODE_FOLDER)),
        }
    }

    fn child(&self, folder: Oid, name: &[u8]) -> Result<Option<Entry>, StoreError> {
        let key = (folder, name.to_vec());
        if let Some(known) = self.entries.borrow().get(&key) {
            return Ok(*known);
        }
        let tree = self.repo.find_tree(folder).map_err(|e| failed(format!("read tree {folder}"), e))?;
        // libgit2 looks names up as text; names in other encodings are found by going through the tree.
        let found = match std::str::from_utf8(name) {
            Ok(name) => tree.get_name(name).map(|entry| entry_of(&entry)),
            Err(_) => tree.iter().find(|entry| entry.name_bytes() == name).map(|entry| entry_of(&entry)),
        };
        self.entries.borrow_mut().insert(key, found);
        Ok(found)
    }

    /// Every path at which two trees differ, in byte order; moves are a deletion and an addition.
    ///
    /// # Errors
    /// When a tree is missing or holds a path that must not be used.
    pub fn changes(&self, old: TreeId, new: TreeId) -> Result<Vec<PathChange>, StoreError> {
        let mut changes = BTreeMap::new();
        let doing = || format!("compare trees {old} and {new}");
        self.compare_folders([Some(old.oid()), Some(new.oid())], &mut Vec::new(), &doing, &mut changes)?;
        Ok(changes.into_values().collect())
    }

    /// Compares one folder of two trees. Equal folders are not opened; libgit2's own comparison walks through all of
    /// them, which is a fifth of the time of a rebase.
    fn compare_folders(
        &self,
        folders: [Option<Oid>; 2],
        path: &mut Vec<u8>,
        doing: &dyn Fn() -> String,
        changes: &mut BTreeMap<TreePath, PathChange>,
    ) -> Result<(), StoreError> {
        if folders[0] == folders[1] {
            return Ok(());
        }
        let mut sides: BTreeMap<Vec<u8>, [Option<Entry>; 2]> = BTreeMap::new();
        for (side, folder) in folders.into_iter().enumerate() {
            let Some(folder) = folder else { continue };
            let tree = self.repo.find_tree(folder).map_err(|error| failed(doing(), error))?;
            for entry in &tree {
                sides.entry(entry.name_bytes().to_vec()).or_default()[side] = Some(entry_of(&entry));
            }
        }
        for (name, entries) in sides {
            if entries[0] == entries[1] {
                continue;
            }
            let length = path.len();
            path.extend_from_slice(&name);
            let [old, new] = entries.map(|entry| entry.filter(|entry| entry.mode != MODE_FOLDER));
            if old.is_some() || new.is_some() {
                let path =
                    TreePath::new(&path[..]).map_err(|source| StoreError::Path { doing: doing(), source })?;
                changes.insert(path.clone(), PathChange { path, old, new });
            }
            let below = entries
                .map(|entry| entry.filter(|entry| entry.mode == MODE_FOLDER).map(|entry| entry.id.oid()));
            path.push(b'/');
            self.compare_folders(below, path, doing, changes)?;
            path.truncate(length);
        }
        Ok(())
    }

    /// A blob's bytes.
    ///
    /// # Errors
    /// When the blob is missing, as in a partial copy.
    pub fn blob(&self, id: EntryId) -> Result<Vec<u8>, StoreError> {
        let blob = self.repo.find_blob(id.oid()).map_err(|e| failed(format!("read blob {id}"), e))?;
        Ok(blob.content().to_vec())
    }

    /// Stores a blob.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn write_blob(&self, bytes: &[u8]) -> Result<EntryId, StoreError> {
        self.repo.blob(bytes).map(EntryId::of).map_err(|e| failed("write a blob".to_owned(), e))
    }

    /// The empty tree.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn empty_tree(&self) -> Result<TreeId, StoreError> {
        let write = || self.repo.treebuilder(None)?.write();
        write().map(TreeId::of).map_err(|e| failed("write the empty tree".to_owned(), e))
    }

    /// `tree` with some paths replaced (`Some`) or removed (`None`). A file gives way to a folder at its place and the
    /// other way round; folders left empty go.
    ///
    /// # Errors
    /// When a tree is missing or cannot be written.
    pub fn edited_tree(
        &self,
        tree: TreeId,
        edits: &BTreeMap<TreePath, Option<Entry>>,
    ) -> Result<TreeId, StoreError> {
        if edits.is_empty() {
            return Ok(tree);
        }
        let edits: Edits<'_> = edits.iter().map(|(path, entry)| (path.as_bytes(), *entry)).collect();
        let written = self.edited_folder(Some(tree.oid()), &edits)?;
        written.map_or_else(|| self.empty_tree(), |oid| Ok(TreeId::of(oid)))
    }

    fn edited_folder(
        &self,
        folder: Option<Oid>,
        edits: &[(&[u8], Option<Entry>)],
    ) -> Result<Option<Oid>, StoreError> {
        let doing = || format!("change tree {}", folder.unwrap_or(Oid::ZERO_SHA1));
        let source =
            folder.map(|oid| self.repo.find_tree(oid)).transpose().map_err(|e| failed(doing(), e))?;
        let mut builder = self.repo.treebuilder(source.as_ref()).map_err(|e| failed(doing(), e))?;
        let mut below: BTreeMap<&[u8], Edits<'_>> = BTreeMap::new();
        let mut here: BTreeMap<&[u8], Option<Entry>> = BTreeMap::new();
        for &(path, entry) in edits {
            match path.iter().position(|&byte| byte == b'/') {
                Some(at) => below.entry(&path[..at]).or_default().push((&path[at + 1..], entry)),
                None => _ = here.insert(path, entry),
            }
        }
        let mut set = |name: &[u8], entry: Option<Entry>| -> Result<(), git2::Error> {
            match entry {
                Some(Entry { id, mode }) => builder.insert(name, id.oid(), mode as i32).map(drop),
                None if builder.get(name)?.is_some() => builder.remove(name),
                None => Ok(()),
            }
        };
        for (&name, &entry) in &here {
            // A removal beside changes below the same name: a file makes room for a folder, handled below.
            if entry.is_some() || !below.contains_key(name) {
                set(name, entry).map_err(|e| failed(doing(), e))?;
            }
        }
        for (name, edits) in below {
            if here.get(name).is_some_and(Option::is_some) {
                continue;
            }
            let child = source.as_ref().and_then(|tree| tree.iter().find(|entry| entry.name_bytes() == name));
            let old = child.map(|entry| entry_of(&entry));
            let child = old.filter(|entry| entry.mode == MODE_FOLDER).map(|entry| entry.id.oid());
            if child.is_none() && edits.iter().all(|(_, entry)| entry.is_none()) {
                continue;
            }
            let new = self.edited_folder(child, &edits)?;
            let entry = new.map(|oid| Entry { id: EntryId::of(oid), mode: MODE_FOLDER });
            set(name, entry).map_err(|e| failed(doing(), e))?;
        }
        if builder.is_empty() {
            return Ok(None);
        }
        builder.write().map(Some).map_err(|e| failed(doing(), e))
    }

    /// The patch-id of the change between two trees.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn patch_id(&self, old: TreeId, new: TreeId) -> Result<PatchId, StoreError> {
        let (old_tree, new_tree) = (self.tree(old)?, self.tree(new)?);
        self.repo
            .diff_tree_to_tree(Some(&old_tree), Some(&new_tree), None)
            .and_then(|diff| diff.patchid(None))
            .map(PatchId::of)
            .map_err(|e| failed(format!("make the patch-id of {old}..{new}"), e))
    }

    /// The lines at which two blobs differ: for each place, the lines of the old and those of the new, counted from 0.
    /// Binary files differ in one place, as a whole.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn line_changes(&self, old: EntryId, new: EntryId) -> Result<Vec<LineChange>, StoreError> {
        let mut options = git2::DiffOptions::new();
        options.context_lines(0).interhunk_lines(0).force_text(true);
        let blob =
            |id: EntryId| self.repo.find_blob(id.oid()).map_err(|e| failed(format!("read blob {id}"), e));
        let (old_blob, new_blob) = (blob(old)?, blob(new)?);
        let mut changes = Vec::new();
        let mut hunk = |_: git2::DiffDelta<'_>, hunk: git2::DiffHunk<'_>| {
            // A side without lines names the line before it, hence one less to subtract.
            let range = |start: u32, lines: u32| {
                let start = (start as usize + usize::from(lines == 0)).saturating_sub(1);
                start..start + lines as usize
            };
            changes.push(LineChange {
                old: range(hunk.old_start(), hunk.old_lines()),
                new: range(hunk.new_start(), hunk.new_lines()),
            });
            true
        };
        self.repo
            .diff_blobs(
                Some(&old_blob),
                None,
                Some(&new_blob),
                None,
                Some(&mut options),
                None,
                None,
                Some(&mut hunk),
                None,
            )
            .map_err(|e| failed(format!("compare blobs {old} and {new}"), e))?;
        Ok(changes)
    }

    /// How many lines were added and removed between two trees.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn changed_lines(&self, old: TreeId, new: TreeId) -> Result<usize, StoreError> {
        self.line_counts(old, new).map(|(added, removed)| added + removed)
    }

    /// The lines added, and those removed, between two trees; files that were moved count as one of each.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn line_counts(&self, old: TreeId, new: TreeId) -> Result<(usize, usize), StoreError> {
        let (old_tree, new_tree) = (self.tree(old)?, self.tree(new)?);
        self.repo
            .diff_tree_to_tree(Some(&old_tree), Some(&new_tree), None)
            .and_then(|diff| diff.stats())
            .map(|stats| (stats.insertions(), stats.deletions()))
            .map_err(|e| failed(format!("count the lines of {old}..{new}"), e))
    }

    /// Writes a commit whose author is also its committer, so that equal input gives an equal id.
    ///
    /// # Errors
    /// When a parent or the tree is missing, or name and address hold characters that git refuses.
    pub fn write_commit(
        &self,
        tree: TreeId,
        parents: &[CommitId],
        author: &Person,
        message: &str,
    ) -> Result<CommitId, StoreError> {
        let write = || -> Result<Oid, git2::Error> {
            let time = git2::Time::new(author.time_s, author.offset_min);
            let who = git2::Signature::new(&author.name, &author.email, &time)?;
            let parents: Vec<git2::Commit<'_>> =
                parents.iter().map(|id| self.repo.find_commit(id.oid())).collect::<Result<_, _>>()?;
            let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
            let tree = self.repo.find_tree(tree.oid())?;
            self.repo.commit(None, &who, &who, message, &tree, &parents)
        };
        write().map(CommitId::of).map_err(|e| failed("write a commit".to_owned(), e))
    }

    fn tree(&self, id: TreeId) -> Result<git2::Tree<'_>, StoreError> {
        self.repo.find_tree(id.oid()).map_err(|e| failed(format!("read tree {id}"), e))
    }

    /// The refs of the store below `prefix`, without it, each with the commit it leads to; others are left out.
    ///
    /// # Errors
    /// When refs cannot be listed.
    pub fn refs(&self, prefix: &str) -> Result<BTreeMap<String, CommitId>, StoreError> {
        refs_of(&self.repo, prefix)
    }
}

/// Who made a commit, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
    /// Seconds since 1970.
    pub time_s: i64,
    /// Minutes ahead of UTC.
    pub offset_min: i32,
}

pub(super) fn refs_of(repo: &Repository, prefix: &str) -> Result<BTreeMap<String, CommitId>, StoreError> {
    let doing = || format!("list the refs of {}", repo.path().display());
    let mut refs = BTreeMap::new();
    for reference in repo.references().map_err(|e| failed(doing(), e))? {
        let reference = reference.map_err(|e| failed(doing(), e))?;
        let name = String::from_utf8_lossy(reference.name_bytes()).into_owned();
        if let (Some(name), Ok(commit)) = (name.strip_prefix(prefix), reference.peel_to_commit()) {
            refs.insert(name.to_owned(), CommitId::of(commit.id()));
        }
    }
    Ok(refs)
}

pub(super) fn failed(doing: String, source: git2::Error) -> StoreError {
    StoreError::Object { doing, source }
}

fn entry_of(entry: &git2::TreeEntry<'_>) -> Entry {
    let mode = match entry.kind() {
        Some(ObjectType::Tree) => MODE_FOLDER,
        _ => entry.filemode_raw() as u32,
    };
    Entry { id: EntryId::of(entry.id()), mode }
}

/// Makes an empty repository beside its place and renames it, so that a killed process leaves no half of one.
/// What to try where libgit2 hands on what the system said.
fn of_system(error: &git2::Error) -> Option<String> {
    let said = |text: &str| error.message().contains(text);
    let kind = match () {
        () if said("No space left on device") || said("quota exceeded") => io::ErrorKind::StorageFull,
        () if said("Permission denied") => io::ErrorKind::PermissionDenied,
        () if said("Read-only file system") => io::ErrorKind::ReadOnlyFilesystem,
        () => return None,
    };
    disk::hint(&kind.into())
}

fn init_whole(path: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    if let Err(error) = Repository::init_bare(&beside) {
        // Half of one is of no use; the next try has another name.
        let _ = fs::remove_dir_all(&beside);
        return Err(error.into());
    }
    let renamed = fs::rename(&beside, path);
    if renamed.is_err() && path.join("objects").is_dir() {
        // Another process was faster.
        return Ok(fs::remove_dir_all(&beside)?);
    }
    if renamed.is_err() {
        fs::remove_dir_all(&beside)?;
    }
    Ok(renamed?)
}

/// Git finds borrowed objects through `objects/info/alternates`, and the ends of shallow histories in `shallow`.
fn write_borrowed(path: &Path, borrow: &[PathBuf]) -> io::Result<()> {
    let mut alternates = String::new();
    let mut shallow = String::new();
    for repository in borrow {
        let objects = fs::canonicalize(repository.join("objects"))?;
        alternates.push_str(&format!("{}\n", objects.display()));
        shallow.push_str(&fs::read_to_string(repository.join("shallow")).unwrap_or_default());
    }
    fs::create_dir_all(path.join("objects/info"))?;
    write_unless_equal(&path.join("objects/info/alternates"), &alternates)?;
    if !borrow.is_empty() {
        write_unless_equal(&path.join("shallow"), &shallow)?;
    }
    Ok(())
}

fn write_unless_equal(path: &Path, text: &str) -> io::Result<()> {
    let known = fs::read_to_string(path).unwrap_or_default();
    if known == text {
        return Ok(());
    }
    if text.is_empty() {
        return fs::remove_file(path);
    }
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&beside, text)?;
    fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_closed_disk_is_told_with_what_to_try() {
        for (said, word) in
            [("write out file: No space left on device", "make room"), ("x: Permission denied", "writable")]
        {
            let source = git2::Error::from_str(said);
            let hint = StoreError::Object { doing: "write a blob".to_owned(), source }.hint().unwrap();
            assert!(hint.contains(word), "{hint}");
        }
    }

    #[test]
    fn a_store_that_cannot_be_made_leaves_nothing_half_made() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("store.git");
        fs::write(&place, "a file").unwrap();
        let Err(error) = Store::open(&place, &[]) else { panic!("it stands on a file") };
        assert!(error.hint().unwrap().contains("move that away"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// What libgit2's comparison says, which opens every folder.
    fn changes_by_libgit2(store: &Store, old: TreeId, new: TreeId) -> Vec<PathChange> {
        let tree = |id: TreeId| store.repo.find_tree(id.oid()).unwrap();
        let mut options = git2::DiffOptions::new();
        options.include_typechange(true);
        let diff =
            store.repo.diff_tree_to_tree(Some(&tree(old)), Some(&tree(new)), Some(&mut options)).unwrap();
        let mut changes: BTreeMap<TreePath, PathChange> = BTreeMap::new();
        for delta in diff.deltas() {
            let side = |file: git2::DiffFile<'_>| {
                let mode = u32::from(file.mode());
                (!file.id().is_zero() && mode != 0).then(|| Entry { id: EntryId::of(file.id()), mode })
            };
            let path = TreePath::new(delta.new_file().path_bytes().unwrap()).unwrap();
            let change = changes.entry(path.clone()).or_insert(PathChange { path, old: None, new: None });
            change.old = change.old.or(side(delta.old_file()));
            change.new = change.new.or(side(delta.new_file()));
        }
        changes.into_values().collect()
    }

    #[test]
    fn trees_are_compared_as_libgit2_does_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store.git"), &[]).unwrap();
        let blobs = [b"1", b"2", b"3"].map(|text| store.write_blob(text).unwrap());
        // Names that stand in another order as folders than as files, folders in the place of files, odd bytes.
        let names: [&[u8]; 9] = [b"a", b"a-b", b"a/x", b"a/y/z", b"a0", b"b/\xff", b"b/c/d", b"b/c", b"e"];
        let modes = [MODE_FILE, MODE_FILE, MODE_EXECUTABLE, 0o120_000, 0o160_000];
        let mut state = 1_u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        let mut last = store.empty_tree().unwrap();
        let mut seen = 0;
        for _ in 0..300 {
            let edits = (0..3).map(|_| {
                let entry = Entry { id: blobs[below(3)], mode: modes[below(5)] };
                (TreePath::new(names[below(9)]).unwrap(), (below(4) > 0).then_some(entry))
            });
            let tree = store.edited_tree(last, &edits.collect()).unwrap();
            let changes = store.changes(last, tree).unwrap();
            assert_eq!(changes, changes_by_libgit2(&store, last, tree));
            seen += changes.len();
            last = tree;
        }
        assert!(seen > 300, "{seen}");
    }
}
