//! What is wrong with an observation: pure functions over what engines did at one cell, so that a finished run can be
//! judged again. [`judge_cell`] is the way in; [`counterfactual_of`] says whether one more reference run would name the
//! cause. Whether a pin may move is the next stage's question.
//!
//! ```text
//! let mut seen = CellObservations { candidate, baseline, reference, ..Default::default() };
//! if let Some(role) = judge::counterfactual_of(&cell, &seen, &thresholds) {
//!     // The reference, scored again with `History::None` along `ForcedIds::of` what that role measured.
//!     seen.reference_without_history = observe_scorings(…)?.pop();
//! }
//! let judgement = judge::judge_cell(&cell, &seen, &thresholds);
//! // then: verdict::decide(&[PlannedCell { cell, run: CellRun::Ran { seen, judgement } }, …]) -> Decision
//! // then: Report::new(ReportInput { … }, &cells, &decision), report::write(folder, &report, &cells)
//! ```

pub mod codes;
pub mod diagnosis;
pub mod finding;
pub mod free_text;
pub mod greedy;
pub mod hard;
pub mod known;
pub mod logits;
pub mod op;
pub mod perplexity;
pub mod stretch;
pub mod task;
pub mod text;
pub mod throughput;
pub mod tier;
#[cfg(test)]
pub(crate) mod toy;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

pub use finding::{Finding, Severity, Subject};

use crate::{
    config::spec::{Known, Thresholds},
    engine::protocol::{Generated, Scored, Tokens},
    matrix::{Cell, Measured, Observation, Probe, ProcessOutcome, Role, throughput::ThroughputRuns},
};
use free_text::{FreeText, FreeTextScoring};
use greedy::GreedyComparison;
use logits::LogitsComparison;
use task::TaskOutcome;
use throughput::ThroughputJudgement;
use tier::{Tier, Tiers};

/// Everything that was seen at one cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellObservations {
    /// The build that wants to become the pin.
    pub candidate: Option<Observation>,
    /// The build that is pinned now.
    pub baseline: Option<Observation>,
    /// The independent implementation; absent where none was planned.
    pub reference: Option<Observation>,
    /// The reference once more with `History::None`, when [`counterfactual_of`] asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_without_history: Option<Observation>,
    /// What builds generated, scored by another engine, when [`free_texts_of`] asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_texts: Vec<FreeTextScoring>,
    /// The reference once more with a fault put in, by the fault's name, along what the cell forced: what
    /// [`diagnosis::imitations_of`] asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub imitations: BTreeMap<String, Observation>,
    /// Every run of a throughput cell; the observations above are then each role's last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<ThroughputRuns>,
    /// Bytes of keys and values that a token of this model takes in a cache of full precision, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes_per_token: Option<f64>,
    /// What is known of builds at this cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// The MLX version that each role's build claims to have been built against, where it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claimed_mlx_versions: BTreeMap<Role, String>,
}

impl CellObservations {
    /// What the engine in this role did, if it was run.
    pub fn of(&self, role: Role) -> Option<&Observation> {
        match role {
            Role::Candidate => self.candidate.as_ref(),
            Role::Baseline => self.baseline.as_ref(),
            Role::Reference => self.reference.as_ref(),
        }
    }
}

/// What the judge found at one cell, before any rule over several cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellJudgement {
    /// Every statement, candidate first.
    pub findings: Vec<Finding>,
    /// Whether the reference could decide.
    pub reference: ReferenceState,
    /// Which builds left an observation.
    pub ran: Vec<Role>,
    /// Candidate against baseline, compared only where the reference could not decide.
    pub sameness: Sameness,
    /// The figures of teacher-forced comparisons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logits: Vec<LogitsComparison>,
    /// The figures of greedy comparisons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub greedy: Vec<GreedyComparison>,
    /// The figures of free texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_texts: Vec<FreeText>,
    /// How each role answered a task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<Role, TaskOutcome>,
    /// What a throughput cell says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<ThroughputJudgement>,
}

