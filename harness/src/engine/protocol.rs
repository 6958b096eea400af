//! The JSON-lines protocol between the harness and an engine: one request a line on stdin, one response a line on
//! stdout, in order. The runner compiles this very file, so both sides share one definition; the Python reference
//! speaks the same lines. Everything that an engine wants to say beside the protocol goes to stderr.
//!
//! Token ids are `u32`. Positions count from 0 and name the *input* token whose logits are meant: the logits at
//! position `p` predict the token at `p + 1`. Times are in seconds, sizes in bytes, logarithms natural.

use serde::{Deserialize, Serialize};

/// The version that [`Response::Hello`] must carry; a change of meaning of any line raises it.
pub const PROTOCOL_VERSION: u32 = 1;

/// A request with the number that its response repeats; a line that is no request is answered with number 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Counts up from 1 within one engine process.
    pub id: u64,
    /// The request or response itself, flattened into the same JSON object.
    #[serde(flatten)]
    pub body: T,
}

/// What an engine may be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Who are you? Always the first request.
    Hello,
    /// Load a model folder (Hugging Face layout). Strict: a missing, extra or misshapen tensor is refused.
    Load(Load),
    /// Turn text or a chat into token ids.
    Tokenize(Tokenize),
    /// Turn ids back into text, special tokens included.
    Detokenize {
        /// The ids to decode together.
        ids: Vec<u32>,
    },
    /// Generate greedily from given ids with a fresh cache.
    Generate(Generate),
    /// Teacher-forced scoring of given ids with a fresh cache.
    Score(Score),
    /// Generate greedily by the library's own loop and take the time of every id.
    Time(Time),
    /// Compute one product in a shape that only models reach, and compare it with a second formulation of it.
    Op(Op),
    /// Report memory: high-water marks since the process started, and what is held now.
    Memory,
    /// End the process with exit code 0 after answering.
    Shutdown,
}

/// Arguments of [`Request::Load`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Absolute path of the model folder.
    pub model_dir: String,
    /// The number format that weights are held in.
    pub precision: Precision,
    /// The device that must run the model; an engine that cannot answers with an error and never falls back.
    pub device: Device,
}

/// The number format of the weights while the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// As stored in the checkpoint.
    Source,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
        })
    }
}

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// MLX's CPU device.
    Cpu,
    /// MLX's GPU device: Metal on macOS, CUDA on Linux.
    Gpu,
}

/// Arguments of [`Request::Tokenize`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "kebab-case")]
pub enum Tokenize {
    /// Plain text, without added special tokens.
    Text {
        /// The text to encode.
        text: String,
    },
    /// One user message, rendered by the model's own chat template with the generation prompt added.
    Chat {
        /// The content of the user message.
        user: String,
    },
}

/// Arguments of [`Request::Generate`]. Sampling is greedy: the smallest id wins among equal logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generate {
    /// The prompt; at least one id.
    pub prompt_ids: Vec<u32>,
    /// How many ids to produce at most.
    pub max_tokens: usize,
    /// Ids that end the generation (they are not part of the output); empty runs to `max_tokens`, end of text or not.
    pub stop_ids: Vec<u32>,
    /// How many of the most likely ids to report for each step.
    pub top_k: usize,
}

/// Arguments of [`Request::Time`]: what a user of the library would wait for. The library's own token loop and greedy
/// sampler run on a fresh cache; end of text does not end it, and nobody looks at a row of logits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// The prompt; at least one id.
    pub prompt_ids: Vec<u32>,
    /// How many ids to produce, at least one.
    pub tokens: usize,
}

/// Arguments of [`Request::Score`].
///
/// The first `prefill_len` ids go in as one prefill, cut into pieces only as the engine would in real use; each later
/// id goes in alone, as a decode step on the same cache. A chosen position below `prefill_len - 1` is answered by a
/// prefill of exactly the ids up to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The ids to force, `1 <= prefill_len <= ids.len()`.
    pub ids: Vec<u32>,
    /// How many ids the prefill takes.
    pub prefill_len: usize,
    /// Ascending positions to report, each below `ids.len()`.
    pub positions: Vec<usize>,
    /// How many of the most likely ids to report for each position.
    pub top_k: usize,
    /// Whether to send the whole logits row.
    pub logits: LogitsDetail,
    /// What the decode steps may see.
    pub history: History,
    /// Cuts the prefill into pieces of this many ids, one after the other on one cache. The row after a piece is that
    /// piece's own: a chosen position at which a piece ends costs no prefill of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// Leaves a warm cache behind first: so many of the first ids go in as a request of their own, with one id after
    /// them as its decode step, and the prefill goes on behind that on the same cache, as a conversation does.
    /// `1 <= warm < prefill_len - 1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<usize>,
}

