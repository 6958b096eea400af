//! Editors of pins: each takes a text and a new pin and gives the edited text, with everything else kept byte by byte.
//! They read no disk; what they cannot place with certainty comes back as an [`EditProblem`], never as an unchanged text.

pub mod archive;
pub mod cargo_git;
pub mod cargo_registry;
pub mod cmake;
mod manifest;
pub mod plain;
pub mod submodule;
pub mod swift_manifest;
pub mod swift_resolved;

use std::ops::Range;

use serde::Serialize;

use crate::tools::git::{ids::CommitId, mirror::owner_and_name};

/// What a pin is to name from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewPin {
    /// Where the commit is served.
    pub repository: String,
    /// The commit.
    pub commit: CommitId,
    /// A tag that leads to exactly this commit.
    pub tag: Option<String>,
    /// The version that the tag names.
    pub version: Option<String>,
}

/// One place that an editor changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The line in the old text, counted from 1.
    pub line: usize,
    /// What stood there.
    pub old: String,
    /// What stands there now.
    pub new: String,
}

/// An edited text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// The whole new text.
    pub text: String,
    /// Where it differs from the old one, in its order; empty when the pin stood there already.
    pub places: Vec<Place>,
    /// What a person still has to do, as sentences without stop.
    pub notes: Vec<String>,
}

/// Why an editor left a text alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "problem")]
pub enum EditProblem {
    /// Nothing in the text is the pin that was asked for.
    #[error("no {what} is there")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Several places could be meant, and they do not agree.
    #[error("{what} stands there with different values, on lines {}", joined(.lines))]
    Ambiguous {
        /// What was looked for.
        what: String,
        /// The lines, counted from 1.
        lines: Vec<usize>,
    },
    /// The text names a branch or a range, so that it pins nothing.
    #[error("line {line} follows {follows}, which pins nothing")]
    Floating {
        /// The line, counted from 1.
        line: usize,
        /// What it follows, such as ``branch `main` ``.
        follows: String,
    },
    /// The place is of another kind than the consumer's entry says.
    #[error("{found}")]
    OtherKind {
        /// What is there instead, as a sentence.
        found: String,
    },
    /// The text cannot be read as what it should be.
    #[error("it cannot be read as {format}: {reason}")]
    Unreadable {
        /// The format, such as `TOML`.
        format: &'static str,
        /// What the reader said.
        reason: String,
    },
    /// The new pin lacks what this kind of pin names.
    #[error("the new pin has no {what}")]
    Lacks {
        /// What is missing, such as `version`.
        what: &'static str,
    },
}

impl EditProblem {
    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "correct `files`, `name` or `kind` of the consumer in fork.toml",
            Self::Ambiguous { .. } => "make the places agree by hand once, then run it again",
            Self::Floating { .. } => "write an exact revision there, or leave the consumer out of fork.toml",
            Self::OtherKind { .. } => "correct `kind` of the consumer in fork.toml",
            Self::Unreadable { .. } => "correct the file",
            Self::Lacks { .. } => {
                "go to a target that has one, such as a release's tag, or pin by revision instead"
            }
        }
    }
}

/// Replacements in one text, collected first and made together.
pub(super) struct Replacing<'t> {
    text: &'t str,
    ranges: Vec<(Range<usize>, String)>,
    notes: Vec<String>,
}

impl<'t> Replacing<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, ranges: Vec::new(), notes: Vec::new() }
    }

    /// Replaces a range; one that already holds `new` stays.
    pub(super) fn put(&mut self, range: Range<usize>, new: impl Into<String>) {
        let new = new.into();
        if self.text[range.clone()] != new {
            self.ranges.push((range, new));
        }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn finish(mut self) -> TextEdit {
        self.ranges.sort_by_key(|(range, _)| range.start);
        self.ranges.dedup();
        let mut text = String::with_capacity(self.text.len() + 64);
        let mut places = Vec::new();
        let mut from = 0;
        for (range, new) in self.ranges {
            text.push_str(&self.text[from..range.start]);
            text.push_str(&new);
            places.push(Place {
                line: line_of(self.text, range.start),
                old: self.text[range.clone()].to_owned(),
                new,
            });
            from = range.end;
        }
        text.push_str(&self.text[from..]);
        TextEdit { text, places, notes: self.notes }
    }
}

/// The line of a byte offset, counted from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
}

/// Whether two addresses name the same repository: host aside, its owner and name, whatever the case.
pub(super) fn same_repository(one: &str, other: &str) -> bool {
    let key = |address: &str| owner_and_name(address).map(|name| name.to_lowercase());
    one == other || (key(one).is_some() && key(one) == key(other) && same_host(one, other))
}

fn same_host(one: &str, other: &str) -> bool {
    let host = |address: &str| {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        let rest = rest.split(['/', ':']).next().unwrap_or_default();
        rest.rsplit('@').next().unwrap_or_default().to_lowercase()
    };
    host(one) == host(other)
}

/// Checks that all places hold the same value.
pub(super) fn agreeing<'v>(
    what: &str,
    text: &str,
    values: impl IntoIterator<Item = (usize, &'v str)>,
) -> Result<(), EditProblem> {
    let values: Vec<(usize, &str)> = values.into_iter().collect();
    let differ = values.windows(2).any(|pair| pair[0].1 != pair[1].1);
    match differ {
        false => Ok(()),
        true => Err(EditProblem::Ambiguous {
            what: what.to_owned(),
            lines: values.iter().map(|&(at, _)| line_of(text, at)).collect(),
        }),
    }
}

fn joined(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    pub(crate) const OLD: &str = "1111111111111111111111111111111111111111";
    pub(crate) const NEW: &str = "2222222222222222222222222222222222222222";

    pub(crate) fn pin() -> NewPin {
        NewPin {
            repository: "https://example.org/o/n".to_owned(),
            commit: NEW.parse().unwrap(),
            tag: None,
            version: None,
        }
    }

    pub(crate) fn released() -> NewPin {
        NewPin { tag: Some("v2.0.0".to_owned()), version: Some("2.0.0".to_owned()), ..pin() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_the_same_whatever_their_spelling_but_not_across_hosts() {
        for same in ["https://example.org/o/n", "https://example.org/O/n.git/", "git@example.org:o/n.git"] {
            assert!(same_repository(same, "https://example.org/o/n"), "{same}");
        }
        for other in ["https://example.org/o/n2", "https://elsewhere.org/o/n"] {
            assert!(!same_repository(other, "https://example.org/o/n"), "{other}");
        }
    }
}
