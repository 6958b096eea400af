//! The document of `patch-report`: what is known about every patch of a fork, with its proof, and what could not be
//! known. Shapes only; `render` turns them into text.

use serde::{Deserialize, Serialize};

use super::trials::TrialReport;
use crate::{
    rebase::sync::{FrontierEntry, NamedCommit, PatchEntry},
    tools::git::ids::CommitId,
};

/// The report of one fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkReport {
    /// The fork's name.
    pub name: String,
    /// The commit that the stack sits on; absent when fork and upstream share no history.
    pub base: Option<NamedCommit>,
    /// The upstream commit that it was judged against.
    pub onto: Option<NamedCommit>,
    /// The newest commit on the way that takes the whole stack without a conflict.
    pub frontier: Option<FrontierEntry>,
    /// When base and target were committed; absent where only the base's files are at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// One for each patch, in the stack's order.
    pub patches: Vec<PatchReport>,
    /// What remains when the recommendations are followed.
    pub residue: Residue,
    /// The fork's own retirement conditions.
    pub retirement: Vec<ConditionReport>,
    /// What could not be known, and why.
    pub unknown: Vec<Unknown>,
    /// What was found about the fork as a whole, in a fixed order.
    pub sections: Vec<Section>,
}

/// The time from base to target, as RFC 3339 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// When the base was committed.
    pub from: String,
    /// When the target was.
    pub to: String,
}

/// Where upstream first meets a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstConflict {
    /// The commit since which it has conflicted.
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: String,
    /// Its position after the base, counted from 1.
    pub index: usize,
    /// When it was committed, as RFC 3339 in UTC.
    pub date: String,
}

/// Something that the report cannot say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// What is not known.
    pub what: String,
    /// Why, and what to try.
    pub why: String,
}

/// A part of the report about the fork as a whole: the same findings for people and for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its name for programs, such as `agreement`.
    pub name: String,
    /// Its title for people.
    pub title: String,
    /// What was found, a sentence or row each; empty when nothing was.
    pub findings: Vec<String>,
    /// The same for programs.
    pub data: serde_json::Value,
}

/// The report of one patch: its forecast, and the evidence for and against it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatchReport {
    /// What becomes of it on the new upstream.
    #[serde(flatten)]
    pub forecast: PatchEntry,
    /// Who made it, when, and how large it is.
    pub identity: Identity,
    /// What the evidence amounts to.
    pub state: PatchState,
    /// What to do with it.
    pub recommendation: Recommendation,
    /// The strongest reason for that.
    pub reason: String,
    /// Upstream commits that hold it, wholly or in part.
    pub landed: Vec<Landing>,
    /// For a patch that landed in part: what did not, by path.
    pub left: Vec<Left>,
    /// Upstream commits that introduced the same names since.
    pub superseded_by: Vec<Superseding>,
    /// Upstream commits whose work it undoes.
    pub reverts: Vec<AccidentalRevert>,
    /// The earlier patch that it repairs, and by how many of its deleted lines that shows.
    pub fixup_of: Option<usize>,
    /// The fixup's proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Fixup>,
    /// The earlier patch that it exactly undoes.
    pub undoes: Option<usize>,
    /// The first upstream commit that it conflicts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_conflict: Option<FirstConflict>,
    /// The share of its added lines that later patches left alone, 0 to 1; `None` when it adds none.
    pub liveness: Option<f64>,
    /// Declared conditions under which it can go.
    pub retirement: Vec<ConditionReport>,
    /// The declared proof that its feature still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeReport>,
    /// What became of the last build without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialReport>,
    /// What it costs to carry.
    pub cost: Cost,
    /// The branch in the fork's store on which it stands alone on upstream's head, where it is worth sending there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_branch: Option<UpstreamBranch>,
}

/// Who made a patch, when, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Stays the same over rebases: made from author, author's date and subject, or from a file's name.
    pub key: String,
    /// The author, where known.
    pub author: Option<String>,
    /// The author's date, as RFC 3339 in UTC.
    pub date: Option<String>,
    /// Days from there to the newest upstream commit that it is judged against.
    pub age_days: Option<i64>,
    /// How many files it changes.
    pub files: usize,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// The folders that it touches, two levels deep, those with most files first.
    pub areas: Vec<String>,
    /// The trailers of its message, such as `Signed-off-by: …`.
    pub trailers: Vec<String>,
}

