//! Work trees of the bare cache, for the one patch that needs a person and for commands that make files. Each has a
//! `.git` folder of its own that shares the cache's objects and refs; it is made beside its place and renamed into it,
//! so that it is either whole or not there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    apply::FOREIGN,
    ids::{CommitId, EntryId, TreeId},
    merge::PathConflict,
    store::{Entry, MODE_SUBMODULE, Store},
    tree_path::TreePath,
};
use crate::tools::{
    disk,
    process::{Completed, Invocation, ProcessError},
};

/// How long one git command may take on a work tree.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A checked out tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkTree {
    folder: PathBuf,
    absent: Vec<TreePath>,
}

/// Why a work tree cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum WorkTreeError {
    /// The disk.
    #[error("cannot {doing} `{}`", .path.display())]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Git.
    #[error("git cannot {doing} `{}`", .path.display())]
    Git {
        /// What was being done.
        doing: &'static str,
        /// The work tree.
        path: PathBuf,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// Git answered in another form than expected.
    #[error("git's answer about `{}` cannot be read", .path.display())]
    Answer {
        /// The work tree.
        path: PathBuf,
    },
    /// A partial copy lacks a file that is to be looked at.
    #[error("`{path}` ({id}) is to be resolved, and the partial copy of the repository lacks it")]
    Absent {
        /// The file.
        path: TreePath,
        /// Its object.
        id: EntryId,
    },
}

impl WorkTreeError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Absent { .. } => Some(
                "fetch the copy's files (`git fetch --refetch --no-filter`), or leave out --mirror-root"
                    .to_owned(),
            ),
            Self::Disk { source, .. } => disk::hint(source),
            Self::Git { .. } | Self::Answer { .. } => None,
        }
    }
}

/// What a work tree's index holds at a path that is not settled, by stage: before the change, upstream's, the patch's.
pub type Unmerged = BTreeMap<TreePath, [Option<Entry>; 3]>;

impl WorkTree {
    /// The work tree at `folder`, if there is a whole one.
    pub fn find(folder: &Path) -> Option<Self> {
        folder.join(".git/HEAD").is_file().then(|| Self { folder: folder.to_owned(), absent: Vec::new() })
    }

    /// Checks `tree` out at `folder`, with `head` as its commit and the entries of `conflicts` unmerged in its index.
    /// Whatever was at `folder` goes. Files that a partial copy lacks are left out, and stay in the trees that are made
    /// from the work tree.
    ///
    /// # Errors
    /// When the disk or git says no, or a file in conflict is lacking.
    pub fn make(
        store: &Store,
        folder: &Path,
        head: CommitId,
        tree: TreeId,
        conflicts: &[PathConflict],
    ) -> Result<Self, WorkTreeError> {
        let parent = folder.parent().unwrap_or(Path::new("."));
        let disk = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| WorkTreeError::Disk { doing, path, source }
        };
        fs::create_dir_all(parent).map_err(disk("make", parent))?;
        let beside = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempdir_in(parent)
            .map_err(disk("make a folder in", parent))?;
        let made = Self { folder: beside.path().to_owned(), absent: Vec::new() };
        let git_folder = beside.path().join(".git");
        let common = fs::canonicalize(store.path()).map_err(disk("find", store.path()))?;
        let mut common = common.as_os_str().as_bytes().to_vec();
        common.push(b'\n');
        fs::create_dir(&git_folder).map_err(disk("make", &git_folder))?;
        for (name, bytes) in [("HEAD", format!("{head}\n").into_bytes()), ("commondir", common)] {
            let path = git_folder.join(name);
            fs::write(&path, bytes).map_err(disk("write", &path))?;
        }
        made.git("fill", |git| git.args(["read-tree", &tree.to_string()]))?;
        let absent = made.leave_out_absent(store, conflicts)?;
        made.git("fill", |git| git.args(["checkout-index", "--all", "--quiet", "--index"]))?;
        let mut stages = Vec::new();
        for conflict in conflicts {
            let path = conflict.merged_as.as_bytes();
            let found = [conflict.base, conflict.ours, conflict.theirs];
            if found.iter().any(Option::is_some) {
                stages.extend(index_line(0, &"0".repeat(40), 0, path));
            }
            for (stage, entry) in (1..).zip(found) {
                if let Some(Entry { id, mode }) = entry {
                    stages.extend(index_line(mode, &id.to_string(), stage, path));
                }
            }
        }
        made.git("mark conflicts in", |git| git.args(["update-index", "-z", "--index-info"]).stdin(stages))?;
        if folder.exists() {
            remove_whole(folder).map_err(disk("remove", folder))?;
        }
        fs::rename(beside.keep(), folder).map_err(disk("make", folder))?;
        Ok(Self { folder: folder.to_owned(), absent })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files that were left out when it was made, because the copy of the repository is partial.
    pub fn absent(&self) -> &[TreePath] {
        &self.absent
    }

