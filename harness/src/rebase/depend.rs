//! Which patches of a stack need which earlier ones: whose lines they change, delete, or stand right beside. Neighbours
//! count, because git cannot swap two changes that touch.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use crate::tools::git::{store::LineChange, tree_path::TreePath};

/// Follows the lines of files through a stack and remembers which patch each line came from.
#[derive(Debug, Default)]
pub struct LineOrigins {
    files: BTreeMap<TreePath, FileOrigins>,
}

/// What one patch does to one file.
#[derive(Debug, Clone, Copy)]
pub enum FileChange<'c> {
    /// It is new.
    Made,
    /// It goes.
    Deleted,
    /// Its lines change at these places, in order.
    Edited(&'c [LineChange]),
}

impl LineOrigins {
    /// Takes in what patch `number` does to one file; gives the earlier patches that this needs.
    pub fn record(&mut self, number: usize, path: &TreePath, change: FileChange<'_>) -> BTreeSet<usize> {
        let file = self.files.entry(path.clone()).or_default();
        let mut needed = BTreeSet::new();
        if file.made || !matches!(change, FileChange::Edited(_)) {
            needed.extend(file.whole);
        }
        match change {
            FileChange::Edited(places) => needed.extend(file.edited(number, places)),
            FileChange::Made => {
                needed.extend(file.owners(0..usize::MAX));
                *file = FileOrigins {
                    whole: Some(number),
                    made: true,
                    rest: Some(number),
                    ..FileOrigins::default()
                };
            }
            FileChange::Deleted => {
                needed.extend(file.owners(0..usize::MAX));
                *file = FileOrigins { whole: Some(number), ..FileOrigins::default() };
                file.gaps.insert(0, BTreeSet::from([number]));
            }
        }
        needed.remove(&number);
        needed
    }
}

#[derive(Debug, Default)]
struct FileOrigins {
    /// The patch that made or deleted the file.
    whole: Option<usize>,
    /// Whether the file as it stands was made by a patch.
    made: bool,
    /// The patch that each line came from; `None` for upstream's.
    lines: Vec<Option<usize>>,
    /// The patch that all lines after those came from.
    rest: Option<usize>,
    /// The patches that deleted something before the line of that position.
    gaps: BTreeMap<usize, BTreeSet<usize>>,
}

impl FileOrigins {
    /// The patches that lines came from, and those that deleted something before, between or after them.
    fn owners(&self, lines: Range<usize>) -> BTreeSet<usize> {
        let known = self.lines.len();
        let mut owners: BTreeSet<usize> =
            self.lines[lines.start.min(known)..lines.end.min(known)].iter().copied().flatten().collect();
        if lines.end > known {
            owners.extend(self.rest);
        }
        owners.extend(self.gaps.range(lines.start..=lines.end).flat_map(|(_, deleted)| deleted));
        owners
    }

    fn edited(&mut self, number: usize, places: &[LineChange]) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let (mut lines, mut gaps) = (Vec::new(), BTreeMap::new());
        let mut at = 0;
        for LineChange { old, new } in places {
            // Neighbouring lines count, but what was deleted beyond them does not.
            needed.extend(self.owners(old.clone()));
            let beside = [old.start.checked_sub(1), Some(old.end)];
            needed.extend(beside.into_iter().flatten().filter_map(|line| self.line(line)));
            self.keep(at..old.start, &mut lines, &mut gaps);
            lines.extend(new.clone().map(|_| Some(number)));
            let mut gap = self.gaps.get(&old.end).cloned().unwrap_or_default();
            if new.is_empty() {
                gap.extend(self.gaps.get(&old.start).into_iter().flatten());
            } else if let Some(before) = self.gaps.get(&old.start) {
                gaps.insert(lines.len() - new.len(), before.clone());
            }
            if !old.is_empty() {
                gap.insert(number);
            }
            gaps.insert(lines.len(), gap);
            at = old.end;
        }
        let shift = lines.len() as isize - at as isize;
        lines.extend(self.lines.iter().skip(at));
        let after = self.gaps.range(at + 1..);
        gaps.extend(after.map(|(&gap, deleted)| (gap.saturating_add_signed(shift), deleted.clone())));
        (self.lines, self.gaps) = (lines, gaps);
        needed
    }

    fn line(&self, at: usize) -> Option<usize> {
        self.lines.get(at).copied().unwrap_or(self.rest)
    }

    /// Takes over lines that stay, with the gaps between them and before the first, save one that is known already.
    fn keep(
        &self,
        stay: Range<usize>,
        lines: &mut Vec<Option<usize>>,
        gaps: &mut BTreeMap<usize, BTreeSet<usize>>,
    ) {
        for at in stay {
            if let Some(deleted) = self.gaps.get(&at) {
                gaps.entry(lines.len()).or_insert_with(|| deleted.clone());
            }
            lines.push(self.line(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use similar::{Algorithm, DiffOp, capture_diff_slices};

    use super::*;

    /// The places at which two texts differ.
    fn places(old: &str, new: &str) -> Vec<LineChange> {
        let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        capture_diff_slices(Algorithm::Myers, &old, &new)
            .into_iter()
            .filter(|op| !matches!(op, DiffOp::Equal { .. }))
            .map(|op| LineChange { old: op.old_range(), new: op.new_range() })
            .collect()
    }

    #[test]
    fn patches_need_those_whose_lines_they_touch_or_stand_beside() {
        let path = TreePath::new("f").unwrap();
        let versions = [
            "a\nb\nc\nd\ne\nf\n",
            "a\nB\nc\nd\ne\nf\n",    // 1 changes b
            "a\nB\nc\nd\ne\nF\n",    // 2 changes f
            "a\nB\nC\nd\ne\nF\n",    // 3 changes c, right after 1's line
            "a\nB\nC\nd\nF\n",       // 4 deletes e, right before 2's line
            "a\nB\nC\nd\nx\nF\n",    // 5 adds where 4 deleted
            "0\na\nB\nC\nd\nx\nF\n", // 6 adds at the top
            "0\na\nB\nC\nd\nx\nf\n", // 7 changes the line of 2 beside that of 5
        ];
        let mut origins = LineOrigins::default();
        let needed: Vec<Vec<usize>> = (1..versions.len())
            .map(|number| {
                let places = places(versions[number - 1], versions[number]);
                origins.record(number, &path, FileChange::Edited(&places)).into_iter().collect()
            })
            .collect();
        assert_eq!(needed, [vec![], vec![], vec![1], vec![2], vec![2, 4], vec![], vec![2, 4, 5]]);
    }

    #[test]
    fn a_change_to_a_file_that_a_patch_made_needs_that_patch() {
        let path = TreePath::new("f").unwrap();
        let mut origins = LineOrigins::default();
        let mut record = |number, change| origins.record(number, &path, change);
        assert_eq!(record(1, FileChange::Made), BTreeSet::new());
        let places = places("1\n2\n3\n", "9\n");
        assert_eq!(record(2, FileChange::Edited(&places)), BTreeSet::from([1]));
        assert_eq!(record(3, FileChange::Deleted), BTreeSet::from([1, 2]));
        assert_eq!(record(4, FileChange::Made), BTreeSet::from([3]));
    }
}
