//! Whether a patch still means what it meant: its change on the old base against its change on the new one, file by
//! file. It reads bytes, decides nothing about the run, and knows no trees.

use serde::{Deserialize, Serialize};

use super::text::{ChangedLines, bag, beyond, changed_lines, is_binary};

/// The most lines that a finding quotes.
const QUOTED: usize = 12;

/// What a patch does to one path, on the old base and on the new one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilePair {
    /// The path, for people.
    pub path: String,
    /// The bytes before and after the patch on its old base; `None` where there is no file.
    pub old: [Option<Vec<u8>>; 2],
    /// The bytes before and after the patch on the new base.
    pub new: [Option<Vec<u8>>; 2],
}

/// One way in which a patch changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeaningFinding {
    /// What it is.
    pub code: MeaningCode,
    /// The path.
    pub path: String,
    /// Whether a person has to look before anything moves on.
    pub weight: Weight,
    /// The lines in question, at most a dozen.
    pub lines: Vec<String>,
    /// How many lines there are.
    pub count: usize,
    /// The upstream commit that brought the first of the lines, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<super::sync::CulpritEntry>,
}

/// How a patch changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeaningCode {
    /// It no longer touches a file that it touched.
    PathDropped,
    /// It touches a file that it did not touch.
    PathAdded,
    /// It deletes lines that it did not delete before and that its old base did not have: upstream's newer work.
    DeletesUpstreamLines,
    /// Lines that it added are nowhere in the file any more.
    AddedLinesMissing,
    /// It adds lines that it did not add before.
    AddsOtherLines,
    /// Lines that it added are there, but upstream's: less of the patch is left.
    PartlyUpstream,
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Worth knowing.
    Note,
    /// A person has to look.
    Look,
}

/// What changed in the meaning of a patch that touches these files.
pub fn meaning_of(pairs: &[FilePair]) -> Vec<MeaningFinding> {
    let touched = |[before, after]: &[Option<Vec<u8>>; 2]| before != after;
    let mut findings = Vec::new();
    // A file that upstream moved is dropped at one path and touched at another.
    let moved_here = pairs.iter().any(|pair| !touched(&pair.old) && touched(&pair.new));
    for pair in pairs {
        let mut found = |code, weight, lines: Vec<Vec<u8>>| {
            let quoted = lines.iter().take(QUOTED).map(|line| String::from_utf8_lossy(line).into_owned());
            findings.push(MeaningFinding {
                code,
                path: pair.path.clone(),
                weight,
                lines: quoted.collect(),
                count: lines.len(),
                upstream: None,
            });
        };
        match (touched(&pair.old), touched(&pair.new)) {
            (true, false) if pair.new == pair_end(&pair.old) => {
                // Upstream has it exactly so.
                found(MeaningCode::PartlyUpstream, Weight::Note, Vec::new());
                continue;
            }
            (true, false) => {
                let moved = pair.new[0].is_none() && moved_here;
                found(MeaningCode::PathDropped, if moved { Weight::Note } else { Weight::Look }, Vec::new());
                if moved {
                    continue;
                }
            }
            (false, true) => {
                let moved = pair.old[0].is_none()
                    && pairs.iter().any(|other| touched(&other.old) && !touched(&other.new));
                found(MeaningCode::PathAdded, if moved { Weight::Note } else { Weight::Look }, Vec::new());
                if moved {
                    continue;
                }
            }
            _ => {}
        }
        let side = |bytes: &Option<Vec<u8>>| bytes.clone().unwrap_or_default();
        let ([old_before, old_after], [new_before, new_after]) =
            (pair.old.each_ref().map(side), pair.new.each_ref().map(side));
        if [&old_before, &old_after, &new_before, &new_after].into_iter().any(|bytes| is_binary(bytes)) {
            continue;
        }
        let old: ChangedLines = changed_lines(&old_before, &old_after);
        let new: ChangedLines = changed_lines(&new_before, &new_after);
        let mut deleted = beyond(&new.removed, &old.removed);
        let known = bag(&old_before);
        deleted.retain(|line| !known.contains_key(line));
        if !deleted.is_empty() {
            found(MeaningCode::DeletesUpstreamLines, Weight::Look, deleted);
        }
        let result = bag(&new_after);
        let lost = beyond(&old.added, &new.added);
        let (there, missing): (Vec<_>, Vec<_>) = lost.into_iter().partition(|line| result.contains_key(line));
        if !missing.is_empty() {
            found(MeaningCode::AddedLinesMissing, Weight::Look, missing);
        }
        // A diff may pair equal lines in another way; only lines that the patch's own result never had are new.
        let own = bag(&old_after);
        let mut other = beyond(&new.added, &old.added);
        other.retain(|line| !own.contains_key(line));
        if !other.is_empty() {
            found(MeaningCode::AddsOtherLines, Weight::Look, other);
        }
        if !there.is_empty() {
            found(MeaningCode::PartlyUpstream, Weight::Note, there);
        }
    }
    findings
}

