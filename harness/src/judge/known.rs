//! What is known to be wrong with a build. A gate that does not see a known fault where it must be is blind there, and says
//! nothing about anybody; a known limit is told and does not count.

use serde_json::json;

use super::{BUILDS, CellObservations, Finding, Severity, Subject, role_name};
use crate::config::spec::{Known, KnownWeight};

/// The code of a known fault or limit that was not seen.
pub const NOT_SEEN: &str = "known-fault-not-seen";

/// Goes through what is known of the builds at this cell.
pub fn apply(seen: &CellObservations, findings: &mut Vec<Finding>) {
    for role in BUILDS {
        let Some(observation) = seen.of(role) else { continue };
        for known in seen.known.iter().filter(|known| known.build == observation.engine) {
            let subject = Subject::from(role);
            let mut as_stated = false;
            for finding in findings.iter_mut().filter(|f| f.subject == subject) {
                if finding.severity == Severity::Error && known.codes.contains(&finding.code) {
                    as_stated = true;
                    finding.message.push_str(&format!("; this is known of `{}`: {}", known.build, known.why));
                    if known.weight == KnownWeight::Limit {
                        finding.severity = Severity::Warning;
                    }
                }
            }
            if !as_stated {
                findings.push(not_seen(known, role_name(role)));
            }
        }
    }
}

fn not_seen(known: &Known, role: &str) -> Finding {
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
            "{what} of `{}`, the {role}, does not show here ({}): {}; either it is gone, and the matrix should no longer \
             state it, or this cell is blind",
            known.build,
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
    fn a_known_limit_weighs_nothing_and_is_still_told() {
        let found = judged(Fault::NoHistory, KnownWeight::Limit);
        assert_eq!(found[0].severity, Severity::Warning);
        let found = judged(Fault::None, KnownWeight::Limit);
        assert_eq!(found.iter().find(|f| f.code == NOT_SEEN).unwrap().severity, Severity::Warning);
    }
}
