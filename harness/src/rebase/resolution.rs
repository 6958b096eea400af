//! How a conflict was settled, kept by what the conflict *is*, so that the same conflict met elsewhere is settled the
//! same way. One small text file each, below `patches/<fork>/resolutions/`: a few `key: value` lines, an empty line,
//! and the body. Nothing here decides whether a replay is good; it is tested anew each time.

use std::{collections::BTreeMap, fmt, fs, io, path::Path, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sha2::{Digest as _, Sha256};

use super::{
    marks,
    text::{HunkHeaders, hunks, is_binary, lines},
};
use crate::{
    stack::{
        apply::applied,
        patch_file::{Body, Hunk, HunkLine, PatchFile, Side},
    },
    tools::{
        file::{self, Most},
        git::{
            ids::EntryId,
            store::{Entry, MODE_EXECUTABLE, MODE_FILE, MODE_LINK, MODE_SUBMODULE},
        },
    },
};

const FIRST_LINE: &str = "regraft-resolution 1";
const ENDING: &str = "resolution";

/// What a conflict is, as a hash: of every place's three sides for files with markers, so that neither the file's name
/// nor its other lines matter; of the three entries where the file as a whole is in question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConflictKey(String);

impl fmt::Display for ConflictKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ConflictKey {
    /// The key of a file with markers; `None` where there are none, or torn ones.
    pub fn of_marked(marked: &[u8]) -> Option<Self> {
        let blocks = marks::blocks(marked).filter(|blocks| !blocks.is_empty())?;
        let sides = blocks.iter().flat_map(|block| [&block.upstream[..], &block.before, &block.patch]);
        Some(Self::hashed("places", sides))
    }

    /// The key that a file with markers has for `git rerere`; `None` where there are none, or torn ones.
    pub fn of_rerere(marked: &[u8]) -> Option<Self> {
        let places = marks::rerere_form(marked)?.places;
        if places.is_empty() {
            return None;
        }
        Some(Self::hashed("rerere", places.iter().flatten().map(|side| &side[..])))
    }

    /// The key of a conflict about a file as a whole.
    pub fn of_entries(kind: &str, entries: [Option<Entry>; 3]) -> Self {
        let told = entries.map(|entry| match entry {
            Some(Entry { id, mode }) => format!("{mode:o} {id}"),
            None => "nothing".to_owned(),
        });
        let parts = [kind.as_bytes()].into_iter().chain(told.iter().map(|text| text.as_bytes()));
        Self::hashed("file", parts)
    }

    fn hashed<'b>(domain: &'b str, parts: impl Iterator<Item = &'b [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in [domain.as_bytes()].into_iter().chain(parts) {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(base16ct::lower::encode_string(&hasher.finalize()))
    }
}

/// How one conflict was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The conflict.
    pub key: ConflictKey,
    /// The path at which it was met, for people.
    pub path: String,
    /// The subject of the patch that met it, for people.
    pub patch: String,
    /// The upstream commit on which it was met, for people.
    pub onto: String,
    /// What to do.
    pub settled: Settled,
}

/// What a conflict becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The file with markers, edited: hunks from it to the resolved one.
    Edited {
        /// The resolved file's mode.
        mode: u32,
        /// The hunks.
        hunks: Vec<u8>,
    },
    /// Hunks from the form that `git rerere` keeps to the resolved file, which keeps its mode.
    Rerere {
        /// The hunks.
        hunks: Vec<u8>,
    },
    /// The path is gone.
    Deleted,
    /// A submodule at this commit.
    Submodule(EntryId),
    /// A file with these bytes, or a link to them.
    File {
        /// Its mode.
        mode: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// Why a file is no resolution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResolution {
    /// It begins with another line.
    #[error("it does not begin with `{FIRST_LINE}`")]
    FirstLine,
    /// A line of the head is missing or malformed.
    #[error("its line `{0}: …` is missing or malformed")]
    Line(&'static str),
    /// The body does not fit what the head says.
    #[error("its body is malformed")]
    Body,
}

/// Resolutions cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum ResolutionError {
    /// The disk.
    #[error("cannot read or write `{}`", .path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is none.
    #[error("`{}` is no resolution", .path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: BadResolution,
    },
}