impl CellJudgement {
    /// Nothing was run and nothing found.
    pub(crate) fn empty() -> Self {
        Self {
            findings: Vec::new(),
            reference: ReferenceState::Usable,
            ran: Vec::new(),
            sameness: Sameness::NotNeeded,
            logits: Vec::new(),
            greedy: Vec::new(),
            free_texts: Vec::new(),
            tasks: BTreeMap::new(),
            throughput: None,
        }
    }
}

/// Whether the reference could decide a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ReferenceState {
    /// It ran, and its own output is sound.
    Usable,
    /// None was planned, or it does not know the architecture.
    NotPossible {
        /// Why.
        reason: String,
    },
    /// It should have decided, and failed.
    Failed {
        /// How.
        reason: String,
    },
}

/// Candidate against baseline, where the reference could not decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Sameness {
    /// Not asked: the reference decides.
    NotNeeded,
    /// They agree within the thresholds.
    Agree,
    /// They do not agree.
    Differ,
    /// It could not be told.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Which engine's output a comparison takes as right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// The independent implementation.
    Reference,
    /// The build that is pinned now.
    Baseline,
    /// The reference, made to forget everything before each decode step.
    ReferenceWithoutHistory,
}

/// Every role, in the order in which findings are listed.
pub const ROLES: [Role; 3] = [Role::Candidate, Role::Baseline, Role::Reference];

/// The two roles that are builds.
pub const BUILDS: [Role; 2] = [Role::Candidate, Role::Baseline];

impl From<Role> for Subject {
    fn from(role: Role) -> Self {
        match role {
            Role::Candidate => Self::Candidate,
            Role::Baseline => Self::Baseline,
            Role::Reference => Self::Reference,
        }
    }
}

/// The role as a word in a sentence.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Candidate => "candidate",
        Role::Baseline => "baseline",
        Role::Reference => "reference",
    }
}

/// Judges what was seen at one cell.
pub fn judge_cell(cell: &Cell, seen: &CellObservations, thresholds: &Thresholds) -> CellJudgement {
    let judgement = judge_cell_with(cell, seen, thresholds, &Tiers::all());
    #[cfg(test)]
    codes::assert_listed(&judgement.findings);
    judgement
}

/// Judges with some tiers only, to show what each of them sees. That the reference is sound is always looked at.
pub fn judge_cell_with(
    cell: &Cell,
    seen: &CellObservations,
    thresholds: &Thresholds,
    tiers: &Tiers,
) -> CellJudgement {
    if let Probe::Throughput(spec) = &cell.probe {
        return throughput::judge(cell, spec, seen);
    }
    let thresholds = &thresholds.for_cell(cell.backend, cell.context);
    let mut findings = Vec::new();
    findings.extend(seen.reference.iter().flat_map(|o| hard::check(cell, o, seen)));
    let reference = reference_state(seen, &findings);
    let usable = reference == ReferenceState::Usable;
    let mut judgement = CellJudgement {
        findings: BUILDS
            .iter()
            .filter_map(|role| seen.of(*role).filter(|_| tiers.has(Tier::Hard)))
            .flat_map(|o| hard::check(cell, o, seen))
            .chain(findings)
            .collect(),
        reference,
        ran: ROLES.into_iter().filter(|role| seen.of(*role).is_some()).collect(),
        ..CellJudgement::empty()
    };
    if usable {
        for role in BUILDS {
            compare_with_reference(role, seen, thresholds, tiers, &mut judgement);
        }
    } else {
        compare_builds(seen, thresholds, &mut judgement);
    }
    if tiers.has(Tier::FreeText) {
        judge_free_texts(seen, usable, thresholds, &mut judgement);
    }
    if tiers.has(Tier::Logits) {
        let own = ROLES.iter().filter_map(|role| seen.of(*role));
        judgement.findings.extend(own.flat_map(|o| stretch::check(cell, o, seen)));
        judgement.findings.extend(op::findings(cell, seen));
        perplexity::judge(seen, usable, &mut judgement);
    }
    if let Probe::Task { prompt, expect, shape, allow, .. } = &cell.probe {
        task::judge(task::Asked { prompt, expect, shape, allow }, seen, usable, tiers, &mut judgement);
    }
    known::apply(seen, &mut judgement.findings);
    judgement
}

