//! What one engine did at one cell: data only, complete enough that a finished run can be judged again.

use serde::{Deserialize, Serialize};

use crate::engine::protocol::{Device, Generated, Hello, Memory, Scored, Tokens};

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
    /// How long the process lived.
    pub wall_s: f64,
    /// The command line, as one could paste it.
    pub command: String,
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
    },
    /// From a greedy or task probe.
    Generation {
        /// The prompt's ids; for a chat, with the rendered text.
        prompt: Tokens,
        /// What came out.
        generated: Generated,
    },
}

/// How an engine process ended, worst first in meaning, not in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "kebab-case")]
pub enum ProcessOutcome {
    /// Everything was answered and the process ended with code 0.
    Clean,
    /// Everything was answered, and then the process ended badly.
    AbortAtExit {
        /// The exit code, when it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// It refused a request with a message (a bad model, an unsupported architecture).
    Refused {
        /// The refusal's kind, in the protocol's words.
        kind: String,
        /// The refusal's text.
        message: String,
    },
    /// It ended before it had answered.
    Crashed {
        /// The exit code, when it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// Memory ran out: its own report, or the kernel's SIGKILL with the machine's memory exhausted.
    OutOfMemory {
        /// Its own report or the reason for the conclusion.
        message: String,
    },
    /// It did not answer in time, and its process group was ended.
    TimedOut {
        /// The limit.
        after_s: f64,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// A line on stdout was not the protocol's.
    Garbled {
        /// The line, cut to 200 characters, control characters escaped.
        line: String,
    },
}
