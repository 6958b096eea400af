//! `check-runner`: is the model runner itself in order, against the crates of a build?

use std::path::Path;

use harness::{
    build::{self, Layout},
    config::{find_build, load_builds},
    event::EventSink,
};

use crate::exit::{Exit, Failure};

/// Provisions, then lints and tests the runner in a scratch copy.
pub(crate) fn run(root: &Path, build: &str, events: &dyn EventSink) -> Result<Exit, Failure> {
    let builds = load_builds(root)?;
    let spec = find_build(&builds, build)?;
    let layout = Layout::of_repository(root);
    build::check_recipe(spec, &layout)?;
    let toolbox = build::provision(&layout, events)?;
    build::check_runner(spec, &layout, &toolbox, events)?;
    Ok(Exit::Pass)
}