/// Whose generated ids another engine should be forced along, and that engine: a build's text that differs from the
/// reference's after the same prompt, where everything after the first difference would else stay unseen. Without a
/// usable reference the other build scores.
pub fn free_texts_of(cell: &Cell, seen: &CellObservations, thresholds: &Thresholds) -> Vec<(Role, Role)> {
    let judgement = judge_cell(cell, seen, thresholds);
    let usable = judgement.reference == ReferenceState::Usable;
    BUILDS
        .into_iter()
        .filter_map(|of| {
            let by = match (usable, of) {
                (true, _) => Role::Reference,
                (false, Role::Candidate) => Role::Baseline,
                (false, _) => return None,
            };
            let (own, peer) = (generation(seen.of(of)?)?, generation(seen.of(by)?)?);
            (own.0.ids == peer.0.ids && own.1.ids != peer.1.ids && !own.1.ids.is_empty()).then_some((of, by))
        })
        .collect()
}

/// Whose ids the reference should be forced along with `History::None`, where that run could name the cause of what was
/// seen: a build whose decode steps leave a usable reference, the candidate before the baseline.
pub fn counterfactual_of(cell: &Cell, seen: &CellObservations, thresholds: &Thresholds) -> Option<Role> {
    let judgement = judge_cell(cell, seen, thresholds);
    BUILDS.into_iter().find(|role| {
        let subject = Subject::from(*role);
        judgement.reference == ReferenceState::Usable
            && cell.context <= LONGEST_COUNTERFACTUAL
            && judgement.findings.iter().any(|f| {
                f.subject == subject
                    && (f.code == logits::DECODE_DIVERGES
                        // The first id comes from the prefill, which has its history in any case.
                        || (f.code == greedy::DIVERGES && f.evidence["index"] != json!(0)))
            })
    })
}

/// Behind longer prompts one more run of the reference would cost minutes, and shorter cells of the model tell the cause.
const LONGEST_COUNTERFACTUAL: usize = 8_200;

/// Whether [`counterfactual_of`] names anybody.
pub fn wants_counterfactual(cell: &Cell, seen: &CellObservations, thresholds: &Thresholds) -> bool {
    counterfactual_of(cell, seen, thresholds).is_some()
}

/// The parts of a logits observation.
pub(crate) fn scored(observation: &Observation) -> Option<(&[u32], usize, &Scored)> {
    match observation.measured.as_ref()? {
        Measured::Logits { ids, prefill_len, scored, .. } => Some((ids, *prefill_len, scored)),
        _ => None,
    }
}

/// The parts of a generation observation.
pub(crate) fn generation(observation: &Observation) -> Option<(&Tokens, &Generated)> {
    match observation.measured.as_ref()? {
        Measured::Generation { prompt, generated } => Some((prompt, generated)),
        _ => None,
    }
}

fn reference_state(seen: &CellObservations, findings: &[Finding]) -> ReferenceState {
    let Some(reference) = &seen.reference else {
        return ReferenceState::NotPossible { reason: "no reference was planned".into() };
    };
    if let ProcessOutcome::Refused { kind, message } = &reference.exit
        && kind == "unsupported-model"
    {
        return ReferenceState::NotPossible {
            reason: format!("{} does not know the architecture: {message}", reference.engine),
        };
    }
    match findings.iter().find(|f| f.severity == Severity::Error) {
        None => ReferenceState::Usable,
        Some(f) => ReferenceState::Failed { reason: format!("{}: {}", f.code, f.message) },
    }
}

