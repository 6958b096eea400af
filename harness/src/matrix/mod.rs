//! Which cells are run, in which order, and what each engine did there.

pub mod cell;
pub mod expand;
pub mod ids;
pub mod observation;
pub mod run;

pub use cell::{Backend, Cell, CellId, Probe};
pub use expand::{Disposition, Filter, FilterError, Plan, PlannedCell, backends_of, expand_cells};
pub use observation::{Measured, Observation, ProcessOutcome, Role};
pub use run::{ForcedIds, ObserveError, ObserveOptions, observe, observe_counterfactual};
