//! Something that loads, tokenizes, generates and scores, spoken to over one JSON-lines protocol.

pub mod fault;
pub mod outcome;
pub mod protocol;
pub mod session;

pub use outcome::ProcessOutcome;
pub use session::{Session, SessionOptions};
