//! Where the files of a copied tree come from: for every file, which versions of the copied project hold just that
//! content, and how those stand to the version that the copy is said to be of. Contents are compared, not looked into.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::recommend::shown;
use crate::{
    rebase::sync::NamedCommit,
    tools::git::{
        history::Watch,
        ids::{CommitId, EntryId, TreeId},
        store::{Store, StoreError},
        tree_path::TreePath,
    },
};

/// The files of one copied tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The folder that holds the copy; empty when the whole fork is one.
    pub folder: String,
    /// The address of the repository that it is a copy of.
    pub of: String,
    /// The version that it is compared with.
    pub base: NamedCommit,
    /// How that version is known.
    pub known_by: KnownBy,
    /// Every file of the copy, and those of the base that it lacks, by path.
    pub files: Vec<FileOrigin>,
    /// The same, counted by folder, two levels deep.
    pub folders: Vec<FolderSum>,
}

/// How the version that a copy is compared with is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnownBy {
    /// Upstream's own tree names it where the fork has the copy.
    Submodule,
    /// It is the nearest: most paths hold the same.
    Nearest,
}

/// Where one file comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOrigin {
    /// Its path in the copy.
    pub path: String,
    /// How it stands to the base.
    pub state: FileState,
    /// The oldest and the newest commit on the main line that hold just this content there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<(CommitId, CommitId)>,
    /// The oldest and the newest tagged version that do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<(String, String)>,
}

/// How a file of a copy stands to the version that the copy is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// The same.
    Same,
    /// What upstream has had only later.
    Newer,
    /// What upstream had before.
    Older,
    /// Upstream has such a file, and never had this content in it.
    Custom,
    /// Upstream never had such a file.
    Own,
    /// The base has the file, and the copy lacks it.
    Missing,
}

/// How many files of a folder are in which state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderSum {
    /// The folder; empty for the copy's top.
    pub folder: String,
    /// Files that are the same.
    pub same: usize,
    /// Newer ones.
    pub newer: usize,
    /// Older ones.
    pub older: usize,
    /// Edited ones.
    pub custom: usize,
    /// The copy's own.
    pub own: usize,
    /// Those that it lacks.
    pub missing: usize,
}

impl FolderSum {
    fn of<'f>(folder: String, files: impl IntoIterator<Item = &'f FileOrigin>) -> Self {
        let mut sum = Self { folder, ..Self::default() };
        for file in files {
            *match file.state {
                FileState::Same => &mut sum.same,
                FileState::Newer => &mut sum.newer,
                FileState::Older => &mut sum.older,
                FileState::Custom => &mut sum.custom,
                FileState::Own => &mut sum.own,
                FileState::Missing => &mut sum.missing,
            } += 1;
        }
        sum
    }

    /// The counts in words.
    pub fn told(&self) -> String {
        let counts = [
            (self.same, "the same"),
            (self.newer, "newer"),
            (self.older, "older"),
            (self.custom, "custom"),
            (self.own, "unknown to upstream"),
            (self.missing, "missing"),
        ];
        let told: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        told.join(", ")
    }

    fn is_pure(&self) -> bool {
        self.newer + self.older + self.custom + self.own + self.missing == 0
    }
}

impl FileState {
    /// The state in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "the same",
            Self::Newer => "newer",
            Self::Older => "older",
            Self::Custom => "custom",
            Self::Own => "unknown to upstream",
            Self::Missing => "missing",
        }
    }
}

/// What a copy is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original<'o> {
    /// The address of the copied repository.
    pub of: String,
    /// The version that the copy is compared with, and how it is known.
    pub base: (CommitId, KnownBy),
    /// The newest commit to look for contents in.
    pub head: CommitId,
    /// The tags there.
    pub tags: &'o BTreeMap<String, CommitId>,
}