impl Resolution {
    /// The file's bytes.
    pub fn render(&self) -> Vec<u8> {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        let (result, body) = match &self.settled {
            Settled::Edited { mode, hunks } => (format!("edited {mode:o}"), hunks.clone()),
            Settled::Rerere { hunks } => ("edited-rerere".to_owned(), hunks.clone()),
            Settled::Deleted => ("deleted".to_owned(), Vec::new()),
            Settled::Submodule(commit) => (format!("submodule {commit}"), Vec::new()),
            Settled::File { mode, bytes } if is_binary(bytes) => {
                let mut coded = BASE64.encode(bytes).into_bytes();
                coded.push(b'\n');
                (format!("base64 {mode:o}"), coded)
            }
            Settled::File { mode, bytes } => (format!("file {mode:o}"), bytes.clone()),
        };
        let head = format!(
            "{FIRST_LINE}\nconflict: {}\npath: {}\npatch: {}\nonto: {}\nresult: {result}\n\n",
            self.key,
            one_line(&self.path),
            one_line(&self.patch),
            one_line(&self.onto),
        );
        [head.into_bytes(), body].concat()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`BadResolution`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BadResolution> {
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").ok_or(BadResolution::Body)?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| BadResolution::FirstLine)?;
        let body = &bytes[end + 2..];
        let mut lines = head.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(BadResolution::FirstLine);
        }
        let values: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(": ")).collect();
        let value = |name: &'static str| values.get(name).copied().ok_or(BadResolution::Line(name));
        let key = value("conflict")?;
        if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadResolution::Line("conflict"));
        }
        let result = value("result")?;
        let (word, rest) = result.split_once(' ').unwrap_or((result, ""));
        let mode = || {
            let mode = u32::from_str_radix(rest, 8).ok();
            mode.filter(|mode| [MODE_FILE, MODE_EXECUTABLE, MODE_LINK].contains(mode))
                .ok_or(BadResolution::Line("result"))
        };
        let settled = match word {
            "edited" => Settled::Edited { mode: mode()?, hunks: body.to_vec() },
            "edited-rerere" => Settled::Rerere { hunks: body.to_vec() },
            "deleted" => Settled::Deleted,
            "submodule" => Settled::Submodule(rest.parse().map_err(|_| BadResolution::Line("result"))?),
            "file" => Settled::File { mode: mode()?, bytes: body.to_vec() },
            "base64" => {
                let coded: Vec<u8> =
                    body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
                let bytes = BASE64.decode(coded).map_err(|_| BadResolution::Body)?;
                Settled::File { mode: mode()?, bytes }
            }
            _ => return Err(BadResolution::Line("result")),
        };
        Ok(Self {
            key: ConflictKey(key.to_owned()),
            path: value("path")?.to_owned(),
            patch: value("patch")?.to_owned(),
            onto: value("onto")?.to_owned(),
            settled,
        })
    }

    /// The file's name: the start of the key, so that one conflict has one file, and the path's last part for people.
    pub fn file_name(&self) -> String {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        let last: String = last.chars().map(plain).take(60).collect();
        format!("{}-{}.{ENDING}", &self.key.0[..16], last.trim_start_matches('.'))
    }
}

/// How a file with markers became the resolved one.
pub fn edit(marked: &[u8], resolved: &[u8], mode: u32) -> Settled {
    Settled::Edited { mode, hunks: hunks(marked, resolved, HunkHeaders::Numbered) }
}

/// The resolved file, where the recorded hunks fit. Context around a conflict may have changed since: then each place,
/// markers included, has to be there exactly once.
pub fn edited(marked: &[u8], hunks: &[u8]) -> Option<Vec<u8>> {
    let patch = [b"--- a/resolved\n+++ b/resolved\n", hunks].concat();
    let file = PatchFile::parse(&patch).ok()?;
    let [diff] = &file.files[..] else { return None };
    let Body::Text(hunks) = &diff.body else { return None };
    applied(diff, Some(marked)).ok().flatten().or_else(|| edited_without_context(marked, hunks))
}

