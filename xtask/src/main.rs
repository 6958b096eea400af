//! `cargo xtask`: parse, call `harness`, render, exit code.

mod cli;
mod commands;
mod console;
mod exit;
mod output;
mod root;

use std::{
    env,
    io::{Write as _, stderr},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use console::Console;

/// Set before the children are ended, so that their end is not reported as a failure.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

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
        Err(_) if INTERRUPTED.load(Ordering::SeqCst) => loop {
            // The failure is only that of the children which the interrupt ended; the handler is about to exit.
            thread::park();
        },
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
        INTERRUPTED.store(true, Ordering::SeqCst);
        harness::tools::groups::end_running_groups();
        let _ = writeln!(
            stderr(),
            "interrupted; what is finished on disk is kept (builds, models, downloads, patches), and the same command goes on from there"
        );
        // What a shell reports for SIGINT; everything on disk is written so that the next run goes on from here.
        std::process::exit(130);
    });
    // Only a second handler in the same process can be refused, and there is none.
    debug_assert!(outcome.is_ok());
}
