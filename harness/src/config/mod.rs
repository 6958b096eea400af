//! What was asked for. Every mistake in a file is reported together, with file, line and column.

pub mod builds;
pub mod error;
pub mod fork;
mod load;
pub mod matrix;
pub mod near;
pub mod reader;
pub mod spec;

pub use error::ConfigError;
pub use fork::{fork_names, load_fork};
pub use load::{find_build, load_builds, load_matrix, matrix_path};
pub use reader::{Problem, Problems};
