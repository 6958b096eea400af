//! What a file's bytes become under one file of a patch: hunks are placed like `git apply` places them (exact context,
//! nearest offset, anchored at the file's ends), and binary blocks are decoded. It knows no trees and no disk.

use super::{
    binary::{self, BinaryError},
    patch_file::{Body, FileDiff, Hunk, Side},
};

/// Why a file's change does not fit the bytes at hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No place in the file has the hunk's context.
    #[error("hunk {number} finds its {lines} old lines nowhere near line {near}")]
    NoPlace {
        /// The hunk, counted from 1.
        number: usize,
        /// How many lines of context and removals must match.
        lines: usize,
        /// Where its header expects them, counted from 1.
        near: usize,
    },
    /// The patch adds a file that is there already.
    #[error("the patch adds the file, but it is there already")]
    AlreadyThere,
    /// The patch changes a file that is not there.
    #[error("the patch changes the file, but it is not there")]
    NotThere,
    /// The patch says that a binary file changes, without its bytes.
    #[error("the patch only says that a binary file differs")]
    BinaryWithheld,
    /// The binary block cannot be decoded or fits another file.
    #[error("the binary block does not fit")]
    Binary(#[from] BinaryError),
    /// Another file stands where the patch needs a folder, or a folder where it writes a file.
    #[error("it stands where the patch writes something else")]
    InTheWay,
    /// A submodule's line names no commit.
    #[error("the patch sets a submodule without naming its commit")]
    NoSubmodule,
    /// A deletion whose hunks leave something over.
    #[error("the patch deletes the file, but {left} lines of it are not in the patch")]
    LinesLeft {
        /// Lines that would remain.
        left: usize,
    },
}

/// The new bytes of a file; `None` when the patch deletes it. `old` is `None` where the file is not there.
///
/// # Errors
/// When the change does not fit: see [`Misfit`].
pub fn applied(diff: &FileDiff, old: Option<&[u8]>) -> Result<Option<Vec<u8>>, Misfit> {
    let before = match (&diff.old_path, old) {
        (None, Some(_)) => return Err(Misfit::AlreadyThere),
        (Some(_), None) => return Err(Misfit::NotThere),
        (_, old) => old.unwrap_or_default(),
    };
    let after = match &diff.body {
        Body::Text(hunks) => with_hunks(hunks, before)?,
        Body::Binary(raw) => binary::forward(raw, before)?,
        Body::BinaryWithheld => return Err(Misfit::BinaryWithheld),
    };
    match diff.new_path {
        Some(_) => Ok(Some(after)),
        None if after.is_empty() => Ok(None),
        None => Err(Misfit::LinesLeft { left: after.split_inclusive(|&byte| byte == b'\n').count() }),
    }
}

fn with_hunks(hunks: &[Hunk], before: &[u8]) -> Result<Vec<u8>, Misfit> {
    let mut lines: Vec<&[u8]> = before.split_inclusive(|&byte| byte == b'\n').collect();
    let mut shift = 0isize;
    for (index, hunk) in hunks.iter().enumerate() {
        let side = |unwanted: Side| -> Vec<&[u8]> {
            hunk.lines.iter().filter(|line| line.side != unwanted).map(|line| line.text()).collect()
        };
        let (old, new) = (side(Side::Added), side(Side::Removed));
        // A hunk without old lines names the line before it, hence one less to subtract.
        let expected =
            hunk.old_start.saturating_sub(usize::from(!old.is_empty())).saturating_add_signed(shift);
        let place = place_of(&old, &lines, expected, anchors(hunk)).ok_or(Misfit::NoPlace {
            number: index + 1,
            lines: old.len(),
            near: hunk.old_start,
        })?;
        shift += place as isize - expected as isize + new.len() as isize - old.len() as isize;
        lines.splice(place..place + old.len(), new);
    }
    Ok(lines.concat())
}

