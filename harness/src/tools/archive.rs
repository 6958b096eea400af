//! Unpacks published archives: `.crate` files and wheels. What they hold is hostile until checked: nothing is written
//! outside the target folder, links are refused, and sizes are bounded.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::file;

/// The most that one archive may unpack to, in bytes; the largest that is used unpacks to a tenth of it.
const MAX_UNPACKED_BYTES: u64 = 8 << 30;

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file could not be read or written.
    #[error("cannot unpack `{}` at `{}`", .archive.display(), .path.display())]
    Io {
        /// The archive.
        archive: PathBuf,
        /// What was being read or written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The archive is damaged.
    #[error("`{}` is not a readable archive", .archive.display())]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// What the reader said.
        #[source]
        source: zip::result::ZipError,
    },
    /// An entry would be written outside the target folder, is a link, or makes the whole too large.
    #[error("`{}` holds `{entry}`, {why}", .archive.display())]
    Refused {
        /// The archive.
        archive: PathBuf,
        /// The entry's name.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The SHA-256 of a file, in hexadecimal.
pub fn file_sha256(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = file::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(base16ct::lower::encode_string(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// Unpacks a `.crate` file (a gzipped tar) into `target`, without the `name-version/` folder that holds everything.
/// Modification times are kept, so that an unpacked copy never looks newer than what was built from it.
pub fn unpack_crate(archive: &Path, target: &Path) -> Result<(), ArchiveError> {
    let io_error =
        |path: &Path, source| ArchiveError::Io { archive: archive.to_owned(), path: path.to_owned(), source };
    let refused = |entry: &Path, why| ArchiveError::Refused {
        archive: archive.to_owned(),
        entry: entry.display().to_string(),
        why,
    };
    let file = file::open(archive).map_err(|e| io_error(archive, e))?;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut left = MAX_UNPACKED_BYTES;
    for entry in tar.entries().map_err(|e| io_error(archive, e))? {
        let mut entry = entry.map_err(|e| io_error(archive, e))?;
        let name = entry.path().map_err(|e| io_error(archive, e))?.into_owned();
        let inner =
            plain_relative(&name).ok_or_else(|| refused(&name, "a path that leaves the target folder"))?;
        let inner: PathBuf = inner.components().skip(1).collect();
        let kind = entry.header().entry_type();
        if kind.is_dir() || inner.as_os_str().is_empty() {
            continue;
        }
        if !kind.is_file() {
            return Err(refused(&name, "neither a file nor a folder"));
        }
        left = left.checked_sub(entry.size()).ok_or_else(|| refused(&name, "too much to unpack"))?;
        let path = target.join(&inner);
        create_parent(&path).map_err(|e| io_error(&path, e))?;
        entry.unpack(&path).map_err(|e| io_error(&path, e))?;
    }
    Ok(())
}

/// Unpacks a wheel (a zip file) into `target`.
pub fn unpack_wheel(archive: &Path, target: &Path) -> Result<(), ArchiveError> {
    let io_error =
        |path: &Path, source| ArchiveError::Io { archive: archive.to_owned(), path: path.to_owned(), source };
    let damaged = |source| ArchiveError::Damaged { archive: archive.to_owned(), source };
    let file = file::open(archive).map_err(|e| io_error(archive, e))?;
    let mut zip = zip::ZipArchive::new(file).map_err(damaged)?;
    let mut left = MAX_UNPACKED_BYTES;
    for index in 0..zip.len() {
        let entry = zip.by_index(index).map_err(damaged)?;
        let name = entry.name().map_err(damaged)?.into_owned();
        let refused = |why| ArchiveError::Refused { archive: archive.to_owned(), entry: name.clone(), why };
        let inner = plain_relative(Path::new(&name))
            .ok_or_else(|| refused("a path that leaves the target folder"))?;
        if entry.is_dir() {
            continue;
        }
        if !entry.is_file() {
            return Err(refused("neither a file nor a folder"));
        }
        left = left.checked_sub(entry.size()).ok_or_else(|| refused("too much to unpack"))?;
        let path = target.join(&inner);
        create_parent(&path).map_err(|e| io_error(&path, e))?;
        let mut out = File::create(&path).map_err(|e| io_error(&path, e))?;
        // The size in the directory is a claim; copy no more than it.
        let size = entry.size();
        io::copy(&mut entry.take(size), &mut out).map_err(|e| io_error(&path, e))?;
    }
    Ok(())
}

/// `path`, if it is made of plain names only.
fn plain_relative(path: &Path) -> Option<PathBuf> {
    path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)).then(|| path.to_owned())
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn crate_with(entries: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.crate");
        let gz = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gz);
        for (name, text) in entries {
            let mut header = tar::Header::new_gnu();
            // `set_path` refuses what we want to refuse ourselves.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(1_000_000_000);
            header.set_cksum();
            tar.append(&header, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        (dir, path)
    }

    #[test]
    fn a_crate_unpacks_without_its_outer_folder_and_keeps_its_times() {
        let (dir, archive) =
            crate_with(&[("x-1.0.0/Cargo.toml", "[package]"), ("x-1.0.0/src/lib.rs", "//! x")]);
        let target = dir.path().join("out");
        unpack_crate(&archive, &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("src/lib.rs")).unwrap(), "//! x");
        let modified = fs::metadata(target.join("Cargo.toml")).unwrap().modified().unwrap();
        assert_eq!(crate::tools::clock::rfc3339(modified), "2001-09-09T01:46:40Z");
    }

    #[test]
    fn a_crate_that_writes_elsewhere_is_refused() {
        let (dir, archive) = crate_with(&[("x-1.0.0/../../evil", "!")]);
        let error = unpack_crate(&archive, &dir.path().join("out")).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("a.crate` holds `x-1.0.0/../../evil`, a path that leaves the target folder"),
            "{error}"
        );
    }

    #[test]
    fn a_wheel_unpacks_and_a_truncated_one_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        zip.start_file("pkg/lib/a.so", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(b"binary").unwrap();
        zip.finish().unwrap();
        unpack_wheel(&path, &dir.path().join("out")).unwrap();
        assert_eq!(fs::read(dir.path().join("out/pkg/lib/a.so")).unwrap(), b"binary");

        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let error = unpack_wheel(&path, &dir.path().join("half")).unwrap_err();
        assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
    }

    #[test]
    fn the_hash_of_a_file_is_plain_sha256() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(file_sha256(&path).unwrap(), expected);
    }
}
