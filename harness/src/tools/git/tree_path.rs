//! Paths inside a tree as raw bytes, with git's C-style quoting, and the check that keeps a hostile path from leaving
//! the tree or touching `.git`.

use std::fmt;

/// A path relative to a tree's root: `/` between parts, any other bytes, not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why bytes are not an acceptable [`TreePath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path `{path}` {why}")]
pub struct BadPath {
    /// The path, quoted where it holds unusual bytes.
    pub path: String,
    /// What is wrong with it, as the rest of a sentence.
    pub why: &'static str,
}

impl TreePath {
    /// Accepts a path that stays inside the tree.
    ///
    /// # Errors
    /// On empty, absolute and climbing paths, on NUL bytes, and on any part that file systems may take for `.git`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let path = Self(bytes.into());
        match path.fault() {
            None => Ok(path),
            Some(why) => Err(BadPath { path: path.to_string(), why }),
        }
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Everything before the last `/`; empty at the root.
    pub fn parent(&self) -> &[u8] {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => &self.0[..at],
            None => &[],
        }
    }

    fn fault(&self) -> Option<&'static str> {
        if self.0.is_empty() {
            return Some("is empty");
        }
        if self.0.contains(&0) {
            return Some("holds a NUL byte");
        }
        self.0.split(|&byte| byte == b'/').find_map(|part| match part {
            b"" => Some("is absolute or has an empty part"),
            b"." | b".." => Some("leaves the tree or names itself"),
            part if is_dot_git(part) => Some("touches a `.git` folder"),
            _ => None,
        })
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => f.write_str(&String::from_utf8_lossy(&quote(&self.0))),
        }
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

/// Reads a C-style quoted name at the start of `bytes`; gives the name and how many bytes it took, quotes included.
pub fn unquote(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let mut at = 1;
    if bytes.first() != Some(&b'"') {
        return None;
    }
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            b'"' => return Some((name, at)),
            b'\\' => {
                let escape = *bytes.get(at)?;
                at += 1;
                name.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => escape,
                    b'0'..=b'3' => {
                        let digits = [escape, *bytes.get(at)?, *bytes.get(at + 1)?];
                        at += 2;
                        digits.iter().try_fold(0u8, |sum, digit| match digit {
                            b'0'..=b'7' => Some((sum << 3) | (digit - b'0')),
                            _ => None,
                        })?
                    }
                    _ => return None,
                });
            }
            plain => name.push(plain),
        }
    }
}

/// Writes a name the way git does under `core.quotePath`: in double quotes, with octal escapes.
pub fn quote(name: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in name {
        match byte {
            7 => quoted.extend(b"\\a"),
            8 => quoted.extend(b"\\b"),
            b'\t' => quoted.extend(b"\\t"),
            b'\n' => quoted.extend(b"\\n"),
            11 => quoted.extend(b"\\v"),
            12 => quoted.extend(b"\\f"),
            b'\r' => quoted.extend(b"\\r"),
            b'"' | b'\\' => quoted.extend([b'\\', byte]),
            0..=31 | 127.. => quoted.extend(format!("\\{byte:03o}").into_bytes()),
            plain => quoted.push(plain),
        }
    }
    quoted.push(b'"');
    quoted
}

/// `.git` under the foldings of HFS+ (ignored code points) and NTFS (short name, trailing dots and spaces, streams).
fn is_dot_git(part: &[u8]) -> bool {
    // Plain letters fold to no others, so most names are told by their first.
    if part.is_ascii() && !matches!(part.first(), Some(b'.' | b'g' | b'G')) {
        return false;
    }
    let visible: String = String::from_utf8_lossy(part)
        .chars()
        .filter(|c| !matches!(*c as u32, 0x200c..=0x200f | 0x202a..=0x202e | 0x206a..=0x206f | 0xfeff))
        .flat_map(char::to_lowercase)
        .collect();
    let stem = visible.split([':', '\\']).next().unwrap_or_default().trim_end_matches(['.', ' ']);
    matches!(stem, ".git" | "git~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_tree_or_touch_git_are_refused() {
        for bad in [
            "",
            "/etc/passwd",
            "a//b",
            "../x",
            "a/../b",
            "a/./b",
            ".git/config",
            "a/.GIT/x",
            ".git./x",
            "git~1",
            "a/.git ",
            ".git::$INDEX_ALLOCATION/x",
            ".g\u{200c}it/x",
            "a/",
        ] {
            assert!(TreePath::new(bad).is_err(), "{bad} was accepted");
        }
        for good in ["a", ".github/x", ".gitignore", "git", "a b/\u{e9}"] {
            assert!(TreePath::new(good).is_ok(), "{good} was refused");
        }
    }

    #[test]
    fn quoting_round_trips_every_byte() {
        let name: Vec<u8> = (1..=255).collect();
        let quoted = quote(&name);
        assert_eq!(unquote(&quoted), Some((name, quoted.len())));
        assert_eq!(unquote(b"\"\\303\\251\" tail"), Some((vec![0xc3, 0xa9], 10)));
        assert_eq!(unquote(b"\"open"), None);
    }
}
