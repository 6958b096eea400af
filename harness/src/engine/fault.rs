//! Faults that the faulty reference (`harness/reference/faulty_engine.py`) imitates on demand: to name the cause of a
//! divergence, and to measure the gate. It finds the fault in a file of the model folder that it is asked to load, so that
//! no engine under test knows of any of this.

use std::{fs, io, os::unix::fs::symlink, path::Path};

use serde::{Deserialize, Serialize};

/// The file of a model folder that names the fault.
pub const FAULT_FILE: &str = "regraft-fault.json";

/// Which layers a fault sits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layers {
    /// All of them.
    All,
    /// The first.
    First,
    /// The last.
    Last,
}

/// What is wrong with the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing.
    None,
    /// Decode steps from this one on (counted from 0) run on an empty cache at position 0.
    HistoryLost {
        /// The first such step.
        from_step: usize,
    },
    /// Decode steps from this one on take their rotary position this much too far.
    DecodeOffset {
        /// The error of the position.
        delta: i64,
        /// Where.
        layers: Layers,
        /// The first such step.
        from_step: usize,
    },
    /// After so many decode steps nothing more goes into the cache.
    CacheStale {
        /// The last step that is kept.
        after_step: usize,
        /// Where.
        layers: Layers,
    },
    /// The sliding window is this much too large.
    Window {
        /// The error of the window.
        delta: i64,
    },
    /// The prefill is cut into pieces, and at each cut the newest entries of the cache are lost.
    ChunkBoundary {
        /// Length of a piece, in tokens.
        size: usize,
        /// Entries lost at each cut; 0 is a sound engine with other pieces.
        lost: usize,
    },
    /// Only the last tokens of a prompt go in.
    Truncated {
        /// How many.
        keep: usize,
    },
    /// After the prefill a block of the cache holds what belongs to other positions.
    StaleBlock {
        /// First position of the block.
        start: usize,
        /// Its length.
        length: usize,
        /// Where.
        layers: Layers,
    },
    /// Weights and arithmetic of these layers (for `all` of the whole model) in this number format.
    Dtype {
        /// MLX's name of the format.
        dtype: String,
        /// Where.
        layers: Layers,
    },
    /// Another base of the rotary embedding.
    RopeBase {
        /// The base.
        base: f64,
        /// Where.
        layers: Layers,
    },
    /// The rotary embedding without the scaling of the configuration.
    RopeScalingDropped,
    /// The head multiplies with the embedding instead of its own weights.
    HeadTied,
    /// Quantization scales and biases change places.
    ScalesSwapped {
        /// Where.
        layers: Layers,
    },
    /// The history is lost so many steps after a second choice that lay this close was taken for the first: the ids part
    /// at a tie, and only who looks further sees the fault.
    LostAfterTie {
        /// The largest distance, in nats.
        margin: f64,
        /// Sound steps after the tie.
        after: usize,
    },
    /// Keys from this position on are hidden from every query, as by a mask whose index wraps.
    KeysBeyond {
        /// The first hidden position.
        limit: usize,
        /// Where.
        layers: Layers,
    },
    /// From the second request of a process on the end of the request before stands in front of the prompt.
    RequestStale {
        /// How many of its ids.
        tokens: usize,
    },
    /// Every request keeps so many bytes.
    RequestLeaks {
        /// How many.
        bytes: usize,
    },
    /// Rows of a product from this one on are those from the first on again, as by an index that wraps.
    ProductRowsWrap {
        /// The first wrong row.
        from: usize,
    },
    /// The last columns of a product are not written.
    ProductColumnsUnwritten {
        /// How many.
        columns: usize,
    },
    /// Nothing wrong: at most one id in 64 is the second choice instead of the first, where that lies this close, in nats.
    NearTieFlipped {
        /// The largest distance.
        margin: f64,
    },
}

/// Makes `folder` a model folder with the files of `model_dir` and this fault.
///
/// # Errors
/// Where the folder, a link or the file cannot be made.
pub fn make_faulty_folder(model_dir: &Path, folder: &Path, fault: &Fault) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(model_dir)? {
        let entry = entry?;
        symlink(std::path::absolute(entry.path())?, folder.join(entry.file_name()))?;
    }
    fs::write(folder.join(FAULT_FILE), serde_json::to_vec(fault)?)
}
