//! What a long prompt shows beside its rows: equal requests that differ, a cache that takes more or less memory than its
//! keys and values, requests that each need more than the one before.

use serde_json::json;

use super::{CellObservations, Finding, Severity, codes, role_name};
use crate::matrix::{Again, Cell, Measured, Observation, Role, observation::row_digests};

pub use super::codes::CACHE_MEMORY;

/// How far the held memory may lie from the cache's arithmetic: what the facts ask of the slope.
const TOLERANCE: f64 = 0.1;

/// Caches grow by steps of 256 positions in mlx-lm, so shorter contexts say nothing about bytes a token.
const STEP: usize = 256;

/// From this length on a step is less than the tolerance.
const LEAST_IDS: usize = 4 * STEP;

/// Peaks may differ by so much from request to request without growing: buffers that are kept for later.
const SLACK_BYTES: u64 = 1 << 20;

/// Everything that one engine's long prompt has to say by itself.
pub fn check(cell: &Cell, o: &Observation, seen: &CellObservations) -> Vec<Finding> {
    let (Some(_), Some(Measured::Logits { ids, scored, again, .. })) = (cell.stretch(), &o.measured) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let digests = row_digests(scored);
    let differs = |again: &Again| {
        digests.iter().find(|(at, digest)| again.row_digests.get(*at) != Some(*digest)).map(|(at, _)| *at)
    };
    if let Some((request, position)) =
        again.iter().enumerate().find_map(|(i, again)| Some((i + 2, differs(again)?)))
    {
        let before = if request == 2 { ", the first after another prompt" } else { "" };
        findings.push(finding(
            o,
            codes::REPEAT_DIFFERS,
            format!(
                "the {}'s answer to the same prompt, asked again in one process (request {request}{before}), has other \
                 bits from position {position} on",
                role_name(o.role)
            ),
            json!({ "request": request, "position": position, "command": o.command }),
        ));
    }
    findings.extend(more_memory(o, scored.peak_bytes, again));
    if let (Some(a_token), Some(held)) = (seen.cache_bytes_per_token, scored.held_bytes)
        && ids.len() >= LEAST_IDS
        && o.role != Role::Reference
    {
        let (held, right) = (held as f64, a_token * ids.len() as f64);
        let slack = a_token * STEP as f64 + row_bytes(o);
        if held < right * (1.0 - TOLERANCE) || held > right * (1.0 + TOLERANCE) + slack {
            let own = held / ids.len() as f64;
            findings.push(finding(
                o,
                CACHE_MEMORY,
                format!(
                    "the {} holds {own:.0} bytes a token after {} tokens, and keys and values are {a_token:.0}",
                    role_name(o.role),
                    ids.len()
                ),
                json!({ "held_bytes": held, "right_bytes": right, "tokens": ids.len(), "command": o.command }),
            ));
        }
    }
    findings
}

/// Whether later requests need more memory than the first: without end, or once, as an allocator does that frees a
/// request's scores only while the next one runs (seen on CUDA: 10.1 GiB, then 18.2 GiB and never more).
fn more_memory(o: &Observation, first: Option<u64>, again: &[Again]) -> Option<Finding> {
    let [.., before, last] = again else { return None };
    let (first, before, last) = (first?, before.peak_bytes?, last.peak_bytes?);
    if last <= first + first / 10 + SLACK_BYTES {
        return None;
    }
    let role = role_name(o.role);
    let evidence = json!({
        "first_bytes": first, "before_last_bytes": before, "last_bytes": last, "command": o.command,
    });
    let number = again.len() + 1;
    Some(if last > before + SLACK_BYTES {
        let message = format!(
            "the {role}'s peak memory grows from request to request: {} in the first, {} in number {}, {} in number \
             {number}",
            mib(first),
            mib(before),
            number - 1,
            mib(last)
        );
        finding(o, codes::MEMORY_GROWS, message, evidence)
    } else {
        let message = format!(
            "the {role}'s peak memory is {} in the first request and {} in later ones, where it stays",
            mib(first),
            mib(last)
        );
        Finding { severity: Severity::Warning, ..finding(o, codes::MEMORY_STEPS, message, evidence) }
    })
}

