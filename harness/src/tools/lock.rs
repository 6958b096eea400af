//! A lock between processes: held as long as the value lives, released by the system when its process dies.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

/// An exclusive lock on a file.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// The lock file could not be made or locked.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock `{}`", .path.display())]
pub struct LockError {
    /// The lock file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// The lock that whoever measures a model holds, on the whole machine and for every user of it.
pub fn model_lock_path() -> PathBuf {
    // Not the user's own temporary folder, which others do not share.
    PathBuf::from("/tmp/regraft-one-model.lock")
}

impl FileLock {
    /// Waits until no other process holds `path`; `on_wait` is called once if somebody does.
    pub fn acquire(path: &Path, on_wait: impl FnOnce()) -> Result<Self, LockError> {
        let failed = |source| LockError { path: path.to_owned(), source };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        let file = match OpenOptions::new().create(true).append(true).open(path) {
            // Somebody else's file can still be locked.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path),
            opened => opened,
        }
        .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                on_wait();
                file.lock().map_err(failed)?;
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use super::*;

    #[test]
    fn a_second_holder_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/lock");
        let first = FileLock::acquire(&path, || panic!("nobody holds it yet")).unwrap();
        let (waited, released) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _lock = FileLock::acquire(&path, || waited.store(true, Ordering::SeqCst)).unwrap();
                assert!(released.load(Ordering::SeqCst), "taken while it was held");
            });
            while !waited.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            released.store(true, Ordering::SeqCst);
            drop(first);
            second.join().unwrap();
        });
    }
}
