//! Content-addressed folders that are either whole or absent: made beside their place and renamed into it, or made in
//! place under a marker that is written last. A process killed in between leaves only what the next one clears away.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// Whether something had to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was there already.
    Reused,
    /// It was made now.
    New,
}

impl Made {
    /// One word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reused => "cached",
            Self::New => "made",
        }
    }
}

/// A folder or file of the store could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{}`", .path.display())]
pub struct StoreError {
    /// What was being done.
    pub doing: &'static str,
    /// To what.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl StoreError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Some("make room on the disk (`cargo xtask doctor` says how much), then run the same command again".to_owned())
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Some("`target/` and the cache folder must be writable; REGRAFT_CACHE_DIR names another cache folder".to_owned())
            }
            _ => None,
        }
    }

    /// For `map_err`: what was being done to which path.
    pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }
}

/// Leaves `folder` as it is if it exists; otherwise lets `make` fill an empty folder beside it, which then takes its
/// name. After an error nothing is left.
pub fn folder_once<E: From<StoreError>>(
    folder: &Path,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<Made, E> {
    if folder.is_dir() {
        return Ok(Made::Reused);
    }
    let staging = beside(folder);
    fs::create_dir_all(&staging).map_err(StoreError::at("make", &staging))?;
    let renamed = make(&staging).and_then(|()| {
        fs::rename(&staging, folder).map_err(|e| StoreError::at("put in place", folder)(e).into())
    });
    if renamed.is_err() {
        let _ = fs::remove_dir_all(&staging);
    }
    renamed.map(|()| Made::New)
}

/// Whether this is a folder with nothing in it.
pub fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Writes a file so that it holds either its old or its whole new content.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(StoreError::at("make", parent))?;
    }
    let staging = beside(path);
    let written = fs::write(&staging, content).and_then(|()| fs::rename(&staging, path));
    if written.is_err() {
        let _ = fs::remove_file(&staging);
    }
    written.map_err(StoreError::at("write", path))
}

/// Copies a file, with its permissions, so that `to` is either absent, old, or whole.
pub fn copy_whole(from: &Path, to: &Path) -> Result<(), StoreError> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(StoreError::at("make", parent))?;
    }
    let staging = beside(to);
    let copied = fs::copy(from, &staging).and_then(|_| fs::rename(&staging, to));
    if copied.is_err() {
        let _ = fs::remove_file(&staging);
    }
    copied.map_err(StoreError::at("copy to", to))
}

/// Removes a folder, so that one that is half removed is never taken for whole.
pub fn remove_whole(folder: &Path) -> Result<(), StoreError> {
    let aside = beside(folder);
    let removed = fs::rename(folder, &aside).and_then(|()| fs::remove_dir_all(&aside));
    removed.map_err(StoreError::at("clear away", folder))
}

/// Removes what dead processes left half made of `folder` beside it, where others may be at work.
pub fn clear_leftovers_of(folder: &Path) -> Result<(), StoreError> {
    let Some(Ok(entries)) = folder.parent().map(fs::read_dir) else { return Ok(()) };
    let begins = format!("{}{STAGING}", folder.file_name().unwrap_or_default().to_string_lossy());
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(&begins).and_then(|rest| rest.split('-').next()?.parse().ok());
        if let Some(maker) = maker.and_then(Pid::from_raw)
            && test_kill_process(maker) == Err(Errno::SRCH)
        {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(StoreError::at("clear away", &path))?;
        }
    }
    Ok(())
}

/// Removes what killed processes left half made in `folder`. Only for a caller that holds the folder's lock.
pub fn clear_leftovers(folder: &Path) -> Result<(), StoreError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().contains(STAGING) {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(StoreError::at("clear away", &path))?;
        }
    }
    Ok(())
}

const STAGING: &str = ".unfinished-";

/// A name beside `path` that no other process and no other call uses.
fn beside(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(
        "{name}{STAGING}{}-{}",
        process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let make = |text: &'static str| {
            move |at: &Path| fs::write(at.join("f"), text).map_err(StoreError::at("write", at))
        };
        assert_eq!(folder_once(&folder, make("one")).unwrap(), Made::New);
        assert_eq!(folder_once(&folder, make("two")).unwrap(), Made::Reused);
        assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "one");
    }

    #[test]
    fn a_failure_half_way_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x");
        let failed = folder_once(&folder, |at| {
            fs::write(at.join("half"), "").unwrap();
            Err(StoreError { doing: "write", path: at.to_owned(), source: io::ErrorKind::StorageFull.into() })
        });
        assert!(failed.unwrap_err().hint().unwrap().contains("make room"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_what_dead_processes_left_of_a_folder_is_removed_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x");
        let mine = beside(&folder);
        // No process has a number above 2^22.
        let (dead, other) =
            (dir.path().join("x.unfinished-4194399-0"), dir.path().join("y.unfinished-4194399-0"));
        for path in [&folder, &mine, &dead, &other] {
            fs::create_dir(path).unwrap();
        }
        clear_leftovers_of(&folder).unwrap();
        assert!(folder.exists() && mine.exists() && other.exists() && !dead.exists());
        remove_whole(&folder).unwrap();
        assert!(!folder.exists() && fs::read_dir(dir.path()).unwrap().count() == 2);
    }

    #[test]
    fn what_a_killed_process_left_is_cleared_and_never_taken_for_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x");
        let half = beside(&folder);
        fs::create_dir(&half).unwrap();
        fs::write(half.join("half"), "").unwrap();
        assert_eq!(folder_once::<StoreError>(&folder, |_| Ok(())).unwrap(), Made::New);
        assert!(!folder.join("half").exists());
        clear_leftovers(dir.path()).unwrap();
        assert!(!half.exists() && folder.exists());
    }
}
