//! What a consumer's tree becomes when its pin moves: every file edited in memory, what could not be edited told, and
//! every repeat of the old pin that is left. Nothing here moves a ref or talks to a remote.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::edit::{
    EditProblem, NewPin, TextEdit,
    archive::{self, ArchivePin},
    cargo_git, cargo_registry, cmake, plain, submodule, swift_manifest, swift_resolved,
};
use crate::{
    config::fork::PinKind,
    tools::git::{
        ids::{CommitId, EntryId, TreeId},
        store::{Entry, MODE_FILE, MODE_SUBMODULE, Store, StoreError},
        tree_path::TreePath,
    },
};

/// At most so many repeats of the old pin are listed.
const MOST_LEFTOVERS: usize = 50;

/// What a pin named before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldPin {
    /// The commit.
    pub commit: CommitId,
    /// The tag that led to it.
    pub tag: Option<String>,
}

/// What some kinds of pin need besides the commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The tree that a vendored copy becomes; its objects are in the consumer's store.
    pub tree: Option<TreeId>,
    /// The new archive.
    pub archive: Option<NewArchive>,
    /// The SHA-256 of the new version's `.crate` file.
    pub checksum: Option<String>,
    /// The versions of the packages at the new commit, by name.
    pub versions: BTreeMap<String, String>,
}

/// The archive that a pin is to name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArchive {
    /// Its address, or its path inside the consumer.
    pub location: String,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
    /// Its bytes, where the consumer carries it.
    pub carried: Option<Vec<u8>>,
}

/// A consumer's tree with one pin moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinPlan {
    /// The tree; the old one when nothing was to do, or when something stood in the way.
    pub tree: TreeId,
    /// Every place that changed.
    pub edits: Vec<FilePlace>,
    /// What a person has to know; a pin with an error was not moved at all.
    pub findings: Vec<PinFinding>,
    /// Where the old pin still stands.
    pub leftovers: Vec<Leftover>,
}

/// One changed place of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilePlace {
    /// The file, or the path of a submodule or folder.
    pub file: String,
    /// The line, counted from 1; absent where the path itself changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What stood there.
    pub old: String,
    /// What stands there now.
    pub new: String,
}

/// Something that a person has to know about a pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinFinding {
    /// Whether the pin was moved all the same.
    pub weight: Weight,
    /// The file, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What was found, as a sentence without stop.
    pub message: String,
    /// What to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The pin was not moved.
    Error,
    /// The pin was moved; something is left to do or to look at.
    Note,
}

/// A place where the old pin still stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Leftover {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What stands there.
    pub word: String,
}

impl PinFinding {
    /// A reason for which a pin was not moved.
    pub fn error(file: Option<String>, message: String, hint: Option<String>) -> Self {
        Self { weight: Weight::Error, file, message, hint }
    }

    fn note(file: Option<String>, message: String) -> Self {
        Self { weight: Weight::Note, file, message, hint: None }
    }
}

/// Moves one pin in a consumer's tree. A pin that stands in several files moves in all of them or in none.
///
/// # Errors
/// When objects are missing; what cannot be edited is a finding.
pub fn plan_pin(
    store: &Store,
    tree: TreeId,
    kind: &PinKind,
    new: &NewPin,
    old: &OldPin,
    material: &Material,
) -> Result<PinPlan, StoreError> {
    let mut work = Work {
        store,
        tree,
        edits: BTreeMap::new(),
        places: Vec::new(),
        findings: Vec::new(),
        old: BTreeSet::new(),
    };
    match kind {
        PinKind::CargoGit { files } => work.each(files, |name, text| match is_lock(name) {
            true => cargo_git::edit_lock(text, new, &material.versions),
            false => cargo_git::edit_manifest(text, new),
        })?,
        PinKind::CargoVersion { files, name } => {
            let version = new.version.as_deref();
            work.each(files, |file, text| match (version, is_lock(file)) {
                (None, _) => Err(EditProblem::Lacks { what: "version" }),
                (Some(version), false) => cargo_registry::edit_manifest(text, name, version),
                (Some(version), true) => {
                    let checksum = material.checksum.as_deref();
                    let checksum = checksum.ok_or(EditProblem::Lacks { what: "crate in the registry" })?;
                    cargo_registry::edit_lock(text, name, version, checksum)
                }
            })?;
        }
        PinKind::CmakeTag { files, name } => work.each(files, |_, text| cmake::edit_tag(text, name, new))?,
        PinKind::CmakeArchive { files, name, .. } => work.archive(files, name, new, old, material)?,
        PinKind::Swift { files } => work.each(files, |name, text| match name.ends_with(".resolved") {
            true => swift_resolved::edit(text, new),
            false => swift_manifest::edit(text, new),
        })?,
        PinKind::Text { files } => work.each(files, |_, text| plain::edit(text, new))?,
        PinKind::Submodule { path } => work.submodule(path, new)?,
        PinKind::Vendored { path } => work.vendored(path, new, material)?,
    }
    work.finish(new)
}

