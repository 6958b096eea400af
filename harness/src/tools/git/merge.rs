//! Picks a change onto another tree the way `git rebase` would, without a work tree. What touches nothing that changed
//! in between is done here; everything else is handed to `git merge-tree`, so that the result is that of git's own
//! `ort` merge, many picks to one process.

use std::{collections::BTreeMap, path::Path, rc::Rc, time::Duration};

use super::{
    command::git_command,
    ids::TreeId,
    store::{Entry, PathChange, Store, StoreError},
    tree_path::TreePath,
};
use crate::tools::process::ProcessError;

/// How long one batch of merges may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Git learned to merge bare trees in this version.
const OLDEST_GIT: &str = "2.45";

/// One change to pick: `base..theirs`, onto `ours`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pick {
    /// The tree before the change.
    pub base: TreeId,
    /// The tree to pick it onto.
    pub ours: TreeId,
    /// The tree after the change.
    pub theirs: TreeId,
}

/// What becomes of hunks that both sides changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favour {
    /// They conflict.
    Neither,
    /// The picked change's own version is kept.
    Theirs,
}

/// The outcome of a [`Pick`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// The resulting tree. Where a file conflicts, it holds conflict markers or one side's version.
    pub tree: TreeId,
    /// The paths in conflict, in byte order; empty when the pick is clean.
    pub conflicts: Vec<PathConflict>,
}

/// One path that could not be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConflict {
    /// The path.
    pub path: TreePath,
    /// The name under which the merged tree holds it: another one where its place is taken by a folder.
    pub merged_as: TreePath,
    /// Git's words for it, such as `contents` or `modify/delete`.
    pub kind: String,
    /// What the tree before the change holds there.
    pub base: Option<Entry>,
    /// What the tree picked onto holds there.
    pub ours: Option<Entry>,
    /// What the tree after the change holds there.
    pub theirs: Option<Entry>,
}

/// Why merging could not be done.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Git itself failed.
    #[error("git could not merge trees in `{}`", .store.display())]
    Git {
        /// The object store.
        store: std::path::PathBuf,
        /// What git said.
        #[source]
        source: ProcessError,
    },
    /// Git answered in another form than expected.
    #[error("git's answer to a merge of trees cannot be read: {0}")]
    Answer(&'static str),
}

impl MergeError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            _ => Some(format!(
                "git {OLDEST_GIT} or later is needed, and every file that both sides changed must be in the repository"
            )),
        }
    }
}

impl Store {
    /// Picks several changes, independently of each other. Outcomes come in the order of `picks`.
    ///
    /// # Errors
    /// See [`MergeError`]; a conflict is no error.
    pub fn pick_all(&self, picks: &[Pick], favour: Favour) -> Result<Vec<Picked>, MergeError> {
        let mut outcomes: Vec<Option<Picked>> = Vec::with_capacity(picks.len());
        let mut asked: BTreeMap<(TreeId, TreeId, TreeId), usize> = BTreeMap::new();
        let mut requests = Vec::new();
        for pick in picks {
            let quick = self.pick_untouched(pick)?.map(|tree| Picked { tree, conflicts: Vec::new() });
            if quick.is_none() {
                asked.entry((pick.base, pick.ours, pick.theirs)).or_insert_with(|| {
                    requests.push(*pick);
                    requests.len() - 1
                });
            }
            outcomes.push(quick);
        }
        let merged = if requests.is_empty() { Vec::new() } else { self.merge_tree(&requests, favour)? };
        Ok(picks
            .iter()
            .zip(outcomes)
            .map(|(pick, quick)| {
                quick.unwrap_or_else(|| merged[asked[&(pick.base, pick.ours, pick.theirs)]].clone())
            })
            .collect())
    }

    /// Picks one change.
    ///
    /// # Errors
    /// See [`MergeError`]; a conflict is no error.
    pub fn pick(&self, pick: Pick, favour: Favour) -> Result<Picked, MergeError> {
        let mut outcomes = self.pick_all(&[pick], favour)?;
        outcomes.pop().ok_or(MergeError::Answer("it holds no outcome"))
    }

