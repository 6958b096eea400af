//! A person's checkout as an object store: commits and branches are added, while work tree, index and whatever is checked
//! out stay as they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use git2::Repository;

use super::{
    ids::{CommitId, TreeId},
    store::{Store, StoreError, failed},
};

/// A checkout, opened.
pub struct Checkout {
    /// Its objects.
    pub store: Store,
    /// What is checked out.
    pub head: CommitId,
    /// The full names of branches that this checkout or a linked one has checked out.
    pub checked_out: Vec<String>,
}

/// Opens the checkout, or bare repository, at `path`.
///
/// # Errors
/// When there is none, or it has no commit.
pub fn open_checkout(path: &Path) -> Result<Checkout, StoreError> {
    let open = || {
        let repo =
            Repository::open_ext(path, git2::RepositoryOpenFlags::NO_SEARCH, std::iter::empty::<&Path>())?;
        let head = repo.head()?.peel_to_commit()?.id();
        Ok::<_, git2::Error>((repo, CommitId::of(head)))
    };
    let (repo, head) = open().map_err(|e| failed(format!("open the repository `{}`", path.display()), e))?;
    let common = repo.commondir().to_owned();
    let mut heads: Vec<PathBuf> = vec![common.join("HEAD")];
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    heads.extend(linked.map(|entry| entry.path().join("HEAD")));
    let checked_out = heads
        .iter()
        .filter_map(|head| Some(fs::read_to_string(head).ok()?.strip_prefix("ref: ")?.trim().to_owned()))
        .collect();
    Ok(Checkout { store: Store::open_existing(&common)?, head, checked_out })
}

impl Store {
    /// Lets a ref lead to `new`, provided that it still leads to `old`.
    ///
    /// # Errors
    /// When it leads elsewhere by now, or cannot be written.
    pub fn lead_ref(&self, name: &str, old: Option<CommitId>, new: CommitId) -> Result<(), StoreError> {
        let message = "regraft";
        match old {
            Some(old) => self.repo.reference_matching(name, new.oid(), true, old.oid(), message).map(drop),
            None => self.repo.reference(name, new.oid(), false, message).map(drop),
        }
        .map_err(|e| failed(format!("let `{name}` lead to {new}"), e))
    }

    /// Copies a tree, with everything in it, into `other`.
    ///
    /// # Errors
    /// When an object is missing or cannot be written.
    pub fn copy_tree_to(&self, tree: TreeId, other: &Store) -> Result<(), StoreError> {
        let doing = || format!("copy tree {tree} to {}", other.path().display());
        let copy = || -> Result<(), git2::Error> {
            let (from, to) = (self.repo.odb()?, other.repo.odb()?);
            let mut todo = vec![tree.oid()];
            while let Some(id) = todo.pop() {
                if to.exists(id) {
                    continue;
                }
                let object = from.read(id)?;
                to.write(object.kind(), object.data())?;
                if object.kind() == git2::ObjectType::Tree {
                    for entry in &self.repo.find_tree(id)? {
                        // A submodule's commit lies in another repository.
                        if entry.kind() != Some(git2::ObjectType::Commit) {
                            todo.push(entry.id());
                        }
                    }
                }
            }
            Ok(())
        };
        copy().map_err(|e| failed(doing(), e))
    }
}
