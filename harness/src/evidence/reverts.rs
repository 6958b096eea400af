//! Which upstream commits a patch undoes. A hunk counts when its result restores what the commit had changed, that is,
//! when the inverse of the commit's hunk applies; or when a public symbol that the commit added is gone. That a deleted
//! line was upstream's is no sign: every edit deletes such lines.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    edits::{EditKind, FileEdit, lines_of},
    origins::{DeletedLine, Origin, Origins},
    report::{AccidentalRevert, RevertHow},
    tokens::{Language, is_public_place, public_symbols},
};
use crate::{
    rebase::replay::Step,
    tools::git::{
        history::LineBlock,
        ids::CommitId,
        store::{MODE_SUBMODULE, Store, StoreError},
        tree_path::TreePath,
    },
};

/// The upstream commits that one patch undoes, those with most lines first; `later` are the patches after it.
///
/// # Errors
/// When an object is missing.
pub fn reverts(
    store: &Store,
    edits: &[FileEdit],
    deleted: &[DeletedLine],
    origins: &Origins,
    later: &[Step],
) -> Result<Vec<AccidentalRevert>, StoreError> {
    let mut found: BTreeMap<CommitId, Undone> = BTreeMap::new();
    if !deleted.iter().any(|line| matches!(line.origin, Origin::Upstream(_))) {
        return Ok(Vec::new());
    }
    let texts = read(store, edits)?;
    let files = cut(edits, &texts);
    let brought = brought_lines(&files);
    for file in files.iter().filter(|file| file.edit.kind == EditKind::Changed) {
        let lines: BTreeMap<usize, &DeletedLine> =
            deleted.iter().filter(|line| line.path == file.edit.path).map(|line| (line.line, line)).collect();
        let mut undone: BTreeSet<usize> = BTreeSet::new();
        for commit in commits_of(&lines) {
            for path in lines
                .values()
                .filter(|line| line.origin == Origin::Upstream(commit))
                .map(|line| &line.origin_path)
            {
                let Some(upstream) = origins.upstream.get(&(commit, path.clone())) else { continue };
                undone.extend(own_hunks(store, file, &lines, commit, upstream, &brought)?);
                break;
            }
        }
        for commit in commits_of(&lines) {
            let rest = lines
                .values()
                .any(|line| line.origin == Origin::Upstream(commit) && !undone.contains(&line.line));
            let upstream = origins.upstream.get(&(commit, file.edit.path.clone()));
            if let (true, Some(upstream)) = (rest, upstream) {
                undone.extend(older_state(store, file, &lines, commit, upstream, &brought)?);
            }
        }
        for line in undone {
            if let Some(Origin::Upstream(commit)) = lines.get(&line).map(|line| line.origin) {
                found.entry(commit).or_default().add(&file.edit.path, line);
            }
        }
    }
    removed_symbols(&files, deleted, &mut found);
    let mut reverts = Vec::new();
    for (commit, undone) in found {
        let restored_by = restored_by(store, &files, &undone, later)?;
        let told = undone.told(commit, store.commit(commit)?.subject);
        reverts.push(AccidentalRevert { restored_by, ..told });
    }
    reverts.sort_by(|one, other| other.lines.cmp(&one.lines).then(one.commit.cmp(&other.commit)));
    Ok(reverts)
}

/// The first later patch after which every line that was taken away is there again.
fn restored_by(
    store: &Store,
    files: &[File<'_>],
    undone: &Undone,
    later: &[Step],
) -> Result<Option<usize>, StoreError> {
    let mut gone: Vec<(&TreePath, BTreeMap<Vec<u8>, usize>)> = Vec::new();
    for file in files {
        let path = &file.edit.path;
        let places =
            [&undone.lines, &undone.without_hunk].into_iter().filter_map(|lines| lines.get(path)).flatten();
        let before = &file.lines_before;
        let lines: BTreeSet<Vec<u8>> = places
            .filter_map(|at| before.get(*at))
            .filter(|line| is_telling(line))
            .map(|line| squeezed(line))
            .collect();
        if !lines.is_empty() {
            let counts = counts(before, &lines);
            gone.push((path, counts));
        }
    }
    'patches: for step in later {
        if !step.changes.iter().any(|change| gone.iter().any(|(path, _)| change.path == **path)) {
            continue;
        }
        for (path, wanted) in &gone {
            let Some(entry) = store.entry(step.after, path)?.filter(|entry| entry.mode != MODE_SUBMODULE)
            else {
                continue 'patches;
            };
            let now = store.blob(entry.id)?;
            let now = counts(&lines_of(&now), &wanted.keys().cloned().collect());
            if wanted.iter().any(|(line, count)| now.get(line).is_none_or(|now| now < count)) {
                continue 'patches;
            }
        }
        return Ok(Some(step.number));
    }
    Ok(None)
}

