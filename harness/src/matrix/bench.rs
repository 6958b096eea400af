//! One engine process for many cells and many model folders, one after the other: for engines that may load again (the
//! reference and its faulty twin), where a process a cell would cost more than the cell. After a refusal or an end it
//! starts anew.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    build::Artifact,
    engine::{
        Session, SessionOptions,
        protocol::{Hello, Loaded, Tokenize},
    },
    matrix::{
        cell::Cell,
        ids::FolderIds,
        observation::{Observation, ProcessOutcome, Role},
        run::{
            End, Measure, ObserveError, ObserveOptions, Scoring, Shown, load_of, measure_cell,
            measure_scoring, timeout_of,
        },
    },
};

/// An engine process that is kept.
pub struct Bench {
    artifact: Artifact,
    options: ObserveOptions,
    running: Option<Running>,
    processes: usize,
}

struct Running {
    session: Session,
    hello: Option<Hello>,
    loaded: Option<(PathBuf, Loaded)>,
}

impl Bench {
    /// Starts nothing yet. The options' time is that of one cell, its loading and the start of a process included.
    pub fn new(artifact: &Artifact, options: &ObserveOptions) -> Self {
        Self { artifact: artifact.clone(), options: options.clone(), running: None, processes: 0 }
    }

    /// How many processes were started so far.
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// Observes a cell.
    ///
    /// # Errors
    /// Where the program cannot be started, or the folder does not say what ids there are.
    pub fn observe(
        &mut self,
        cell: &Cell,
        role: Role,
        model_dir: &Path,
    ) -> Result<Observation, ObserveError> {
        self.measure(cell, role, model_dir, &|session, folder, eos_ids| {
            measure_cell(session, cell, role, folder, eos_ids)
        })
    }

    /// Scores given ids at a cell.
    ///
    /// # Errors
    /// As [`Bench::observe`].
    pub fn score(
        &mut self,
        cell: &Cell,
        role: Role,
        model_dir: &Path,
        scoring: &Scoring<'_>,
    ) -> Result<Observation, ObserveError> {
        self.measure(cell, role, model_dir, &|session, folder, _| {
            measure_scoring(session, scoring, folder.vocab_size)
        })
    }

    /// Turns plain text into ids with the tokenizer of the model that was loaded last; `None` where nothing is loaded.
    pub fn tokenize(&mut self, text: &str) -> Option<Vec<u32>> {
        let input = Tokenize::Text { text: text.to_owned() };
        self.running.as_mut()?.session.tokenize(&input).map(|tokens| tokens.ids)
    }

    /// Ends the process, if one runs, and says how it ended.
    pub fn finish(&mut self) -> Option<ProcessOutcome> {
        self.running.take().map(|running| running.session.finish())
    }

    fn measure(
        &mut self,
        cell: &Cell,
        role: Role,
        model_dir: &Path,
        measure: Measure<'_>,
    ) -> Result<Observation, ObserveError> {
        let folder = FolderIds::read(model_dir)
            .map_err(|source| ObserveError::Model { cell: cell.id.to_string(), source })?;
        let begun = Instant::now();
        let timeout = timeout_of(cell, &self.options);
        let running = match &mut self.running {
            Some(running) => {
                running.session.renew(timeout);
                running
            }
            none => {
                let name = format!("{}.{}.stderr.log", self.artifact.name, self.processes);
                let session = SessionOptions {
                    timeout,
                    memory_limit_bytes: None,
                    stderr_log: Some(self.options.log_dir.join(name)),
                };
                let mut session =
                    Session::start(&self.artifact, &session).map_err(|source| ObserveError::Start {
                        engine: self.artifact.name.clone(),
                        cell: cell.id.to_string(),
                        source,
                    })?;
                self.processes += 1;
                let hello = session.hello();
                none.insert(Running { session, hello, loaded: None })
            }
        };
        if running.loaded.as_ref().is_none_or(|(path, _)| path != model_dir) {
            let loaded = running.session.load(&load_of(cell, model_dir));
            running.loaded = loaded.map(|loaded| (model_dir.to_owned(), loaded));
        }
        let loaded = running.loaded.as_ref().map(|(_, loaded)| loaded.clone());
        let shown = Shown::ask(&mut running.session, &folder, running.hello.clone(), loaded, measure);
        let gpu = shown.gpu_use(cell, &running.session);
        let command = running.session.command().to_owned();
        let exit = match &shown.measured {
            Some(_) => ProcessOutcome::Clean,
            // The session is over, whatever the reason.
            None => self.finish().unwrap_or(ProcessOutcome::Clean),
        };
        let end = End { exit, memory: None, gpu, took: begun.elapsed(), command };
        Ok(shown.observation((cell, role, &self.artifact), folder, end))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.finish();
    }
}