struct Work<'s> {
    store: &'s Store,
    tree: TreeId,
    edits: BTreeMap<TreePath, Option<Entry>>,
    places: Vec<FilePlace>,
    findings: Vec<PinFinding>,
    /// Words that named the old pin and should stand nowhere any more.
    old: BTreeSet<String>,
}

impl Work<'_> {
    fn each(
        &mut self,
        files: &[TreePath],
        edit: impl Fn(&str, &str) -> Result<TextEdit, EditProblem>,
    ) -> Result<(), StoreError> {
        for path in files {
            let Some((entry, text)) = self.text(path)? else { continue };
            let name = path.to_string();
            match edit(&name, &text) {
                Ok(edited) => self.take(path, entry, edited)?,
                Err(problem) => self.refuse(Some(name), &problem),
            }
        }
        Ok(())
    }

    /// A file's text; a finding when it is not there or is no text.
    fn text(&mut self, path: &TreePath) -> Result<Option<(Entry, String)>, StoreError> {
        let name = path.to_string();
        let entry = self.store.entry(self.tree, path)?.filter(|entry| entry.mode & 0o170_000 == 0o100_000);
        let Some(entry) = entry else {
            let problem = EditProblem::NotFound { what: format!("file `{name}`") };
            self.refuse(Some(name), &problem);
            return Ok(None);
        };
        match String::from_utf8(self.store.blob(entry.id)?) {
            Ok(text) => Ok(Some((entry, text))),
            Err(error) => {
                let problem = EditProblem::Unreadable { format: "UTF-8", reason: error.to_string() };
                self.refuse(Some(name), &problem);
                Ok(None)
            }
        }
    }

    fn take(&mut self, path: &TreePath, entry: Entry, edited: TextEdit) -> Result<(), StoreError> {
        let name = path.to_string();
        self.findings.extend(edited.notes.into_iter().map(|note| PinFinding::note(Some(name.clone()), note)));
        if edited.places.is_empty() {
            return Ok(());
        }
        for place in edited.places {
            self.old.extend(identifying(&place.old));
            let (line, old, new) = (Some(place.line), place.old, place.new);
            self.places.push(FilePlace { file: name.clone(), line, old, new });
        }
        let id = self.store.write_blob(edited.text.as_bytes())?;
        self.edits.insert(path.clone(), Some(Entry { id, mode: entry.mode }));
        Ok(())
    }

    fn refuse(&mut self, file: Option<String>, problem: &EditProblem) {
        self.findings.push(PinFinding::error(file, problem.to_string(), Some(problem.hint().to_owned())));
    }

    fn submodule(&mut self, path: &TreePath, new: &NewPin) -> Result<(), StoreError> {
        let name = path.to_string();
        let id: EntryId = new.commit.to_string().parse().expect("a commit's id is an id");
        let found = match self.store.entry(self.tree, path)? {
            Some(entry) if entry.mode == MODE_SUBMODULE => entry,
            Some(_) => {
                let found = format!("`{name}` holds files of its own, and is no submodule");
                self.refuse(Some(name), &EditProblem::OtherKind { found });
                return Ok(());
            }
            None => {
                let problem = EditProblem::NotFound { what: format!("submodule `{name}`") };
                self.refuse(Some(name), &problem);
                return Ok(());
            }
        };
        if found.id != id {
            self.old.insert(found.id.to_string());
            self.edits.insert(path.clone(), Some(Entry { id, mode: MODE_SUBMODULE }));
            let (old, new) = (found.id.to_string(), id.to_string());
            self.places.push(FilePlace { file: name.clone(), line: None, old, new });
        }
        let modules = TreePath::new(".gitmodules").expect("a plain name");
        self.each(&[modules], |_, text| submodule::edit(text, &name, new))
    }

    fn vendored(&mut self, path: &TreePath, new: &NewPin, material: &Material) -> Result<(), StoreError> {
        let name = path.to_string();
        let Some(tree) = material.tree else {
            self.refuse(Some(name), &EditProblem::Lacks { what: "tree" });
            return Ok(());
        };
        let there = self.store.entry(self.tree, path)?;
        let Some(was) = self.store.folder(self.tree, path)? else {
            let problem = match there {
                Some(entry) if entry.mode == MODE_SUBMODULE => {
                    EditProblem::OtherKind { found: format!("`{name}` is a submodule, and holds no copy") }
                }
                _ => EditProblem::NotFound { what: format!("folder `{name}`") },
            };
            self.refuse(Some(name), &problem);
            return Ok(());
        };
        for change in self.store.changes(was, tree)? {
            let bytes = [path.as_bytes(), b"/", change.path.as_bytes()].concat();
            let below = TreePath::new(bytes)
                .map_err(|source| StoreError::Path { doing: format!("copy a tree to `{name}`"), source })?;
            self.edits.insert(below, change.new);
        }
        if was != tree {
            let new = format!("{tree}, the files of {}", new.commit);
            self.places.push(FilePlace { file: name, line: None, old: was.to_string(), new });
        }
        Ok(())
    }

    fn archive(
        &mut self,
        files: &[TreePath],
        name: &str,
        new: &NewPin,
        old: &OldPin,
        material: &Material,
    ) -> Result<(), StoreError> {
        let Some(archive) = &material.archive else {
            self.refuse(None, &EditProblem::Lacks { what: "archive" });
            return Ok(());
        };
        let mut texts = Vec::new();
        let mut named: Vec<ArchivePin> = Vec::new();
        for path in files {
            let Some((entry, text)) = self.text(path)? else { continue };
            match archive::find(&text, name) {
                Ok(found) => named.extend(found),
                Err(problem) => self.refuse(Some(path.to_string()), &problem),
            }
            texts.push((path, entry, text));
        }
        named.dedup();
        let was = match &named[..] {
            [one] => one.clone(),
            [] => {
                let what = format!("archive of `{name}` with its SHA-256");
                self.refuse(None, &EditProblem::NotFound { what });
                return Ok(());
            }
            _ => {
                let what = format!("the archive of `{name}`, in several files,");
                self.refuse(None, &EditProblem::Ambiguous { what, lines: Vec::new() });
                return Ok(());
            }
        };
        // A carried archive is named by its file name alone.
        let location = match &archive.carried {
            Some(_) => archive.location.rsplit('/').next().unwrap_or_default().to_owned(),
            None => archive.location.clone(),
        };
        let becomes = ArchivePin { location, sha256: archive.sha256.clone() };
        let mut also = vec![(old.commit.to_string(), new.commit.to_string())];
        also.extend(old.tag.clone().zip(new.tag.clone()));
        for (path, entry, text) in texts {
            match archive::edit(&text, &was, &becomes, &also) {
                Ok(edited) => self.take(path, entry, edited)?,
                Err(problem) => self.refuse(Some(path.to_string()), &problem),
            }
        }
        if let Some(bytes) = &archive.carried {
            let doing = || format!("place the archive at `{}`", archive.location);
            let path = TreePath::new(archive.location.as_bytes())
                .map_err(|source| StoreError::Path { doing: doing(), source })?;
            let folder =
                archive.location.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
            let old_path = TreePath::new(format!("{folder}{}", was.location))
                .map_err(|source| StoreError::Path { doing: doing(), source })?;
            if old_path != path && self.store.entry(self.tree, &old_path)?.is_some() {
                self.edits.insert(old_path.clone(), None);
            }
            let id = self.store.write_blob(bytes)?;
            self.edits.insert(path, Some(Entry { id, mode: MODE_FILE }));
            let (old, new) = (old_path.to_string(), archive.location.clone());
            self.places.push(FilePlace { file: archive.location.clone(), line: None, old, new });
        }
        Ok(())
    }

    fn finish(mut self, new: &NewPin) -> Result<PinPlan, StoreError> {
        if self.findings.iter().any(|finding| finding.weight == Weight::Error) {
            return Ok(PinPlan {
                tree: self.tree,
                edits: Vec::new(),
                findings: self.findings,
                leftovers: Vec::new(),
            });
        }
        let tree = self.store.edited_tree(self.tree, &self.edits)?;
        // What the new pin names as well is no leftover.
        let current = [Some(new.commit.to_string()), new.tag.clone(), new.version.clone()];
        self.old.retain(|word| !current.iter().flatten().any(|now| now == word));
        let leftovers = leftovers(self.store, tree, &self.old, &mut self.findings)?;
        Ok(PinPlan { tree, edits: self.places, findings: self.findings, leftovers })
    }
}