/// How often each of some lines stands in a text.
fn counts(lines: &[&[u8]], wanted: &BTreeSet<Vec<u8>>) -> BTreeMap<Vec<u8>, usize> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().map(|line| squeezed(line)).filter(|line| wanted.contains(line)) {
        *counts.entry(line).or_default() += 1;
    }
    counts
}

/// A file of the patch with its texts.
struct File<'e> {
    edit: &'e FileEdit,
    before: &'e [u8],
    after: &'e [u8],
    /// The same, cut into lines.
    lines_before: Vec<&'e [u8]>,
    lines_after: Vec<&'e [u8]>,
}

/// The texts of an edit before and after.
type EditTexts = (Vec<u8>, Vec<u8>);

fn read(store: &Store, edits: &[FileEdit]) -> Result<Vec<EditTexts>, StoreError> {
    let text = |id: Option<_>| id.map(|id| store.blob(id)).transpose().map(Option::unwrap_or_default);
    edits.iter().map(|edit| Ok((text(edit.old)?, text(edit.new)?))).collect()
}

fn cut<'e>(edits: &'e [FileEdit], texts: &'e [EditTexts]) -> Vec<File<'e>> {
    let file = |(edit, (before, after)): (&'e FileEdit, &'e EditTexts)| File {
        edit,
        before,
        after,
        lines_before: lines_of(before),
        lines_after: lines_of(after),
    };
    edits.iter().zip(texts).map(file).collect()
}

/// The lines that the patch brings anywhere: what is moved is not undone.
fn brought_lines(files: &[File<'_>]) -> BTreeSet<Vec<u8>> {
    let mut brought = BTreeSet::new();
    for file in files {
        let lines = &file.lines_after;
        let new = file.edit.blocks.iter().flat_map(|block| block.new.clone());
        brought.extend(new.filter_map(|at| lines.get(at)).map(|line| squeezed(line)));
    }
    brought
}

fn commits_of(lines: &BTreeMap<usize, &DeletedLine>) -> BTreeSet<CommitId> {
    let commit = |line: &&DeletedLine| match line.origin {
        Origin::Upstream(commit) => Some(commit),
        _ => None,
    };
    lines.values().filter_map(commit).collect()
}

/// The lines of hunks of `commit` whose inverse the patch holds.
fn own_hunks(
    store: &Store,
    file: &File<'_>,
    lines: &BTreeMap<usize, &DeletedLine>,
    commit: CommitId,
    upstream: &FileEdit,
    brought: &BTreeSet<Vec<u8>>,
) -> Result<BTreeSet<usize>, StoreError> {
    let old = upstream.old.map(|id| store.blob(id)).transpose()?.unwrap_or_default();
    let old = lines_of(&old);
    let mut undone = BTreeSet::new();
    if upstream.kind == EditKind::Added {
        // A file is not a hunk: part of it is not its inverse.
        return Ok(undone);
    }
    for hunk in upstream.blocks.iter().filter(|hunk| !hunk.new.is_empty()) {
        let of_hunk = lines.values().filter(|line| {
            line.origin == Origin::Upstream(commit)
                && line.origin_path == upstream.path
                && hunk.new.contains(&line.origin_line)
        });
        let places: BTreeSet<usize> = of_hunk.map(|line| line.line).collect();
        if places.len() != hunk.new.len() {
            continue;
        }
        let wanted = old.get(hunk.old.clone()).unwrap_or_default();
        if is_restored(file, &places, wanted, brought) {
            undone.extend(places);
        }
    }
    Ok(undone)
}

/// The lines that have come since the file's state before `commit` and that the patch turns back to that state: several
/// commits on top of each other are undone this way.
fn older_state(
    store: &Store,
    file: &File<'_>,
    lines: &BTreeMap<usize, &DeletedLine>,
    commit: CommitId,
    upstream: &FileEdit,
    brought: &BTreeSet<Vec<u8>>,
) -> Result<BTreeSet<usize>, StoreError> {
    let mut undone = BTreeSet::new();
    let Some(older) = upstream.old else { return Ok(undone) };
    let old = store.blob(older)?;
    let old = lines_of(&old);
    for LineBlock { old: before, new } in store.line_blocks(Some(older), file.edit.old)? {
        let places: BTreeSet<usize> = new.clone().filter(|line| lines.contains_key(line)).collect();
        let of_commit = places.iter().any(|line| lines[line].origin == Origin::Upstream(commit));
        let all_upstream = places.iter().all(|line| matches!(lines[line].origin, Origin::Upstream(_)));
        if !of_commit || !all_upstream || places.len() != new.len() {
            continue;
        }
        let wanted = old.get(before).unwrap_or_default();
        if is_restored(file, &places, wanted, brought) {
            undone.extend(places);
        }
    }
    Ok(undone)
}

/// Whether the patch, where it deletes the lines at `places`, leaves just the lines `wanted` that stood there once.
fn is_restored(
    file: &File<'_>,
    places: &BTreeSet<usize>,
    wanted: &[&[u8]],
    brought: &BTreeSet<Vec<u8>>,
) -> bool {
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return false };
    if last - first + 1 != places.len() {
        return false;
    }
    let before = &file.lines_before;
    let gone: Vec<&[u8]> = places.iter().filter_map(|at| before.get(*at)).copied().collect();
    if !gone.iter().chain(wanted).any(|line| is_telling(line)) {
        return false;
    }
    let after = &file.lines_after;
    let overlapping =
        file.edit.blocks.iter().filter(|block| block.old.start <= last && first < block.old.end);
    let new: Vec<&[u8]> =
        overlapping.flat_map(|block| block.new.clone()).filter_map(|at| after.get(at)).copied().collect();
    if wanted.is_empty() {
        // Taken out whole, nothing in its place, and not put elsewhere.
        let moved = gone.iter().filter(|line| is_telling(line)).all(|line| brought.contains(&squeezed(line)));
        return new.is_empty() && !moved;
    }
    let (new, wanted): (Vec<_>, Vec<_>) =
        (new.iter().map(|line| squeezed(line)).collect(), wanted.iter().map(|line| squeezed(line)).collect());
    let same: Vec<Vec<u8>> = gone.iter().map(|line| squeezed(line)).collect();
    same != wanted && new.windows(wanted.len()).any(|window| window == wanted)
}

