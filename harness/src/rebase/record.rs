//! The record of a finished rebase: what every patch became, why one was dropped, how its change differs from what it
//! was, and whether it still means the same. Equal input gives equal bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::{
    execute::{DonePatch, Replayed},
    export::Export,
    meaning::{FilePair, MeaningCode, MeaningFinding, Weight, meaning_of},
    outcome::PatchOutcome,
    plan::PlannedPatch,
    sync::{CulpritEntry, ForkForecast, FrontierEntry, NamedCommit, PatchEntry},
    text::{HunkHeaders, bag, beyond, changed_lines, hunks, is_binary},
};
use crate::{
    fork::Milestone,
    tools::git::{
        ids::{CommitId, PatchId, TreeId},
        store::{Entry, MODE_FOLDER, MODE_SUBMODULE, PathChange, Store, StoreError},
        tree_path::TreePath,
    },
};

/// How many pairs of files are compared line by line to find those that moved.
const MOST_COMPARED: usize = 2_500;

/// One fork's finished rebase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The fork's name.
    pub name: String,
    /// The commit that the stack sat on.
    pub base: NamedCommit,
    /// The commit that it sits on now.
    pub onto: NamedCommit,
    /// The newest commit on the way that takes the whole stack without a conflict.
    pub frontier: Option<FrontierEntry>,
    /// The result branch's full name in the store.
    pub branch: String,
    /// The store, relative to the repository root.
    pub store: PathBuf,
    /// The newest commit.
    pub head: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// One for each patch, in the stack's order.
    pub patches: Vec<RunPatch>,
    /// Generated files that their commands make otherwise than the rebased stack holds them.
    pub stale_generated: Vec<String>,
    /// Findings that a person has to look at and that were not accepted.
    pub open_findings: usize,
    /// What was written below `patches/`; `None` while findings are open.
    pub exported: Option<ExportRecord>,
}

/// One patch of a finished rebase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPatch {
    /// What was forecast.
    #[serde(flatten)]
    pub forecast: PatchEntry,
    /// What was done with it.
    pub outcome: PatchOutcome,
    /// Its new commit.
    pub new_commit: Option<CommitId>,
    /// The patch-id of its change there.
    pub patch_id: Option<PatchId>,
    /// Why nothing of it is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Conflicts that were settled from a record.
    pub replayed: Vec<Replayed>,
    /// Paths that a command made anew.
    pub regenerated: Vec<String>,
    /// Paths that a person resolved.
    pub resolved: Vec<String>,
    /// How its meaning changed.
    pub findings: Vec<MeaningFinding>,
    /// How its change differs from what it was, line numbers aside; `None` for no difference.
    pub difference: Option<String>,
}

/// Why nothing of a patch is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Proof {
    /// An upstream commit makes the same change.
    PatchId {
        /// The commit.
        commit: CulpritEntry,
    },
    /// Merging it changes nothing: everything that it adds is there already.
    Contained {
        /// How many lines it adds.
        lines: usize,
        /// The upstream commits since which its files hold all that it adds.
        commits: Vec<CulpritEntry>,
    },
    /// A conflict was resolved to what is there already.
    Resolution,
}

/// What was written below `patches/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportRecord {
    /// The folder.
    pub folder: PathBuf,
    /// Files written.
    pub written: Vec<String>,
    /// Files removed.
    pub removed: Vec<String>,
    /// Files of patches that did not change.
    pub unchanged: Vec<String>,
    /// Things that a person should know.
    pub notes: Vec<String>,
}

impl ExportRecord {
    /// What an export is going to do.
    pub fn of(export: &Export) -> Self {
        let unchanged = export.files.values().filter(|name| !export.write.contains_key(*name));
        Self {
            folder: export.folder.clone(),
            written: export.write.keys().cloned().collect(),
            removed: export.remove.iter().cloned().collect(),
            unchanged: unchanged.cloned().collect(),
            notes: export.notes.clone(),
        }
    }
}

/// What the record of a patch is made from.
pub struct Observed<'a> {
    /// The objects.
    pub store: &'a Store,
    /// Upstream's commits from the base to the target, oldest first.
    pub history: &'a [Milestone],
    /// The base's tree.
    pub base: TreeId,
}

