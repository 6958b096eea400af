//! The hashed requirement files of `harness/provision`: which entries they hold, and single entries as files of their
//! own. What they mean beyond name, version and text is pip's.

use crate::build::digest::sha256_hex;

/// One entry of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The package's name, as written.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// The entry's lines, as pip reads them.
    pub text: String,
}

impl Requirement {
    /// The entry's identity: the SHA-256 of its text, in hexadecimal.
    pub fn digest(&self) -> String {
        sha256_hex(self.text.as_bytes())
    }

    /// Whether the entry has a version and hashes, each of them whole: 64 hexadecimal digits.
    pub fn is_pinned(&self) -> bool {
        let mut hashes =
            self.text.split_whitespace().filter_map(|word| word.strip_prefix("--hash=")).peekable();
        let is_whole = |hash: &str| {
            hash.strip_prefix("sha256:")
                .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
        };
        !self.version.is_empty() && hashes.peek().is_some() && hashes.all(is_whole)
    }

    /// Whether `sha256` is one of the hashes that the entry allows.
    pub fn allows(&self, sha256: &str) -> bool {
        self.text.contains(&format!("--hash=sha256:{sha256}"))
    }
}

/// The entries of a lock, in order; comments, and lines that pin no version, are left out.
pub fn requirements(lock: &str) -> Vec<Requirement> {
    let mut entries: Vec<Requirement> = Vec::new();
    let mut continued = false;
    for line in lock.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('#') || trimmed.is_empty() {
            continued = false;
            continue;
        }
        if continued {
            if let Some(entry) = entries.last_mut() {
                entry.text.push_str(line);
                entry.text.push('\n');
            }
        } else if let Some((name, rest)) = trimmed.split_once("==") {
            let version = rest.split([' ', ';', '\\']).next().unwrap_or_default();
            entries.push(Requirement {
                name: name.trim().to_owned(),
                version: version.to_owned(),
                text: format!("{line}\n"),
            });
        }
        continued = trimmed.ends_with('\\');
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_hashes_and_versions_of_one_package_stay_apart() {
        let lock = "# made by\na==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\na==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:cc\n";
        let entries = requirements(lock);
        let seen: Vec<_> =
            entries.iter().map(|e| (e.name.as_str(), e.version.as_str(), e.text.lines().count())).collect();
        assert_eq!(seen, [("a", "1.0", 3), ("a", "2.0", 2)]);
        assert!(entries[0].allows("bb") && !entries[0].allows("cc"));
        assert_ne!(entries[0].digest(), entries[1].digest());
    }

    #[test]
    fn an_entry_is_pinned_by_a_version_and_whole_hashes() {
        let hash = "0a".repeat(32);
        for (lock, pinned) in [
            (format!("a==1 --hash=sha256:{hash}"), true),
            (format!("a==1 \\\n  --hash=sha256:{hash} \\\n  --hash=sha256:{hash}"), true),
            ("a==1".to_owned(), false),
            ("a==1 --hash=sha256:97".to_owned(), false),
            (format!("a==1 --hash=sha256:{hash} --hash=md5:{hash}"), false),
            (format!("a==  --hash=sha256:{hash}"), false),
        ] {
            assert_eq!(requirements(&lock)[0].is_pinned(), pinned, "{lock}");
        }
    }

    #[test]
    fn the_locks_of_this_repository_are_hashed_throughout_and_name_no_index() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("provision");
        for name in ["reference.lock", "models.lock", "wheels.lock"] {
            let lock = std::fs::read_to_string(folder.join(name)).unwrap();
            let entries = requirements(&lock);
            assert!(!entries.is_empty(), "{name}");
            assert!(entries.iter().all(Requirement::is_pinned), "{name}");
            assert!(!lock.contains("://"), "{name}");
        }
    }
}
