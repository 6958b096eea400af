//! What is wrong with an observation.
pub mod finding;
pub use finding::{Finding, Severity, Subject};
