//! One file a command, each a short story: load, plan, execute, report.

mod build;
mod calibrate;
mod check_runner;
mod compare;
mod doctor;
mod drop_fork;
mod gate;
mod history;
mod judge;
mod metallib;
mod patch_report;
mod selftest;
mod symbols;
mod sync_after;
mod sync_run;
mod sync_upstream;

use crate::{
    cli::{Cli, Command, GateArgs},
    console::Console,
    exit::{Exit, Failure},
    root::repository_root,
};

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, console: &Console) -> Result<Exit, Failure> {
    let root = match &cli.command {
        // A bundle is no checkout, and needs none.
        Command::Gate(GateArgs { bundle: Some(folder), .. })
        | Command::Nightly(GateArgs { bundle: Some(folder), .. }) => folder.clone(),
        _ => repository_root(cli.root)?,
    };
    match cli.command {
        Command::Calibrate(args) => calibrate::run(&root, args, console),
        Command::Compare(args) => compare::run(&root, &args),
        Command::Build(args) => build::run(&root, &args, console),
        Command::CheckRunner { build } => check_runner::run(&root, &build, console),
        Command::DropFork(args) => drop_fork::run(&root, &args, console),
        Command::Doctor { format } => doctor::run(&root, format),
        Command::Gate(args) => gate::run(&root, args, "smoke", console),
        Command::Nightly(args) => gate::run(&root, args, "nightly", console),
        Command::History { report_dir } => history::run(&root, report_dir),
        Command::Judge(args) => judge::run(&root, &args),
        Command::Selftest(args) => selftest::run(&root, args, console),
        Command::Metallib(command) => metallib::run(&root, command, console),
        Command::PatchReport(args) => patch_report::run(&root, &args, console),
        Command::Symbols(args) => symbols::run(&args),
        Command::SyncUpstream(args) => sync_upstream::run(&root, &args, console),
    }
}
