//! Which names a patch introduces that upstream has introduced since, in the same folder and language: `fromFp8` here,
//! `fromFP8` there. Comments do not count, nor does case, nor do plain words, which meet everywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    edits::FileEdit,
    report::Superseding,
    tokens::{Language, TokenKind, is_coined, tokens},
    upstream::Upstream,
};
use crate::tools::git::{
    ids::{CommitId, EntryId, TreeId},
    store::{Store, StoreError},
    tree_path::TreePath,
};

/// What upstream introduced of the names that a patch introduces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overtaken {
    /// By commit, the one with most names first.
    pub by: Vec<Superseding>,
    /// How many names the patch coins in files near to which upstream did something.
    pub coined: usize,
    /// How many of them upstream coined too.
    pub met: usize,
}

/// Where names were introduced.
type Scope = (Vec<u8>, Language);
/// Names, case folded, with their scope: as they are written, and in which files.
type Names = BTreeMap<(String, Scope), BTreeSet<(String, TreePath)>>;

/// Looks for the names of one patch; `before` is the tree that it changes, `base` the stack's base.
///
/// # Errors
/// When an object is missing.
pub fn superseded(
    store: &Store,
    upstream: &Upstream<'_>,
    edits: &[FileEdit],
    before: TreeId,
    base: TreeId,
) -> Result<Overtaken, StoreError> {
    let coined = coined(store, upstream, edits)?;
    let mut names: BTreeSet<&str> = coined.keys().map(|(name, _)| name.as_str()).collect();
    let mut known = Known { store, upstream, files: BTreeMap::new() };
    let mut met: BTreeMap<CommitId, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
    let mut met_names: BTreeSet<&str> = BTreeSet::new();
    for ((folded, scope), places) in &coined {
        // Names that stand beside it already are used, not introduced.
        if known.holds(before, scope, folded)? || known.holds(base, scope, folded)? {
            names.remove(folded.as_str());
            continue;
        }
        let Some(commit) = introduced(store, upstream, folded, scope)? else { continue };
        met_names.insert(folded);
        let (identifiers, files) = met.entry(commit).or_default();
        identifiers.extend(places.iter().map(|(written, _)| written.clone()));
        files.extend(places.iter().map(|(_, path)| path.to_string()));
    }
    let mut by = Vec::new();
    for (commit, (identifiers, files)) in met {
        by.push(Superseding {
            commit,
            subject: store.commit(commit)?.subject,
            identifiers: identifiers.into_iter().collect(),
            files: files.into_iter().collect(),
        });
    }
    by.sort_by(|one, other| {
        other.identifiers.len().cmp(&one.identifiers.len()).then(one.commit.cmp(&other.commit))
    });
    Ok(Overtaken { by, coined: names.len(), met: met_names.len() })
}

/// The coined names in the lines that a patch brings and not in the file before, by folded name and scope: as written,
/// and where.
fn coined(store: &Store, upstream: &Upstream<'_>, edits: &[FileEdit]) -> Result<Names, StoreError> {
    let mut coined = Names::new();
    for edit in edits.iter().filter(|edit| edit.added() > 0) {
        let Some(language) = Language::of(&edit.path).filter(|language| *language != Language::Hash) else {
            continue;
        };
        // Only where upstream did something near can it have coined the same name.
        let near = |path: &TreePath| {
            Language::of(path) == Some(language) && is_near(path.parent(), edit.path.parent())
        };
        if !upstream.paths().any(near) {
            continue;
        }
        let (before, new) =
            (upstream.texts.words(store, language, edit.old)?, upstream.texts.blob(store, edit.new)?);
        let brought = |line: usize| {
            let next = edit.blocks.partition_point(|block| block.new.end <= line);
            edit.blocks.get(next).is_some_and(|block| block.new.contains(&line))
        };
        let scope = (edit.path.parent().to_vec(), language);
        let tokens = tokens(language, &new);
        for (at, token) in tokens.iter().enumerate() {
            if token.kind != TokenKind::Word || !is_coined(token.text) || !brought(token.line) {
                continue;
            }
            // `std::numeric_limits` is nobody's invention here.
            let before_it = tokens.get(at.saturating_sub(3)..at).unwrap_or_default();
            if before_it.iter().map(|token| token.text).eq([&b"std"[..], b":", b":"]) {
                continue;
            }
            let written = String::from_utf8_lossy(token.text).into_owned();
            let folded = written.to_lowercase();
            if !before.contains(&folded) {
                coined.entry((folded, scope.clone())).or_default().insert((written, edit.path.clone()));
            }
        }
    }
    Ok(coined)
}

/// The commit that brought a name into a file near `scope` since the base.
fn introduced(
    store: &Store,
    upstream: &Upstream<'_>,
    folded: &str,
    (folder, language): &Scope,
) -> Result<Option<CommitId>, StoreError> {
    for path in upstream.paths_with_new(store, folded, *language)? {
        if !is_near(path.parent(), folder) {
            continue;
        }
        if let Some(commit) = upstream.introducer(store, path, folded)? {
            return Ok(Some(commit));
        }
    }
    Ok(None)
}

/// Whether two folders are the same, or one lies right inside the other.
pub(super) fn is_near(one: &[u8], other: &[u8]) -> bool {
    let parent = |folder: &[u8]| {
        folder.iter().rposition(|&byte| byte == b'/').map_or_else(Vec::new, |at| folder[..at].to_vec())
    };
    one == other
        || (!other.is_empty() && parent(one) == other && !one.is_empty())
        || (!one.is_empty() && parent(other) == one && !other.is_empty())
}

/// The files of whole folders, listed when needed.
struct Known<'k, 't> {
    store: &'k Store,
    upstream: &'k Upstream<'t>,
    files: BTreeMap<(TreeId, Scope), Vec<EntryId>>,
}

impl Known<'_, '_> {
    /// Whether a name stands in a folder's files, be it in a comment: then it is not the patch that coins it.
    fn holds(&mut self, tree: TreeId, scope: &Scope, folded: &str) -> Result<bool, StoreError> {
        let key = (tree, scope.clone());
        if !self.files.contains_key(&key) {
            let files = self.store.folder_files(tree, &scope.0)?.into_iter();
            let files = files.filter(|(path, _)| Language::of(path) == Some(scope.1)).map(|(_, id)| id);
            self.files.insert(key.clone(), files.collect());
        }
        for id in self.files.get(&key).into_iter().flatten() {
            if self.upstream.texts.mentions(self.store, Some(*id), folded)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_near_when_they_are_one_step_apart() {
        assert!(
            is_near(b"mlx/c", b"mlx/c") && is_near(b"mlx/c/private", b"mlx/c") && is_near(b"mlx", b"mlx/c")
        );
        assert!(!is_near(b"mlx/c", b"mlx/d") && !is_near(b"mlx/c/a/b", b"mlx/c") && !is_near(b"", b"mlx"));
    }
}
