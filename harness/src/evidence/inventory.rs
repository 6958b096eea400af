//! Does a hand-kept list of patches still say what is carried? Reads a Markdown or text file that names commits or
//! patch files, and compares it with the stack.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::tools::git::ids::CommitId;

/// A list compared with the stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InventoryAudit {
    /// The list.
    pub file: String,
    /// How many lines name a patch or commit.
    pub listed: usize,
    /// Lines that are wrong, in the list's order.
    pub wrong: Vec<WrongLine>,
    /// Patches that no line names.
    pub not_listed: Vec<Unlisted>,
}

/// A line that is not true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongLine {
    /// The line, counted from 1.
    pub line: usize,
    /// The commit or file, as the list spells it.
    pub names: String,
    /// What is wrong.
    pub fault: Fault,
    /// The patch that is perhaps meant, or that the line names with other words.
    pub patch: Option<usize>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Fault {
    /// The commit is upstream's now.
    Upstream,
    /// The commit is there, but the fork's head does not contain it.
    NotCarried,
    /// No commit or file has that name.
    Unknown,
    /// A patch with these words is carried under another id.
    OtherId,
    /// The line describes another change than the commit's subject does.
    OtherSubject {
        /// The commit's subject.
        really: String,
    },
}

/// A patch that the list lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unlisted {
    /// Its number.
    pub patch: usize,
    /// Its subject.
    pub subject: String,
}

/// A patch as far as a list can name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Its number.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// Its commit.
    pub commit: Option<CommitId>,
    /// Its file.
    pub file: Option<String>,
}

/// Where a commit that is not carried as a patch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// Upstream's history has it.
    Upstream,
    /// It is at hand, but neither history has it.
    Elsewhere,
    /// It is not at hand.
    Nowhere,
}

/// Compares a list with what is carried; `whereabouts` is asked about commits that are no patch of the stack.
pub fn audit(
    file: &str,
    text: &str,
    carried: &[Carried],
    whereabouts: &dyn Fn(&str) -> Whereabouts,
) -> InventoryAudit {
    let entries = entries(text);
    let mut named: BTreeSet<usize> = BTreeSet::new();
    let mut wrong = Vec::new();
    for entry in &entries {
        let patch = carried.iter().find(|patch| entry.names(patch));
        let alike =
            || carried.iter().find(|patch| likeness(&entry.words, &words(&patch.subject)) >= SAME_SUBJECT);
        let (fault, patch) = match patch {
            Some(patch) => {
                named.insert(patch.number);
                let subject = words(&patch.subject);
                let says_something = entry.words.len() >= 3 && !subject.is_empty();
                if !says_something || likeness(&entry.words, &subject) >= OTHER_SUBJECT {
                    continue;
                }
                (Fault::OtherSubject { really: patch.subject.clone() }, Some(patch.number))
            }
            None => match (alike(), whereabouts(&entry.name)) {
                (_, Whereabouts::Upstream) => (Fault::Upstream, None),
                (Some(patch), _) => {
                    named.insert(patch.number);
                    (Fault::OtherId, Some(patch.number))
                }
                (None, Whereabouts::Elsewhere) => (Fault::NotCarried, None),
                (None, Whereabouts::Nowhere) => (Fault::Unknown, None),
            },
        };
        wrong.push(WrongLine { line: entry.line, names: entry.name.clone(), fault, patch });
    }
    let not_listed = carried
        .iter()
        .filter(|patch| !named.contains(&patch.number))
        .map(|patch| Unlisted { patch: patch.number, subject: patch.subject.clone() })
        .collect();
    InventoryAudit { file: file.to_owned(), listed: entries.len(), wrong, not_listed }
}

/// Words of a subject that a line must share to mean it: nearly all.
const SAME_SUBJECT: f64 = 0.8;
/// A line that shares less than this with the subject describes something else.
const OTHER_SUBJECT: f64 = 0.5;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    line: usize,
    /// A commit's id, full or not, or a patch file's name.
    name: String,
    words: BTreeSet<String>,
}