/// Arguments of [`Request::Op`]. Needs no model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The device that must compute it.
    pub device: Device,
    /// What is computed, and in which shape. Inputs are pseudo-random and the same for everybody.
    pub product: Product,
}

/// A product of MLX, in f32. The second formulation is plain arithmetic in f64 on the host, at rows that are spread over
/// the result and lie close around powers of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "product", rename_all = "kebab-case")]
pub enum Product {
    /// `x[rows, inner]` times the transpose of an affinely quantized `w[outer, inner]`.
    QuantizedMatmul {
        /// Rows of `x`: tokens.
        rows: usize,
        /// The length of a dot product.
        inner: usize,
        /// Columns of the result.
        outer: usize,
        /// Weights that share a scale and a bias.
        group_size: usize,
        /// Bits of a weight.
        bits: usize,
    },
    /// Causal attention of the last `queries` positions over `keys` positions.
    Attention {
        /// Positions that ask.
        queries: usize,
        /// Positions that are seen, those that ask included.
        keys: usize,
        /// Query heads.
        heads: usize,
        /// Key/value heads; divides `heads`.
        kv_heads: usize,
        /// Width of a head.
        head_dim: usize,
    },
    /// Rotary embedding of `length` positions from `offset` on, pairs half a head apart.
    Rope {
        /// The first position.
        offset: usize,
        /// How many positions.
        length: usize,
        /// Independent sequences.
        batch: usize,
        /// Heads.
        heads: usize,
        /// Width of a head.
        head_dim: usize,
        /// The base of the frequencies.
        base: f64,
    },
    /// Pieces of `[rows, width]` joined along the rows, as a cache grows.
    Concatenate {
        /// How many pieces.
        pieces: usize,
        /// Rows of a piece.
        rows: usize,
        /// Width of a row.
        width: usize,
    },
    /// Every row of `[rows, width]` repeated `times`, as grouped heads are.
    Repeat {
        /// Rows.
        rows: usize,
        /// Width of a row.
        width: usize,
        /// How often.
        times: usize,
    },
}

/// How much of a logits row travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogitsDetail {
    /// Only the summary and the top-k.
    Summary,
    /// Also the row itself: `vocab_size` little-endian f32 values, base64 (standard alphabet, padded).
    Full,
}

/// What a decode step may attend to. `None` exists to imitate a known fault with a sound engine; an engine under
/// test is only ever asked for `Kept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    /// Everything before it, as in real use.
    Kept,
    /// Nothing: each decode step runs on an empty cache, at position 0.
    None,
}

/// What an engine answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Response {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Load`].
    Loaded(Loaded),
    /// To [`Request::Tokenize`].
    Tokens(Tokens),
    /// To [`Request::Detokenize`].
    Text {
        /// The decoded text.
        text: String,
    },
    /// To [`Request::Generate`].
    Generated(Generated),
    /// To [`Request::Score`].
    Scored(Scored),
    /// To [`Request::Time`].
    Timed(Timed),
    /// To [`Request::Op`].
    OpDone(OpDone),
    /// To [`Request::Memory`].
    Memory(Memory),
    /// To [`Request::Shutdown`].
    Bye,
    /// The request was understood and could not be done; the process lives on.
    Error(EngineError),
}

/// Who the engine is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Must equal [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// The engine's name, such as `safemlx-lm` or `mlx-lm`.
    pub engine: String,
    /// The engine library's version.
    pub version: String,
    /// The version that the loaded MLX library itself reports.
    pub mlx_version: String,
    /// The API dialect or binding spoken, such as `safemlx-lm-0.4` or `python`.
    pub dialect: String,
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// The model type that the engine dispatched on.
    pub model_type: String,
    /// The length of a logits row, as configured.
    pub vocab_size: usize,
    /// The ids that end a reply, as the engine understands the model's configuration.
    pub eos_ids: Vec<u32>,
    /// The number of tensors that the checkpoint and the model agreed on.
    pub tensors: usize,
    /// The device that the weights really live on.
    pub device: Device,
    /// How long loading took.
    pub load_s: f64,
}

