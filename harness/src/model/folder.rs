//! Content-addressed model folders: made once in a temporary folder, moved into place, checked ever after.
//! Knows nothing about what is inside them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ModelError;
use crate::tools::{archive::file_sha256, lock::FileLock};

/// The file that says what the folder holds.
pub const MANIFEST: &str = "regraft-model.json";

/// The file that says that the folder is finished; it holds the manifest's SHA-256.
pub const COMPLETE: &str = ".complete";

/// What a finished folder holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file's shape.
    pub schema: u32,
    /// The model's name in the matrix.
    pub name: String,
    /// SHA-256 of everything that determines the folder, in hexadecimal.
    pub digest: String,
    /// What a person wants to know about the model in one line.
    pub summary: String,
    /// `model_type` of `config.json`.
    pub model_type: String,
    /// The length of a logits row.
    pub vocab_size: usize,
    /// The ids that end a reply.
    pub eos_ids: Vec<u32>,
    /// Every other file, by its name.
    pub files: BTreeMap<String, FileRecord>,
}

/// The version of [`Manifest`] that this code writes and accepts.
pub const MANIFEST_SCHEMA: u32 = 1;

/// What a file must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its size.
    pub size_bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// How thoroughly a finished folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The manifest's hash, and the size of every file: milliseconds.
    Sizes,
    /// Also the hash of every file: about a second for half a gigabyte.
    Hashes,
}

/// What stands where a model folder should be.
#[derive(Debug)]
pub enum Found {
    /// A finished folder, as its manifest says.
    Sound(Manifest),
    /// Nothing.
    Nothing,
    /// A folder that may not be used.
    Damaged {
        /// Which file differs, and how.
        problem: String,
    },
}

/// Looks at a model folder and changes nothing.
///
/// # Errors
/// [`ModelError::Io`] when the folder is there and cannot be read.
pub fn inspect(folder: &Path, check: Check) -> Result<Found, ModelError> {
    if !folder.try_exists().map_err(io_error("read", folder))? {
        return Ok(Found::Nothing);
    }
    let damaged = |problem: String| Ok(Found::Damaged { problem });
    let (Some(manifest), Some(complete)) =
        (read_small(&folder.join(MANIFEST))?, read_small(&folder.join(COMPLETE))?)
    else {
        return damaged(format!("it has no {MANIFEST} or no {COMPLETE}, so it was never finished"));
    };
    if sha256(&manifest).as_bytes() != complete.trim_ascii() {
        return damaged(format!("{MANIFEST} is not what {COMPLETE} says"));
    }
    let manifest: Manifest = match serde_json::from_slice(&manifest) {
        Ok(manifest) => manifest,
        Err(e) => return damaged(format!("{MANIFEST} cannot be understood: {e}")),
    };
    if manifest.schema != MANIFEST_SCHEMA {
        return damaged(format!("{MANIFEST} has schema {}, expected {MANIFEST_SCHEMA}", manifest.schema));
    }
    for (name, record) in &manifest.files {
        let path = folder.join(name);
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return damaged(format!("{name} is missing")),
            Err(e) => return Err(io_error("read", &path)(e)),
        };
        if size != record.size_bytes {
            return damaged(format!("{name} has {size} bytes, expected {}", record.size_bytes));
        }
        if check == Check::Hashes && record_file(&path)?.sha256 != record.sha256 {
            return damaged(format!("{name} has another SHA-256 than when it was made"));
        }
    }
    Ok(Found::Sound(manifest))
}

/// Makes `root/folder_name`: `fill` writes files into an empty temporary folder and says what they are, and the whole
/// is moved into place at once. Killed at any moment, it leaves only a temporary folder, which the next call removes.
///
/// A folder that is already there is replaced: the caller has found it damaged. The caller holds the [`lock`].
///
/// # Errors
/// Whatever `fill` says, and [`ModelError::Io`].
pub fn make(
    root: &Path,
    folder_name: &str,
    fill: impl FnOnce(&Path) -> Result<Manifest, ModelError>,
) -> Result<Manifest, ModelError> {
    let prefix = format!(".{folder_name}.making-");
    remove_leftovers(root, &prefix)?;
    let making = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(root)
        .map_err(io_error("make a folder in", root))?;

    let mut manifest = fill(making.path())?;
    manifest.files = record_files(making.path())?;
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    write(&making.path().join(MANIFEST), &text)?;
    write(&making.path().join(COMPLETE), sha256(&text).as_bytes())?;

    let place = root.join(folder_name);
    match fs::remove_dir_all(&place) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &place)(e)),
        _ => {}
    }
    fs::rename(making.path(), &place).map_err(io_error("move a finished model to", &place))?;
    // The folder has moved away: there is nothing left to remove.
    let _ = making.keep();
    Ok(manifest)
}

