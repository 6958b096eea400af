//! Refs of the bare cache that this program owns: read, and moved only from where they were last seen.

use std::{fs, io, path::Path};

use git2::ErrorCode;

use super::{
    ids::CommitId,
    store::{Store, StoreError, failed},
};

/// What became of a wish to move a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefMove {
    /// It leads to the new commit.
    Done,
    /// It does not lead to where it was expected to, and was left alone.
    Elsewhere {
        /// Where it leads to; `None` when it is not there.
        found: Option<CommitId>,
    },
}

impl Store {
    /// The commit that a ref leads to; `None` when there is no such ref.
    ///
    /// # Errors
    /// When the ref cannot be read or leads to no commit.
    pub fn reference(&self, name: &str) -> Result<Option<CommitId>, StoreError> {
        let found = self.repo.find_reference(name).and_then(|reference| reference.peel_to_commit());
        match found {
            Ok(commit) => Ok(Some(CommitId::of(commit.id()))),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(failed(format!("read ref {name}"), error)),
        }
    }

    /// Moves a ref from `expected` (`None`: it is not there yet) to `to`. One that leads to `to` already is done.
    ///
    /// # Errors
    /// When the name is refused or the disk says no.
    pub fn move_ref(
        &self,
        name: &str,
        expected: Option<CommitId>,
        to: CommitId,
    ) -> Result<RefMove, StoreError> {
        let made = match expected {
            Some(expected) => self.repo.reference_matching(name, to.oid(), true, expected.oid(), ""),
            None => self.repo.reference(name, to.oid(), false, ""),
        };
        match made {
            Ok(_) => Ok(RefMove::Done),
            Err(error)
                if matches!(error.code(), ErrorCode::Modified | ErrorCode::Exists | ErrorCode::NotFound) =>
            {
                match self.reference(name)? {
                    Some(found) if found == to => Ok(RefMove::Done),
                    found if found == expected => Err(failed(format!("move ref {name} to {to}"), error)),
                    found => Ok(RefMove::Elsewhere { found }),
                }
            }
            Err(error) => Err(failed(format!("move ref {name} to {to}"), error)),
        }
    }

    /// Takes away the lock files below a ref folder that a killed process left behind. Only for folders whose refs one
    /// process at a time moves.
    ///
    /// # Errors
    /// When a folder cannot be listed or a lock not be removed.
    pub fn sweep_ref_locks(&self, prefix: &str) -> io::Result<()> {
        sweep(&self.path().join(prefix))
    }
}

fn sweep(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            sweep(&path)?;
        } else if path.extension().is_some_and(|ending| ending == "lock") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn a_ref_moves_only_from_where_it_was_seen() {
        let fixture = ForkFixture::new(&[("f", "a\n")]).advance("b", &[("f", Some("b\n"))]);
        let (one, two) = (fixture.upstream[0], fixture.upstream[1]);
        let store = &fixture.store;
        let name = "refs/heads/regraft/f/x";
        assert_eq!(store.reference(name).unwrap(), None);
        let moves = [
            (None, one, RefMove::Done),
            (None, one, RefMove::Done),
            (None, two, RefMove::Elsewhere { found: Some(one) }),
            (Some(two), one, RefMove::Done),
            (Some(one), two, RefMove::Done),
            (Some(one), one, RefMove::Elsewhere { found: Some(two) }),
        ];
        for (expected, to, outcome) in moves {
            assert_eq!(store.move_ref(name, expected, to).unwrap(), outcome, "{expected:?} {to}");
        }
        let gone = store.move_ref("refs/heads/regraft/f/y", Some(one), two).unwrap();
        assert_eq!(gone, RefMove::Elsewhere { found: None });
        fs::write(store.path().join("refs/heads/regraft/f/x.lock"), "").unwrap();
        assert!(store.move_ref(name, Some(two), one).is_err());
        store.sweep_ref_locks("refs/heads/regraft").unwrap();
        assert_eq!(store.move_ref(name, Some(two), one).unwrap(), RefMove::Done);
    }
}
