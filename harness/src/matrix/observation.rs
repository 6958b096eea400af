//! What one engine did at one cell: data only, complete enough that a finished run can be judged again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::throughput::TimedRequest;
pub use crate::engine::outcome::ProcessOutcome;
use crate::{
    engine::protocol::{Device, Generated, Hello, Memory, OpDone, Scored, Tokens},
    tools::{conditions::GpuUse, numbered},
};

/// The part that an engine plays in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The build that wants to become the pin.
    Candidate,
    /// The build that is pinned now.
    Baseline,
    /// The independent implementation.
    Reference,
}

/// What one engine did at one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The part it played.
    pub role: Role,
    /// The build's or reference's name.
    pub engine: String,
    /// What it said of itself, when it came that far.
    pub hello: Option<Hello>,
    /// The device that it said it used, when it came that far.
    pub device: Option<Device>,
    /// The device that it was asked to use.
    pub device_wanted: Device,
    /// The model type that it dispatched on, when the model loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// The number of logits in a row, when the model loaded.
    pub vocab_size: Option<usize>,
    /// Ids that the model's configuration marks as end of text.
    pub eos_ids: Vec<u32>,
    /// Ids that the tokenizer marks as special.
    pub special_ids: Vec<u32>,
    /// How the process ended.
    pub exit: ProcessOutcome,
    /// What the probe measured, when it came that far.
    pub measured: Option<Measured>,
    /// Memory high-water marks, when it came that far.
    pub memory: Option<Memory>,
    /// What the GPU's own tool said of the process while it held the model, where there is such a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUse>,
    /// How long the process lived.
    pub wall_s: f64,
    /// The command line, as one could paste it.
    pub command: String,
}

/// A request made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// SHA-256 of each logits row as it travelled, by position.
    #[serde(deserialize_with = "numbered::map")]
    pub row_digests: BTreeMap<usize, String>,
    /// As in [`Scored`].
    pub held_bytes: Option<u64>,
    /// As in [`Scored`].
    pub peak_bytes: Option<u64>,
}

/// SHA-256 of each logits row as it travelled, by position.
pub fn row_digests(scored: &Scored) -> BTreeMap<usize, String> {
    let hex = |row: &String| base16ct::lower::encode_string(&Sha256::digest(row));
    scored.positions.iter().filter_map(|p| Some((p.position, hex(p.logits_f32.as_ref()?)))).collect()
}

/// What a probe measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Measured {
    /// From a logits probe.
    Logits {
        /// The ids that were forced.
        ids: Vec<u32>,
        /// How many of them went into the prefill.
        prefill_len: usize,
        /// The rows.
        scored: Scored,
        /// The same request again in the same process, as often as the probe says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<Again>,
    },
    /// From a perplexity probe.
    Perplexity {
        /// The text's ids, as this engine makes them.
        ids: Vec<u32>,
        /// Positions with the log-probability of the id that follows.
        points: Vec<(usize, f64)>,
        /// How long the prefill took.
        prefill_s: f64,
    },
    /// From an operator probe.
    Op {
        /// How far the product lies from its second formulation.
        done: OpDone,
    },
    /// From a greedy or task probe.
    Generation {
        /// The prompt's ids; for a chat, with the rendered text.
        prompt: Tokens,
        /// What came out.
        generated: Generated,
    },
    /// From a throughput probe: one process.
    Throughput {
        /// How long the model took to load.
        load_s: f64,
        /// The prompt of every request.
        prompt_ids: Vec<u32>,
        /// The measured requests; the one that warms up is not kept.
        requests: Vec<TimedRequest>,
    },
}
