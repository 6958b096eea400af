//! Line by line: what differs between two files, as hunks that a patch can hold, and as bags of added and removed
//! lines. It knows no trees.

use std::collections::BTreeMap;

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

/// Whether a `@@` line says where a hunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HunkHeaders {
    /// With line numbers, as a patch needs them.
    Numbered,
    /// Without, so that equal changes at different places are equal.
    Bare,
}

/// The hunks that turn `old` into `new`, with three lines of context; nothing when they are equal.
pub fn hunks(old: &[u8], new: &[u8], headers: HunkHeaders) -> Vec<u8> {
    let (old, new) = (lines(old), lines(new));
    let mut text = Vec::new();
    for group in group_diff_ops(capture_diff_slices(Algorithm::Myers, &old, &new), 3) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |from: usize, to: usize| match to - from {
            // A side without lines names the line before it.
            0 => format!("{from},0"),
            count => format!("{},{count}", from + 1),
        };
        let header = match headers {
            HunkHeaders::Bare => "@@\n".to_owned(),
            HunkHeaders::Numbered => format!(
                "@@ -{} +{} @@\n",
                range(first.old_range().start, last.old_range().end),
                range(first.new_range().start, last.new_range().end)
            ),
        };
        text.extend(header.into_bytes());
        for op in &group {
            if op.tag() == DiffTag::Equal {
                old[op.old_range()].iter().for_each(|line| push(&mut text, b' ', line));
            } else {
                old[op.old_range()].iter().for_each(|line| push(&mut text, b'-', line));
                new[op.new_range()].iter().for_each(|line| push(&mut text, b'+', line));
            }
        }
    }
    text
}

fn push(text: &mut Vec<u8>, side: u8, line: &[u8]) {
    text.push(side);
    text.extend(line);
    if !line.ends_with(b"\n") {
        text.extend(b"\n\\ No newline at end of file\n");
    }
}

/// Lines, and how often each comes.
pub type Bag = BTreeMap<Vec<u8>, usize>;

/// The lines that a change takes away and those that it adds, without their line ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedLines {
    /// Lines taken away.
    pub removed: Bag,
    /// Lines added.
    pub added: Bag,
}

/// What changes from `old` to `new`.
pub fn changed_lines(old: &[u8], new: &[u8]) -> ChangedLines {
    let (old, new) = (lines(old), lines(new));
    let mut changed = ChangedLines::default();
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        old[op.old_range()].iter().for_each(|line| *changed.removed.entry(bare(line)).or_default() += 1);
        new[op.new_range()].iter().for_each(|line| *changed.added.entry(bare(line)).or_default() += 1);
    }
    changed
}

/// The lines of a text, as a bag.
pub fn bag(text: &[u8]) -> Bag {
    let mut bag = Bag::new();
    lines(text).iter().for_each(|line| *bag.entry(bare(line)).or_default() += 1);
    bag
}

/// What is in `bag` more often than in `other`, once each; lines without a letter or digit are left out, as they say
/// nothing of their own.
pub fn beyond(bag: &Bag, other: &Bag) -> Vec<Vec<u8>> {
    let telling = |line: &[u8]| line.iter().any(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80);
    bag.iter()
        .filter(|(line, count)| telling(line) && **count > other.get(*line).copied().unwrap_or(0))
        .map(|(line, _)| line.clone())
        .collect()
}

/// Whether bytes are no text, the way git tells: a NUL among the first 8,000.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8000).any(|&byte| byte == 0)
}

/// The lines of a text, each with its newline.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

fn bare(line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).to_vec()
}

/// A number with its word.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stack::{apply::applied, patch_file::PatchFile};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn hunks_turn_the_old_text_into_the_new(
            old in "([ab<=>|]{0,2}\n){0,12}[ab]{0,1}", new in "([ab<=>|]{0,2}\n){0,12}[ab]{0,1}"
        ) {
            prop_assume!(old != new);
            let hunks = hunks(old.as_bytes(), new.as_bytes(), HunkHeaders::Numbered);
            let patch = [b"--- a/f\n+++ b/f\n", &hunks[..]].concat();
            let file = PatchFile::parse(&patch).unwrap();
            prop_assert_eq!(file.miscounted_hunks(), 0);
            prop_assert_eq!(applied(&file.files[0], Some(old.as_bytes())), Ok(Some(new.into_bytes())));
        }
    }

    #[test]
    fn lines_are_counted_not_only_named() {
        let changed = changed_lines(b"a\nb\n", b"a\nx\nx\n}\r\n");
        assert_eq!(changed.removed, Bag::from([(b"b".to_vec(), 1)]));
        assert_eq!(changed.added, Bag::from([(b"x".to_vec(), 2), (b"}".to_vec(), 1)]));
        assert_eq!(beyond(&changed.added, &bag(b"x\n")), [b"x".to_vec()]);
        assert_eq!(hunks(b"a\n", b"a\n", HunkHeaders::Bare), b"");
    }
}
