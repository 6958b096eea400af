//! Whether declared conditions hold at the new upstream: each is true, false, or cannot be told, and says why. It reads
//! commits and files; what needs a build is answered only from recorded results.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    edits::{edit_of, lines_of},
    forge::{Asked, TOKENS},
    report::{ConditionReport, ProbeReport, Truth},
    tokens::{Language, TokenKind, is_public_place, public_symbols, tokens},
};
use crate::{
    config::fork::{Condition, PatchSpec, Probe},
    fork::target::Target,
    rebase::{outcome::replace_file, replay::Step},
    tools::{
        file::{self, Most},
        git::{
            ids::{CommitId, EntryId},
            store::{Entry, MODE_SUBMODULE, Store, StoreError},
            tree_path::TreePath,
        },
    },
};

/// Results that were recorded outside of git: pull requests' states, and what probes, commands and benchmarks gave.
/// Keys are `pull-request 123`, `probe …`, `passes-without …`, `benchmark …` and `trial …` with a patch's key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded(pub BTreeMap<String, RecordedResult>);

/// One recorded result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// `open`, `closed` or `merged` for a pull request; `pass` or `fail` for a command or cell; a figure for a benchmark.
    pub result: String,
    /// When, as RFC 3339.
    pub at: String,
    /// What shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The upstream commit that the fork sat on then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// Which content of the patch it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The gate's report, where there was a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

impl RecordedResult {
    /// A result without more than its time.
    pub fn new(result: impl Into<String>, at: impl Into<String>) -> Self {
        Self { result: result.into(), at: at.into(), why: None, commit: None, of: None, report: None }
    }
}

/// Why recorded results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("cannot read the recorded results `{}`", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the recorded results `{}`", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("the recorded results `{}` are not in their form", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl Recorded {
    /// The file beside a fork's `fork.toml`.
    pub fn file(root: &Path, fork: &str) -> PathBuf {
        root.join("patches").join(fork).join("results.json")
    }

    /// Puts results into the file, in place of older ones under their keys.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn record(
        path: &Path,
        results: impl IntoIterator<Item = (String, RecordedResult)>,
    ) -> Result<(), RecordedError> {
        let mut results = results.into_iter().peekable();
        if results.peek().is_none() {
            return Ok(());
        }
        let mut recorded = Self::read(path)?;
        recorded.0.extend(results);
        let text = serde_json::to_string_pretty(&recorded).expect("texts are JSON") + "\n";
        replace_file(path, text.as_bytes())
            .map_err(|source| RecordedError::Unwritable { path: path.to_owned(), source })
    }

    /// Reads the file; none is no results.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> Result<Self, RecordedError> {
        let path = path.to_owned();
        match file::text(&path, Most::Record) {
            Ok(text) => serde_json::from_str(&text).map_err(|source| RecordedError::Form { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(RecordedError::Unreadable { path, source }),
        }
    }
}

/// What conditions are judged by.
pub struct Facts<'f> {
    store: &'f Store,
    target: &'f Target,
    tags: &'f BTreeMap<String, CommitId>,
    tag_prefix: &'f str,
    recorded: &'f Recorded,
    asked: &'f Asked,
    files: OnceCell<BTreeMap<TreePath, Entry>>,
}

/// Whether a condition holds, and why.
type Answer = (Truth, String);

impl<'f> Facts<'f> {
    /// Facts about a target.
    pub fn new(
        store: &'f Store,
        target: &'f Target,
        tags: &'f BTreeMap<String, CommitId>,
        tag_prefix: &'f str,
        (recorded, asked): (&'f Recorded, &'f Asked),
    ) -> Self {
        Self { store, target, tags, tag_prefix, recorded, asked, files: OnceCell::new() }
    }

