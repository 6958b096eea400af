//! A cell: one point of the matrix, and the name that it keeps over runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::throughput::ThroughputSpec;
use crate::engine::protocol::{Precision, Product};

/// `model/precision/context/probe/backend`, the stable name of a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CellId(String);

impl CellId {
    /// The name of the cell at these coordinates.
    pub fn new(
        model: &str,
        precision: Precision,
        context: usize,
        probe_name: &str,
        backend: Backend,
    ) -> Self {
        Self(format!("{model}/{precision}/{context}/{probe_name}/{backend}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of device that a build runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// MLX's CPU device.
    Cpu,
    /// Apple's Metal.
    Metal,
    /// NVIDIA's CUDA.
    Cuda,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
        })
    }
}

/// What is done with a model at a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Probe {
    /// Teacher-forced logits at prefill and decode positions of seeded random ids: `context` prompt ids, then
    /// `decode_steps` forced ids.
    Logits {
        /// How many one-token decode steps follow the prefill.
        decode_steps: usize,
        /// How a long prompt goes in; plainly where absent, and then early positions are looked at, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stretch: Option<Stretch>,
    },
    /// How likely a model finds a text that we wrote, by position: its first `context` ids.
    Perplexity {
        /// The prefill goes in pieces of so many ids; the id after each piece is looked at.
        chunk: usize,
    },
    /// A product of MLX in a shape that only models reach, against a second formulation. The model of the cell only
    /// makes the engine ready.
    Op {
        /// The product and its shape.
        product: Product,
        /// Largest difference over the largest value that passes.
        tolerance: f64,
    },
    /// Greedy generation of `max_tokens` ids after `context` seeded random prompt ids, end-of-text ids ignored.
    Greedy {
        /// How many ids to produce.
        max_tokens: usize,
    },
    /// A chat prompt to a model that can answer.
    Task {
        /// The user's message.
        prompt: String,
        /// Substrings that a right answer contains, all of them, compared without case.
        expect: Vec<String>,
        /// What the answer must be beside that.
        #[serde(default)]
        shape: AnswerShape,
        /// How many ids to produce at most.
        max_tokens: usize,
        /// Names of text signals that this prompt's right answer sets off legitimately.
        allow: Vec<String>,
    },
    /// Timed greedy generation after `context` seeded random prompt ids, candidate and baseline by turns.
    Throughput(ThroughputSpec),
}

/// How a long prompt goes in. Only the last row of the prefill, rows at the ends of large pieces and the decode steps are
/// looked at: anything else would cost a prefill of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Pieces of the prefill, in ids; one piece where absent. The reference takes large pieces, too, and goes its own way
    /// beside small ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// So much of the prompt, in percent, is there already from an earlier request when the rest comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_percent: Option<usize>,
    /// How often the same request is made in one process, another one between the first two; at least 1.
    pub requests: usize,
    /// `MLX_MAX_OPS_PER_BUFFER` for the builds; MLX's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_buffer: Option<usize>,
}

/// What a cell may cost; the matrix's cell timeout and no limit of memory where absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// How long one engine process may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Bytes of memory that a build's process may take on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// What an answer must be, beside holding texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AnswerShape {
    /// Any text.
    #[default]
    Text,
    /// It holds a JSON object with at least these keys.
    Json {
        /// The keys.
        keys: Vec<String>,
    },
    /// It holds a JSON object that calls a tool: `name` and an object `arguments` (or `parameters`).
    ToolCall {
        /// The tool.
        name: String,
        /// Keys that the arguments must have.
        arguments: Vec<String>,
    },
}

/// One point of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its stable name.
    pub id: CellId,
    /// The model's name in the matrix file.
    pub model: String,
    /// The number format of the weights.
    pub precision: Precision,
    /// Prompt length in tokens; 0 where the probe brings its own prompt.
    pub context: usize,
    /// The probe's name in the matrix file.
    pub probe_name: String,
    /// What the probe does.
    pub probe: Probe,
    /// Where it runs.
    pub backend: Backend,
    /// What it may cost.
    #[serde(default)]
    pub budget: Budget,
}

impl Cell {
    /// Makes a cell and derives its name from its coordinates.
    pub fn new(
        model: &str,
        precision: Precision,
        context: usize,
        probe_name: &str,
        probe: Probe,
        backend: Backend,
    ) -> Self {
        Self {
            id: CellId::new(model, precision, context, probe_name, backend),
            model: model.to_owned(),
            precision,
            context,
            probe_name: probe_name.to_owned(),
            probe,
            backend,
            budget: Budget::default(),
        }
    }

    /// How a long prompt goes in, where the probe says so.
    pub fn stretch(&self) -> Option<&Stretch> {
        match &self.probe {
            Probe::Logits { stretch, .. } => stretch.as_ref(),
            _ => None,
        }
    }

    /// Whether the engines of this cell may run at the same time: on a GPU with memory of its own, starting a process takes
    /// longer than what a short cell computes. Speed, and prompts whose attention scores could fill the device, are
    /// measured one after the other; so is everything where the device shares its memory and processor with us.
    pub fn runs_side_by_side(&self) -> bool {
        let small = match &self.probe {
            Probe::Throughput(_) => false,
            Probe::Op { product, .. } => match product {
                Product::Repeat { rows, width, times } => rows * width * times <= SMALL_ELEMENTS,
                Product::Concatenate { pieces, rows, width } => pieces * rows * width <= SMALL_ELEMENTS,
                Product::QuantizedMatmul { .. } | Product::Attention { .. } | Product::Rope { .. } => true,
            },
            // Its pieces all have other shapes, and what MLX keeps of each for later fills a card.
            Probe::Perplexity { .. } => false,
            Probe::Logits { .. } | Probe::Greedy { .. } | Probe::Task { .. } => self.context <= SMALL_PROMPT,
        };
        self.backend == Backend::Cuda && small
    }
}

/// Elements of a product, 1 GiB of f32, of which a GPU holds several.
const SMALL_ELEMENTS: usize = 1 << 28;

/// A prompt whose attention scores, 256 MiB a head in f32, a GPU holds for several engines. Beyond it MLX's own cache of freed
/// buffers takes what there is: a prompt of 131,072 tokens in pieces had one process hold 139 GiB.
const SMALL_PROMPT: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_work_on_a_gpu_of_its_own_runs_side_by_side() {
        let logits = |chunk| Probe::Logits {
            decode_steps: 2,
            stretch: Some(Stretch { chunk, requests: 1, ..Stretch::default() }),
        };
        let repeat =
            |rows| Probe::Op { product: Product::Repeat { rows, width: 64, times: 2 }, tolerance: 0.0 };
        for (probe, context, backend, expected) in [
            (logits(None), 4097, Backend::Cuda, true),
            (logits(None), 40_960, Backend::Cuda, false),
            (logits(Some(2048)), 131_072, Backend::Cuda, false),
            (logits(None), 256, Backend::Cpu, false),
            (logits(None), 256, Backend::Metal, false),
            (repeat(33_000), 0, Backend::Cuda, true),
            (repeat(16_800_000), 0, Backend::Cuda, false),
        ] {
            let cell = Cell::new("m", Precision::Source, context, "p", probe, backend);
            assert_eq!(cell.runs_side_by_side(), expected, "{}", cell.id);
        }
    }
}
