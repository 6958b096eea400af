//! Two tables over cells: the slope of memory against the length of the prompt, and perplexity by position. Data for
//! `report.json`, and their rendering.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};

use super::{CellReport, markdown::inline};
use crate::{
    judge::{
        ROLES,
        perplexity::{Bucket, buckets},
    },
    matrix::{Backend, Measured},
};

/// Both tables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Long {
    /// One entry a model, probe, backend and engine with at least two lengths.
    pub memory: Vec<MemorySlope>,
    /// One entry a cell and engine.
    pub perplexity: Vec<PerplexityByPosition>,
}

/// Memory against the length of a prompt, as a line by least squares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemorySlope {
    /// The model.
    pub model: String,
    /// The probe, which says how prompts go in.
    pub probe: String,
    /// Where.
    pub backend: Backend,
    /// The engine.
    pub engine: String,
    /// Shortest and longest prompt with its decode steps, in tokens.
    pub tokens: (usize, usize),
    /// How many lengths.
    pub lengths: usize,
    /// Bytes that the cache holds more for each token.
    pub held_bytes_per_token: f64,
    /// Bytes of keys and values a token, by the model's configuration.
    pub cache_bytes_per_token: Option<f64>,
    /// Bytes that the peak grows by for each token.
    pub peak_bytes_per_token: f64,
    /// The highest peak.
    pub peak_bytes: u64,
    /// Highest peak of a repeated request over that of the first, at the longest prompt that was repeated.
    pub repeat_peak_ratio: Option<f64>,
}

/// How likely an engine finds the text, by position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerplexityByPosition {
    /// The cell.
    pub cell: String,
    /// The engine.
    pub engine: String,
    /// Ranges whose ends double.
    pub buckets: Vec<Bucket>,
}

/// Model, probe, backend and engine.
type Line = (String, String, Backend, String);

/// One prompt's figures.
struct Point {
    tokens: usize,
    held: f64,
    peak: f64,
    repeat_peak_ratio: Option<f64>,
}

impl Long {
    /// The tables of these cells.
    pub fn of(cells: &[CellReport]) -> Self {
        let mut lines: BTreeMap<Line, (Option<f64>, Vec<Point>)> = BTreeMap::new();
        let mut perplexity = Vec::new();
        for cell in cells {
            let Some(seen) = &cell.observations else { continue };
            let mut engines = Vec::new();
            for o in ROLES.iter().filter_map(|role| seen.of(*role)) {
                // Candidate and baseline may be one build.
                if engines.contains(&&o.engine) {
                    continue;
                }
                engines.push(&o.engine);
                match &o.measured {
                    Some(Measured::Logits { ids, scored, again, .. }) => {
                        let (Some(held), Some(peak)) = (scored.held_bytes, scored.peak_bytes) else {
                            continue;
                        };
                        let repeated = again.iter().filter_map(|again| again.peak_bytes).max();
                        let key = (cell.model.clone(), cell.probe.clone(), cell.backend, o.engine.clone());
                        let line = lines.entry(key).or_insert((seen.cache_bytes_per_token, Vec::new()));
                        line.1.push(Point {
                            tokens: ids.len(),
                            held: held as f64,
                            peak: peak as f64,
                            repeat_peak_ratio: repeated.map(|r| r as f64 / peak.max(1) as f64),
                        });
                    }
                    Some(Measured::Perplexity { .. }) => perplexity.push(PerplexityByPosition {
                        cell: cell.id.to_string(),
                        engine: o.engine.clone(),
                        buckets: buckets(o),
                    }),
                    _ => {}
                }
            }
        }
        let memory = lines
            .into_iter()
            .filter_map(|((model, probe, backend, engine), (cache_bytes_per_token, mut points))| {
                cache_bytes_per_token?;
                points.sort_by_key(|point| point.tokens);
                points.dedup_by_key(|point| point.tokens);
                let (first, last) = (points.first()?.tokens, points.last()?.tokens);
                if first == last {
                    return None;
                }
                let slope = |figure: fn(&Point) -> f64| {
                    slope(&points.iter().map(|p| (p.tokens as f64, figure(p))).collect::<Vec<_>>())
                };
                Some(MemorySlope {
                    model,
                    probe,
                    backend,
                    engine,
                    tokens: (first, last),
                    lengths: points.len(),
                    held_bytes_per_token: slope(|p| p.held),
                    cache_bytes_per_token,
                    peak_bytes_per_token: slope(|p| p.peak),
                    peak_bytes: points.iter().map(|p| p.peak as u64).max()?,
                    repeat_peak_ratio: points.iter().rev().find_map(|p| p.repeat_peak_ratio),
                })
            })
            .collect();
        Self { memory, perplexity }
    }

