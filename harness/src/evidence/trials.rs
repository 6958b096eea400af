//! What a recorded drop trial says about a patch: what became of a build without it. `cause::trial` makes trials; here they
//! are only recognized and told.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    report::{PatchState, Recommendation},
    retirement::Recorded,
};
use crate::rebase::replay::Step;

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialVerdict {
    /// The gate passes without the patch.
    Passes,
    /// The gate fails without it.
    Fails,
    /// The gate came to no verdict.
    Inconclusive,
    /// The rest of the stack does not apply without it.
    DoesNotApply,
    /// The build does not compile or link without it.
    DoesNotBuild,
    /// No build of `matrices/builds.toml` uses the fork: the rest of the stack was rebased, and nothing built.
    OnlyRebased,
}

impl TrialVerdict {
    /// The word that records and programs use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::Inconclusive => "inconclusive",
            Self::DoesNotApply => "does-not-apply",
            Self::DoesNotBuild => "does-not-build",
            Self::OnlyRebased => "only-rebased",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let all = [
            Self::Passes,
            Self::Fails,
            Self::Inconclusive,
            Self::DoesNotApply,
            Self::DoesNotBuild,
            Self::OnlyRebased,
        ];
        all.into_iter().find(|verdict| verdict.word() == word)
    }

    /// The same for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Passes => "without it the gate passes",
            Self::Fails => "without it the gate fails",
            Self::Inconclusive => "without it the gate comes to no verdict",
            Self::DoesNotApply => "without it the rest of the stack does not apply",
            Self::DoesNotBuild => "without it nothing is built",
            Self::OnlyRebased => "without it the rest was rebased, and nothing built",
        }
    }
}

/// The last recorded trial of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialReport {
    /// How it ended.
    pub verdict: TrialVerdict,
    /// What shows that: cells, findings, a compiler's words.
    pub why: String,
    /// When, as RFC 3339.
    pub at: String,
    /// The gate's report, where there was a gate.
    pub report: Option<String>,
    /// Whether the patch still changes what it changed then. An outdated trial is shown and decides nothing.
    pub current: bool,
}

/// Under which key a patch's trial is recorded; `patch` is the key of its identity.
pub fn key(patch: &str) -> String {
    format!("trial {patch}")
}

/// Tells one content of a patch from another: every file that it changes, before and after.
pub fn content_of(step: &Step) -> String {
    let mut hasher = Sha256::new();
    for change in &step.changes {
        hasher.update(format!("{:?}\n", change));
    }
    base16ct::lower::encode_string(&hasher.finalize())[..16].to_owned()
}

/// The recorded trial of a patch, if there is one.
pub fn trial_of(recorded: &Recorded, patch: &str, step: &Step) -> Option<TrialReport> {
    let result = recorded.0.get(&key(patch))?;
    Some(TrialReport {
        verdict: TrialVerdict::of_word(&result.result)?,
        why: result.why.clone().unwrap_or_default(),
        at: result.at.clone(),
        report: result.report.clone(),
        current: result.of.as_deref() == Some(content_of(step).as_str()),
    })
}

/// What was decided from commits and files, with what the trial shows: a build that is broken without a patch outweighs
/// every sign that it could go, and one that is well without it makes a patch that was to be kept a question.
pub fn weigh(
    decided: (PatchState, Recommendation, String),
    trial: Option<&TrialReport>,
) -> (PatchState, Recommendation, String) {
    use Recommendation::{Drop, Keep, Look, Split, Squash, Upstream};
    let (state, recommendation, reason) = decided;
    let Some(trial) = trial.filter(|trial| trial.current) else { return (state, recommendation, reason) };
    let shown = match trial.why.as_str() {
        "" => trial.verdict.sentence().to_owned(),
        why => format!("{}: {why}", trial.verdict.sentence()),
    };
    match (trial.verdict, recommendation) {
        (TrialVerdict::Fails | TrialVerdict::DoesNotBuild, Keep) => (state, Keep, shown),
        (TrialVerdict::Fails | TrialVerdict::DoesNotBuild, Drop | Look) => {
            (state, Keep, format!("{shown}; otherwise {reason}"))
        }
        (TrialVerdict::Fails | TrialVerdict::DoesNotBuild, Split | Squash | Upstream) => {
            (state, recommendation, format!("{reason}; {shown}"))
        }
        (TrialVerdict::Passes, Keep) => (state, Look, format!("{shown}; {reason}")),
        _ => (state, recommendation, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(verdict: TrialVerdict) -> TrialReport {
        TrialReport {
            verdict,
            why: "4 cells".to_owned(),
            at: "2026-11-30T10:00:00Z".to_owned(),
            report: None,
            current: true,
        }
    }

    #[test]
    fn a_trial_decides_where_it_is_about_the_patch_as_it_is() {
        let decided = |recommendation| (PatchState::Needed, recommendation, "a reason".to_owned());
        let weighed = |recommendation, trial: Option<&TrialReport>| {
            let (_, recommendation, reason) = weigh(decided(recommendation), trial);
            format!("{recommendation:?}: {reason}")
        };
        let red = trial(TrialVerdict::Fails);
        let outdated = TrialReport { current: false, ..red.clone() };
        let lines = [
            weighed(Recommendation::Keep, Some(&red)),
            weighed(Recommendation::Drop, Some(&red)),
            weighed(Recommendation::Upstream, Some(&red)),
            weighed(Recommendation::Drop, Some(&outdated)),
            weighed(Recommendation::Keep, Some(&trial(TrialVerdict::DoesNotBuild))),
            weighed(Recommendation::Keep, Some(&trial(TrialVerdict::Passes))),
            weighed(Recommendation::Drop, Some(&trial(TrialVerdict::Passes))),
            weighed(Recommendation::Keep, Some(&trial(TrialVerdict::Inconclusive))),
            weighed(Recommendation::Keep, None),
        ];
        insta::assert_snapshot!(lines.join("\n"), @"
        Keep: without it the gate fails: 4 cells
        Keep: without it the gate fails: 4 cells; otherwise a reason
        Upstream: a reason; without it the gate fails: 4 cells
        Drop: a reason
        Keep: without it nothing is built: 4 cells
        Look: without it the gate passes: 4 cells; a reason
        Drop: a reason
        Keep: a reason
        Keep: a reason
        ");
    }

    #[test]
    fn every_verdict_is_read_back_by_its_word() {
        for verdict in [TrialVerdict::Passes, TrialVerdict::DoesNotApply, TrialVerdict::OnlyRebased] {
            assert_eq!(TrialVerdict::of_word(verdict.word()), Some(verdict));
        }
        assert_eq!(TrialVerdict::of_word("merged"), None);
    }
}
