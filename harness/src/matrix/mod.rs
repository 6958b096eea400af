//! Which cells are run, in which order, and what each engine did there.

pub mod cell;
pub mod expand;
pub mod observation;

pub use cell::{Backend, Cell, CellId, Probe};
pub use expand::{Disposition, Filter, FilterError, Plan, PlannedCell, backends_of, expand_cells};
pub use observation::{Measured, Observation, ProcessOutcome, Role};
