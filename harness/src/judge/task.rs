//! T3, tasks: does the answer hold what a right one must, and does it read like the peer's? A miss is a warning by
//! itself; the verdict counts misses over the prompts of a model.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    BUILDS, CellJudgement, CellObservations, ROLES, generation,
    greedy::side_by_side,
    role_name, text,
    tier::{Tier, Tiers},
};
use crate::{
    judge::{Finding, Severity},
    matrix::{AnswerShape, Role},
};

pub use super::codes::{TASK_FAILED as FAILED, TEXT_PREFIX};

/// How one engine answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// What the answer lacks of what was expected; empty for a right answer.
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

/// What the shape of an answer lacks.
pub fn missing_shape(shape: &AnswerShape, answer: &str) -> Vec<String> {
    match shape {
        AnswerShape::Text => Vec::new(),
        AnswerShape::Json { keys } => match objects(answer).next() {
            None => vec!["a JSON object".to_owned()],
            Some(object) => {
                let lacks = |k: &&String| object.get(k.as_str()).is_none();
                keys.iter().filter(lacks).map(|k| format!("the key {k:?} of its JSON object")).collect()
            }
        },
        AnswerShape::ToolCall { name, arguments } => {
            let Some(call) = objects(answer).find(|o| o["name"] == json!(name)) else {
                return vec![format!("a JSON object that calls {name:?}")];
            };
            let given = [&call["arguments"], &call["parameters"]].into_iter().find(|a| a.is_object());
            match given {
                None => vec![format!("the arguments of its call of {name:?}")],
                Some(given) => {
                    let lacks = |k: &&String| given.get(k.as_str()).is_none();
                    arguments.iter().filter(lacks).map(|k| format!("the argument {k:?}")).collect()
                }
            }
        }
    }
}

/// Every JSON object in a text that is none inside another.
fn objects(text: &str) -> impl Iterator<Item = Value> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while let Some(at) = rest.find('{') {
            rest = &rest[at..];
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(value)) = values.next() {
                rest = &rest[values.byte_offset()..];
                return Some(value);
            }
            rest = &rest[1..];
        }
        None
    })
}

/// Whether a finding is a task or text alarm, of the kind that the verdict counts.
pub fn is_alarm(finding: &Finding) -> bool {
    finding.severity == Severity::Warning && (finding.code == FAILED || finding.code.starts_with(TEXT_PREFIX))
}

/// What was asked, and what is expected of the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'c> {
    pub(super) prompt: &'c str,
    pub(super) expect: &'c [String],
    pub(super) shape: &'c AnswerShape,
    pub(super) allow: &'c [String],
}

/// Judges the answers of all roles: against the reference where it is usable, else builds against one another.
pub(super) fn judge(
    asked: Asked<'_>,
    seen: &CellObservations,
    reference_is_usable: bool,
    tiers: &Tiers,
    out: &mut CellJudgement,
) {
    let Asked { prompt, expect, shape, allow } = asked;
    for role in ROLES {
        if let Some((_, g)) = seen.of(role).and_then(generation) {
            let missing = [missing(expect, &g.text), missing_shape(shape, &g.text)].concat();
            out.tasks.insert(role, TaskOutcome { missing, answer: g.text.clone() });
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
        if !own.passed() && tiers.has(Tier::Tasks) {
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
        if !tiers.has(Tier::Text) {
            continue;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_an_answer_is_looked_at_and_not_its_words() {
        let json = AnswerShape::Json { keys: vec!["city".into()] };
        let call = AnswerShape::ToolCall { name: "weather".into(), arguments: vec!["city".into()] };
        for (shape, answer, lacks) in [
            (&AnswerShape::Text, "anything", None),
            (&json, "Here it is: {\"city\": \"Oslo\"}.", None),
            (&json, "```json\n{\"city\": {\"name\": \"Oslo\"}}\n```", None),
            (&json, "{\"city\": \"Oslo\"", Some("a JSON object")),
            (&json, "{\"town\": 1}", Some("\"city\"")),
            (&call, "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}", None),
            (&call, "{x} {\"name\": \"weather\", \"parameters\": {\"city\": 1}}", None),
            (&call, "{\"name\": \"weather\", \"arguments\": {}}", Some("argument \"city\"")),
            (&call, "{\"name\": \"weather\"}", Some("the arguments")),
            (&call, "weather(city=Oslo)", Some("calls \"weather\"")),
        ] {
            let missing = missing_shape(shape, answer);
            match lacks {
                None => assert_eq!(missing, Vec::<String>::new(), "{answer}"),
                Some(text) => assert!(missing.iter().any(|m| m.contains(text)), "{answer}: {missing:?}"),
            }
        }
    }
}
