//! T3, tasks: does the answer hold what a right one must, and does it read like the peer's? A miss is a warning by
//! itself; the verdict counts misses over the prompts of a model.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    BUILDS, CellJudgement, CellObservations, ROLES, generation, greedy::side_by_side, role_name, text,
};
use crate::{
    judge::{Finding, Severity},
    matrix::Role,
};

/// The code of an answer that lacks what a right one holds.
pub const FAILED: &str = "task-failed";

/// The prefix of the codes of text signals.
pub const TEXT_PREFIX: &str = "text-";

/// How one engine answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// Expected substrings that the answer lacks; empty for a right answer.
    pub missing: Vec<String>,
    /// The answer.
    pub answer: String,
}

impl TaskOutcome {
    /// Whether nothing is missing.
    pub fn passed(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Which of the expected substrings an answer lacks, compared without case.
pub fn missing(expect: &[String], answer: &str) -> Vec<String> {
    let answer = answer.to_lowercase();
    expect.iter().filter(|e| !answer.contains(&e.to_lowercase())).cloned().collect()
}

/// Whether a finding is a task or text alarm, of the kind that the verdict counts.
pub fn is_alarm(finding: &Finding) -> bool {
    finding.severity == Severity::Warning && (finding.code == FAILED || finding.code.starts_with(TEXT_PREFIX))
}

/// Judges the answers of all roles: against the reference where it is usable, else builds against one another.
pub(super) fn judge(
    prompt: &str,
    expect: &[String],
    allow: &[String],
    seen: &CellObservations,
    reference_is_usable: bool,
    out: &mut CellJudgement,
) {
    for role in ROLES {
        if let Some((_, g)) = seen.of(role).and_then(generation) {
            out.tasks.insert(role, TaskOutcome { missing: missing(expect, &g.text), answer: g.text.clone() });
        }
    }
    for role in BUILDS {
        let Some(own) = out.tasks.get(&role) else { continue };
        let peer_role = match (reference_is_usable, role) {
            (true, _) => Role::Reference,
            (false, Role::Candidate) => Role::Baseline,
            (false, _) => Role::Candidate,
        };
        let Some(peer) = out.tasks.get(&peer_role) else { continue };
        let (name, peer_name) = (role_name(role), role_name(peer_role));
        if !own.passed() {
            out.findings.push(Finding {
                code: FAILED.into(),
                subject: role.into(),
                severity: if peer.passed() { Severity::Warning } else { Severity::Info },
                message: format!(
                    "the {name}'s answer lacks {}; the {peer_name}'s {}",
                    own.missing.iter().map(|m| format!("{m:?}")).collect::<Vec<_>>().join(", "),
                    if peer.passed() { "has it" } else { "fails too" }
                ),
                evidence: json!({
                    "prompt": prompt,
                    "missing": own.missing,
                    "peer": peer_role,
                    "texts": side_by_side(&peer.answer, &own.answer),
                }),
            });
        }
        for signal in text::signals(&own.answer, prompt, &peer.answer, allow) {
            out.findings.push(Finding {
                code: format!("{TEXT_PREFIX}{}", signal.name),
                subject: role.into(),
                severity: Severity::Warning,
                message: format!("the {name}'s answer: {}; the {peer_name}'s does not", signal.what),
                evidence: json!({
                    "prompt": prompt,
                    "peer": peer_role,
                    "texts": side_by_side(&peer.answer, &own.answer),
                }),
            });
        }
    }
}
