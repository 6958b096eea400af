//! Identities: canonical JSON and hashes of texts, files and folders. Equal inputs give equal digests on every machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::tools::archive::file_sha256;

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}

/// JSON with sorted keys and no white space: one text for equal values.
pub fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let entry = |(key, value): &(&String, &Value)| {
                format!("{}:{}", Value::String((*key).clone()), canonical_json(value))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical_json).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

/// The digest of `inputs` in a provenance: SHA-256 over [`canonical_json`].
pub fn digest_of(inputs: &Value) -> String {
    sha256_hex(canonical_json(inputs).as_bytes())
}

/// Every file below `folder`, as sorted relative paths; folders named in `skip` (at any depth) are left out.
pub fn files_below(folder: &Path, skip: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if !entry.file_type()?.is_dir() {
                files.push(path);
            } else if !skip.iter().any(|s| entry.file_name() == *s) {
                open.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The digest of a folder: [`files_digest`] of every file below it.
pub fn folder_digest(folder: &Path, skip: &[&str]) -> io::Result<String> {
    files_digest(folder, &files_below(folder, skip)?)
}

/// The digest of some files of a folder: over the list of relative paths and file hashes.
pub fn files_digest(folder: &Path, files: &[PathBuf]) -> io::Result<String> {
    let mut list = String::new();
    for file in files {
        list.push_str(&format!("{}  {}\n", file_sha256(&folder.join(file))?, file.display()));
    }
    Ok(sha256_hex(list.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_the_order_of_items_does() {
        let a = json!({"b": [1, 2], "a": {"y": null, "x": "é\n"}});
        let b = json!({"a": {"x": "é\n", "y": null}, "b": [1, 2]});
        assert_eq!(canonical_json(&a), "{\"a\":{\"x\":\"é\\n\",\"y\":null},\"b\":[1,2]}");
        assert_eq!(digest_of(&a), digest_of(&b));
        assert_ne!(digest_of(&a), digest_of(&json!({"b": [2, 1], "a": {"y": null, "x": "é\n"}})));
    }

    #[test]
    fn a_folder_digest_sees_content_and_names_and_skips_build_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/main.rs", "fn main() {}");
        let digest = || folder_digest(dir.path(), &["target"]).unwrap();
        let first = digest();
        write("target/junk", "x");
        assert_eq!(digest(), first);
        write("src/main.rs", "fn main() { }");
        let second = digest();
        assert_ne!(second, first);
        fs::rename(dir.path().join("src/main.rs"), dir.path().join("src/lib.rs")).unwrap();
        assert_ne!(digest(), second);
    }
}