fn has_error(findings: &[Finding], role: Role) -> bool {
    findings.iter().any(|f| f.subject == Subject::from(role) && f.severity == Severity::Error)
}

/// Where the candidate cannot be compared the cell is inconclusive; a baseline that cannot be compared is told.
fn incomparable(reason: &str, of: Role, against: Against) -> Finding {
    let (subject, severity) = match of {
        Role::Candidate => (Subject::Harness, Severity::Error),
        Role::Baseline | Role::Reference => (of.into(), Severity::Warning),
    };
    Finding {
        code: codes::INCOMPARABLE.into(),
        subject,
        severity,
        message: format!("the {}'s rows cannot be compared: {reason}", role_name(of)),
        evidence: json!({ "of": of, "against": against }),
    }
}

fn judge_free_texts(
    seen: &CellObservations,
    reference_is_usable: bool,
    thresholds: &Thresholds,
    out: &mut CellJudgement,
) {
    for FreeTextScoring { of, by, observation } in &seen.free_texts {
        let (Some(text), Some(forced)) = (seen.of(*of).and_then(generation), scored(observation)) else {
            continue;
        };
        if *by == Role::Reference && !reference_is_usable {
            continue;
        }
        let own = seen.of(*by).and_then(generation).map(|(_, own)| own);
        if let Some(figures) = free_text::figures(*of, *by, text, forced, own, thresholds.margin) {
            out.findings.extend(free_text::findings(&figures, text.1, thresholds));
            out.free_texts.push(figures);
        }
    }
}

fn compare_with_reference(
    role: Role,
    seen: &CellObservations,
    thresholds: &Thresholds,
    tiers: &Tiers,
    out: &mut CellJudgement,
) {
    let (Some(engine), Some(reference)) = (seen.of(role), seen.reference.as_ref()) else { return };
    if let (Some(e), Some(r)) = (scored(engine), scored(reference))
        && tiers.has(Tier::Logits)
    {
        match logits::compare(role, Against::Reference, e, r, thresholds.margin) {
            Ok(comparison) => {
                let mut found = logits::findings(&comparison, e.2, r.2, thresholds);
                if found.iter().any(|f| f.code == logits::DECODE_DIVERGES)
                    && let Some(w) = seen.reference_without_history.as_ref().and_then(scored)
                    && let Ok(counterfactual) =
                        logits::compare(role, Against::ReferenceWithoutHistory, e, w, thresholds.margin)
                {
                    diagnosis::explain(&mut found, &comparison, &counterfactual, thresholds);
                    out.logits.push(counterfactual);
                }
                diagnosis::explain_by_pattern(&mut found, &comparison, e, r, &seen.imitations, thresholds);
                out.findings.extend(found);
                out.logits.push(comparison);
            }
            Err(logits::Incomparable::EngineAtFault(reason)) => out.findings.push(Finding {
                code: codes::ROWS_MISSHAPEN.into(),
                subject: role.into(),
                severity: Severity::Error,
                message: reason,
                evidence: json!({ "command": engine.command }),
            }),
            // An engine whose every row is NaN has been told so already.
            Err(logits::Incomparable::NothingInCommon(_)) if has_error(&out.findings, role) => {}
            Err(other) => out.findings.push(incomparable(&other.to_string(), role, Against::Reference)),
        }
    }
    if let (Some(e), Some(r)) = (generation(engine), generation(reference))
        && tiers.has(Tier::Greedy)
    {
        let (comparison, mut found) =
            greedy::judge(role, Against::Reference, e, r, &engine.eos_ids, thresholds.near_tie);
        if let Some(without) = seen.reference_without_history.as_ref().and_then(scored) {
            diagnosis::explain_greedy(&mut found, e, without);
        }
        out.findings.extend(found);
        out.greedy.extend(comparison);
    }
}