#[derive(Clone, Copy)]
struct Anchors {
    start: bool,
    end: bool,
}

/// A hunk without leading context at line 1 belongs to the very start, one without trailing context to the very end.
fn anchors(hunk: &Hunk) -> Anchors {
    let trailing = hunk.lines.last().is_some_and(|line| line.side == Side::Context);
    let leading = hunk.lines.first().is_some_and(|line| line.side == Side::Context);
    // Diffs made without context must not be tied to the ends of the file.
    let any = hunk.lines.iter().any(|line| line.side == Side::Context);
    Anchors { start: hunk.old_start == 0 || (hunk.old_start == 1 && any && !leading), end: any && !trailing }
}

fn place_of(old: &[&[u8]], lines: &[&[u8]], expected: usize, anchors: Anchors) -> Option<usize> {
    let last = lines.len().checked_sub(old.len())?;
    let fits = |at: usize| {
        (!anchors.start || at == 0) && (!anchors.end || at == last) && lines[at..at + old.len()] == *old
    };
    let expected = expected.min(last);
    (0..=last.max(expected))
        .flat_map(|distance| [expected.checked_sub(distance), expected.checked_add(distance)])
        .flatten()
        .find(|&at| at <= last && fits(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::patch_file::PatchFile;

    fn apply(patch: &str, old: Option<&str>) -> Result<Option<String>, Misfit> {
        let file = PatchFile::parse(patch.as_bytes()).unwrap();
        applied(&file.files[0], old.map(str::as_bytes))
            .map(|new| new.map(|new| String::from_utf8(new).unwrap()))
    }

    const EDIT: &str = "--- a/f\n+++ b/f\n@@ -2,3 +2,4 @@\n b\n-c\n+C\n+CC\n d\n";

    #[test]
    fn hunks_move_to_the_nearest_place_with_their_context() {
        for (old, new) in [
            ("a\nb\nc\nd\ne\n", "a\nb\nC\nCC\nd\ne\n"),
            ("x\ny\nz\na\nb\nc\nd\ne\n", "x\ny\nz\na\nb\nC\nCC\nd\ne\n"),
            ("b\nc\nd\n", "b\nC\nCC\nd\n"),
        ] {
            assert_eq!(apply(EDIT, Some(old)), Ok(Some(new.to_owned())), "{old:?}");
        }
        assert_eq!(apply(EDIT, Some("a\nb\nX\nd\n")), Err(Misfit::NoPlace { number: 1, lines: 3, near: 2 }));
        assert_eq!(apply(EDIT, None), Err(Misfit::NotThere));
    }

    #[test]
    fn a_missing_newline_at_the_end_is_kept_and_taken_away_as_the_patch_says() {
        let adds = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n\\ No newline at end of file\n";
        assert_eq!(apply(adds, Some("a")), Ok(Some("a\nb".to_owned())));
        assert!(matches!(apply(adds, Some("a\n")), Err(Misfit::NoPlace { .. })));
    }

    #[test]
    fn creation_and_deletion_need_the_right_starting_point() {
        let add = "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n";
        assert_eq!(apply(add, None), Ok(Some("a\n".to_owned())));
        assert_eq!(apply(add, Some("")), Err(Misfit::AlreadyThere));
        let delete =
            "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n";
        assert_eq!(apply(delete, Some("a\n")), Ok(None));
        assert!(apply(delete, Some("a\nb\n")).is_err());
    }

    #[test]
    fn wrong_counts_are_recounted_and_crlf_survives() {
        let wrong = "--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@ fn\n a\r\n-b\r\n+B\r\n c\r\n";
        assert_eq!(apply(wrong, Some("a\r\nb\r\nc\r\n")), Ok(Some("a\r\nB\r\nc\r\n".to_owned())));
        assert_eq!(PatchFile::parse(wrong.as_bytes()).unwrap().miscounted_hunks(), 1);
    }
}