    /// Picks one change so that something whole always comes out: where it conflicts, the change's own version of the
    /// conflicting hunks is kept, and of the whole file where files cannot be mixed.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn carry(&self, pick: Pick) -> Result<TreeId, MergeError> {
        let mut trees = self.carry_all(&[pick])?;
        trees.pop().ok_or(MergeError::Answer("it holds no outcome"))
    }

    /// [`Store::carry`] for several changes, independently of each other.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn carry_all(&self, picks: &[Pick]) -> Result<Vec<TreeId>, MergeError> {
        let outcomes = self.pick_all(picks, Favour::Theirs)?;
        picks.iter().zip(outcomes).map(|(pick, picked)| self.carried_tree(*pick, picked)).collect()
    }

    fn carried_tree(&self, pick: Pick, picked: Picked) -> Result<TreeId, MergeError> {
        let mut edits = BTreeMap::new();
        for conflict in &picked.conflicts {
            let own = self.entry(pick.theirs, &conflict.path)?;
            let (before, target) =
                (self.entry(pick.base, &conflict.path)?, self.entry(pick.ours, &conflict.path)?);
            if conflict.merged_as != conflict.path {
                edits.insert(conflict.merged_as.clone(), None);
            }
            // A name that only the target has stays as git left it.
            if own.is_some() || before.is_some() || target.is_none() {
                edits.insert(conflict.path.clone(), own);
            }
        }
        Ok(self.edited_tree(picked.tree, &edits)?)
    }

    /// How many places of a conflicting path need a person: the conflict markers in the merged file, or 1 where the
    /// file as a whole is in question.
    ///
    /// # Errors
    /// When the merged file cannot be read.
    pub fn conflict_hunks(&self, picked: &Picked, conflict: &PathConflict) -> Result<usize, StoreError> {
        let merged_as = &conflict.merged_as;
        let file =
            self.entry(picked.tree, merged_as)?.filter(|entry| matches!(entry.mode, 0o100_644 | 0o100_755));
        let Some(file) = file else { return Ok(1) };
        let bytes = self.blob(file.id)?;
        let markers = bytes.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"<<<<<<< ")).count();
        Ok(markers.max(1))
    }

    /// The paths that `base..theirs` changes; known ones are not compared again.
    pub(super) fn known_changes(
        &self,
        base: TreeId,
        theirs: TreeId,
    ) -> Result<Rc<Vec<PathChange>>, StoreError> {
        if let Some(known) = self.known.borrow().get(&(base, theirs)) {
            return Ok(Rc::clone(known));
        }
        let changes = Rc::new(self.changes(base, theirs)?);
        self.known.borrow_mut().insert((base, theirs), Rc::clone(&changes));
        Ok(changes)
    }

    /// The outcome of a pick whose paths the target left alone; `None` where a real merge is needed. Whether `ort`
    /// would follow a renamed folder is the one thing that equal files do not settle, hence the looks at folders.
    fn pick_untouched(&self, pick: &Pick) -> Result<Option<TreeId>, StoreError> {
        if pick.ours == pick.base {
            return Ok(Some(pick.theirs));
        }
        let changes = self.known_changes(pick.base, pick.theirs)?;
        let mut edits = BTreeMap::new();
        for PathChange { path, old, new } in changes.iter() {
            if self.entry(pick.ours, path)? != *old {
                return Ok(None);
            }
            let folder = path.parent();
            let folder_may_have_moved = match (old, new) {
                (None, Some(_)) => {
                    !self.has_folder(pick.ours, folder)?
                        && (self.has_folder(pick.base, folder)? || self.blocked(pick.ours, folder)?)
                }
                (Some(_), None) => !self.has_folder(pick.theirs, folder)?,
                _ => false,
            };
            if folder_may_have_moved {
                return Ok(None);
            }
            edits.insert(path.clone(), *new);
        }
        Ok(Some(self.edited_tree(pick.ours, &edits)?))
    }

    /// Whether something that is no folder stands on the way to `folder`.
    fn blocked(&self, tree: TreeId, folder: &[u8]) -> Result<bool, StoreError> {
        let ends = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([folder.len()]) {
            let Ok(path) = TreePath::new(&folder[..end]) else { continue };
            if self.entry(tree, &path)?.is_some() && !self.has_folder(tree, &folder[..end])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge_tree(&self, picks: &[Pick], favour: Favour) -> Result<Vec<Picked>, MergeError> {
        let lines: String =
            picks.iter().map(|pick| format!("{} -- {} {}\n", pick.base, pick.ours, pick.theirs)).collect();
        let mut command = git_command(self.path()).args(["merge-tree", "--write-tree", "--stdin", "-z"]);
        if favour == Favour::Theirs {
            command = command.args(["-X", "theirs"]);
        }
        let failed = |source| MergeError::Git { store: Path::to_owned(self.path()), source };
        let answer = command.stdin(lines).timeout(TIMEOUT).run_ok().map_err(failed)?.stdout_bytes;
        let picked = read_answer(&answer)?;
        if picked.len() != picks.len() {
            return Err(MergeError::Answer("it holds another number of outcomes than asked for"));
        }
        Ok(picked)
    }
}

/// Reads what `git merge-tree --stdin -z` prints: for each pick a status, a tree, and on conflicts the entries by stage
/// and the messages, each list ended by an empty field.
fn read_answer(answer: &[u8]) -> Result<Vec<Picked>, MergeError> {
    let mut fields = answer.split(|&byte| byte == 0);
    let mut outcomes = Vec::new();
    loop {
        let clean = match fields.next() {
            Some(b"1") => true,
            Some(b"0") => false,
            Some(b"") | None => return Ok(outcomes),
            Some(_) => return Err(MergeError::Answer("a status is neither 0 nor 1")),
        };
        let tree = fields.next().and_then(|hex| std::str::from_utf8(hex).ok()?.parse().ok());
        let tree = tree.ok_or(MergeError::Answer("a tree is missing"))?;
        let mut found: BTreeMap<TreePath, PathConflict> = BTreeMap::new();
        for field in fields.by_ref().take_while(|field| !field.is_empty()) {
            let (path, stage, entry) =
                read_entry(field).ok_or(MergeError::Answer("an entry is malformed"))?;
            let conflict = conflict_at(&mut found, path);
            match stage {
                1 => conflict.base = Some(entry),
                2 => conflict.ours = Some(entry),
                _ => conflict.theirs = Some(entry),
            }
        }
        if !clean {
            read_messages(&mut fields, &mut found)?;
        }
        outcomes.push(Picked { tree, conflicts: found.into_values().collect() });
    }
}

fn read_entry(field: &[u8]) -> Option<(TreePath, u8, Entry)> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&field[..tab]).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let id = words.next()?.parse().ok()?;
    let stage = words.next()?.parse().ok()?;
    Some((TreePath::new(&field[tab + 1..]).ok()?, stage, Entry { id, mode }))
}

