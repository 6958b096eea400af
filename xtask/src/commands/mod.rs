//! One file a command, each a short story: load, plan, execute, report.

mod gate;

use harness::event::EventSink;

use crate::{
    cli::{Cli, Command},
    exit::{Exit, Failure},
    root::repository_root,
};

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, events: &dyn EventSink) -> Result<Exit, Failure> {
    let root = repository_root(cli.root)?;
    match cli.command {
        Command::Gate(args) => gate::run(&root, args, "smoke", events),
        Command::Nightly(args) => gate::run(&root, args, "nightly", events),
    }
}
