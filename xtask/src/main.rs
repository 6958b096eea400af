//! `cargo xtask`: parse, call `harness`, render, exit code.

mod cli;
mod commands;
mod console;
mod exit;
mod output;
mod root;

use std::{env, io::stderr, process::ExitCode};

use console::Console;

fn main() -> ExitCode {
    let cli = match cli::parse(env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    end_children_when_interrupted();
    let console = Console::on_stderr();
    let outcome = commands::run(cli, &console);
    console.clear();
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(&mut stderr().lock());
            failure.exit.into()
        }
    }
}

/// Children run in process groups of their own, which a terminal's Ctrl-C does not reach: a compile would go on for
/// minutes and hold its locks.
fn end_children_when_interrupted() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the work cannot return an exit code when it is interrupted"
    )]
    let outcome = ctrlc::set_handler(|| {
        harness::tools::process::end_running_groups();
        // What a shell reports for SIGINT; everything on disk is written so that the next run goes on from here.
        std::process::exit(130);
    });
    // Only a second handler in the same process can be refused, and there is none.
    debug_assert!(outcome.is_ok());
}