/// Token ids, and the text that they stand for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// The ids.
    pub ids: Vec<u32>,
    /// The text that was encoded: for a chat, the rendered template.
    pub rendered: String,
}

/// One candidate for the next token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopToken {
    /// The id.
    pub id: u32,
    /// Its natural log-probability.
    pub logprob: f64,
}

/// The outcome of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// The produced ids, without the stop id.
    pub ids: Vec<u32>,
    /// All of them decoded together, special tokens included.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the request to the first id.
    pub ttft_s: f64,
    /// One entry a produced id after the first: time since the id before it.
    pub token_times_s: Vec<f64>,
    /// One list a produced id, most likely first; empty where the row was not finite.
    pub top: Vec<Vec<TopToken>>,
}

/// The outcome of a timed generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The produced ids, as many as were asked for.
    pub ids: Vec<u32>,
    /// Time from the request to the first id: the whole prefill.
    pub ttft_s: f64,
    /// One entry a produced id after the first: time since the id before it.
    pub token_times_s: Vec<f64>,
    /// Processor time of the whole process meanwhile, user and system, where the platform tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// A stop id came.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

/// The outcome of a scoring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// One entry a chosen position, in order.
    pub positions: Vec<ScoredPosition>,
    /// Time of the prefill.
    pub prefill_s: f64,
    /// Time of all decode steps together.
    pub decode_s: f64,
    /// Bytes that MLX held in arrays behind the last step, above what it held before the request: the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_bytes: Option<u64>,
    /// The most bytes that MLX had allocated at once during the request, what it held before included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

/// How far a product lies from its second formulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpDone {
    /// The device that computed it.
    pub device: Device,
    /// Rows of the result.
    pub rows: usize,
    /// Those that were compared.
    pub checked_rows: usize,
    /// Values of the compared rows that are NaN or infinite.
    pub non_finite: usize,
    /// Largest absolute difference over the largest absolute value of the second formulation.
    pub max_error: f64,
    /// The row of that difference.
    pub worst_row: usize,
    /// Time of the product itself.
    pub took_s: f64,
}

/// The logits after one input token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoredPosition {
    /// Which input token.
    pub position: usize,
    /// Whether a prefill or a decode step made these logits.
    pub phase: Phase,
    /// How many logits are NaN or infinite.
    pub non_finite: usize,
    /// Log-probability of the token that really follows, where there is one and it is finite.
    pub next_logprob: Option<f64>,
    /// Most likely first; empty when the row is not finite.
    pub top: Vec<TopToken>,
    /// The row, when it was asked for: see [`LogitsDetail::Full`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logits_f32: Option<String>,
}

/// Which kind of forward pass made a logits row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Many tokens at once.
    Prefill,
    /// One token on a filled cache.
    Decode,
}

/// Memory high-water marks, and what is held at this moment where the platform tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// MLX's own peak of allocated bytes.
    pub device_peak_bytes: u64,
    /// Peak resident set of the process.
    pub process_peak_bytes: u64,
    /// Bytes that MLX holds in arrays now, without its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_now_bytes: Option<u64>,
    /// Resident set of the process now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_now_bytes: Option<u64>,
    /// Bytes of the process that lie in swap now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<u64>,
}

/// A request that could not be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineError {
    /// What kind of refusal it is.
    pub kind: EngineErrorKind,
    /// What was being done, on what, and why it failed.
    pub message: String,
}

/// Why a request could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineErrorKind {
    /// The line is not a request, or comes out of order.
    BadRequest,
    /// The checkpoint does not hold exactly the tensors of the model, or a file of it cannot be read.
    BadModel,
    /// The model folder has no chat template, and one was needed.
    NoTemplate,
    /// This engine does not know the model's architecture.
    UnsupportedModel,
    /// The device that was asked for is not there.
    NoDevice,
    /// The device ran out of memory.
    OutOfMemory,
    /// Anything else that the engine's library reported.
    Failed,
}
