//! T0, hard: what no sound engine does, whatever the others did. Signals that a weak model may set off by itself (one id
//! over and over, special ids in an answer) are errors only where the reference, on the same prompt, is free of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CellObservations, codes, diagnosis, generation, logits, role_name, scored};
use crate::{
    engine::protocol::{Device, Finish, Generated, Phase, TopToken},
    judge::{Finding, Severity},
    matrix::{Cell, Observation, Probe, ProcessOutcome, Role},
};

/// As little in swap is the system's own tidying.
const SWAPPED_BYTES: u64 = 64 << 20;

/// So much of a process's last line is shown.
const LAST_WORDS_CHARS: usize = 160;

/// As many equal ids in a row are a fault (start value of the gating facts).
pub const REPEATED_IDS: usize = 16;

/// Everything T0 has to say about one observation; `seen` holds its peers.
pub fn check(cell: &Cell, observation: &Observation, seen: &CellObservations) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(outcome(observation));
    findings.extend(swap(observation));
    findings.extend(device(observation));
    findings.extend(device_not_seen(observation));
    findings.extend(mlx_version(observation, seen));
    findings.extend(logits_rows(cell, observation, seen));
    findings.extend(generated_ids(cell, observation));
    findings.extend(content(cell, observation, seen));
    findings.extend(eos_ids(cell, observation, seen));
    findings
}

fn finding(o: &Observation, code: &str, severity: Severity, message: String, evidence: Value) -> Finding {
    Finding { code: code.into(), subject: o.role.into(), severity, message, evidence }
}

