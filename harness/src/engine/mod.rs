//! Something that loads, tokenizes, generates and scores, spoken to over one JSON-lines protocol.
pub mod protocol;