    /// What its index holds unmerged.
    ///
    /// # Errors
    /// When git says no.
    pub fn unmerged(&self) -> Result<Unmerged, WorkTreeError> {
        let listed =
            self.git("list what is unmerged in", |git| git.args(["ls-files", "--unmerged", "-z"]))?;
        let mut unmerged = Unmerged::new();
        for field in listed.stdout_bytes.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            let (path, stage, entry) = super::merge::read_entry(field)
                .filter(|(_, stage, _)| (1..=3).contains(stage))
                .ok_or_else(|| WorkTreeError::Answer { path: self.folder.clone() })?;
            unmerged.entry(path).or_insert([None; 3])[usize::from(stage) - 1] = Some(entry);
        }
        Ok(unmerged)
    }

    /// The bytes of a file; `None` where there is no plain file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&self, path: &TreePath) -> Result<Option<Vec<u8>>, WorkTreeError> {
        let file = self.folder.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
        let plain = file.symlink_metadata().is_ok_and(|found| found.is_file());
        let read = || fs::read(&file).map(Some);
        let failed = |source| WorkTreeError::Disk { doing: "read", path: file.clone(), source };
        if plain { read().map_err(failed) } else { Ok(None) }
    }

    /// Whether anything at all, a link or folder included, is at a path.
    pub fn has(&self, path: &TreePath) -> bool {
        self.folder.join(std::ffi::OsStr::from_bytes(path.as_bytes())).symlink_metadata().is_ok()
    }

    /// The tree that the work tree holds: every tracked file as it stands, and whatever was added by hand.
    ///
    /// # Errors
    /// When git says no.
    pub fn tracked_tree(&self) -> Result<TreeId, WorkTreeError> {
        self.git("take the files of", |git| git.args(["add", "--update", "--", "."]))?;
        self.index_tree()
    }

    /// The tree that the work tree holds, its index included all files that are not ignored; below `paths` only, where
    /// there are any.
    ///
    /// # Errors
    /// When git says no.
    pub fn whole_tree(&self, paths: &[TreePath]) -> Result<TreeId, WorkTreeError> {
        let named = paths.iter().map(|path| std::ffi::OsStr::from_bytes(path.as_bytes()));
        self.git("take the files of", |git| {
            let git = git.arg("--literal-pathspecs").args(["add", "--all", "--force", "--"]);
            if paths.is_empty() { git.arg(".") } else { git.args(named) }
        })?;
        self.index_tree()
    }

    /// Keeps all files that are not ignored, as a commit over the tree's own, under a ref below `prefix` that ends in
    /// the commit's id; gives the ref's name. The work tree's index is left alone.
    ///
    /// # Errors
    /// When git says no.
    pub fn keep(&self, prefix: &str, message: &str) -> Result<String, WorkTreeError> {
        let index = self.folder.join(".git/index");
        let copy = self.folder.join(".git/index.kept");
        let failed = |source| WorkTreeError::Disk { doing: "copy", path: index.clone(), source };
        fs::copy(&index, &copy).map_err(failed)?;
        let with_copy = |git: Invocation| git.env("GIT_INDEX_FILE", &copy);
        self.git("keep", |git| with_copy(git).args(["add", "--all", "--", "."]))?;
        let tree = self.git("keep", |git| with_copy(git).args(["write-tree", "--missing-ok"]))?;
        let person = "Regraft";
        let commit = self.git("keep", |git| {
            let git = git.args(["commit-tree", "-p", "HEAD", "-m", message, tree.stdout.trim()]);
            ["AUTHOR", "COMMITTER"].iter().fold(git, |git, role| {
                git.env(format!("GIT_{role}_NAME"), person)
                    .env(format!("GIT_{role}_EMAIL"), "regraft@localhost")
                    .env(format!("GIT_{role}_DATE"), "@0 +0000")
            })
        })?;
        let id = commit.stdout.trim();
        let name = format!("{prefix}/{id}");
        self.git("keep", |git| git.args(["update-ref", &name, id]))?;
        Ok(name)
    }

    /// Files that are neither tracked nor ignored.
    ///
    /// # Errors
    /// When git says no.
    pub fn untracked(&self) -> Result<BTreeSet<String>, WorkTreeError> {
        let listed = self.git("list what is new in", |git| {
            git.args(["ls-files", "--others", "--exclude-standard", "--directory", "-z"])
        })?;
        Ok(listed.stdout.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Takes the work tree away.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn remove(self) -> Result<(), WorkTreeError> {
        let failed = |source| WorkTreeError::Disk { doing: "remove", path: self.folder.clone(), source };
        remove_whole(&self.folder).map_err(failed)
    }

    /// Marks files whose objects are nowhere at hand, so that git neither writes them nor takes them for deleted.
    fn leave_out_absent(
        &self,
        store: &Store,
        conflicts: &[PathConflict],
    ) -> Result<Vec<TreePath>, WorkTreeError> {
        let listed = self.git("list the files of", |git| git.args(["ls-files", "--stage", "-z"]))?;
        let mut absent = Vec::new();
        for field in listed.stdout_bytes.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            let (path, _, Entry { id, mode }) = super::merge::read_entry(field)
                .ok_or_else(|| WorkTreeError::Answer { path: self.folder.clone() })?;
            if mode == MODE_SUBMODULE || store.has_blob(id) {
                continue;
            }
            if conflicts.iter().any(|conflict| conflict.path == path || conflict.merged_as == path) {
                return Err(WorkTreeError::Absent { path, id });
            }
            absent.push(path);
        }
        if !absent.is_empty() {
            let names: Vec<u8> = absent.iter().flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect();
            self.git("leave files out of", |git| {
                git.args(["update-index", "--skip-worktree", "-z", "--stdin"]).stdin(names)
            })?;
        }
        Ok(absent)
    }

    fn index_tree(&self) -> Result<TreeId, WorkTreeError> {
        let tree = self.git("write the tree of", |git| git.args(["write-tree", "--missing-ok"]))?;
        tree.stdout.trim().parse().map_err(|_| WorkTreeError::Answer { path: self.folder.clone() })
    }

    fn git(
        &self,
        doing: &'static str,
        command: impl FnOnce(Invocation) -> Invocation,
    ) -> Result<Completed, WorkTreeError> {
        let git = Invocation::new("git")
            .env_remove(FOREIGN)
            .args(["-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.fsmonitor=false"])
            .args(["-c", "core.hooksPath=/dev/null"])
            .cwd(&self.folder)
            .env("GIT_DIR", self.folder.join(".git"))
            .env("GIT_WORK_TREE", &self.folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .timeout(TIMEOUT);
        let failed =
            |source| WorkTreeError::Git { doing, path: self.folder.clone(), source: Box::new(source) };
        command(git).run_ok().map_err(failed)
    }
}

const TEMPORARY: &str = "worktree-in-passing-";

/// Takes a folder away so that a killed process leaves it whole, or under a name that is swept.
fn remove_whole(folder: &Path) -> io::Result<()> {
    let name = format!("{TEMPORARY}{}", std::process::id());
    let passing = folder.with_file_name(name);
    fs::rename(folder, &passing)?;
    fs::remove_dir_all(passing)
}

/// Takes away what a killed process left half made or half removed below `parent`.
pub fn sweep_work_trees(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_bytes().starts_with(TEMPORARY.as_bytes()) {
            // A child of the killed process may still write there; the next run takes the rest.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn index_line(mode: u32, id: &str, stage: usize, path: &[u8]) -> Vec<u8> {
    let mut line = format!("{mode:06o} {id} {stage}\t").into_bytes();
    line.extend(path);
    line.push(0);
    line
}