    /// A condition and those below it, outermost first.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn judge(&self, condition: &Condition) -> Result<Vec<ConditionReport>, StoreError> {
        let mut reports = Vec::new();
        self.judge_at(condition, 0, &mut reports)?;
        Ok(reports)
    }

    /// The probe's last recorded result.
    pub fn probe(&self, probe: &Probe) -> ProbeReport {
        let what = match probe {
            Probe::Command(words) => words.join(" "),
            Probe::Cell(cell) => format!("cell {cell}"),
        };
        let last = match self.recorded.0.get(&probe_key(probe)) {
            Some(result) => {
                let on = result.commit.map(|commit| format!(", on {}", commit.short())).unwrap_or_default();
                let why = result.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                format!("{} ({}{on}){why}", result.result, result.at)
            }
            None => "no result is recorded".to_owned(),
        };
        ProbeReport { what, last }
    }

    fn judge_at(
        &self,
        condition: &Condition,
        depth: usize,
        reports: &mut Vec<ConditionReport>,
    ) -> Result<Truth, StoreError> {
        let (parts, all) = match condition {
            Condition::Any(parts) => (parts, false),
            Condition::All(parts) => (parts, true),
            _ => {
                let (holds, why) = self.answer(condition)?;
                reports.push(ConditionReport { condition: told(condition), holds, why, depth, parts: 0 });
                return Ok(holds);
            }
        };
        let at = reports.len();
        let (condition, why) = (told(condition), String::new());
        let (holds, count) = (Truth::Unknown, parts.len());
        reports.push(ConditionReport { condition, holds, why, depth, parts: count });
        let mut truths = Vec::new();
        for part in parts {
            truths.push(self.judge_at(part, depth + 1, reports)?);
        }
        let holds = if all { all_of(&truths) } else { any_of(&truths) };
        let count = |truth: Truth| truths.iter().filter(|other| **other == truth).count();
        reports[at].holds = holds;
        reports[at].why = format!(
            "{} true, {} false, {} unknown",
            count(Truth::True),
            count(Truth::False),
            count(Truth::Unknown)
        );
        Ok(holds)
    }

    fn answer(&self, condition: &Condition) -> Result<Answer, StoreError> {
        let onto = self.target.onto;
        let told = |holds: bool, yes: String, no: String| {
            if holds { (Truth::True, yes) } else { (Truth::False, no) }
        };
        let at = onto.commit.short();
        Ok(match condition {
            Condition::Any(_) | Condition::All(_) => (Truth::Unknown, String::new()),
            Condition::Path(path) => {
                let there = self.store.entry(onto.tree, path)?.is_some();
                told(there, format!("{at} has it"), format!("{at} does not have it"))
            }
            Condition::Text { text, within } => match self.store.entry(onto.tree, within)? {
                Some(entry) if entry.mode != MODE_SUBMODULE => {
                    let bytes = self.store.blob(entry.id)?;
                    let line =
                        bytes.split(|&byte| byte == b'\n').position(|line| holds(line, text.as_bytes()));
                    match line {
                        Some(line) => (Truth::True, format!("{within}:{}", line + 1)),
                        None => (Truth::False, format!("no line of {within} holds it")),
                    }
                }
                _ => (Truth::False, format!("{at} has no file {within}")),
            },
            Condition::Symbol { name, within } => self.symbol(name, within.as_ref())?,
            Condition::CFunction(name) => self.c_function(name)?,
            Condition::Commit(_) | Condition::Version(_) | Condition::Log(_)
                if !self.store.has(onto.commit) =>
            {
                (Truth::Unknown, "upstream's history is not at hand".to_owned())
            }
            Condition::Commit(commit) if !self.store.has(*commit) => {
                (Truth::Unknown, "the commit is not in the history at hand".to_owned())
            }
            Condition::Commit(commit) => {
                let subject = self.store.commit(*commit)?.subject;
                let reached = self.store.is_ancestor(*commit, onto.commit)?;
                told(
                    reached,
                    format!("{at} has \u{201c}{subject}\u{201d}"),
                    format!("{at} does not have \u{201c}{subject}\u{201d}"),
                )
            }
            Condition::Version(version) => self.version(version)?,
            Condition::Log(word) => self.log(word)?,
            Condition::PullRequest(number) => self.pull_request(*number),
            Condition::PassesWithout(words) => match self.recorded.0.get(&command_key(words)) {
                Some(result) => told(
                    result.result == "pass",
                    format!("passed, recorded {}", result.at),
                    format!("{}, recorded {}", result.result, result.at),
                ),
                None => {
                    (Truth::Unknown, "it needs a build without the patch, which no trial has made".to_owned())
                }
            },
            Condition::Benchmark { name, at_least } => match self.recorded.0.get(&benchmark_key(name)) {
                Some(result) => match result.result.parse::<f64>() {
                    Ok(figure) => {
                        let why = format!("{figure}, recorded {}", result.at);
                        told(figure >= *at_least, why.clone(), why)
                    }
                    Err(_) => {
                        (Truth::Unknown, format!("the recorded result `{}` is no figure", result.result))
                    }
                },
                None => {
                    (Truth::Unknown, "it needs a build without the patch, which no trial has made".to_owned())
                }
            },
        })
    }

    /// What the forge says now counts; where it says nothing, what was recorded.
    fn pull_request(&self, number: u64) -> Answer {
        let asked = self.asked.get(&number);
        if let Some(answer) = asked.filter(|(truth, _)| *truth != Truth::Unknown) {
            return answer.clone();
        }
        let because = asked.map_or(String::new(), |(_, why)| format!("; {why}"));
        match self.recorded.0.get(&format!("pull-request {number}")) {
            Some(RecordedResult { result, at, .. }) => {
                let truth = if result == "merged" { Truth::True } else { Truth::False };
                (truth, format!("{result}, recorded {at}{because}"))
            }
            None if asked.is_some() => (Truth::Unknown, because.trim_start_matches("; ").to_owned()),
            None => (
                Truth::Unknown,
                format!("no state is recorded in results.json, and no forge was asked: set {}", TOKENS[0]),
            ),
        }
    }

    fn files(&self) -> Result<&BTreeMap<TreePath, Entry>, StoreError> {
        if let Some(known) = self.files.get() {
            return Ok(known);
        }
        let files = self.store.files(self.target.onto.tree)?;
        Ok(self.files.get_or_init(|| files))
    }

    fn symbol(&self, name: &str, within: Option<&TreePath>) -> Result<Answer, StoreError> {
        let inside = |path: &TreePath| {
            within.is_none_or(|within| match path.as_bytes().strip_prefix(within.as_bytes()) {
                Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
                None => false,
            })
        };
        let mut looked = 0;
        for (path, entry) in self.files()?.iter().filter(|(path, _)| inside(path)) {
            let Some(language) = Language::of(path).filter(|_| entry.mode != MODE_SUBMODULE) else {
                continue;
            };
            looked += 1;
            let bytes = self.store.blob(entry.id)?;
            if !holds(&bytes, name.as_bytes()) {
                continue;
            }
            let is_name = |kind: TokenKind, text: &[u8]| kind == TokenKind::Word && text == name.as_bytes();
            if let Some(token) = tokens(language, &bytes).iter().find(|token| is_name(token.kind, token.text))
            {
                return Ok((Truth::True, format!("{path}:{}", token.line + 1)));
            }
        }
        Ok((Truth::False, format!("none of {looked} source files has it")))
    }

    fn c_function(&self, name: &str) -> Result<Answer, StoreError> {
        for (path, entry) in self.files()? {
            if Language::of(path) != Some(Language::C) || !is_public_place(path, Language::C) {
                continue;
            }
            if let Some(line) = self.declared(entry.id, name)? {
                return Ok((Truth::True, format!("{path}:{}", line + 1)));
            }
        }
        Ok((Truth::False, "no header declares it".to_owned()))
    }

    fn declared(&self, header: EntryId, name: &str) -> Result<Option<usize>, StoreError> {
        let bytes = self.store.blob(header)?;
        if !holds(&bytes, name.as_bytes()) {
            return Ok(None);
        }
        let symbols = public_symbols(Language::C, &bytes);
        Ok(symbols.into_iter().find(|symbol| symbol.name == name).map(|symbol| symbol.line))
    }

    fn version(&self, wanted: &str) -> Result<Answer, StoreError> {
        let wanted_parts = numbers(wanted).unwrap_or_default();
        let mut later: Vec<(Vec<u64>, &String, CommitId)> = self
            .tags
            .iter()
            .filter_map(|(tag, commit)| Some((numbers(tag.strip_prefix(self.tag_prefix)?)?, tag, *commit)))
            .filter(|(parts, ..)| *parts >= wanted_parts)
            .collect();
        later.sort();
        for (_, tag, commit) in &later {
            if self.store.has(*commit) && self.store.is_ancestor(*commit, self.target.onto.commit)? {
                return Ok((Truth::True, format!("{tag} is reached")));
            }
        }
        Ok((
            Truth::False,
            match later.first() {
                Some((_, tag, _)) => format!("{tag} is not reached"),
                None => "there is no such release yet".to_owned(),
            },
        ))
    }

    fn log(&self, word: &str) -> Result<Answer, StoreError> {
        let folded = word.to_lowercase();
        for milestone in &self.target.history {
            let message = self.store.commit_text(milestone.commit)?.message;
            if mentions(&message, &folded) {
                let subject = self.store.commit(milestone.commit)?.subject;
                return Ok((Truth::True, format!("{} \u{201c}{subject}\u{201d}", milestone.commit.short())));
            }
        }
        if let Some(place) = self.release_notes(&folded)? {
            return Ok((Truth::True, place));
        }
        let count = self.target.history.len();
        Ok((Truth::False, format!("none of {count} messages mentions it, nor do release notes")))
    }

    /// The first line since the base that mentions something in a file of release notes.
    fn release_notes(&self, folded: &str) -> Result<Option<String>, StoreError> {
        let changes = self.store.changes(self.target.base.tree, self.target.onto.tree)?;
        for change in changes.iter().filter(|change| is_release_notes(&change.path)) {
            let edit = edit_of(self.store, change)?;
            let Some(new) = edit.new else { continue };
            let bytes = self.store.blob(new)?;
            let lines = lines_of(&bytes);
            for at in edit.blocks.iter().flat_map(|block| block.new.clone()) {
                if lines.get(at).is_some_and(|line| mentions(&String::from_utf8_lossy(line), folded)) {
                    return Ok(Some(format!("{}:{}", change.path, at + 1)));
                }
            }
        }
        Ok(None)
    }
}

