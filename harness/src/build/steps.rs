//! Tells what happens now: phases and their steps, with how they went and how long they took.

use std::time::Instant;

use crate::event::{Event, EventSink};

/// A phase that has begun; `finish` ends it.
pub(crate) struct Phase<'a> {
    sink: &'a dyn EventSink,
    name: String,
    started: Instant,
}

impl<'a> Phase<'a> {
    pub(crate) fn start(sink: &'a dyn EventSink, name: impl Into<String>, steps: u64) -> Self {
        let name = name.into();
        sink.emit(Event::PhaseStarted { phase: name.clone(), steps: Some(steps) });
        Self { sink, name, started: Instant::now() }
    }

    pub(crate) fn finish(self) {
        self.sink.emit(Event::PhaseFinished { phase: self.name, took: self.started.elapsed() });
    }
}

/// Runs one step; its outcome in a word or two comes from `outcome`.
pub(crate) fn step<T, E>(
    sink: &dyn EventSink,
    name: impl Into<String>,
    outcome: impl FnOnce(&T) -> String,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let step = name.into();
    let started = Instant::now();
    sink.emit(Event::StepStarted { step: step.clone() });
    let result = work();
    let outcome = result.as_ref().map_or_else(|_| "failed".to_owned(), outcome);
    sink.emit(Event::StepFinished { step, outcome, took: started.elapsed() });
    result
}
