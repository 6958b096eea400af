//! Which cells are run, in which order, and what each engine did there.

pub mod cell;
pub mod observation;

pub use cell::{Backend, Cell, CellId, Probe};
pub use observation::{Measured, Observation, ProcessOutcome, Role};
