//! What is known to be wrong with a build. A gate that does not see a known fault where it must be is blind there, and says
//! nothing about anybody; a known limit is told and does not count.

use serde_json::{Value, json};

use super::{BUILDS, CellObservations, Finding, Severity, Subject, role_name};
use crate::{
    config::spec::{Known, KnownWeight},
    matrix::Observation,
};

pub use super::codes::KNOWN_NOT_SEEN as NOT_SEEN;

/// The key in the evidence of an error that a stated limit turned into a warning.
const LIMIT: &str = "known_limit";

/// Whether this would be an error, had the matrix not stated it as a limit of the build.
pub fn is_limit(finding: &Finding) -> bool {
    finding.evidence[LIMIT] == json!(true)
}

/// Goes through what is known of the builds at this cell.
pub fn apply(seen: &CellObservations, findings: &mut Vec<Finding>) {
    for role in BUILDS {
        let Some(observation) = seen.of(role) else { continue };
        for known in seen.known.iter().filter(|known| known.is_about(&observation.engine)) {
            let subject = Subject::from(role);
            let mut as_stated = false;
            for finding in findings.iter_mut().filter(|f| f.subject == subject) {
                if finding.severity == Severity::Error && known.codes.contains(&finding.code) {
                    as_stated = true;
                    state(known, &observation.engine, finding);
                }
            }
            if !as_stated {
                findings.push(not_seen(known, observation));
            }
        }
    }
}

/// Says of an error that it is as known.
fn state(known: &Known, build: &str, finding: &mut Finding) {
    finding.message.push_str(&format!("; this is known of `{build}`: {}", known.why));
    if known.weight == KnownWeight::Limit {
        finding.severity = Severity::Warning;
        if let Value::Object(evidence) = &mut finding.evidence {
            evidence.insert(LIMIT.into(), true.into());
        }
    }
}

/// Makes a loss of speed a known limit of the candidate, where the matrix states one that is no smaller, and says whether it
/// is. A loss is seen beside a baseline, which may have it too: where none is seen, nothing is missing.
///
/// `loss` is a share of the baseline's goodness: .3 for ten sevenths of its time or memory.
pub fn apply_to_loss(seen: &CellObservations, loss: f64, finding: &mut Finding) -> bool {
    let Some(candidate) = &seen.candidate else { return false };
    let stated = seen.known.iter().find(|known| {
        known.is_about(&candidate.engine)
            && known.weight == KnownWeight::Limit
            && known.codes.contains(&finding.code)
            && known.up_to.is_some_and(|most| loss <= most)
    });
    if let Some(known) = stated {
        state(known, &candidate.engine, finding);
    }
    stated.is_some()
}

fn not_seen(known: &Known, observation: &Observation) -> Finding {
    // A limit that is gone is good news about the build; a fault that is not seen may be news about the gate.
    let (severity, what) = match known.weight {
        KnownWeight::Fault => (Severity::Error, "a known fault"),
        KnownWeight::Limit => (Severity::Warning, "a known limit"),
    };
    Finding {
        code: NOT_SEEN.into(),
        subject: Subject::Harness,
        severity,
        message: format!(
            "{what} of `{}`, the {}, does not show here ({}): {}; either it is gone, and the matrix should no longer \
             state it, or this cell is blind",
            observation.engine,
            role_name(observation.role),
            known.codes.join(" or "),
            known.why
        ),
        evidence: json!({ "known": known }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::{
            judge_cell,
            toy::{self, Fault, logits_cell, thresholds},
        },
        matrix::Role,
    };

    fn judged(baseline: Fault, weight: KnownWeight) -> Vec<Finding> {
        let cell = logits_cell("qwen3");
        let mut seen = toy::seen(&cell, Some(Fault::None), Some(baseline), Some(Fault::None));
        let build = seen.of(Role::Baseline).unwrap().engine.clone();
        seen.known = vec![Known {
            build,
            cells: "qwen3/*".into(),
            codes: vec!["decode-logits-diverge".into()],
            why: "it has no history".into(),
            weight,
            up_to: None,
        }];
        judge_cell(&cell, &seen, &thresholds()).findings
    }

    #[test]
    fn a_known_fault_that_shows_is_named_and_one_that_does_not_makes_the_gate_blind() {
        let found = judged(Fault::NoHistory, KnownWeight::Fault);
        assert!(found[0].message.contains("it has no history"), "{found:?}");
        assert!(!found.iter().any(|f| f.code == NOT_SEEN));
        let found = judged(Fault::None, KnownWeight::Fault);
        let blind = found.iter().find(|f| f.code == NOT_SEEN).unwrap();
        assert_eq!((blind.subject, blind.severity), (Subject::Harness, Severity::Error));
    }

    #[test]
    fn a_build_is_known_under_a_longer_name_too() {
        let known = |build: &str| Known {
            build: build.into(),
            cells: "*".into(),
            codes: Vec::new(),
            why: String::new(),
            weight: KnownWeight::Limit,
            up_to: None,
        };
        for (pattern, build, about) in [
            ("*4e53c5e", "git-4e53c5e", true),
            ("*4e53c5e", "4e53c5e", true),
            ("*4e53c5e", "patched", false),
            ("published", "published", true),
            ("published", "published-2", false),
        ] {
            assert_eq!(known(pattern).is_about(build), about, "{pattern} {build}");
        }
    }

    #[test]
    fn a_known_limit_weighs_nothing_and_is_still_told() {
        let found = judged(Fault::NoHistory, KnownWeight::Limit);
        assert_eq!((found[0].severity, is_limit(&found[0])), (Severity::Warning, true));
        let found = judged(Fault::None, KnownWeight::Limit);
        assert!(!found.iter().any(is_limit));
        assert_eq!(found.iter().find(|f| f.code == NOT_SEEN).unwrap().severity, Severity::Warning);
    }
}