/// Whether a text holds a word, or several with what stands between them, case aside.
fn mentions(text: &str, folded: &str) -> bool {
    let text = text.to_lowercase();
    let is_word = |part: &str| part == folded;
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_word)
        || (folded.contains(' ') && text.contains(folded))
}

/// Whether a file is one that tells people about releases.
fn is_release_notes(path: &TreePath) -> bool {
    let name = path.to_string().rsplit('/').next().unwrap_or_default().to_lowercase().replace(['-', '_'], "");
    ["changelog", "changes.", "news.", "releasenotes", "releases.", "history."]
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// Under which key a probe's last result is recorded.
pub fn probe_key(probe: &Probe) -> String {
    match probe {
        Probe::Command(words) => format!("probe {}", words.join(" ")),
        Probe::Cell(cell) => format!("probe {cell}"),
    }
}

/// Under which key it is recorded whether a command passes without the patch.
pub fn command_key(words: &[String]) -> String {
    format!("passes-without {}", words.join(" "))
}

/// Under which key a benchmark's figure without the patch is recorded.
pub fn benchmark_key(name: &str) -> String {
    format!("benchmark {name}")
}

/// What is declared about a patch, by subject, file or commit.
pub fn declared<'d>(specs: &'d [PatchSpec], step: &Step) -> Option<&'d PatchSpec> {
    let commit = step.commit.map(|commit| commit.to_string());
    let stem = step.file.as_deref().map(|file| file.rsplit_once('.').map_or(file, |(stem, _)| stem));
    specs.iter().find(|spec| {
        let named = Some(spec.patch.as_str());
        named == Some(step.subject.as_str())
            || named == step.file.as_deref()
            || named == stem
            || named == commit.as_deref()
    })
}