/// A change that starts and ends where `change` ended.
fn pair_end(change: &[Option<Vec<u8>>; 2]) -> [Option<Vec<u8>>; 2] {
    [change[1].clone(), change[1].clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(old: [&str; 2], new: [&str; 2]) -> FilePair {
        let side = |text: &str| (text != "-").then(|| text.as_bytes().to_vec());
        FilePair { path: "f".to_owned(), old: old.map(side), new: new.map(side) }
    }

    fn told(pairs: &[FilePair]) -> Vec<(MeaningCode, Weight, String)> {
        meaning_of(pairs).into_iter().map(|f| (f.code, f.weight, f.lines.join("|"))).collect()
    }

    #[test]
    fn each_way_of_changing_is_told() {
        use MeaningCode::*;
        use Weight::*;
        type Case = ([&'static str; 2], [&'static str; 2], Vec<(MeaningCode, Weight, &'static str)>);
        let cases: [Case; 8] = [
            // The same change elsewhere in a longer file.
            (["a\nb\n", "a\nB\n"], ["0\na\nb\nz\n", "0\na\nB\nz\n"], vec![]),
            // Its own old version of a region swallows upstream's fix.
            (["a\nb\n", "x\n"], ["a\nfix\nb\n", "x\n"], vec![(DeletesUpstreamLines, Look, "fix")]),
            (["a\n", "a\nx\ny\n"], ["a\n", "a\ny\n"], vec![(AddedLinesMissing, Look, "x")]),
            (["a\n", "a\nx\n"], ["a\n", "a\nx\nown\n"], vec![(AddsOtherLines, Look, "own")]),
            (["a\n", "a\nx\ny\n"], ["a\nx\n", "a\nx\ny\n"], vec![(PartlyUpstream, Note, "x")]),
            (["a\n", "b\n"], ["c\n", "c\n"], vec![(PathDropped, Look, ""), (AddedLinesMissing, Look, "b")]),
            (["a\n", "b\n"], ["b\n", "b\n"], vec![(PartlyUpstream, Note, "")]),
            // Brackets alone say nothing.
            (["a\n", "a\nx\n"], ["a\n", "a\nx\n}\n"], vec![]),
        ];
        for (old, new, expected) in cases {
            let expected: Vec<_> = expected.into_iter().map(|(c, w, l)| (c, w, l.to_owned())).collect();
            assert_eq!(told(&[pair(old, new)]), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn a_file_that_upstream_moved_is_worth_a_note() {
        let (mut here, mut there) = (pair(["a\n", "b\n"], ["-", "-"]), pair(["-", "-"], ["a\n", "b\n"]));
        (here.path, there.path) = ("old".to_owned(), "new".to_owned());
        let codes = [(MeaningCode::PathDropped, Weight::Note), (MeaningCode::PathAdded, Weight::Note)];
        let found: Vec<_> = meaning_of(&[here, there]).into_iter().map(|f| (f.code, f.weight)).collect();
        assert_eq!(found, codes);
    }
}