impl Entry {
    fn names(&self, patch: &Carried) -> bool {
        let file = patch.file.as_deref().is_some_and(|file| file == self.name);
        file || patch.commit.is_some_and(|commit| commit.to_string().starts_with(&self.name))
    }
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mark = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let parts: Vec<&str> = line.split(mark).map(|part| part.trim_matches('.')).collect();
        let names: Vec<&str> =
            parts.iter().copied().filter(|part| is_commit(part) || is_patch(part)).collect();
        // The other names of a line, such as the upstream commit in a remark, belong to the first.
        let Some(name) = names.first() else { continue };
        let words =
            words(&line.split(mark).filter(|part| !names.contains(part)).collect::<Vec<_>>().join(" "));
        let name = if is_commit(name) { name.to_lowercase() } else { (*name).to_owned() };
        entries.push(Entry { line: number, name, words });
    }
    entries
}

fn is_commit(part: &str) -> bool {
    let hex = part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Words such as `defaced` and dates such as `20260101` are hexadecimal, too.
    let letters = part.bytes().any(|byte| byte.is_ascii_alphabetic());
    let digits = part.bytes().any(|byte| byte.is_ascii_digit());
    hex && (7..=40).contains(&part.len()) && letters && digits
}

fn is_patch(part: &str) -> bool {
    part.strip_suffix(".patch").or_else(|| part.strip_suffix(".diff")).is_some_and(|stem| !stem.is_empty())
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1).map(str::to_lowercase).collect()
}

/// The share of a subject's words that a line holds.
fn likeness(line: &BTreeSet<String>, subject: &BTreeSet<String>) -> f64 {
    match subject.len() {
        0 => 0.0,
        all => line.intersection(subject).count() as f64 / all as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried() -> Vec<Carried> {
        let patch = |number: usize, digit: &str, subject: &str| Carried {
            number,
            subject: subject.to_owned(),
            commit: Some(format!("{digit}a").repeat(20).parse().unwrap()),
            file: None,
        };
        let mut all = vec![
            patch(1, "1", "metal: keep the fence until the buffer is free"),
            patch(2, "2", "cpu: stream events"),
            patch(3, "3", "cmake: embed the library"),
        ];
        let file = Some("0004-run-alone.patch".to_owned());
        all.push(Carried { number: 4, subject: "0004-run-alone".to_owned(), commit: None, file });
        all
    }

    #[test]
    fn each_way_of_being_wrong_is_told_apart() {
        let text = "# Patches, 2026-01-31\n\n\
                    | commit | what |\n|---|---|\n\
                    | [`1a1a1a1`](https://example.org/commit/1a1a1a1a) | Keep the fence until the buffer is free (metal) |\n\
                    | `2a2a2a2` | Rotate the window of the cache |\n\
                    | `9b9b9b9` | embed the library with cmake |\n\
                    - deadbe1 something that upstream took\n\
                    - deadbe2 something dropped\n\
                    - deadbe3 something lost\n\
                    - defaced is only a word\n";
        let whereabouts = |name: &str| match name {
            "deadbe1" => Whereabouts::Upstream,
            "deadbe2" => Whereabouts::Elsewhere,
            _ => Whereabouts::Nowhere,
        };
        let audit = audit("PATCHES.md", text, &carried(), &whereabouts);
        let wrong: Vec<(usize, &str, &Fault, Option<usize>)> = audit
            .wrong
            .iter()
            .map(|wrong| (wrong.line, wrong.names.as_str(), &wrong.fault, wrong.patch))
            .collect();
        let really = "cpu: stream events".to_owned();
        assert_eq!(audit.listed, 6);
        assert_eq!(
            wrong,
            [
                (6, "2a2a2a2", &Fault::OtherSubject { really }, Some(2)),
                (7, "9b9b9b9", &Fault::OtherId, Some(3)),
                (8, "deadbe1", &Fault::Upstream, None),
                (9, "deadbe2", &Fault::NotCarried, None),
                (10, "deadbe3", &Fault::Unknown, None),
            ]
        );
        assert_eq!(audit.not_listed.iter().map(|patch| patch.patch).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_true_list_has_no_fault() {
        let text = "1a1a1a1a1a metal: keep the fence until the buffer is free\n2a2a2a2a stream events\n\
                    3A3A3A3A\n4. 0004-run-alone.patch: alone\n";
        let audit = audit("list.txt", text, &carried(), &|_| Whereabouts::Nowhere);
        assert_eq!((audit.wrong, audit.not_listed), (vec![], vec![]));
    }
}
