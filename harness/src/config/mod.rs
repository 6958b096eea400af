//! What was asked for. Every mistake in a file is reported together, with file, line and column.
pub mod spec;
