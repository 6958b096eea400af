//! Where the lines come from that a stack deletes: from which earlier patch, or from which upstream commit. Lines are
//! followed back through the stack and then through upstream's history, as `git blame` does it.

use std::collections::{BTreeMap, BTreeSet};

use super::edits::{EditKind, FileEdit, edit_of};
use crate::{
    fork::Milestone,
    tools::git::{
        history::{LineBlock, Watch},
        ids::{CommitId, TreeId},
        store::{PathChange, Store, StoreError},
        tree_path::TreePath,
    },
};

/// Who put a line where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An earlier patch of the stack, by its number.
    Patch(usize),
    /// An upstream commit.
    Upstream(CommitId),
    /// The history at hand does not reach back far enough.
    Unknown,
}

/// One line that a patch deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedLine {
    /// The file that it is deleted from.
    pub path: TreePath,
    /// Its place in the file before the patch, from 0.
    pub line: usize,
    /// Who put it there.
    pub origin: Origin,
    /// The file that it was put into.
    pub origin_path: TreePath,
    /// Its place in that file as its origin left it, from 0.
    pub origin_line: usize,
}

/// Where all deleted lines of a stack come from.
#[derive(Debug, Default)]
pub struct Origins {
    /// The deleted lines of each patch, in the stack's order; by path and line.
    pub deleted: Vec<Vec<DeletedLine>>,
    /// What the upstream commits that are named do to the files in question.
    pub upstream: BTreeMap<(CommitId, TreePath), FileEdit>,
}

/// Follows the deleted lines of a stack. `edits` are the patches' edits in the stack's order; `history` gives the
/// commits from the base back, the base first.
///
/// # Errors
/// When an object is missing.
pub fn origins(
    store: &Store,
    numbers: &[usize],
    edits: &[Vec<FileEdit>],
    history: &[Milestone],
) -> Result<Origins, StoreError> {
    let mut tracker = Tracker {
        store,
        pending: BTreeMap::new(),
        found: Origins { deleted: vec![Vec::new(); edits.len()], upstream: BTreeMap::new() },
    };
    for (at, edits) in edits.iter().enumerate().rev() {
        tracker.through_patch(at, numbers[at], edits);
    }
    tracker.through_upstream(history)?;
    tracker.give_up();
    for lines in &mut tracker.found.deleted {
        lines.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    }
    Ok(tracker.found)
}

/// A line on its way back.
#[derive(Debug, Clone)]
struct Pending {
    patch: usize,
    path: TreePath,
    line: usize,
    at: usize,
}

struct Tracker<'s> {
    store: &'s Store,
    pending: BTreeMap<TreePath, Vec<Pending>>,
    found: Origins,
}

impl Tracker<'_> {
    fn through_patch(&mut self, at: usize, number: usize, edits: &[FileEdit]) {
        let moved: BTreeMap<&TreePath, &TreePath> = edits
            .iter()
            .filter(|edit| edit.kind == EditKind::Added && edit.new.is_some())
            .filter_map(|edit| {
                let from =
                    edits.iter().find(|other| other.kind == EditKind::Deleted && other.old == edit.new)?;
                Some((&edit.path, &from.path))
            })
            .collect();
        let mut arriving: Vec<(TreePath, Vec<Pending>)> = Vec::new();
        for edit in edits {
            let Some(pending) = self.pending.remove(&edit.path) else { continue };
            match moved.get(&edit.path) {
                Some(&from) => arriving.push((from.clone(), pending)),
                None => {
                    let left = self.through_edit(Origin::Patch(number), edit, pending);
                    arriving.push((edit.path.clone(), left));
                }
            }
        }
        let gone: BTreeSet<&TreePath> = moved.values().copied().collect();
        for edit in edits.iter().filter(|edit| !gone.contains(&edit.path)) {
            let lines = edit.blocks.iter().flat_map(|block| block.old.clone());
            let lines = lines.map(|line| Pending { patch: at, path: edit.path.clone(), line, at: line });
            arriving.push((edit.path.clone(), lines.collect()));
        }
        for (path, lines) in arriving.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            self.pending.entry(path).or_default().extend(lines);
        }
    }

    /// Takes lines of an edit's new file back to its old file; those that the edit brought have found their origin.
    fn through_edit(&mut self, origin: Origin, edit: &FileEdit, pending: Vec<Pending>) -> Vec<Pending> {
        let mut left = Vec::new();
        for mut line in pending {
            match carried_back(&edit.blocks, line.at) {
                Some(at) => {
                    line.at = at;
                    left.push(line);
                }
                None => self.found.deleted[line.patch].push(DeletedLine {
                    path: line.path,
                    line: line.line,
                    origin,
                    origin_path: edit.path.clone(),
                    origin_line: line.at,
                }),
            }
        }
        left
    }

    fn through_upstream(&mut self, history: &[Milestone]) -> Result<(), StoreError> {
        let mut watch: Watch = self.pending.keys().collect();
        for (at, milestone) in history.iter().enumerate() {
            if self.pending.is_empty() {
                break;
            }
            let before = match history.get(at + 1) {
                Some(before) => before.tree,
                // The end of what is at hand: a root commit brought all that is left.
                None if self.store.commit(milestone.commit)?.parents.is_empty()
                    && !self.store.is_shallow() =>
                {
                    self.store.empty_tree()?
                }
                None => break,
            };
            let changes = self.store.changes_among(before, milestone.tree, &watch)?;
            if changes.is_empty() {
                continue;
            }
            for change in &changes {
                self.through_commit(milestone, before, change)?;
            }
            watch = self.pending.keys().collect();
        }
        Ok(())
    }

    fn through_commit(
        &mut self,
        milestone: &Milestone,
        before: TreeId,
        change: &PathChange,
    ) -> Result<(), StoreError> {
        let Some(pending) = self.pending.remove(&change.path) else { return Ok(()) };
        if change.old.is_none()
            && let Some(from) = self.moved_from(before, milestone.tree, change)?
        {
            self.pending.entry(from).or_default().extend(pending);
            return Ok(());
        }
        let edit = edit_of(self.store, change)?;
        let count = pending.len();
        let left = self.through_edit(Origin::Upstream(milestone.commit), &edit, pending);
        if left.len() < count {
            self.found.upstream.insert((milestone.commit, change.path.clone()), edit);
        }
        if !left.is_empty() {
            self.pending.entry(change.path.clone()).or_default().extend(left);
        }
        Ok(())
    }

    /// The path that a new file had before, when it was moved without a change.
    fn moved_from(
        &self,
        before: TreeId,
        after: TreeId,
        change: &PathChange,
    ) -> Result<Option<TreePath>, StoreError> {
        let id = change.new.map(|entry| entry.id);
        let all = self.store.changes(before, after)?;
        let gone = all.into_iter().filter(|other| other.new.is_none());
        Ok(gone.into_iter().find(|other| other.old.map(|entry| entry.id) == id).map(|other| other.path))
    }

    fn give_up(&mut self) {
        for (origin_path, lines) in std::mem::take(&mut self.pending) {
            for Pending { patch, path, line, at } in lines {
                let origin_path = origin_path.clone();
                let (origin, origin_line) = (Origin::Unknown, at);
                self.found.deleted[patch].push(DeletedLine { path, line, origin, origin_path, origin_line });
            }
        }
    }
}