    /// Whether no cell looked.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.perplexity.is_empty()
    }
}

fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(a, b), p| (a + (p.0 - x) * (p.1 - y), b + (p.0 - x) * (p.0 - x)));
    if below > 0.0 { above / below } else { 0.0 }
}

/// The tables for people; nothing where no cell looked.
pub(super) fn section(out: &mut String, long: &Long) {
    if !long.memory.is_empty() {
        *out += "## Memory against the length of a prompt\n\n";
        *out += "Bytes a token, as slopes of lines by least squares. *Held* is what the cache holds after the last step, *peak* \
                 is the most at once during the request.\n\n";
        *out += "| model | probe | backend | engine | tokens | lengths | held | keys and values | held / right | peak | highest peak | peak of repeats |\n";
        *out += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        // A build without a cache holds a few bytes less or more: nothing, and not `-0`.
        let rounded = |value: f64, digits: i32| {
            let scale = 10_f64.powi(digits);
            (value * scale).round() / scale + 0.0
        };
        for line in &long.memory {
            let right = line.cache_bytes_per_token;
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} to {} | {} | {:.0} | {} | {} | {:.0} | {:.1} MiB | {} |",
                inline(&line.model),
                inline(&line.probe),
                line.backend,
                inline(&line.engine),
                line.tokens.0,
                line.tokens.1,
                line.lengths,
                rounded(line.held_bytes_per_token, 0),
                right.map_or_else(|| "–".to_owned(), |right| format!("{right:.0}")),
                right.map_or_else(
                    || "–".to_owned(),
                    |right| format!("{:.3}", rounded(line.held_bytes_per_token / right, 3))
                ),
                line.peak_bytes_per_token,
                line.peak_bytes as f64 / 1_048_576.0,
                line.repeat_peak_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
            );
        }
        out.push('\n');
    }
    if !long.perplexity.is_empty() {
        *out += "## Perplexity by position\n\n| cell | engine | positions | points | perplexity |\n|---|---|---|---|---|\n";
        for row in &long.perplexity {
            for bucket in &row.buckets {
                let _ = writeln!(
                    out,
                    "| {} | {} | {} to {} | {} | {:.3} |",
                    inline(&row.cell),
                    inline(&row.engine),
                    bucket.from,
                    bucket.to,
                    bucket.points,
                    bucket.perplexity
                );
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_and_one_point_has_none() {
        assert!((slope(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
    }

    #[test]
    fn tables_name_engine_and_ratio() {
        let mut long = Long {
            memory: vec![MemorySlope {
                model: "qwen3-long".into(),
                probe: "chunk-512".into(),
                backend: Backend::Cpu,
                engine: "patched".into(),
                tokens: (258, 8194),
                lengths: 4,
                held_bytes_per_token: 2050.0,
                cache_bytes_per_token: Some(2048.0),
                peak_bytes_per_token: 9000.0,
                peak_bytes: 64 << 20,
                repeat_peak_ratio: Some(1.0),
            }],
            perplexity: Vec::new(),
        };
        let mut text = String::new();
        section(&mut text, &long);
        assert!(
            text.contains("| 258 to 8194 | 4 | 2050 | 2048 | 1.001 | 9000 | 64.0 MiB | 1.00 |"),
            "{text}"
        );
        long.memory[0].held_bytes_per_token = -0.3;
        section(&mut text, &long);
        assert!(text.contains("| 4 | 0 | 2048 | 0.000 |"), "{text}");
    }
}