/// Which of the places still stand in a later tree, where other pins of the same consumer have moved as well.
///
/// # Errors
/// When objects are missing.
pub fn still_there(store: &Store, tree: TreeId, places: Vec<Leftover>) -> Result<Vec<Leftover>, StoreError> {
    let mut left = BTreeSet::new();
    let wanted: BTreeSet<(String, String)> =
        places.into_iter().map(|place| (place.file, place.word)).collect();
    for (file, word) in wanted {
        let Ok(path) = TreePath::new(file.as_bytes()) else { continue };
        let Some(entry) = store.entry(tree, &path)?.filter(|entry| entry.is_file()) else { continue };
        let text = String::from_utf8_lossy(&store.blob(entry.id)?).into_owned();
        for range in plain::whole_words(&text, &word) {
            let line = super::edit::line_of(&text, range.start);
            left.insert(Leftover { file: file.clone(), line, word: word.clone() });
        }
    }
    Ok(left.into_iter().collect())
}

/// The words of an edited place that identify a pin wherever they stand: commits, hashes and archives. Tags and versions do
/// not: other things have the same ones.
fn identifying(old: &str) -> Vec<String> {
    let word = old.trim_matches(['"', '\'']);
    let hashes = [40, 64].iter().flat_map(|&length| plain::hex_words(word, length));
    let mut words: Vec<String> = hashes.map(|range| word[range].to_owned()).collect();
    if word.contains(".tar.") || word.ends_with(".zip") || word.ends_with(".tgz") {
        words.push(word.to_owned());
    }
    words
}

