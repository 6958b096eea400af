//! What the runner asks of an engine library. Each file beside this one teaches it one library's API.

mod common;
#[cfg(feature = "eredu-05")]
pub(crate) mod eredu_05;
#[cfg(feature = "safemlx-lm-04")]
pub(crate) mod safemlx_lm_04;

use crate::{
    protocol::{
        EngineError, Generate, Generated, Hello, Load, Loaded, Memory, Op, OpDone, Score, Scored, Time,
        Timed, Tokenize, Tokens,
    },
    timing::Bare,
};

/// An engine library before a model is loaded.
pub(crate) trait Dialect {
    /// The loaded model.
    type Model: Model;

    /// Who the engine is.
    fn hello(&self) -> Result<Hello, EngineError>;

    /// Loads a model folder strictly onto exactly the device that was asked for.
    fn load(&self, request: &Load) -> Result<(Self::Model, Loaded), EngineError>;

    /// Computes a product and compares it with its second formulation.
    fn op(&self, request: &Op) -> Result<OpDone, EngineError>;

    /// Memory: high-water marks since the process started, and what is held now.
    fn memory(&self) -> Result<Memory, EngineError>;
}

/// A loaded model. Ids and positions in requests are checked before they come here.
pub(crate) trait Model {
    /// Text or a chat as ids.
    fn tokenize(&mut self, request: &Tokenize) -> Result<Tokens, EngineError>;

    /// Ids as text, special tokens included.
    fn detokenize(&self, ids: &[u32]) -> Result<String, EngineError>;

    /// Greedy generation with a fresh cache.
    fn generate(&mut self, request: &Generate) -> Result<Generated, EngineError>;

    /// Teacher-forced scoring with a fresh cache.
    fn score(&mut self, request: &Score) -> Result<Scored, EngineError>;

    /// Greedy generation by the library's own loop and sampler, with the time of every id.
    fn time(&mut self, request: &Time) -> Result<Timed, EngineError>;

    /// The same with nothing between two ids, not even a look at the clock.
    fn bare(&mut self, request: &Time) -> Result<Bare, EngineError>;
}