/// The place in the old file of a line of the new one; `None` for a line that came with the edit.
fn carried_back(blocks: &[LineBlock], line: usize) -> Option<usize> {
    // Blocks stand in order, so the last one that begins at or before the line decides.
    let next = blocks.partition_point(|block| block.new.start <= line);
    let Some(block) = next.checked_sub(1).map(|at| &blocks[at]) else { return Some(line) };
    match block.new.contains(&line) {
        true => None,
        false => Some(line - block.new.end + block.old.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{evidence::edits::edits_of, tools::git::fixture::ForkFixture};

    fn told(fixture: &ForkFixture) -> String {
        let store = &fixture.store;
        let tree = |commit: CommitId| store.commit(commit).unwrap().tree;
        let edits: Vec<Vec<FileEdit>> = fixture
            .fork
            .windows(2)
            .map(|pair| edits_of(store, &store.changes(tree(pair[0]), tree(pair[1])).unwrap()).unwrap())
            .collect();
        let history = store.first_parents(fixture.base).unwrap();
        let history: Vec<Milestone> =
            history.into_iter().map(|commit| Milestone { commit, tree: tree(commit) }).collect();
        let numbers: Vec<usize> = (1..=edits.len()).collect();
        let origins = origins(store, &numbers, &edits, &history).unwrap();
        let mut text = String::new();
        for (number, lines) in (1..).zip(&origins.deleted) {
            for line in lines {
                let origin = match line.origin {
                    Origin::Patch(number) => format!("patch {number}"),
                    Origin::Upstream(commit) => store.commit(commit).unwrap().subject,
                    Origin::Unknown => "unknown".to_owned(),
                };
                let DeletedLine { path, line, origin_path, origin_line, .. } = line;
                text.push_str(&format!("{number} {path}:{line} from {origin} {origin_path}:{origin_line}\n"));
            }
        }
        text
    }

    #[test]
    fn deleted_lines_are_followed_through_patches_commits_and_moves() {
        let mut fixture = ForkFixture::new(&[("f", "a\nb\nc\n"), ("old", "x\ny\n")]);
        let one = fixture.commit(&[fixture.base], "adds d", &[("f", Some("a\nb\nd\nc\n"))]);
        let moved = fixture.commit(&[one], "moves", &[("old", None), ("new", Some("x\ny\n"))]);
        fixture.base = moved;
        fixture.fork = vec![moved];
        let fixture = fixture
            .patch("adds p", &[("f", Some("p\na\nb\nd\nc\n"))])
            .patch("moves f", &[("f", None), ("g", Some("p\na\nb\nd\nc\n"))])
            .patch("deletes", &[("g", Some("b\nc\n")), ("new", Some("y\n"))]);
        insta::assert_snapshot!(told(&fixture), @r"
        3 g:0 from patch 1 f:0
        3 g:1 from base f:0
        3 g:3 from adds d f:2
        3 new:0 from base old:0
        ");
    }

    #[test]
    fn a_line_after_a_block_moves_by_the_blocks_before_it() {
        let blocks = [LineBlock { old: 1..3, new: 1..1 }, LineBlock { old: 5..5, new: 3..6 }];
        let back: Vec<Option<usize>> = (0..8).map(|line| carried_back(&blocks, line)).collect();
        assert_eq!(back, [Some(0), Some(3), Some(4), None, None, None, Some(5), Some(6)]);
    }
}