/// Finds where every file of the tree `copy` in `folder` comes from. `store` holds it and the original's history.
///
/// # Errors
/// When objects are missing.
pub fn provenance(
    store: &Store,
    folder: &str,
    copy: TreeId,
    original: &Original<'_>,
) -> Result<Provenance, StoreError> {
    let (base, known_by) = original.base;
    let mut tracks: BTreeMap<TreePath, Track> = BTreeMap::new();
    for change in store.changes(store.empty_tree()?, copy)? {
        if let Some(entry) = change.new {
            tracks
                .insert(change.path, Track { content: entry.id, since: None, spans: Vec::new(), met: false });
        }
    }
    let mut line = store.first_parents(original.head)?;
    line.reverse();
    let watch: Watch = tracks.keys().collect();
    let mut before = store.empty_tree()?;
    for (at, commit) in line.iter().enumerate() {
        let tree = store.commit(*commit)?.tree;
        for change in store.changes_among(before, tree, &watch)? {
            if let Some(track) = tracks.get_mut(&change.path) {
                track.reach(at, change.new.map(|entry| entry.id));
            }
        }
        before = tree;
    }
    let end = line.len();
    let places: BTreeMap<CommitId, usize> = line.iter().copied().zip(0..).collect();
    let mut tagged: Vec<(usize, &str)> =
        original.tags.iter().filter_map(|(tag, commit)| Some((*places.get(commit)?, tag.as_str()))).collect();
    tagged.sort_unstable();
    let base_at = place_of(store, &line, &places, base)?;
    let base_tree = store.commit(base)?.tree;
    let mut files = Vec::new();
    for (path, track) in tracks {
        let spans = track.ended(end);
        let is_base = store.entry(base_tree, &path)?.is_some_and(|entry| entry.id == track.content);
        let state = match (is_base, spans.first(), spans.last()) {
            (true, ..) => FileState::Same,
            (false, Some(_), Some((_, last))) if *last <= base_at => FileState::Older,
            (false, Some(_), Some(_)) => FileState::Newer,
            _ if track.met => FileState::Custom,
            _ => FileState::Own,
        };
        let commits =
            spans.first().zip(spans.last()).map(|((first, _), (_, last))| (line[*first], line[*last]));
        let holds = |at: usize| spans.iter().any(|(first, last)| (*first..=*last).contains(&at));
        let mut with = tagged.iter().filter(|(at, _)| holds(*at)).map(|(_, tag)| (*tag).to_owned());
        let oldest = with.next();
        let newest = with.next_back().or_else(|| oldest.clone());
        files.push(FileOrigin { path: path.to_string(), state, commits, tags: oldest.zip(newest) });
    }
    for change in store.changes(copy, base_tree)?.into_iter().filter(|change| change.old.is_none()) {
        let path = change.path.to_string();
        files.push(FileOrigin { path, state: FileState::Missing, commits: None, tags: None });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let mut by_folder: BTreeMap<String, Vec<&FileOrigin>> = BTreeMap::new();
    for file in &files {
        by_folder.entry(top_folders(&file.path)).or_default().push(file);
    }
    let folders = by_folder.into_iter().map(|(folder, files)| FolderSum::of(folder, files)).collect();
    let tag = original.tags.iter().find(|(_, commit)| **commit == base).map(|(tag, _)| tag.clone());
    let base = NamedCommit { commit: base, tag };
    Ok(Provenance { folder: folder.to_owned(), of: original.of.clone(), base, known_by, files, folders })
}

/// What was found, as sentences: the copy as a whole, then its folders that are not just as upstream has them.
pub fn sentences(found: &Provenance) -> Vec<String> {
    let whole = FolderSum::of(String::new(), &found.files);
    let place = if found.folder.is_empty() { "the copy" } else { &found.folder };
    let how = match found.known_by {
        KnownBy::Submodule => "the commit that upstream names",
        KnownBy::Nearest => "the nearest commit",
    };
    let mut told =
        vec![format!("{place} against {} of {}, {how}: {}", found.base.place(), found.of, whole.told())];
    let prefix = |folder: &str| match (found.folder.is_empty(), folder.is_empty()) {
        (_, true) => format!("{place}, top"),
        (true, false) => folder.to_owned(),
        (false, false) => format!("{place}/{folder}"),
    };
    for sum in found.folders.iter().filter(|sum| !sum.is_pure()) {
        told.push(format!("{}: {}{}", prefix(&sum.folder), sum.told(), releases(found, &sum.folder)));
    }
    told
}

/// Which releases the files of a folder that are not the base's come from.
fn releases(found: &Provenance, folder: &str) -> String {
    let other = |file: &&FileOrigin| {
        matches!(file.state, FileState::Newer | FileState::Older) && top_folders(&file.path) == folder
    };
    let mut names: Vec<String> = Vec::new();
    for (oldest, newest) in found.files.iter().filter(other).filter_map(|file| file.tags.as_ref()) {
        let name = if oldest == newest { oldest.clone() } else { format!("{oldest} to {newest}") };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() { String::new() } else { format!("; those of {}", shown(&names, 3)) }
}

/// A file's content on its way along the main line.
struct Track {
    content: EntryId,
    since: Option<usize>,
    spans: Vec<(usize, usize)>,
    met: bool,
}

impl Track {
    fn reach(&mut self, at: usize, content: Option<EntryId>) {
        self.met |= content.is_some();
        match (self.since, content == Some(self.content)) {
            (None, true) => self.since = Some(at),
            (Some(since), false) => {
                self.spans.push((since, at - 1));
                self.since = None;
            }
            _ => {}
        }
    }

    /// The stretches, first and last commit, on which the file held this content.
    fn ended(&self, end: usize) -> Vec<(usize, usize)> {
        let open = self.since.map(|since| (since, end - 1));
        self.spans.iter().copied().chain(open).collect()
    }
}

/// A commit's place on the main line; for one beside it, that of the last one committed before it.
fn place_of(
    store: &Store,
    line: &[CommitId],
    places: &BTreeMap<CommitId, usize>,
    commit: CommitId,
) -> Result<usize, StoreError> {
    if let Some(at) = places.get(&commit) {
        return Ok(*at);
    }
    let when = store.commit(commit)?.committed_s;
    let mut place = 0;
    for (at, other) in line.iter().enumerate() {
        if store.commit(*other)?.committed_s <= when {
            place = at;
        }
    }
    Ok(place)
}

/// The first two folders of a path.
fn top_folders(path: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.split('/').take(2).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn every_file_of_a_copy_is_told_by_content() {
        let mut fixture = ForkFixture::new(&[
            ("a/same", "1\n"),
            ("a/old", "1\n"),
            ("a/new", "1\n"),
            ("a/edited", "1\n"),
            ("b/gone", "1\n"),
        ])
        .advance("second", &[("a/old", Some("2\n")), ("a/edited", Some("2\n"))])
        .advance("third", &[("a/new", Some("3\n"))])
        .advance("fourth", &[("a/new", Some("4\n")), ("c/later", Some("4\n"))]);
        let [first, second, third, fourth] = fixture.upstream[..] else { panic!("four commits") };
        let copy = fixture.commit(
            &[second],
            "copy",
            &[
                ("a/old", Some("1\n")),
                ("a/new", Some("3\n")),
                ("a/edited", Some("ours\n")),
                ("b/gone", None),
                ("b/own", Some("ours\n")),
                ("c/later", Some("4\n")),
            ],
        );
        let tags =
            BTreeMap::from([("v1".to_owned(), first), ("v2".to_owned(), second), ("v3".to_owned(), third)]);
        let original = Original {
            of: "https://example.org/o/n".to_owned(),
            base: (second, KnownBy::Submodule),
            head: fourth,
            tags: &tags,
        };
        let tree = fixture.store.commit(copy).unwrap().tree;
        let found = provenance(&fixture.store, "lib", tree, &original).unwrap();
        let told: Vec<String> = found
            .files
            .iter()
            .map(|file| {
                let tags =
                    file.tags.as_ref().map_or(String::new(), |(one, other)| format!(" {one}..{other}"));
                format!("{}: {}{tags}", file.path, file.state.word())
            })
            .collect();
        assert_eq!(
            told,
            [
                "a/edited: custom",
                "a/new: newer v3..v3",
                "a/old: older v1..v1",
                "a/same: the same v1..v3",
                "b/gone: missing",
                "b/own: unknown to upstream",
                "c/later: newer",
            ]
        );
        assert_eq!(
            sentences(&found).iter().map(|line| line.replace(&second.short(), "SECOND")).collect::<Vec<_>>(),
            [
                "lib against v2 (SECOND) of https://example.org/o/n, the commit that upstream names: \
                 1 the same, 2 newer, 1 older, 1 custom, 1 unknown to upstream, 1 missing",
                "lib/a: 1 the same, 1 newer, 1 older, 1 custom; those of v3, v1",
                "lib/b: 1 unknown to upstream, 1 missing",
                "lib/c: 1 newer",
            ]
        );
    }
}
