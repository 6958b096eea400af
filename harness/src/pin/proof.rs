//! Has a gate passed exactly this result? Looks through the records of finished runs for one that passed as a whole and
//! whose candidate was made from the result's commit, its tree, or its exported patches.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    build::digest::sha256_hex,
    rebase::outcome::SyncResult,
    report,
    tools::{
        file::{self, Most},
        git::ids::{CommitId, TreeId},
    },
    verdict::PassedGate,
};

/// What a gate would have had to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The newest commit of the rebased stack.
    pub head: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// Its exported patches: file name and SHA-256, in order; empty when they are not exported.
    pub patches: Vec<(String, String)>,
}

/// A run that proves a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What the run gives the right to.
    pub gate: PassedGate,
    /// Its record.
    pub report: PathBuf,
}

/// Whether a result may move what people build from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validation {
    /// A gate passed it.
    Passed(Proof),
    /// Nobody passed it, and a person said to go on.
    Unvalidated,
}

/// How a push or pin edit was allowed, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ValidationRecord {
    /// By a gate.
    Passed {
        /// The record of the run, relative to the repository root where it lies below.
        report: String,
        /// The matrix.
        matrix: String,
        /// The digest of what was built.
        candidate_digest: String,
    },
    /// By a person alone.
    Unvalidated,
}

impl Validation {
    /// The record of it.
    pub fn record(&self, root: &Path) -> ValidationRecord {
        match self {
            Self::Passed(Proof { gate, report }) => ValidationRecord::Passed {
                report: report.strip_prefix(root).unwrap_or(report).display().to_string(),
                matrix: gate.matrix().to_owned(),
                candidate_digest: gate.candidate_digest().to_owned(),
            },
            Self::Unvalidated => ValidationRecord::Unvalidated,
        }
    }
}

impl Candidate {
    /// What a gate would have had to try for a result below the repository root. An exported patch that cannot be read
    /// leaves the commit and the tree to go by.
    pub fn of(root: &Path, result: &SyncResult) -> Self {
        let carried = result.patches.iter().filter(|patch| patch.outcome.is_carried());
        let exported = carried.map(|patch| {
            let path = patch.exported.as_ref()?;
            let name = path.file_name()?.to_str()?.to_owned();
            Some((name, sha256_hex(&file::bytes(&root.join(path), Most::Patch).ok()?)))
        });
        let patches = exported.collect::<Option<Vec<_>>>().unwrap_or_default();
        Self { head: result.new_head, tree: result.tree, patches }
    }

    /// Whether what identifies a build names this candidate.
    pub fn is_named_in(&self, inputs: &Value) -> bool {
        match inputs {
            Value::String(text) => *text == self.head.to_string() || *text == self.tree.to_string(),
            Value::Array(entries) => {
                self.is_patch_list(entries) || entries.iter().any(|entry| self.is_named_in(entry))
            }
            Value::Object(members) => members.values().any(|member| self.is_named_in(member)),
            _ => false,
        }
    }

    fn is_patch_list(&self, entries: &[Value]) -> bool {
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let listed: Option<Vec<(String, String)>> =
            entries.iter().map(|entry| Some((text(entry, "name")?, text(entry, "sha256")?))).collect();
        !self.patches.is_empty() && listed.as_ref() == Some(&self.patches)
    }
}