fn compare_builds(seen: &CellObservations, thresholds: &Thresholds, out: &mut CellJudgement) {
    let (Some(candidate), Some(baseline)) = (&seen.candidate, &seen.baseline) else {
        out.sameness = Sameness::Unknown { reason: "only one of candidate and baseline was run".into() };
        return;
    };
    for role in BUILDS {
        if has_error(&out.findings, role) {
            out.sameness = Sameness::Unknown { reason: format!("the {} failed by itself", role_name(role)) };
            return;
        }
    }
    if candidate.engine == baseline.engine {
        out.sameness = Sameness::Unknown {
            reason: "candidate and baseline are the same build, so that they agree shows nothing".into(),
        };
        return;
    }
    let found = if let (Some(c), Some(b)) = (scored(candidate), scored(baseline)) {
        match logits::compare(Role::Candidate, Against::Baseline, c, b, thresholds.margin) {
            Ok(comparison) => {
                let found = logits::findings(&comparison, c.2, b.2, thresholds);
                out.logits.push(comparison);
                found
            }
            Err(error) => {
                out.sameness = Sameness::Unknown { reason: error.to_string() };
                return;
            }
        }
    } else if let (Some(c), Some(b)) = (generation(candidate), generation(baseline)) {
        let (comparison, found) =
            greedy::judge(Role::Candidate, Against::Baseline, c, b, &candidate.eos_ids, thresholds.near_tie);
        out.greedy.extend(comparison);
        found
    } else {
        out.sameness =
            Sameness::Unknown { reason: "candidate and baseline measured different things".into() };
        return;
    };
    let differs = found.iter().any(|f| f.severity == Severity::Error);
    out.sameness = if differs { Sameness::Differ } else { Sameness::Agree };
    // Without a reference nobody knows who is right: the difference is told, and blames neither build.
    out.findings.extend(found.into_iter().map(|f| Finding {
        subject: Subject::Harness,
        severity: if f.severity == Severity::Error { Severity::Warning } else { f.severity },
        code: if f.severity == Severity::Error { codes::BUILDS_DIFFER.into() } else { f.code },
        ..f
    }));
}

#[cfg(test)]
mod tests {
    use super::{
        toy::{Fault, answer, greedy_cell, logits_cell, observe, seen, task_cell, thresholds},
        *,
    };
    use crate::{engine::protocol::Device, judge::toy};

    fn codes(judgement: &CellJudgement, role: Role, severity: Severity) -> Vec<&str> {
        let subject = Subject::from(role);
        let of = |f: &&Finding| f.subject == subject && f.severity == severity;
        judgement.findings.iter().filter(of).map(|f| f.code.as_str()).collect()
    }

    fn judged(cell: &Cell, seen: &CellObservations) -> CellJudgement {
        judge_cell(cell, seen, &thresholds())
    }

    const SOUND: Option<Fault> = Some(Fault::None);

    #[test]
    fn equal_engines_have_no_finding_at_any_probe() {
        for cell in [logits_cell("m"), greedy_cell("m"), task_cell("m", "capital")] {
            for other in [Fault::None, Fault::Rounding] {
                let j = judged(&cell, &seen(&cell, Some(other), SOUND, SOUND));
                assert_eq!(j.findings, vec![], "{} {other:?}", cell.id);
                assert_eq!(j.reference, ReferenceState::Usable);
            }
        }
    }

    #[test]
    fn identical_rows_measure_zero_everywhere() {
        let cell = logits_cell("m");
        let j = judged(&cell, &seen(&cell, SOUND, None, SOUND));
        let decode = j.logits[0].decode.as_ref().unwrap();
        assert_eq!(
            (decode.mean_kl, decode.p99_kl, decode.relative_l2, decode.max_logit_gap),
            (0.0, 0.0, 0.0, 0.0)
        );
        assert_eq!((decode.cosine, decode.top1_agreed), (1.0, decode.top1_counted));
        assert_eq!((decode.positions, j.logits[0].prefill.as_ref().unwrap().positions), (toy::STEPS, 3));
    }