fn edited_without_context(marked: &[u8], hunks: &[Hunk]) -> Option<Vec<u8>> {
    let mut left: Vec<&[u8]> = lines(marked);
    let mut done: Vec<&[u8]> = Vec::new();
    for hunk in hunks {
        let changed = |line: &HunkLine| line.side != Side::Context;
        let first = hunk.lines.iter().position(changed)?;
        let last = hunk.lines.iter().rposition(changed)?;
        let side = |unwanted: Side| -> Vec<&[u8]> {
            hunk.lines[first..=last].iter().filter(|line| line.side != unwanted).map(HunkLine::text).collect()
        };
        let (old, new) = (side(Side::Added), side(Side::Removed));
        if old.is_empty() {
            return None;
        }
        let mut places = left.windows(old.len()).enumerate().filter(|(_, window)| *window == &old[..]);
        let (at, _) = places.next()?;
        if places.next().is_some() {
            return None;
        }
        done.extend(left.drain(..at + old.len()).take(at));
        done.extend(new);
    }
    done.extend(left);
    Some(done.concat())
}

/// The resolutions of a fork.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolutions {
    by_key: BTreeMap<ConflictKey, (String, Resolution)>,
}

impl Resolutions {
    /// Reads every resolution of a folder, which may be absent.
    ///
    /// # Errors
    /// When a file cannot be read or is none.
    pub fn read(folder: &Path) -> Result<Self, ResolutionError> {
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| ResolutionError::Disk { path, source }
        };
        let mut by_key = BTreeMap::new();
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(disk(folder)(source)),
        };
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(disk(folder))?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
        paths.sort();
        for path in paths {
            let bytes = file::bytes(&path, Most::Patch).map_err(disk(&path))?;
            let resolution = Resolution::parse(&bytes)
                .map_err(|source| ResolutionError::Bad { path: path.clone(), source })?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            by_key.insert(resolution.key.clone(), (name, resolution));
        }
        Ok(Self { by_key })
    }

    /// The resolution of a conflict, and its file's name.
    pub fn find(&self, key: &ConflictKey) -> Option<(&str, &Resolution)> {
        self.by_key.get(key).map(|(name, resolution)| (name.as_str(), resolution))
    }
}

/// Writes a resolution into a folder; gives the file's name.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(folder: &Path, resolution: &Resolution) -> Result<String, ResolutionError> {
    let name = resolution.file_name();
    let path = folder.join(&name);
    let written = super::outcome::replace_file(&path, &resolution.render());
    written.map_err(|source| ResolutionError::Disk { path, source })?;
    Ok(name)
}

/// Takes over what `git rerere` has recorded below `rr_cache` (`.git/rr-cache`); gives the names of the files made.
/// Conflicts that nobody resolved are left out.
///
/// # Errors
/// When a folder or file cannot be read or written.
pub fn import_rr_cache(rr_cache: &Path, folder: &Path) -> Result<Vec<String>, ResolutionError> {
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| ResolutionError::Disk { path, source }
    };
    let mut names = Vec::new();
    let mut conflicts: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(rr_cache).map_err(disk(rr_cache))? {
        conflicts.push(entry.map_err(disk(rr_cache))?.path());
    }
    conflicts.sort();
    for conflict in conflicts.iter().filter(|path| path.is_dir()) {
        // Variants of one conflict have numbered names: preimage, preimage.1, …
        for variant in ["", ".1", ".2", ".3"] {
            let (pre, post) =
                (conflict.join(format!("preimage{variant}")), conflict.join(format!("postimage{variant}")));
            if !(pre.is_file() && post.is_file()) {
                continue;
            }
            let read = |path: &Path| file::bytes(path, Most::Patch).map_err(disk(path));
            let (pre, post) = (read(&pre)?, read(&post)?);
            let (Some(form), Some(key)) = (marks::rerere_form(&pre), ConflictKey::of_rerere(&pre)) else {
                continue;
            };
            let settled = Settled::Rerere { hunks: hunks(&form.file, &post, HunkHeaders::Numbered) };
            let hash = conflict.file_name().unwrap_or_default().to_string_lossy();
            let resolution = Resolution {
                key,
                path: "rr-cache".to_owned(),
                patch: format!("imported from rr-cache/{hash}"),
                onto: "unknown".to_owned(),
                settled,
            };
            names.push(keep(folder, &resolution)?);
        }
    }
    Ok(names)
}