/// Adds public symbols that are declared before the patch and nowhere in its files after it.
fn removed_symbols(files: &[File<'_>], deleted: &[DeletedLine], found: &mut BTreeMap<CommitId, Undone>) {
    let symbols = |path: &TreePath, text: &[u8]| match Language::of(path) {
        Some(language) if is_public_place(path, language) => public_symbols(language, text),
        _ => Vec::new(),
    };
    // Only what upstream brought can be upstream's symbol; most patches delete none of it.
    let upstreams: BTreeSet<&TreePath> = deleted
        .iter()
        .filter(|line| matches!(line.origin, Origin::Upstream(_)))
        .map(|line| &line.path)
        .collect();
    let is_declaring = |file: &&File<'_>| {
        Language::of(&file.edit.path).is_some_and(|language| is_public_place(&file.edit.path, language))
    };
    if !files.iter().filter(is_declaring).any(|file| upstreams.contains(&file.edit.path)) {
        return;
    }
    let after: BTreeSet<String> = files
        .iter()
        .flat_map(|file| symbols(&file.edit.path, file.after))
        .map(|symbol| symbol.name)
        .collect();
    // Files that go as a whole are seen by everyone, where a patch is about that.
    let gone = files.iter().filter(|file| file.edit.kind == EditKind::Deleted).count();
    let about_files = 2 * gone >= files.len();
    for file in files.iter().filter(|file| upstreams.contains(&file.edit.path)) {
        if about_files && file.edit.kind == EditKind::Deleted {
            continue;
        }
        for symbol in symbols(&file.edit.path, file.before) {
            let declared = |line: &&DeletedLine| line.path == file.edit.path && line.line == symbol.line;
            let Some(line) = deleted.iter().find(declared).filter(|_| !after.contains(&symbol.name)) else {
                continue;
            };
            let Origin::Upstream(commit) = line.origin else { continue };
            let undone = found.entry(commit).or_default();
            undone.symbols.insert(symbol.name);
            // The lines around it that came with it went with it.
            let beside = deleted.iter().filter(|other| {
                other.path == line.path && other.origin == line.origin && symbol.extent.contains(&other.line)
            });
            for line in beside {
                undone.without_hunk.entry(line.path.clone()).or_default().insert(line.line);
            }
        }
    }
}

/// What of one commit is undone.
#[derive(Debug, Default)]
struct Undone {
    lines: BTreeMap<TreePath, BTreeSet<usize>>,
    without_hunk: BTreeMap<TreePath, BTreeSet<usize>>,
    symbols: BTreeSet<String>,
}

impl Undone {
    fn add(&mut self, path: &TreePath, line: usize) {
        self.lines.entry(path.clone()).or_default().insert(line);
    }

    fn told(self, commit: CommitId, subject: String) -> AccidentalRevert {
        let how = if self.lines.is_empty() { RevertHow::RemovedSymbol } else { RevertHow::InverseHunk };
        let mut lines = self.lines;
        for (path, more) in self.without_hunk {
            lines.entry(path).or_default().extend(more);
        }
        let mut places = Vec::new();
        for (path, lines) in &lines {
            let firsts =
                lines.iter().filter(|line| line.checked_sub(1).is_none_or(|above| !lines.contains(&above)));
            places.extend(firsts.map(|line| format!("{path}:{}", line + 1)));
        }
        let count = lines.values().map(BTreeSet::len).sum();
        let symbols = self.symbols.into_iter().collect();
        AccidentalRevert { commit, subject, lines: count, how, symbols, places, restored_by: None }
    }
}

/// A line without white space.
fn squeezed(line: &[u8]) -> Vec<u8> {
    line.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect()
}

/// Whether a line says something: brackets and the like do not.
fn is_telling(line: &[u8]) -> bool {
    line.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() >= 3
}