fn ending(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// What a process said last, behind a colon; nothing where it said nothing.
fn last_words(last_lines: &[String]) -> String {
    last_lines.iter().rfind(|line| !line.trim().is_empty()).map_or_else(String::new, |line| {
        let line = line.trim();
        let cut: String = line.chars().take(LAST_WORDS_CHARS).collect();
        format!(": {cut}{}", if cut.len() < line.len() { "…" } else { "" })
    })
}

/// A process that lay partly in swap has figures of time and memory that mean nothing, and a machine too small for it.
fn swap(o: &Observation) -> Option<Finding> {
    let swapped = o.memory.as_ref()?.swapped_bytes.filter(|bytes| *bytes > SWAPPED_BYTES)?;
    Some(finding(
        o,
        codes::SWAPPED,
        Severity::Warning,
        format!("{:.0} MiB of the {}'s process lay in swap", swapped as f64 / 1_048_576.0, role_name(o.role)),
        json!({ "swapped_bytes": swapped, "command": o.command }),
    ))
}

fn outcome(o: &Observation) -> Option<Finding> {
    let name = role_name(o.role);
    let (code, severity, message) = match &o.exit {
        ProcessOutcome::Clean if o.measured.is_none() => (
            codes::NO_MEASUREMENT,
            Severity::Error,
            format!("the {name} ended without an error and without what was asked of it"),
        ),
        ProcessOutcome::Clean => return None,
        ProcessOutcome::AbortAtExit { code, signal, last_lines } if o.measured.is_some() => (
            codes::ABORT_AT_EXIT,
            Severity::Warning,
            format!(
                "the {name} answered everything and then ended with {}{}",
                ending(*code, *signal),
                last_words(last_lines)
            ),
        ),
        ProcessOutcome::AbortAtExit { code, signal, .. } | ProcessOutcome::Crashed { code, signal, .. } => (
            codes::CRASHED,
            Severity::Error,
            format!("the {name} ended with {} before it had answered", ending(*code, *signal)),
        ),
        ProcessOutcome::Refused { kind, message } => {
            (codes::REFUSED, Severity::Error, format!("the {name} refused ({kind}): {message}"))
        }
        ProcessOutcome::OutOfMemory { message } => {
            (codes::OUT_OF_MEMORY, Severity::Error, format!("the {name} ran out of memory: {message}"))
        }
        ProcessOutcome::Watchdog { message } => (
            codes::WATCHDOG,
            Severity::Error,
            format!("the {name}'s work on the device took too long and was ended by the system: {message}"),
        ),
        ProcessOutcome::TimedOut { after_s, .. } => {
            (codes::TIMED_OUT, Severity::Error, format!("the {name} did not answer within {after_s} s"))
        }
        ProcessOutcome::Garbled { line } => (
            codes::GARBLED,
            Severity::Error,
            format!("the {name} wrote a line that is not the protocol's: {line}"),
        ),
    };
    Some(finding(
        o,
        code,
        severity,
        message,
        json!({ "exit": o.exit, "command": o.command, "wall_s": o.wall_s }),
    ))
}

/// An engine that says it ran on a GPU, and of which the GPU's own tool saw nothing: less memory held there, by all
/// processes together, than the engine says it holds.
fn device_not_seen(o: &Observation) -> Option<Finding> {
    let (gpu, memory) = (o.gpu.as_ref()?, o.memory.as_ref()?);
    let claimed = memory.device_now_bytes?;
    if o.device != Some(Device::Gpu) || gpu.process_bytes.is_some() || gpu.held_bytes >= claimed {
        return None;
    }
    Some(finding(
        o,
        codes::WRONG_DEVICE,
        Severity::Error,
        format!(
            "the {} says that it holds {} MiB on a GPU, and the GPU's own tool sees {} MiB there in all",
            role_name(o.role),
            claimed >> 20,
            gpu.held_bytes >> 20
        ),
        json!({ "gpu": gpu, "claimed_bytes": claimed, "command": o.command }),
    ))
}

fn device(o: &Observation) -> Option<Finding> {
    let used = o.device.filter(|used| *used != o.device_wanted)?;
    Some(finding(
        o,
        codes::WRONG_DEVICE,
        Severity::Error,
        format!(
            "the {} ran on {} where {} was asked for",
            role_name(o.role),
            json!(used),
            json!(o.device_wanted)
        ),
        json!({ "used": used, "wanted": o.device_wanted, "command": o.command }),
    ))
}

fn mlx_version(o: &Observation, seen: &CellObservations) -> Option<Finding> {
    let (claimed, hello) = (seen.claimed_mlx_versions.get(&o.role)?, o.hello.as_ref()?);
    (claimed != &hello.mlx_version).then(|| {
        finding(
            o,
            codes::WRONG_MLX,
            Severity::Error,
            format!(
                "the {} was built against MLX {claimed} and loaded MLX {}",
                role_name(o.role),
                hello.mlx_version
            ),
            json!({ "claimed": claimed, "loaded": hello.mlx_version, "command": o.command }),
        )
    })
}

/// An engine that takes other ids for the end of a reply stops too early or never, whatever the few answers here show.
fn eos_ids(cell: &Cell, o: &Observation, seen: &CellObservations) -> Option<Finding> {
    let reference = seen.reference.as_ref().filter(|r| r.device.is_some())?;
    if !matches!(cell.probe, Probe::Task { .. }) || o.role == Role::Reference || o.device.is_none() {
        return None;
    }
    let set = |o: &Observation| o.eos_ids.iter().copied().collect::<BTreeSet<u32>>();
    let (own, right) = (set(o), set(reference));
    (own != right).then(|| {
        finding(
            o,
            codes::EOS_IDS_DIFFER,
            Severity::Error,
            format!(
                "the {} ends a reply at ids {own:?}, the reference at {right:?}",
                role_name(o.role)
            ),
            json!({
                "own": own,
                "reference": right,
                "diagnosis": diagnosis::SPECIAL_TOKENS,
                "separation": { "runner_up": "the chat template: prompts would differ, and ids that end a reply would not" },
                "command": o.command,
            }),
        )
    })
}

fn logits_rows(cell: &Cell, o: &Observation, seen: &CellObservations) -> Vec<Finding> {
    let Some((_, prefill_len, rows)) = scored(o) else { return Vec::new() };
    let name = role_name(o.role);
    let mut out = Vec::new();

    // What was asked for is not part of an observation; what any engine answered was asked of all.
    let answered: BTreeSet<usize> = rows.positions.iter().map(|p| p.position).collect();
    let asked: BTreeSet<usize> = super::ROLES
        .iter()
        .filter_map(|role| scored(seen.of(*role)?))
        .flat_map(|(_, _, s)| s.positions.iter().map(|p| p.position))
        .collect();
    let decode = rows.positions.iter().filter(|p| p.phase == Phase::Decode).count();
    let lacks_decode =
        matches!(cell.probe, Probe::Logits { decode_steps, .. } if decode_steps > 0) && decode == 0;
    let missing: Vec<_> = asked.difference(&answered).collect();
    if answered.is_empty() || !missing.is_empty() || lacks_decode {
        out.push(finding(
            o,
            codes::INCOMPLETE,
            Severity::Error,
            format!(
                "the {name} answered {} of {} positions, {decode} of them one-token steps",
                answered.len(),
                asked.len()
            ),
            json!({ "missing": missing, "prefill_len": prefill_len, "command": o.command }),
        ));
    }

    let (mut bad, mut constant) = (Vec::new(), Vec::new());
    for p in &rows.positions {
        let row = p.logits_f32.as_ref().and_then(|_| logits::row(p).ok());
        let non_finite =
            row.as_ref().map_or(0, |r| r.iter().filter(|x| !x.is_finite()).count()).max(p.non_finite);
        if non_finite > 0 {
            bad.push((p.position, non_finite));
        } else if row
            .as_ref()
            .map_or_else(|| flat(&p.top, o.vocab_size), |r| r.len() > 1 && r.iter().all(|x| *x == r[0]))
        {
            constant.push(p.position);
        }
    }
    if let Some((position, count)) = bad.first() {
        out.push(finding(
            o,
            codes::NON_FINITE_LOGITS,
            Severity::Error,
            format!("the {name}'s logits hold {count} NaN or infinite values at position {position}"),
            json!({
                "positions": bad.iter().map(|(p, n)| json!([p, n])).collect::<Vec<_>>(),
                "diagnosis": diagnosis::NOT_A_NUMBER,
                "command": o.command,
            }),
        ));
    }
    if let Some(position) = constant.first() {
        out.push(finding(
            o,
            codes::CONSTANT_LOGITS,
            Severity::Error,
            format!("the {name}'s logits are all equal at position {position}"),
            json!({ "positions": constant, "command": o.command }),
        ));
    }
    out.extend(beyond_vocabulary(o, rows.positions.iter().flat_map(|p| p.top.iter().map(|t| t.id))));
    out
}

fn generated_ids(cell: &Cell, o: &Observation) -> Vec<Finding> {
    let Some((_, g)) = generation(o) else { return Vec::new() };
    let name = role_name(o.role);
    let mut out = Vec::new();
    let (wanted, runs_on) = match cell.probe {
        Probe::Greedy { max_tokens } => (max_tokens, true),
        Probe::Task { max_tokens, .. } => (max_tokens, g.finish == Finish::Length),
        _ => (0, false),
    };
    if runs_on && g.ids.len() < wanted {
        out.push(finding(
            o,
            codes::INCOMPLETE,
            Severity::Error,
            format!("the {name} produced {} of {wanted} ids and says that it went to the end", g.ids.len()),
            json!({ "ids": g.ids.len(), "wanted": wanted, "command": o.command }),
        ));
    }
    if let Some(step) =
        g.top.iter().position(|top| !top.is_empty() && top.iter().any(|t| !t.logprob.is_finite()))
    {
        out.push(finding(
            o,
            codes::NON_FINITE_LOGITS,
            Severity::Error,
            format!("the {name}'s log-probabilities are not finite at generated id {step}"),
            json!({ "index": step, "command": o.command }),
        ));
    }
    if let Some(step) = g.top.iter().position(|top| flat(top, o.vocab_size)) {
        out.push(finding(
            o,
            codes::CONSTANT_LOGITS,
            Severity::Error,
            format!("the {name}'s most likely ids are all equally likely at generated id {step}"),
            json!({ "index": step, "top": g.top[step], "command": o.command }),
        ));
    }
    out.extend(beyond_vocabulary(o, g.ids.iter().copied().chain(g.top.iter().flatten().map(|t| t.id))));
    out
}

/// Most likely ids that share the log-probability of one among all ids: the mark of a constant row.
#[expect(clippy::cast_precision_loss, reason = "vocabularies are far below 2^52")]
fn flat(top: &[TopToken], vocab_size: Option<usize>) -> bool {
    let equal = top.len() >= 3 && top.iter().all(|t| t.logprob == top[0].logprob);
    equal && vocab_size.is_none_or(|n| (top[0].logprob + (n as f64).ln()).abs() < 0.01)
}

fn beyond_vocabulary(o: &Observation, ids: impl Iterator<Item = u32>) -> Option<Finding> {
    let vocab = o.vocab_size?;
    let bad: BTreeSet<u32> = ids.filter(|id| usize::try_from(*id).is_ok_and(|id| id >= vocab)).collect();
    let first = bad.first()?;
    Some(finding(
        o,
        codes::ID_BEYOND_VOCABULARY,
        Severity::Error,
        format!(
            "the {} names id {first}, and the vocabulary ends at {}",
            role_name(o.role),
            vocab.saturating_sub(1)
        ),
        json!({ "ids": bad.iter().take(16).collect::<Vec<_>>(), "vocab_size": vocab, "command": o.command }),
    ))
}

/// A signal in what was said, as against how.
struct Signal {
    code: &'static str,
    what: String,
    evidence: Value,
}

fn signals(cell: &Cell, o: &Observation) -> Vec<Signal> {
    let Some((_, g)) = generation(o) else { return Vec::new() };
    let mut out = Vec::new();
    if let Some((start, len, id)) = longest_run(&g.ids).filter(|(_, len, _)| *len >= REPEATED_IDS) {
        out.push(Signal {
            code: codes::REPEATED_ID,
            what: format!("produces id {id} {len} times in a row, from index {start} on"),
            evidence: json!({ "id": id, "times": len, "index": start, "limit": REPEATED_IDS }),
        });
    }
    if !matches!(cell.probe, Probe::Task { .. }) {
        return out;
    }
    if let Some(index) = g.ids.iter().position(|id| o.special_ids.contains(id) || o.eos_ids.contains(id)) {
        out.push(Signal {
            code: codes::SPECIAL_ID_IN_ANSWER,
            what: format!("puts special id {} into its answer, at index {index}", g.ids[index]),
            evidence: json!({ "id": g.ids[index], "index": index }),
        });
    }
    if let Some(at) = replacement_character(g) {
        out.push(Signal {
            code: codes::REPLACEMENT_CHARACTER,
            what: format!("answers with U+FFFD, at byte {at} of its text"),
            evidence: json!({ "byte": at }),
        });
    }
    if g.ids.is_empty() || g.text.trim().is_empty() {
        out.push(Signal {
            code: codes::EMPTY_ANSWER,
            what: "answers nothing".to_owned(),
            evidence: json!({ "ids": g.ids.len() }),
        });
    }
    out
}

fn content(cell: &Cell, o: &Observation, seen: &CellObservations) -> Vec<Finding> {
    let reference = seen.reference.as_ref().filter(|r| r.measured.is_some());
    let of_reference = reference.map(|r| signals(cell, r));
    signals(cell, o)
        .into_iter()
        .filter(|signal| !is_allowed(cell, signal.code))
        .map(|signal| {
            let shared = of_reference.as_ref().is_some_and(|s| s.iter().any(|s| s.code == signal.code));
            let (severity, remark) = match (o.role, &of_reference) {
                (Role::Reference, _) => (Severity::Info, ""),
                (_, Some(_)) if shared => (Severity::Info, "; so does the reference"),
                (_, None) if matches!(cell.probe, Probe::Greedy { .. }) => {
                    (Severity::Warning, "; random weights may do so, and no reference ran")
                }
                _ => (Severity::Error, ""),
            };
            let mut evidence = signal.evidence;
            evidence["text"] = json!(generation(o).map(|(_, g)| excerpt(&g.text)));
            evidence["command"] = json!(o.command);
            finding(
                o,
                signal.code,
                severity,
                format!("the {} {}{remark}", role_name(o.role), signal.what),
                evidence,
            )
        })
        .collect()
}

/// Whether a prompt's right answer sets a signal off, by the name that its `allow` list has for the same thing in a text: a
/// row of zero bytes is many equal ids.
fn is_allowed(cell: &Cell, code: &str) -> bool {
    let Probe::Task { allow, .. } = &cell.probe else { return false };
    let name = if code == codes::REPEATED_ID { "run" } else { code };
    allow.iter().any(|allowed| allowed == name)
}

/// Start, length and id of the longest run of one id.
fn longest_run(ids: &[u32]) -> Option<(usize, usize, u32)> {
    let mut best: Option<(usize, usize, u32)> = None;
    let mut start = 0;
    for i in 0..ids.len() {
        if ids[i] != ids[start] {
            start = i;
        }
        let len = i - start + 1;
        if best.is_none_or(|(_, longest, _)| len > longest) {
            best = Some((start, len, ids[i]));
        }
    }
    best
}

/// Where U+FFFD stands in a text. Up to three at the very end of a cut-off answer are the bytes of half a character,
/// and no fault.
fn replacement_character(g: &Generated) -> Option<usize> {
    let mut text = g.text.as_str();
    if g.finish == Finish::Length {
        for _ in 0..3 {
            text = text.strip_suffix('\u{fffd}').unwrap_or(text);
        }
    }
    text.find('\u{fffd}')
}

fn excerpt(text: &str) -> String {
    text.chars().take(400).collect()
}