impl Observed<'_> {
    /// The records of all patches, in order.
    ///
    /// # Errors
    /// When objects are missing.
    pub fn patches(
        &self,
        forecast: &ForkForecast,
        planned: &[PlannedPatch],
        done: &[DonePatch],
    ) -> Result<Vec<RunPatch>, StoreError> {
        let mut records = Vec::new();
        for ((entry, patch), made) in forecast.patches.iter().zip(planned).zip(done) {
            let carried = made.outcome.is_carried();
            let changes = if carried { self.store.changes(made.tip, made.tree)? } else { Vec::new() };
            let mut findings = Vec::new();
            let mut difference = None;
            if carried && patch.step.before != patch.step.after {
                findings = self.findings(patch, made, &changes)?;
                let (old, new) = (self.text(&patch.step.changes)?, self.text(&changes)?);
                let differs = hunks(&old, &new, HunkHeaders::Bare);
                difference = (!differs.is_empty()).then(|| String::from_utf8_lossy(&differs).into_owned());
            }
            let proof = match made.outcome {
                PatchOutcome::Absorbed if !made.resolved.is_empty() || !made.replayed.is_empty() => {
                    Some(Proof::Resolution)
                }
                PatchOutcome::Absorbed => Some(self.proof(patch)?),
                _ => None,
            };
            let names = |paths: &[TreePath]| paths.iter().map(ToString::to_string).collect();
            records.push(RunPatch {
                forecast: entry.clone(),
                outcome: made.outcome,
                new_commit: made.commit,
                patch_id: made.patch_id,
                proof,
                replayed: made.replayed.clone(),
                regenerated: names(&made.regenerated),
                resolved: names(&made.resolved),
                findings,
                difference,
            });
        }
        Ok(records)
    }

    fn findings(
        &self,
        patch: &PlannedPatch,
        made: &DonePatch,
        changes: &[PathChange],
    ) -> Result<Vec<MeaningFinding>, StoreError> {
        if made.outcome == PatchOutcome::Applied {
            return Ok(Vec::new());
        }
        let regenerated: BTreeSet<&TreePath> = made.regenerated.iter().collect();
        let paths: BTreeSet<&TreePath> =
            patch.step.changes.iter().chain(changes).map(|change| &change.path).collect();
        // A file that the patch moves, then and now, is compared with itself.
        let now = self.moves(changes)?;
        let mut moved = self.moves(&patch.step.changes)?;
        moved.retain(|to, from| now.get(to) == Some(from));
        let mut pairs = Vec::new();
        for (to, from) in &moved {
            let side = |tree, path| self.bytes(self.store.entry(tree, path)?);
            pairs.push(FilePair {
                path: to.to_string(),
                old: [side(patch.step.before, from)?, side(patch.step.after, to)?],
                new: [side(made.tip, from)?, side(made.tree, to)?],
            });
        }
        let in_place = |path: &TreePath| !moved.iter().any(|(to, from)| [to, from].contains(&path));
        for path in paths.iter().filter(|path| !regenerated.contains(*path) && in_place(path)) {
            let side = |tree| self.bytes(self.store.entry(tree, path)?);
            pairs.push(FilePair {
                path: path.to_string(),
                old: [side(patch.step.before)?, side(patch.step.after)?],
                new: [side(made.tip)?, side(made.tree)?],
            });
        }
        let mut findings = meaning_of(&pairs);
        let seen = matches!(made.outcome, PatchOutcome::Resolved | PatchOutcome::Replayed);
        for finding in &mut findings {
            if seen {
                finding.weight = Weight::Note;
            }
            if finding.code == MeaningCode::DeletesUpstreamLines
                && let (Some(line), Ok(path)) =
                    (finding.lines.first(), TreePath::new(finding.path.as_bytes()))
            {
                let holds = |text: &[u8]| bag(text).contains_key(line.as_bytes());
                finding.upstream = self.since(&path, holds)?;
            }
        }
        Ok(findings)
    }

    /// The files that a change moves: where each goes, and where it comes from. As for git, half of the lines tell.
    fn moves(&self, changes: &[PathChange]) -> Result<BTreeMap<TreePath, TreePath>, StoreError> {
        let file = |entry: Option<Entry>| entry.filter(|entry| entry.mode != MODE_SUBMODULE);
        let mut gone: Vec<(&TreePath, Entry)> = Vec::new();
        let mut come: Vec<(&TreePath, Entry)> = Vec::new();
        for change in changes {
            match (file(change.old), file(change.new)) {
                (Some(old), None) if change.new.is_none() => gone.push((&change.path, old)),
                (None, Some(new)) if change.old.is_none() => come.push((&change.path, new)),
                _ => {}
            }
        }
        let mut moves = BTreeMap::new();
        let mut take = |alike: &dyn Fn(Entry, Entry) -> Result<bool, StoreError>| {
            let mut left = Vec::new();
            for (to, new) in come.drain(..) {
                let mut found = None;
                for (at, (_, old)) in gone.iter().enumerate() {
                    if alike(*old, new)? {
                        found = Some(at);
                        break;
                    }
                }
                match found {
                    Some(at) => _ = moves.insert(to.clone(), gone.remove(at).0.clone()),
                    None => left.push((to, new)),
                }
            }
            come = left;
            Ok::<usize, StoreError>(come.len() * gone.len())
        };
        if take(&|old, new| Ok(old.id == new.id))? <= MOST_COMPARED {
            take(&|old, new| {
                let (old, new) = (bag(&self.store.blob(old.id)?), bag(&self.store.blob(new.id)?));
                let shared: usize =
                    new.iter().map(|(line, count)| (*count).min(old.get(line).copied().unwrap_or(0))).sum();
                let longer = old.values().sum::<usize>().max(new.values().sum());
                Ok(shared * 2 >= longer && shared > 0)
            })?;
        }
        Ok(moves)
    }

    fn proof(&self, patch: &PlannedPatch) -> Result<Proof, StoreError> {
        let own = self.store.patch_id(patch.step.before, patch.step.after)?;
        let mut before = self.base;
        for milestone in self.history {
            let touched = before != milestone.tree
                && patch.step.changes.iter().any(|change| {
                    let at = |tree| self.store.entry(tree, &change.path).ok().flatten();
                    at(before) != at(milestone.tree)
                });
            if touched && self.store.patch_id(before, milestone.tree)? == own {
                return Ok(Proof::PatchId { commit: self.named(milestone.commit)? });
            }
            before = milestone.tree;
        }
        let (mut lines, mut commits) = (0, BTreeMap::new());
        for change in &patch.step.changes {
            let (old, new) =
                (self.bytes(change.old)?.unwrap_or_default(), self.bytes(change.new)?.unwrap_or_default());
            let added = changed_lines(&old, &new).added;
            lines += added.values().sum::<usize>();
            if let Some(commit) = self.since(&change.path, |text| beyond(&added, &bag(text)).is_empty())? {
                commits.insert(commit.commit, commit);
            }
        }
        Ok(Proof::Contained { lines, commits: commits.into_values().collect() })
    }

    /// The first upstream commit from which on a file is as `holds` says; `None` when the base's is already.
    fn since(
        &self,
        path: &TreePath,
        holds: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<CulpritEntry>, StoreError> {
        let mut last: Option<Option<Entry>> = None;
        for (at, tree) in
            [self.base].into_iter().chain(self.history.iter().map(|found| found.tree)).enumerate()
        {
            let entry = self.store.entry(tree, path)?;
            if last == Some(entry) {
                continue;
            }
            last = Some(entry);
            if holds(&self.bytes(entry)?.unwrap_or_default()) {
                return match at.checked_sub(1) {
                    None => Ok(None),
                    Some(at) => self.named(self.history[at].commit).map(Some),
                };
            }
        }
        Ok(None)
    }

    fn named(&self, commit: CommitId) -> Result<CulpritEntry, StoreError> {
        Ok(CulpritEntry { commit, subject: self.store.commit(commit)?.subject })
    }

    fn bytes(&self, entry: Option<Entry>) -> Result<Option<Vec<u8>>, StoreError> {
        match entry {
            // A folder stands where another tree has a file.
            None | Some(Entry { mode: MODE_FOLDER, .. }) => Ok(None),
            Some(Entry { id, mode: MODE_SUBMODULE }) => Ok(Some(format!("submodule {id}\n").into_bytes())),
            Some(Entry { id, .. }) => self.store.blob(id).map(Some),
        }
    }

    /// A change as text without line numbers.
    fn text(&self, changes: &[PathChange]) -> Result<Vec<u8>, StoreError> {
        let mut text = Vec::new();
        for PathChange { path, old, new } in changes {
            let mode =
                |entry: &Option<Entry>| entry.map_or("-".to_owned(), |entry| format!("{:o}", entry.mode));
            let modes = match mode(old) == mode(new) {
                true => String::new(),
                false => format!(" {} => {}", mode(old), mode(new)),
            };
            text.extend(format!("## {path}{modes}\n").into_bytes());
            let (old, new) = (self.bytes(*old)?.unwrap_or_default(), self.bytes(*new)?.unwrap_or_default());
            match is_binary(&old) || is_binary(&new) {
                true => text.extend(format!("binary, {} => {} bytes\n", old.len(), new.len()).into_bytes()),
                false => text.extend(hunks(&old, &new, HunkHeaders::Bare)),
            }
        }
        Ok(text)
    }
}