/// What the evidence about a patch amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchState {
    /// Nothing speaks against it.
    Needed,
    /// Upstream has all of it.
    Landed,
    /// Upstream has some of it.
    PartlyLanded,
    /// Upstream has something else under the same names.
    Superseded,
    /// Merging it changes nothing.
    Absorbed,
    /// Later patches of the stack undo all of it.
    Dead,
    /// It cannot be known.
    Unknown,
}

/// What to do with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recommendation {
    /// Leave it out.
    Drop,
    /// Put it into the earlier patch that it repairs.
    Squash,
    /// Part it: a piece can go.
    Split,
    /// Send it to upstream: alone, it fits there.
    Upstream,
    /// Carry it on.
    Keep,
    /// A person must look at it.
    Look,
}

/// How a patch is found in upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandedHow {
    /// The commit makes the very same change.
    PatchId,
    /// The commit's lines hold the patch's.
    Content,
    /// Several commits together hold the patch's lines.
    Split,
}

/// An upstream commit that holds a patch or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Landing {
    /// The commit.
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: String,
    /// How that shows.
    pub how: LandedHow,
    /// The share of the patch's lines that it holds, 0 to 1.
    pub share: f64,
}

/// What of a partly landed patch is not upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The path.
    pub path: String,
    /// Its lines, added and removed, that upstream does not have.
    pub lines: usize,
}

/// An upstream commit that has since introduced names which a patch introduces too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseding {
    /// The commit.
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: String,
    /// The names, as the patch writes them.
    pub identifiers: Vec<String>,
    /// The patch's files in which they stand.
    pub files: Vec<String>,
}

/// How it shows that a patch undoes an upstream commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevertHow {
    /// A hunk of the commit is turned back.
    InverseHunk,
    /// A public symbol that the commit added is gone.
    RemovedSymbol,
}

/// An upstream commit whose work a patch undoes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccidentalRevert {
    /// The commit.
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: String,
    /// How many of its lines the patch takes away in doing so.
    pub lines: usize,
    /// How it shows.
    pub how: RevertHow,
    /// Public symbols that it added and that are gone.
    pub symbols: Vec<String>,
    /// Where, as `path:line` in the file before the patch.
    pub places: Vec<String>,
    /// The later patch of the stack that puts all these lines back.
    pub restored_by: Option<usize>,
}

/// The proof that a patch repairs an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixup {
    /// The earlier patch.
    pub of: usize,
    /// Deleted lines that the earlier patch had added.
    pub lines: usize,
    /// All deleted lines.
    pub deleted: usize,
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// That cannot be told.
    Unknown,
}

/// One declared condition, or a combination of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReport {
    /// The condition, as a sentence.
    pub condition: String,
    /// Whether it holds at the new upstream.
    pub holds: Truth,
    /// Why.
    pub why: String,
    /// How deep it stands in `any` and `all`.
    pub depth: usize,
    /// How many conditions it combines; 0 for a plain one.
    pub parts: usize,
}

impl ConditionReport {
    /// Whether it combines others.
    pub fn is_combination(&self) -> bool {
        self.parts > 0
    }
}

/// The declared proof that a patch's feature still works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The command or matrix cell.
    pub what: String,
    /// Its last recorded result, or why there is none.
    pub last: String,
}

/// What a patch costs to carry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Recorded syncs in which it conflicted.
    pub past_conflicts: usize,
    /// Recorded syncs that it took part in.
    pub past_syncs: usize,
    /// Lines that upstream changed since the base in the files that it touches.
    pub churn_lines: usize,
    /// Those of them that stand where it changes something, or within three lines of that.
    #[serde(default)]
    pub churn_beside_lines: usize,
}

/// A patch alone on upstream's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamBranch {
    /// The branch in the fork's store.
    pub branch: String,
    /// Its commit.
    pub commit: CommitId,
}

/// What remains of a stack when the recommendations are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Patches now.
    pub patches: usize,
    /// Patches left: neither dropped nor squashed.
    pub patches_left: usize,
    /// Lines added and removed now.
    pub lines: usize,
    /// The same without dropped patches and without what landed of split ones.
    pub lines_left: usize,
}
