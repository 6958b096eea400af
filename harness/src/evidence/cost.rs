//! What carrying a patch has cost: in how many recorded syncs it took part, and in how many of them it conflicted. The
//! record is a file of JSON lines that each finished sync adds to.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::identity;
use crate::{
    rebase::{forecast::PatchFate, outcome::replace_file, sync::Forecasted},
    tools::{
        file::{self, Most},
        git::{ids::CommitId, store::StoreError},
    },
};

/// One finished sync of one fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRecord {
    /// The upstream commit that the stack went to.
    pub onto: CommitId,
    /// Every patch that took part, by the key of its [`super::report::Identity`].
    pub patches: BTreeSet<String>,
    /// Those that met a conflict.
    pub conflicted: BTreeSet<String>,
}

impl SyncRecord {
    /// The record of a stack that has gone to where it was forecast to go.
    ///
    /// # Errors
    /// When a patch's commit is missing.
    pub fn of(whole: &Forecasted) -> Result<Self, StoreError> {
        let mut record =
            Self { onto: whole.target.onto.commit, patches: BTreeSet::new(), conflicted: BTreeSet::new() };
        for (step, patch) in whole.replayed.steps.iter().zip(&whole.forecast.patches) {
            let key = identity::key_of(&whole.store, &whole.stack, step)?;
            if matches!(patch.fate, PatchFate::Conflicted | PatchFate::Blocked) {
                record.conflicted.insert(key.clone());
            }
            record.patches.insert(key);
        }
        Ok(record)
    }
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("cannot {doing} the record of syncs `{}`", .path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is no record.
    #[error("line {line} of the record of syncs `{}` cannot be read", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counts from 1.
        line: usize,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl RecordError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { .. } => None,
            Self::Line { .. } => {
                Some("correct or remove that line; only the counts of past conflicts depend on it".to_owned())
            }
        }
    }
}

/// The file that holds a fork's record.
pub fn record_file(root: &Path, fork: &str) -> PathBuf {
    root.join("reports/history").join(format!("{fork}.syncs.jsonl"))
}

/// Reads a fork's record; no file is no record.
///
/// # Errors
/// When the file cannot be read, or a line is no record.
pub fn read_record(path: &Path) -> Result<Vec<SyncRecord>, RecordError> {
    let text = match file::text(path, Most::Record) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(RecordError::File { doing: "read", path: path.to_owned(), source }),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let failed = |source| RecordError::Line { path: path.to_owned(), line: at + 1, source };
            serde_json::from_str(line).map_err(failed)
        })
        .collect()
}

/// Adds a sync to a fork's record. The same sync, done again, replaces what it said before.
///
/// # Errors
/// When the file cannot be read or written.
pub fn add_to_record(path: &Path, record: SyncRecord) -> Result<(), RecordError> {
    let mut records = read_record(path)?;
    records.retain(|known| known.onto != record.onto);
    records.push(record);
    let mut text = String::new();
    for record in &records {
        text += &serde_json::to_string(record).expect("a record has text keys only");
        text.push('\n');
    }
    let failed = |source| RecordError::File { doing: "write", path: path.to_owned(), source };
    replace_file(path, text.as_bytes()).map_err(failed)
}

/// In how many recorded syncs a patch took part, and in how many it conflicted.
pub fn past(records: &[SyncRecord], key: &str) -> (usize, usize) {
    let taking_part = records.iter().filter(|record| record.patches.contains(key)).count();
    let conflicted = records.iter().filter(|record| record.conflicted.contains(key)).count();
    (taking_part, conflicted)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_grows_by_syncs_and_counts_by_patch() {
        let dir = tempfile::tempdir().unwrap();
        let path = record_file(dir.path(), "fork");
        let record = |digit: &str, conflicted: &[&str]| SyncRecord {
            onto: digit.repeat(40).parse().unwrap(),
            patches: ["a", "b"].map(str::to_owned).into(),
            conflicted: conflicted.iter().map(|key| (*key).to_owned()).collect(),
        };
        assert_eq!(read_record(&path).unwrap(), []);
        add_to_record(&path, record("1", &["a", "b"])).unwrap();
        add_to_record(&path, record("2", &["a"])).unwrap();
        add_to_record(&path, record("1", &["a"])).unwrap();
        let records = read_record(&path).unwrap();
        assert_eq!((past(&records, "a"), past(&records, "b"), past(&records, "c")), ((2, 2), (2, 0), (0, 0)));
        fs::write(&path, "{}\n").unwrap();
        let error = read_record(&path).unwrap_err();
        assert!(error.to_string().starts_with("line 1 of") && error.hint().is_some());
    }
}