fn all_of(truths: &[Truth]) -> Truth {
    match truths {
        _ if truths.contains(&Truth::False) => Truth::False,
        _ if truths.contains(&Truth::Unknown) => Truth::Unknown,
        _ => Truth::True,
    }
}

fn any_of(truths: &[Truth]) -> Truth {
    match truths {
        _ if truths.contains(&Truth::True) => Truth::True,
        _ if truths.contains(&Truth::Unknown) => Truth::Unknown,
        _ => Truth::False,
    }
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && memchr::memmem::find(bytes, text).is_some()
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

fn told(condition: &Condition) -> String {
    match condition {
        Condition::Any(_) => "any of".to_owned(),
        Condition::All(_) => "all of".to_owned(),
        Condition::Path(path) => format!("path {path} is there"),
        Condition::Symbol { name, within: Some(within) } => format!("symbol {name} is in {within}"),
        Condition::Symbol { name, within: None } => format!("symbol {name} is there"),
        Condition::Text { text, within } => format!("{within} holds \u{201c}{text}\u{201d}"),
        Condition::CFunction(name) => format!("a header declares {name}"),
        Condition::Commit(commit) => format!("commit {} is contained", commit.short()),
        Condition::Version(version) => format!("version {version} is reached"),
        Condition::Log(word) => {
            format!("a message or release note since the base mentions \u{201c}{word}\u{201d}")
        }
        Condition::PullRequest(number) => format!("pull request {number} is merged"),
        Condition::PassesWithout(words) => format!("`{}` passes without the patch", words.join(" ")),
        Condition::Benchmark { name, at_least } => {
            format!("benchmark {name} without the patch reaches {at_least}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fork::Milestone, tools::git::fixture::ForkFixture};

    #[test]
    fn every_condition_is_told_true_false_or_unknown_with_its_reason() {
        let header = "// old_name\nint lib_new(int a);\n";
        let fixture = ForkFixture::new(&[("a/h.h", "int x;\n")])
            .advance("Add lib_new for Streams", &[("a/h.h", Some(header))])
            .advance(
                "later",
                &[("b", Some("text here\n")), ("CHANGELOG.md", Some("- streams\n- Tensors go faster\n"))],
            );
        let (store, one) = (&fixture.store, fixture.upstream[1]);
        let milestone = |commit| Milestone { commit, tree: store.commit(commit).unwrap().tree };
        let history = fixture.upstream[1..].iter().map(|commit| milestone(*commit)).collect();
        let target = Target { base: milestone(fixture.base), onto: milestone(fixture.onto()), history };
        let tags = BTreeMap::from([("v1.2.0".to_owned(), one), ("v1.10.0".to_owned(), fixture.base)]);
        let result = |result: &str| RecordedResult::new(result, "2026-01-31");
        let recorded = Recorded(BTreeMap::from([
            ("pull-request 7".to_owned(), result("merged")),
            ("pull-request 8".to_owned(), result("open")),
            ("benchmark b".to_owned(), result("12.5")),
        ]));
        let asked = Asked::from([
            (10, (Truth::True, "merged on 2026-02-01, says the forge".to_owned())),
            (8, (Truth::Unknown, "the forge refuses the token".to_owned())),
            (11, (Truth::Unknown, "the forge refuses the token".to_owned())),
        ]);
        let facts = Facts::new(store, &target, &tags, "v", (&recorded, &asked));
        let path = |path: &str| TreePath::new(path).unwrap();
        let symbol = |name: &str| Condition::Symbol { name: name.to_owned(), within: Some(path("a")) };
        let text = |text: &str| Condition::Text { text: text.to_owned(), within: path("b") };
        let condition = Condition::All(vec![
            Condition::Path(path("a/h.h")),
            Condition::Path(path("a/i.h")),
            symbol("lib_new"),
            symbol("old_name"),
            text("here"),
            text("there"),
            Condition::CFunction("lib_new".to_owned()),
            Condition::CFunction("x".to_owned()),
            Condition::Commit(one),
            Condition::Commit("1".repeat(40).parse().unwrap()),
            Condition::Version("1.1".to_owned()),
            Condition::Version("2.0".to_owned()),
            Condition::Log("streams".to_owned()),
            Condition::Log("stream".to_owned()),
            Condition::Log("tensors".to_owned()),
            Condition::Any(vec![
                Condition::PullRequest(7),
                Condition::PullRequest(8),
                Condition::PullRequest(9),
                Condition::PullRequest(10),
                Condition::PullRequest(11),
            ]),
            Condition::PassesWithout(vec!["cargo".to_owned(), "test".to_owned()]),
            Condition::Benchmark { name: "b".to_owned(), at_least: 12.0 },
            Condition::Benchmark { name: "c".to_owned(), at_least: 12.0 },
        ]);
        let told: String = facts
            .judge(&condition)
            .unwrap()
            .iter()
            .map(|report| {
                let indent = "  ".repeat(report.depth);
                format!("{indent}{}: {:?} ({})\n", report.condition, report.holds, report.why)
            })
            .collect();
        let told = told.replace(&one.short(), "ONE").replace(&fixture.onto().short(), "ONTO");
        insta::assert_snapshot!(told, @r"
        all of: False (10 true, 6 false, 3 unknown)
          path a/h.h is there: True (ONTO has it)
          path a/i.h is there: False (ONTO does not have it)
          symbol lib_new is in a: True (a/h.h:2)
          symbol old_name is in a: False (none of 1 source files has it)
          b holds “here”: True (b:1)
          b holds “there”: False (no line of b holds it)
          a header declares lib_new: True (a/h.h:2)
          a header declares x: False (no header declares it)
          commit ONE is contained: True (ONTO has “Add lib_new for Streams”)
          commit 111111111 is contained: Unknown (the commit is not in the history at hand)
          version 1.1 is reached: True (v1.2.0 is reached)
          version 2.0 is reached: False (there is no such release yet)
          a message or release note since the base mentions “streams”: True (ONE “Add lib_new for Streams”)
          a message or release note since the base mentions “stream”: False (none of 2 messages mentions it, nor do release notes)
          a message or release note since the base mentions “tensors”: True (CHANGELOG.md:2)
          any of: True (2 true, 1 false, 2 unknown)
            pull request 7 is merged: True (merged, recorded 2026-01-31)
            pull request 8 is merged: False (open, recorded 2026-01-31; the forge refuses the token)
            pull request 9 is merged: Unknown (no state is recorded in results.json, and no forge was asked: set REGRAFT_FORGE_TOKEN)
            pull request 10 is merged: True (merged on 2026-02-01, says the forge)
            pull request 11 is merged: Unknown (the forge refuses the token)
          `cargo test` passes without the patch: Unknown (it needs a build without the patch, which no trial has made)
          benchmark b without the patch reaches 12: True (12.5, recorded 2026-01-31)
          benchmark c without the patch reaches 12: Unknown (it needs a build without the patch, which no trial has made)
        ");
    }

    #[test]
    fn results_are_recorded_beside_older_ones_and_no_results_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f/results.json");
        Recorded::record(&file, []).unwrap();
        assert!(!file.exists());
        let result = |result: &str| RecordedResult::new(result, "2026-01-31");
        Recorded::record(
            &file,
            [("probe a".to_owned(), result("fail")), ("probe b".to_owned(), result("pass"))],
        )
        .unwrap();
        Recorded::record(&file, [("probe a".to_owned(), result("pass"))]).unwrap();
        let recorded = Recorded::read(&file).unwrap();
        assert_eq!(recorded.0["probe a"], result("pass"));
        assert_eq!(recorded.0.len(), 2);
    }

    #[test]
    fn unknown_decides_only_where_nothing_else_does() {
        use Truth::{False, True, Unknown};
        for (truths, all, any) in [
            (&[True, Unknown][..], Unknown, True),
            (&[False, Unknown], False, Unknown),
            (&[True, False], False, True),
            (&[True, True], True, True),
        ] {
            assert_eq!((all_of(truths), any_of(truths)), (all, any), "{truths:?}");
        }
    }
}
