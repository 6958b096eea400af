//! What stages tell while they work. Library code emits events and never prints; `xtask` turns them into text.

use std::time::Duration;

/// One thing that happened, worth a person's attention while they wait.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A phase of the run begins (`provision`, `build published`, `run`), with the number of steps when it is known.
    PhaseStarted {
        /// The phase's name.
        phase: String,
        /// How many steps it will report, where that is known.
        steps: Option<u64>,
    },
    /// A step inside the current phase begins.
    StepStarted {
        /// What is being done now, on what.
        step: String,
    },
    /// A step ended.
    StepFinished {
        /// The step, as it was announced.
        step: String,
        /// One or two words on how it went (`pass`, `fail`, `cached`, `1.2 MB`).
        outcome: String,
        /// How long it took.
        took: Duration,
    },
    /// The phase is over.
    PhaseFinished {
        /// The phase's name.
        phase: String,
        /// How long it took.
        took: Duration,
    },
    /// Something odd that does not stop the work.
    Warning(String),
    /// A line worth knowing: a path, a choice made.
    Note(String),
}

/// Where events go. Implementations must be cheap and must not fail.
pub trait EventSink: Sync {
    /// Takes one event.
    fn emit(&self, event: Event);
}

/// Drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl EventSink for Silent {
    fn emit(&self, _event: Event) {}
}