fn read_messages<'a>(
    fields: &mut impl Iterator<Item = &'a [u8]>,
    found: &mut BTreeMap<TreePath, PathConflict>,
) -> Result<(), MergeError> {
    let malformed = MergeError::Answer("a message is malformed");
    loop {
        let count = match fields.next() {
            None | Some(b"") => return Ok(()),
            Some(count) => std::str::from_utf8(count).ok().and_then(|count| count.parse::<usize>().ok()),
        };
        let Some(count) = count else { return Err(malformed) };
        let paths: Vec<&[u8]> = fields.by_ref().take(count).collect();
        let kind = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
        let _text = fields.next();
        let Some(kind) = kind.strip_prefix("CONFLICT (").and_then(|kind| kind.strip_suffix(')')) else {
            continue;
        };
        let known: Vec<TreePath> =
            paths.iter().filter_map(|&path| TreePath::new(path).ok()).map(|path| own_path(&path)).collect();
        // Some conflicts (a folder renamed two ways) leave no entries: their first path stands for them.
        let named = known.iter().any(|path| found.contains_key(path));
        for path in known.into_iter().take(if named { count } else { 1 }) {
            if !named || found.contains_key(&path) {
                let conflict = conflict_at(found, path);
                if conflict.kind.is_empty() {
                    conflict.kind = kind.to_owned();
                }
            }
        }
    }
}

fn conflict_at(found: &mut BTreeMap<TreePath, PathConflict>, merged_as: TreePath) -> &mut PathConflict {
    let path = own_path(&merged_as);
    found.entry(path.clone()).or_insert(PathConflict {
        path,
        merged_as,
        kind: String::new(),
        base: None,
        ours: None,
        theirs: None,
    })
}

/// A path without what git adds where a folder has taken its place: `~`, the id of the tree that it came from, and a
/// number where even that name is taken.
fn own_path(merged_as: &TreePath) -> TreePath {
    let bytes = merged_as.as_bytes();
    let cut = bytes.iter().rposition(|&byte| byte == b'~').filter(|&at| {
        let tail = &bytes[at + 1..];
        let id = tail.get(..40).is_some_and(|id| id.iter().all(u8::is_ascii_hexdigit));
        id && tail[40..].iter().all(|byte| *byte == b'_' || byte.is_ascii_digit())
    });
    cut.and_then(|at| TreePath::new(&bytes[..at]).ok()).unwrap_or_else(|| merged_as.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_clean_and_conflicting_picks_is_read_in_order() {
        let id = "0123456789012345678901234567890123456789";
        let answer = format!(
            "1\0{id}\0\x000\0{id}\0100644 {id} 1\ta\0100755 {id} 3\ta\0\x001\0a\0Auto-merging\0Auto-merging a\n\0\
             1\0a\0CONFLICT (modify/delete)\0CONFLICT: a\n\0\x001\0{id}\0\0"
        );
        let picked = read_answer(answer.as_bytes()).unwrap();
        let told: Vec<Vec<(String, String)>> = picked
            .iter()
            .map(|picked| picked.conflicts.iter().map(|c| (c.path.to_string(), c.kind.clone())).collect())
            .collect();
        assert_eq!(told, [vec![], vec![("a".to_owned(), "modify/delete".to_owned())], vec![]]);
        assert_eq!(picked[1].conflicts[0].theirs.map(|entry| entry.mode), Some(0o100_755));
        assert!(read_answer(b"2\0x\0").is_err());
    }
}
