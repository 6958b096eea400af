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
