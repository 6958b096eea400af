//! What was asked for. Every mistake in a file is reported together, with file, line and column.

pub mod error;
pub mod near;
pub mod reader;
pub mod spec;

pub use error::ConfigError;
pub use reader::{Problem, Problems};
