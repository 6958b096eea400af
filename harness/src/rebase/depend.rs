//! Which patches of a stack need which earlier ones: whose lines they change, delete, or stand right beside. Neighbours
//! count, because git cannot swap two changes that touch.

use std::collections::{BTreeMap, BTreeSet};

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::tools::git::tree_path::TreePath;

/// Follows the lines of files through a stack and remembers which patch each line came from.
#[derive(Debug, Default)]
pub struct LineOrigins {
    files: BTreeMap<TreePath, FileOrigins>,
}

/// One file's change by one patch.
#[derive(Debug, Clone, Copy)]
pub struct FileChange<'b> {
    /// The path.
    pub path: &'b TreePath,
    /// The bytes before; `None` for a new file.
    pub old: Option<&'b [u8]>,
    /// The bytes after; `None` for a deleted file.
    pub new: Option<&'b [u8]>,
}

impl LineOrigins {
    /// Takes in what patch `number` does to one file; gives the earlier patches that this needs.
    pub fn record(&mut self, number: usize, change: FileChange<'_>) -> BTreeSet<usize> {
        let old: Vec<&[u8]> = lines(change.old);
        let new: Vec<&[u8]> = lines(change.new);
        let file = self.files.entry(change.path.clone()).or_insert_with(|| FileOrigins::upstream(old.len()));
        let mut needed = BTreeSet::new();
        let appears_or_goes = change.old.is_none() || change.new.is_none();
        if appears_or_goes || file.created {
            needed.extend(file.whole);
        }
        if appears_or_goes {
            file.whole = Some(number);
        }
        file.created = change.new.is_some() && (change.old.is_none() || file.created);
        let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
        needed.extend(file.advance(number, &ops));
        needed.remove(&number);
        needed
    }
}

#[derive(Debug)]
struct FileOrigins {
    /// The patch that made or deleted the file.
    whole: Option<usize>,
    /// Whether the file as it stands was made by a patch.
    created: bool,
    /// The patch that each line came from; `None` for upstream's.
    lines: Vec<Option<usize>>,
    /// The patches that deleted something between each two lines; one more than there are lines.
    gaps: Vec<BTreeSet<usize>>,
}

impl FileOrigins {
    fn upstream(lines: usize) -> Self {
        Self { whole: None, created: false, lines: vec![None; lines], gaps: vec![BTreeSet::new(); lines + 1] }
    }

    fn advance(&mut self, number: usize, ops: &[DiffOp]) -> BTreeSet<usize> {
        let gap_at = |at: usize| self.gaps.get(at).cloned().unwrap_or_default();
        let line_at = |at: usize| self.lines.get(at).copied().flatten();
        let mut needed = BTreeSet::new();
        let mut lines = Vec::new();
        let mut gaps = vec![gap_at(0)];
        for op in ops {
            let (old, new) = (op.old_range(), op.new_range());
            if let DiffOp::Equal { .. } = op {
                lines.extend(old.clone().map(line_at));
                gaps.extend(old.map(|at| gap_at(at + 1)));
                continue;
            }
            let touched = old.start.saturating_sub(1)..old.end + 1;
            needed.extend(touched.filter_map(line_at));
            needed.extend((old.start..=old.end).flat_map(gap_at));
            lines.extend(new.clone().map(|_| Some(number)));
            gaps.extend(new.map(|_| BTreeSet::new()));
            if let Some(gap) = gaps.last_mut() {
                gap.extend(gap_at(old.end));
                if !old.is_empty() {
                    gap.insert(number);
                }
            }
        }
        (self.lines, self.gaps) = (lines, gaps);
        needed
    }
}

fn lines(bytes: Option<&[u8]>) -> Vec<&[u8]> {
    bytes.unwrap_or_default().split_inclusive(|&byte| byte == b'\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        let mut origins = LineOrigins::default();
        let needed: Vec<Vec<usize>> = (1..versions.len())
            .map(|number| {
                let (old, new) = (Some(versions[number - 1].as_bytes()), Some(versions[number].as_bytes()));
                origins.record(number, FileChange { path: &path, old, new }).into_iter().collect()
            })
            .collect();
        assert_eq!(needed, [vec![], vec![], vec![1], vec![2], vec![2, 4], vec![]]);
    }

    #[test]
    fn a_change_to_a_file_that_a_patch_made_needs_that_patch() {
        let path = TreePath::new("f").unwrap();
        let mut origins = LineOrigins::default();
        let made = b"1\n2\n3\n".as_slice();
        let mut record = |number, old, new| origins.record(number, FileChange { path: &path, old, new });
        assert_eq!(record(1, None, Some(made)), BTreeSet::new());
        assert_eq!(record(2, Some(made), Some(b"9\n")), BTreeSet::from([1]));
        assert_eq!(record(3, Some(b"9\n"), None), BTreeSet::from([1, 2]));
    }
}