    #[test]
    fn a_lost_cache_is_seen_in_decode_only_and_named() {
        let cell = logits_cell("qwen3");
        let mut s = seen(&cell, Some(Fault::NoHistory), SOUND, SOUND);
        let with = s.reference_without_history.take();
        assert!(wants_counterfactual(&cell, &s, &thresholds()));
        s.reference_without_history = with;
        let j = judged(&cell, &s);
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["decode-logits-diverge"]);
        let f = &j.findings[0];
        assert_eq!(diagnosis::named(f), Some("no-kv-cache"));
        assert_eq!(f.evidence["first_position"], json!(toy::CONTEXT));
        assert!(
            f.message.contains("each decode step behaves as if it saw only the last token"),
            "{}",
            f.message
        );
        assert!(f.message.contains("prefill agrees"), "{}", f.message);
        assert_eq!(f.evidence["separation"]["mean_kl_to_reference_without_history"], json!(0.0));
    }

    #[test]
    fn another_decode_fault_is_not_called_a_lost_cache() {
        let cell = logits_cell("qwen3");
        let j = judged(&cell, &seen(&cell, Some(Fault::OffByOne), SOUND, SOUND));
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["decode-logits-diverge"]);
        assert_eq!(diagnosis::named(&j.findings[0]), Some(diagnosis::DECODE_STATE));
        assert!(j.findings[0].message.contains("match neither"), "{}", j.findings[0].message);
    }

    #[test]
    fn no_counterfactual_is_asked_for_where_decoding_agrees() {
        let cell = logits_cell("m");
        assert!(!wants_counterfactual(&cell, &seen(&cell, SOUND, SOUND, SOUND), &thresholds()));
        assert!(wants_counterfactual(
            &cell,
            &seen(&cell, SOUND, Some(Fault::NoHistory), SOUND),
            &thresholds()
        ));
        assert!(!wants_counterfactual(
            &cell,
            &seen(&cell, Some(Fault::NoHistory), SOUND, None),
            &thresholds()
        ));
    }

    #[test]
    fn two_swapped_logits_and_a_nan_are_seen() {
        let cell = logits_cell("m");
        let j = judged(&cell, &seen(&cell, Some(Fault::SwappedLogits), SOUND, SOUND));
        assert_eq!(
            codes(&j, Role::Candidate, Severity::Error),
            ["prefill-logits-diverge", "decode-logits-diverge"]
        );
        let j = judged(&cell, &seen(&cell, Some(Fault::NaN(toy::CONTEXT + 2)), SOUND, SOUND));
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["non-finite-logits"]);
    }

    #[test]
    fn greedy_ids_that_part_beyond_a_tie_are_an_error_with_both_texts() {
        let cell = greedy_cell("m");
        let j = judged(&cell, &seen(&cell, Some(Fault::NoHistory), SOUND, SOUND));
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["greedy-diverges"]);
        let f = &j.findings[0];
        assert_eq!(f.evidence["index"], json!(1), "the first id comes from the prefill and agrees");
        assert!(f.evidence["texts"]["marked"].as_str().unwrap().contains("[-"));
    }

    #[test]
    fn greedy_ids_are_explained_by_the_reference_without_history() {
        let cell = greedy_cell("m");
        for (fault, diagnosis) in [(Fault::NoHistory, Some("no-kv-cache")), (Fault::OffByOne, None)] {
            let mut s = seen(&cell, Some(fault), SOUND, SOUND);
            assert_eq!(counterfactual_of(&cell, &s, &thresholds()), Some(Role::Candidate));
            s.reference_without_history = Some(toy::without_history(s.candidate.as_ref().unwrap()));
            let j = judged(&cell, &s);
            assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["greedy-diverges"]);
            assert_eq!(diagnosis::named(&j.findings[0]), diagnosis, "{}", j.findings[0].message);
            assert_eq!(j.findings[0].evidence["separation"]["steps"], json!(toy::STEPS - 1));
        }
    }

    #[test]
    fn a_near_tie_by_the_references_account_is_excused() {
        let cell = greedy_cell("m");
        for (shortfall, code, severity) in
            [(0.03, "greedy-near-tie", Severity::Info), (0.3, "greedy-diverges", Severity::Error)]
        {
            let mut s = seen(&cell, SOUND, SOUND, SOUND);
            let Some(Measured::Generation { generated: r, .. }) = &mut s.reference.as_mut().unwrap().measured
            else {
                unreachable!()
            };
            r.top[3][1].logprob = r.top[3][0].logprob - shortfall;
            let other = r.top[3][1].id;
            let Some(Measured::Generation { generated: c, .. }) = &mut s.candidate.as_mut().unwrap().measured
            else {
                unreachable!()
            };
            c.ids[3] = other;
            assert_eq!(codes(&judged(&cell, &s), Role::Candidate, severity), [code], "{shortfall}");
        }
    }

    #[test]
    fn other_prompt_ids_are_an_error_with_both_renderings() {
        let cell = task_cell("m", "capital");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        if let Some(Measured::Generation { prompt, .. }) = &mut s.candidate.as_mut().unwrap().measured {
            prompt.ids.insert(0, 1);
            prompt.rendered.insert_str(0, "<bos>");
        }
        let j = judged(&cell, &s);
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), ["prompt-ids-differ"]);
        assert_eq!(
            j.findings[0].evidence["texts"]["engine"],
            json!("<bos><user>What is the capital of France?")
        );
    }

    /// One way to spoil an observation, the code that must name it, and how much that weighs.
    type Spoil = (&'static str, Severity, fn(&mut Observation));

    #[test]
    fn every_hard_fault_is_named() {
        let cases: &[Spoil] = &[
            ("crashed", Severity::Error, |o| {
                o.measured = None;
                o.exit =
                    ProcessOutcome::Crashed { code: None, signal: Some(11), last_lines: vec!["boom".into()] };
            }),
            ("timed-out", Severity::Error, |o| {
                o.measured = None;
                o.exit = ProcessOutcome::TimedOut { after_s: 60.0, last_lines: vec![] };
            }),
            ("garbled", Severity::Error, |o| {
                o.measured = None;
                o.exit = ProcessOutcome::Garbled { line: "hello".into() };
            }),
            ("refused", Severity::Error, |o| {
                o.measured = None;
                o.exit = ProcessOutcome::Refused { kind: "bad-model".into(), message: "extra tensor".into() };
            }),
            ("out-of-memory", Severity::Error, |o| {
                o.measured = None;
                o.exit = ProcessOutcome::OutOfMemory { message: "SIGKILL".into() };
            }),
            ("abort-at-exit", Severity::Warning, |o| {
                o.exit = ProcessOutcome::AbortAtExit { code: None, signal: Some(6), last_lines: vec![] };
            }),
            ("no-measurement", Severity::Error, |o| o.measured = None),
            ("wrong-device", Severity::Error, |o| o.device_wanted = Device::Gpu),
            ("id-beyond-vocabulary", Severity::Error, |o| o.vocab_size = Some(8)),
            ("empty-answer", Severity::Error, |o| o.measured = Some(answer("", &[]))),
            ("special-id-in-answer", Severity::Error, |o| o.measured = Some(answer("Paris", &[9, 0, 7, 1]))),
            ("replacement-character", Severity::Error, |o| {
                o.measured = Some(answer("The capital of France is Paris.\u{fffd}", &[9, 4, 7, 1]));
            }),
            ("repeated-id", Severity::Error, |o| o.measured = Some(answer("Paris", &[7; 16]))),
        ];
        let cell = task_cell("m", "capital");
        for (code, severity, spoil) in cases {
            let mut s = seen(&cell, SOUND, SOUND, SOUND);
            spoil(s.candidate.as_mut().unwrap());
            let j = judged(&cell, &s);
            assert!(codes(&j, Role::Candidate, *severity).contains(code), "{code}: {:?}", j.findings);
            assert_eq!(
                codes(&j, Role::Baseline, *severity),
                Vec::<&str>::new(),
                "{code} is not the baseline's"
            );
        }
    }

    #[test]
    fn an_abort_at_exit_is_told_with_its_last_words_and_the_good_answer_still_passes() {
        let cell = task_cell("m", "capital");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        s.candidate.as_mut().unwrap().exit = ProcessOutcome::AbortAtExit {
            code: None,
            signal: Some(6),
            last_lines: vec!["cudaStreamSynchronize: driver shutting down".into(), String::new()],
        };
        let j = judged(&cell, &s);
        assert_eq!(codes(&j, Role::Candidate, Severity::Warning), ["abort-at-exit"]);
        assert_eq!(codes(&j, Role::Candidate, Severity::Error), Vec::<&str>::new());
        assert_eq!(
            j.findings[0].message,
            "the candidate answered everything and then ended with signal 6: cudaStreamSynchronize: driver shutting down"
        );
    }

    #[test]
    fn missing_rows_constant_rows_and_another_mlx_are_named() {
        let cell = logits_cell("m");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        let Some(Measured::Logits { scored, .. }) = &mut s.candidate.as_mut().unwrap().measured else {
            unreachable!()
        };
        scored.positions.pop();
        scored.positions[0].logits_f32 = Some(toy::full_row(&[1.0; toy::VOCAB]));
        s.claimed_mlx_versions.insert(Role::Candidate, "0.32.0".into());
        let j = judged(&cell, &s);
        let found = codes(&j, Role::Candidate, Severity::Error);
        for code in ["incomplete", "constant-logits", "wrong-mlx"] {
            assert!(found.contains(&code), "{code} in {found:?}");
        }
    }

    #[test]
    fn what_the_reference_does_too_is_no_fault_of_a_build() {
        let cell = greedy_cell("m");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        for o in [&mut s.candidate, &mut s.baseline, &mut s.reference].into_iter().flatten() {
            o.measured = Some(answer("w", &[7; 16]));
        }
        let j = judged(&cell, &s);
        assert!(j.findings.iter().all(|f| f.severity == Severity::Info), "{:?}", j.findings);
    }

    #[test]
    fn a_crashed_reference_cannot_decide_and_an_unknowing_one_need_not() {
        let cell = logits_cell("m");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        let r = s.reference.as_mut().unwrap();
        r.measured = None;
        r.exit = ProcessOutcome::Crashed { code: Some(1), signal: None, last_lines: vec![] };
        let j = judged(&cell, &s);
        assert!(matches!(j.reference, ReferenceState::Failed { .. }));
        assert_eq!(j.sameness, Sameness::Agree);
        s.reference.as_mut().unwrap().exit =
            ProcessOutcome::Refused { kind: "unsupported-model".into(), message: "lfm9".into() };
        assert!(matches!(judged(&cell, &s).reference, ReferenceState::NotPossible { .. }));
    }

    #[test]
    fn rows_recorded_in_summary_only_make_the_cell_incomparable() {
        let cell = logits_cell("m");
        let mut s = seen(&cell, SOUND, SOUND, SOUND);
        s.candidate = Some(observe(&cell, Role::Candidate, "patched", Fault::None));
        if let Some(Measured::Logits { scored, .. }) = &mut s.candidate.as_mut().unwrap().measured {
            scored.positions.iter_mut().for_each(|p| p.logits_f32 = None);
        }
        let j = judged(&cell, &s);
        assert!(j.findings.iter().any(|f| f.code == "incomparable" && f.subject == Subject::Harness));
    }
}