/// Waits until no other process makes `root/folder_name`, and keeps others waiting as long as the lock lives.
///
/// # Errors
/// [`ModelError::Lock`].
pub fn lock(root: &Path, folder_name: &str, on_wait: impl FnOnce()) -> Result<FileLock, ModelError> {
    Ok(FileLock::acquire(&root.join(format!(".{folder_name}.lock")), on_wait)?)
}

/// Size and SHA-256 of a file.
///
/// # Errors
/// [`ModelError::Io`].
pub fn record_file(path: &Path) -> Result<FileRecord, ModelError> {
    let size_bytes = fs::metadata(path).map_err(io_error("read", path))?.len();
    let sha256 = file_sha256(path).map_err(io_error("read", path))?;
    Ok(FileRecord { size_bytes, sha256 })
}

/// Writes a whole file.
///
/// # Errors
/// [`ModelError::Io`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    fs::write(path, bytes).map_err(io_error("write", path))
}

/// The SHA-256 of bytes in memory, in hexadecimal.
#[must_use]
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}

/// Wraps what the system said about a path.
pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> ModelError {
    let path: PathBuf = path.to_owned();
    move |source| ModelError::Io { doing, path: path.clone(), source }
}

fn record_files(folder: &Path) -> Result<BTreeMap<String, FileRecord>, ModelError> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let entry = entry.map_err(io_error("read", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, record_file(&entry.path())?);
    }
    Ok(files)
}

fn remove_leftovers(root: &Path, prefix: &str) -> Result<(), ModelError> {
    for entry in fs::read_dir(root).map_err(io_error("read", root))? {
        let entry = entry.map_err(io_error("read", root))?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path()).map_err(io_error("remove", &entry.path()))?;
        }
    }
    Ok(())
}

fn read_small(path: &Path) -> Result<Option<Vec<u8>>, ModelError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error("read", path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            schema: MANIFEST_SCHEMA,
            name: "m".to_owned(),
            digest: "d".to_owned(),
            summary: String::new(),
            model_type: "llama".to_owned(),
            vocab_size: 3,
            eos_ids: vec![0],
            files: BTreeMap::new(),
        }
    }

    fn made() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        make(root.path(), "m-1", |folder| {
            write(&folder.join("weights"), b"0123456789")?;
            Ok(manifest())
        })
        .unwrap();
        let folder = root.path().join("m-1");
        (root, folder)
    }

    fn problem(folder: &Path, check: Check) -> Option<String> {
        match inspect(folder, check).unwrap() {
            Found::Sound(_) => None,
            Found::Nothing => Some("nothing".to_owned()),
            Found::Damaged { problem } => Some(problem),
        }
    }

    #[test]
    fn a_finished_folder_is_sound_and_records_its_files() {
        let (_root, folder) = made();
        let Found::Sound(found) = inspect(&folder, Check::Hashes).unwrap() else { panic!("not sound") };
        assert_eq!(found.files["weights"].size_bytes, 10);
        assert_eq!(found.files.len(), 1);
    }

    #[test]
    fn damage_is_found_and_named() {
        type Damage = fn(&Path);
        let cases: [(Damage, Check, &str); 5] = [
            (
                |f| write(&f.join("weights"), b"01234").unwrap(),
                Check::Sizes,
                "weights has 5 bytes, expected 10",
            ),
            (|f| fs::remove_file(f.join("weights")).unwrap(), Check::Sizes, "weights is missing"),
            (
                |f| write(&f.join("weights"), b"012345678X").unwrap(),
                Check::Hashes,
                "weights has another SHA-256",
            ),
            (|f| write(&f.join(MANIFEST), b"{}").unwrap(), Check::Sizes, "is not what .complete says"),
            (|f| fs::remove_file(f.join(COMPLETE)).unwrap(), Check::Sizes, "never finished"),
        ];
        for (damage, check, expected) in cases {
            let (_root, folder) = made();
            assert_eq!(problem(&folder, check), None);
            damage(&folder);
            let found = problem(&folder, check).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_failed_making_leaves_nothing_and_a_killed_one_is_cleared_away() {
        let root = tempfile::tempdir().unwrap();
        let names = |root: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let killed = root.path().join(".m-1.making-x");
        fs::create_dir(&killed).unwrap();
        fs::create_dir(root.path().join(".m-2.making-x")).unwrap();
        let failed = make(root.path(), "m-1", |_| {
            Err(ModelError::Shape { model: "m".to_owned(), problem: "no".to_owned() })
        });
        assert!(failed.is_err());
        assert_eq!(names(root.path()), [".m-2.making-x"]);
        make(root.path(), "m-1", |_| Ok(manifest())).unwrap();
        assert_eq!(names(root.path()), [".m-2.making-x", "m-1"]);
    }

    #[test]
    fn a_damaged_folder_is_replaced() {
        let (root, folder) = made();
        fs::remove_file(folder.join(COMPLETE)).unwrap();
        make(root.path(), "m-1", |_| Ok(manifest())).unwrap();
        assert_eq!(problem(&folder, Check::Hashes), None);
        assert!(!folder.join("weights").exists());
    }
}