/// The newest run below `reports` that proves the candidate. Records that cannot be read prove nothing.
pub fn find_proof(reports: &Path, candidate: &Candidate) -> Option<Proof> {
    let mut records: Vec<PathBuf> = fs::read_dir(reports)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("report.json"))
        .filter(|path| path.is_file())
        .collect();
    records.sort();
    records.into_iter().rev().find_map(|path| {
        let record = report::read(&path).ok()?;
        let build = record.builds.get(&record.candidate)?;
        let cells = record.cells.iter().map(|cell| (cell.status, cell.basis));
        let gate = PassedGate::recorded(record.verdict, cells, &record.matrix, build)?;
        candidate.is_named_in(&build.inputs).then_some(Proof { gate, report: path })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        build::{Provenance, digest::digest_of},
        verdict::{Basis, CellStatus, Verdict},
    };

    fn candidate() -> Candidate {
        Candidate {
            head: "1".repeat(40).parse().unwrap(),
            tree: "2".repeat(40).parse().unwrap(),
            patches: vec![
                ("0001-a.patch".to_owned(), "aa".to_owned()),
                ("0002-b.patch".to_owned(), "bb".to_owned()),
            ],
        }
    }

    #[test]
    fn a_build_is_of_the_candidate_by_commit_tree_or_exactly_its_patches() {
        let patch = |name: &str, hash: &str| json!({"name": name, "sha256": hash});
        let (a, b) = (patch("0001-a.patch", "aa"), patch("0002-b.patch", "bb"));
        for (inputs, named) in [
            (json!({"sources": [{"commit": "1".repeat(40)}]}), true),
            (json!({"mlx": {"tree": "2".repeat(40)}}), true),
            (json!({"sources": [{"patches": [a, b]}]}), true),
            (json!({"sources": [{"patches": [b, a]}]}), false),
            (json!({"sources": [{"patches": [a]}]}), false),
            (json!({"sources": [{"patches": [a, patch("0002-b.patch", "cc")]}]}), false),
            (json!({"sources": [{"patches": []}], "commit": "3".repeat(40)}), false),
        ] {
            assert_eq!(candidate().is_named_in(&inputs), named, "{inputs}");
        }
        let without = Candidate { patches: Vec::new(), ..candidate() };
        assert!(!without.is_named_in(&json!({"patches": []})));
    }

    #[test]
    fn only_a_record_that_passed_as_a_whole_and_was_not_edited_proves_its_candidate() {
        let folder = tempfile::tempdir().unwrap();
        let inputs = json!({"sources": [{"commit": "1".repeat(40)}]});
        let (mut record, _) = report::tests::passing();
        let build = |digest: String| Provenance { digest, inputs: inputs.clone(), log: Value::Null };
        record.builds.insert(record.candidate.clone(), build(digest_of(&inputs)));
        let found = |name: &str, record: &report::Report, candidate: &Candidate| {
            let reports = folder.path().join(name);
            fs::create_dir_all(reports.join("run")).unwrap();
            fs::write(reports.join("run/report.json"), record.to_json()).unwrap();
            find_proof(&reports, candidate)
        };
        let proof = found("passed", &record, &candidate()).unwrap();
        assert_eq!(proof.gate.candidate_digest(), digest_of(&inputs));
        let other = Candidate { head: "3".repeat(40).parse().unwrap(), ..candidate() };
        assert_eq!(found("other", &record, &other), None);
        let mut failed = record.clone();
        failed.verdict = Verdict::Fail;
        let mut filtered = record.clone();
        filtered.cells[0].status = CellStatus::Deselected;
        let mut only_fast = record.clone();
        for cell in &mut only_fast.cells {
            cell.basis = cell.basis.map(|_| Basis::Speed);
        }
        let mut edited = record;
        edited.builds.insert(edited.candidate.clone(), build("0".repeat(64)));
        for (name, record) in
            [("failed", failed), ("filtered", filtered), ("only fast", only_fast), ("edited", edited)]
        {
            assert_eq!(found(name, &record, &candidate()), None, "{name}");
        }
    }

    #[test]
    fn no_record_and_a_broken_one_prove_nothing() {
        let reports = tempfile::tempdir().unwrap();
        assert_eq!(find_proof(reports.path(), &candidate()), None);
        fs::create_dir(reports.path().join("run")).unwrap();
        fs::write(reports.path().join("run/report.json"), "{").unwrap();
        assert_eq!(find_proof(reports.path(), &candidate()), None);
    }
}