/// A few rows of logits may still be held.
fn row_bytes(o: &Observation) -> f64 {
    o.vocab_size.unwrap_or(0) as f64 * 16.0
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

fn finding(o: &Observation, code: &str, message: String, evidence: serde_json::Value) -> Finding {
    Finding { code: code.into(), subject: o.role.into(), severity: Severity::Error, message, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::protocol::{Phase, Scored, ScoredPosition},
        judge::toy::{self, Fault, logits_cell},
        matrix::{Probe, Stretch},
    };

    const TOKENS: usize = 2048;
    const A_TOKEN: f64 = 2048.0;

    fn cell() -> Cell {
        let stretch = Some(Stretch { requests: 3, ..Stretch::default() });
        Cell { probe: Probe::Logits { decode_steps: 2, stretch }, ..logits_cell("m") }
    }

    fn scored(first: f32, peak: u64, held: f64) -> Scored {
        let position = |position, value| ScoredPosition {
            position,
            phase: Phase::Decode,
            non_finite: 0,
            next_logprob: None,
            top: vec![],
            logits_f32: Some(toy::full_row(&[value, 2.0])),
        };
        Scored {
            positions: vec![position(8, first), position(9, 1.0)],
            prefill_s: 0.0,
            decode_s: 0.0,
            held_bytes: Some(held as u64),
            peak_bytes: Some(peak),
        }
    }

    fn seen(first: &Scored, later: &[Scored]) -> (Observation, CellObservations) {
        let mut seen = toy::seen(&cell(), Some(Fault::None), Some(Fault::None), Some(Fault::None));
        seen.cache_bytes_per_token = Some(A_TOKEN);
        let mut o = seen.candidate.clone().unwrap();
        let again = later
            .iter()
            .map(|s| Again {
                row_digests: row_digests(s),
                held_bytes: s.held_bytes,
                peak_bytes: s.peak_bytes,
            })
            .collect();
        o.measured =
            Some(Measured::Logits { ids: vec![1; TOKENS], prefill_len: 8, scored: first.clone(), again });
        (o, seen)
    }

    fn codes(first: &Scored, later: &[Scored]) -> Vec<String> {
        let (o, seen) = seen(first, later);
        check(&cell(), &o, &seen).into_iter().map(|f| f.code).collect()
    }

    #[test]
    fn equal_requests_with_a_cache_of_the_right_size_say_nothing() {
        let sound = scored(1.0, 9 << 20, A_TOKEN * TOKENS as f64);
        assert_eq!(codes(&sound, &[sound.clone(), sound.clone()]), [""; 0]);
    }

    #[test]
    fn one_bit_of_a_repeat_is_seen_and_where() {
        let sound = scored(1.0, 9 << 20, A_TOKEN * TOKENS as f64);
        let other = scored(1.0 + f32::EPSILON, 9 << 20, A_TOKEN * TOKENS as f64);
        let (o, seen) = seen(&sound, &[sound.clone(), other]);
        let found = check(&cell(), &o, &seen);
        assert_eq!((found[0].code.as_str(), &found[0].evidence["request"]), ("repeat-differs", &json!(3)));
    }

    #[test]
    fn peaks_that_grow_with_requests_are_seen() {
        let at = |peak: u64| scored(1.0, peak << 20, A_TOKEN * TOKENS as f64);
        assert_eq!(codes(&at(10), &[at(13), at(16)]), ["memory-grows"]);
        assert_eq!(codes(&at(10), &[at(16), at(16)]), ["memory-steps"], "once is no leak");
        assert_eq!(codes(&at(10), &[at(11), at(11)]), [""; 0]);
    }

    #[test]
    fn a_cache_of_another_size_is_seen_either_way() {
        for (share, found) in [(0.0, 1), (0.85, 1), (0.95, 0), (1.1, 0), (1.4, 1)] {
            let first = scored(1.0, 9 << 20, share * A_TOKEN * TOKENS as f64);
            assert_eq!(codes(&first, &[]).len(), found, "{share}");
        }
    }
}