/// What a conflict was settled to, from what the resolved tree holds at its path.
///
/// `marked` is the file with markers, where there is one; `bytes` are those of `entry`.
pub fn settled(marked: Option<&[u8]>, entry: Option<Entry>, bytes: &[u8]) -> Settled {
    match (entry, marked) {
        (None, _) => Settled::Deleted,
        (Some(Entry { id, mode: MODE_SUBMODULE }), _) => Settled::Submodule(id),
        (Some(Entry { mode, .. }), Some(marked)) if mode != MODE_LINK && !is_binary(bytes) => {
            edit(marked, bytes, mode)
        }
        (Some(Entry { mode, .. }), _) => Settled::File { mode, bytes: bytes.to_vec() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: &[u8] =
        b"a\nb\nc\n<<<<<<< upstream\nu\n||||||| before the patch\no\n=======\np\n>>>>>>> the patch\nd\ne\nf\n";
    const RESOLVED: &[u8] = b"a\nb\nc\nu\np\nd\ne\nf\n";

    fn resolution(settled: Settled) -> Resolution {
        Resolution {
            key: ConflictKey::of_marked(MARKED).unwrap(),
            path: "src/\u{e9} x.cpp".to_owned(),
            patch: "two\nlines".to_owned(),
            onto: "v1".to_owned(),
            settled,
        }
    }

    #[test]
    fn every_kind_is_read_back_as_it_was_written() {
        let kinds = [
            edit(MARKED, RESOLVED, MODE_FILE),
            Settled::Rerere { hunks: b"@@ -1 +1 @@\n-a\n+b\n".to_vec() },
            Settled::Deleted,
            Settled::Submodule("a".repeat(40).parse().unwrap()),
            Settled::File { mode: MODE_LINK, bytes: b"no newline".to_vec() },
            Settled::File { mode: MODE_EXECUTABLE, bytes: b"\0\xff\n\n".to_vec() },
        ];
        for settled in kinds {
            let bytes = resolution(settled.clone()).render();
            let read = Resolution::parse(&bytes).unwrap();
            assert_eq!((read.settled.clone(), read.render()), (settled, bytes));
            assert!(read.file_name().ends_with("---x.cpp.resolution"), "{}", read.file_name());
        }
        assert_eq!(Resolution::parse(b"x\n\n"), Err(BadResolution::FirstLine));
    }

    #[test]
    fn the_same_conflict_in_other_surroundings_has_the_same_key_and_is_settled_the_same_way() {
        let Settled::Edited { hunks, .. } = edit(MARKED, RESOLVED, MODE_FILE) else { panic!() };
        assert_eq!(edited(MARKED, &hunks).unwrap(), RESOLVED);
        let text = std::str::from_utf8(MARKED).unwrap();
        let elsewhere = format!("0\n{}", text.replace("c\n<", "C\n<").replace("\nd\n", "\nD\n"));
        assert_eq!(ConflictKey::of_marked(elsewhere.as_bytes()), ConflictKey::of_marked(MARKED));
        assert_eq!(edited(elsewhere.as_bytes(), &hunks).unwrap(), b"0\na\nb\nC\nu\np\nD\ne\nf\n");
        let other = text.replace("\nu\n", "\nuu\n");
        assert_ne!(ConflictKey::of_marked(other.as_bytes()), ConflictKey::of_marked(MARKED));
        assert_eq!(edited(other.as_bytes(), &hunks), None);
    }

    #[test]
    fn what_rerere_recorded_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let conflict = dir.path().join("rr/0123");
        fs::create_dir_all(&conflict).unwrap();
        fs::write(conflict.join("preimage"), "a\n<<<<<<<\np\n=======\nu\n>>>>>>>\nd\n").unwrap();
        fs::write(conflict.join("postimage"), "a\nu\np\nd\n").unwrap();
        fs::create_dir_all(dir.path().join("rr/4567")).unwrap();
        let folder = dir.path().join("resolutions");
        assert_eq!(import_rr_cache(&dir.path().join("rr"), &folder).unwrap().len(), 1);
        let resolutions = Resolutions::read(&folder).unwrap();
        let (_, found) = resolutions.find(&ConflictKey::of_rerere(MARKED).unwrap()).unwrap();
        let Settled::Rerere { hunks } = &found.settled else { panic!() };
        let form = marks::rerere_form(MARKED).unwrap().file;
        assert_eq!(edited(&form, hunks).unwrap(), RESOLVED);
    }
}
