//! Which cells are run, in which order, and what each engine did there.

pub mod bench;
pub mod cell;
pub mod expand;
pub mod ids;
pub mod long_text;
pub mod observation;
pub mod passkey;
pub mod run;
pub mod throughput;
pub mod touched;

pub use bench::Bench;
pub use cell::{AnswerShape, Backend, Budget, Cell, CellId, Probe, Stretch};
pub use expand::{Disposition, Filter, FilterError, Plan, PlannedCell, backends_of, expand_cells};
pub use observation::{Again, Measured, Observation, ProcessOutcome, Role};
pub use run::{ForcedIds, ObserveError, ObserveOptions, Scoring, Wanted, observe, observe_scorings};