fn is_lock(file: &str) -> bool {
    file.ends_with(".lock")
}

/// Every place of a tree where one of the words still stands. Files that are not at hand, as in a partial copy, are told.
fn leftovers(
    store: &Store,
    tree: TreeId,
    words: &BTreeSet<String>,
    findings: &mut Vec<PinFinding>,
) -> Result<Vec<Leftover>, StoreError> {
    let mut found = Vec::new();
    if words.is_empty() {
        return Ok(found);
    }
    let mut absent = 0_usize;
    for file in store.changes(store.empty_tree()?, tree)? {
        let Some(entry) = file.new.filter(|entry| entry.mode & 0o170_000 == 0o100_000) else { continue };
        let Ok(bytes) = store.blob(entry.id) else {
            absent += 1;
            continue;
        };
        let Ok(text) = String::from_utf8(bytes) else { continue };
        for word in words {
            for range in plain::whole_words(&text, word) {
                let line = super::edit::line_of(&text, range.start);
                found.push(Leftover { file: file.path.to_string(), line, word: word.clone() });
            }
        }
    }
    if absent > 0 {
        findings.push(PinFinding::note(
            None,
            format!("{absent} files are not in this partial copy and were not searched for the old pin"),
        ));
    }
    found.sort();
    if found.len() > MOST_LEFTOVERS {
        let more = found.len() - MOST_LEFTOVERS;
        findings.push(PinFinding::note(None, format!("the old pin stands in {more} more places")));
        found.truncate(MOST_LEFTOVERS);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::fork::PinKind, tools::git::fixture::ForkFixture};

    const OLD: &str = "1111111111111111111111111111111111111111";
    const NEW: &str = "2222222222222222222222222222222222222222";

    fn new_pin() -> NewPin {
        NewPin {
            repository: "https://example.org/o/n".to_owned(),
            commit: NEW.parse().unwrap(),
            tag: Some("v2".to_owned()),
            version: Some("2".to_owned()),
        }
    }

    fn old_pin() -> OldPin {
        OldPin { commit: OLD.parse().unwrap(), tag: Some("v1".to_owned()) }
    }

    fn paths(names: &[&str]) -> Vec<TreePath> {
        names.iter().map(|&name| TreePath::new(name).unwrap()).collect()
    }

    fn planned(files: &[(&str, &str)], kind: &PinKind, material: &Material) -> (ForkFixture, PinPlan) {
        let fixture = ForkFixture::new(files);
        let tree = fixture.store.commit(fixture.base).unwrap().tree;
        let plan = plan_pin(&fixture.store, tree, kind, &new_pin(), &old_pin(), material).unwrap();
        (fixture, plan)
    }

    #[test]
    fn every_repeat_that_is_left_is_told() {
        let kind = PinKind::Text { files: paths(&["pin"]) };
        let other = format!("# {OLD}\nsee\n{OLD}0 {OLD}\n");
        let (fixture, plan) = planned(&[("pin", OLD), ("docs/b", &other)], &kind, &Material::default());
        assert_eq!(fixture.text(plan.tree, "pin").as_deref(), Some(NEW));
        let left: Vec<(&str, usize)> = plan.leftovers.iter().map(|l| (l.file.as_str(), l.line)).collect();
        assert_eq!(left, [("docs/b", 1), ("docs/b", 3)]);
    }

    #[test]
    fn a_pin_in_several_files_moves_in_all_of_them_or_in_none() {
        let kind = PinKind::Text { files: paths(&["a", "b"]) };
        let (fixture, plan) = planned(&[("a", OLD), ("b", "nothing")], &kind, &Material::default());
        assert_eq!((fixture.text(plan.tree, "a").as_deref(), plan.edits.len()), (Some(OLD), 0));
        assert_eq!((plan.findings[0].weight, plan.findings[0].file.as_deref()), (Weight::Error, Some("b")));
        assert!(plan.findings[0].hint.is_some());
    }

    #[test]
    fn a_carried_archive_is_exchanged_with_all_that_names_it() {
        let (was, becomes) = ("a".repeat(64), "b".repeat(64));
        let cmake = |tag: &str, hash: &str| format!("vendored(\n  n n-{tag}.tar.gz\n  {hash})\n");
        let notes = |tag: &str, commit: &str, hash: &str| {
            format!("N {tag} at `{commit}`:\n`n-{tag}.tar.gz` {hash}\n")
        };
        let kind = PinKind::CmakeArchive {
            files: paths(&["CMakeLists.txt", "v/SOURCES.md"]),
            name: "n".to_owned(),
            archive: "v/n-{tag}.tar.gz".to_owned(),
        };
        let carried = Some(b"new".to_vec());
        let archive = NewArchive { location: "v/n-v2.tar.gz".to_owned(), sha256: becomes.clone(), carried };
        let material = Material { archive: Some(archive), ..Material::default() };
        let files = [("CMakeLists.txt", cmake("v1", &was)), ("v/SOURCES.md", notes("v1", OLD, &was))];
        let mut files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        files.extend([("v/n-v1.tar.gz", "old")]);
        let (fixture, plan) = planned(&files, &kind, &material);
        assert_eq!(plan.findings, []);
        let text = |path| fixture.text(plan.tree, path);
        assert_eq!(text("CMakeLists.txt"), Some(cmake("v2", &becomes)));
        assert_eq!(text("v/SOURCES.md"), Some(notes("v2", NEW, &becomes)));
        // The archive lies beside the file that describes it, not at the root.
        assert_eq!((text("v/n-v2.tar.gz").as_deref(), text("v/n-v1.tar.gz")), (Some("new"), None));
        assert_eq!(plan.leftovers, []);
    }

    #[test]
    fn a_place_of_another_kind_is_told() {
        for (kind, told) in [
            (
                PinKind::Submodule { path: paths(&["d"]).remove(0) },
                "`d` holds files of its own, and is no submodule",
            ),
            (PinKind::Submodule { path: paths(&["e"]).remove(0) }, "no submodule `e`"),
            (PinKind::Vendored { path: paths(&["e"]).remove(0) }, "no folder `e`"),
            (PinKind::Text { files: paths(&["d"]) }, "no file `d`"),
        ] {
            let fixture = ForkFixture::new(&[("d/f", "f")]);
            let tree = fixture.store.commit(fixture.base).unwrap().tree;
            let material = Material { tree: Some(tree), ..Material::default() };
            let plan = plan_pin(&fixture.store, tree, &kind, &new_pin(), &old_pin(), &material).unwrap();
            assert!(plan.findings[0].message.contains(told), "{:?}", plan.findings);
            assert_eq!(plan.tree, tree);
        }
    }
}
