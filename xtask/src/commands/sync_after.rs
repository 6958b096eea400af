//! `sync-upstream --push` and `--update-pins`: what follows a finished rebase, and how it is told.

use std::path::Path;

use harness::{
    config::fork::ForkSpec,
    event::EventSink,
    fork::open::Source,
    pin::{
        check::{CheckResult, HomeChecks},
        follow::{
            Checks, FollowError, FollowRequest, Followed, FollowedFork, Pins, PushRecord, Pushing,
            check_targets, follow,
        },
        plan::Weight,
        proof::ValidationRecord,
        push::PushError,
        update::{HomeUpdate, PinUpdate},
    },
    rebase::text::counted,
};

use super::{sync_run::long, sync_upstream::line};
use crate::{
    cli::SyncUpstreamArgs,
    exit::{Exit, Failure},
    output::printable,
};

/// Refuses, before anything is done, what cannot be pushed anyhow.
pub(super) fn check(args: &SyncUpstreamArgs, specs: &[ForkSpec]) -> Result<(), Failure> {
    if args.push { check_targets(specs).map_err(failure) } else { Ok(()) }
}

/// Pushes and moves pins, as far as the arguments ask for it; `specs` come in the order of the graph.
pub(super) fn run(
    root: &Path,
    args: &SyncUpstreamArgs,
    specs: &[ForkSpec],
    events: &dyn EventSink,
) -> Result<Option<Followed>, Failure> {
    if !args.push && !args.update_pins {
        return Ok(None);
    }
    let push = match (args.push, args.unvalidated) {
        (false, _) => Pushing::No,
        (true, false) => Pushing::Validated,
        (true, true) => Pushing::Unvalidated,
    };
    let pins = if args.update_pins { Pins::Move } else { Pins::Leave };
    let source = args.mirrors.mirror_root.clone().map_or(Source::Remotes, Source::Mirrors);
    let reports = args.report_dir.clone().unwrap_or_else(|| root.join("reports"));
    let checks = if args.no_checks { Checks::Leave } else { Checks::Run };
    let request = FollowRequest { push, pins, checks, source, reports: &reports };
    follow(root, specs, &request, events).map(Some).map_err(failure)
}

fn failure(error: FollowError) -> Failure {
    let exit = match &error {
        FollowError::Push { source, .. } if matches!(**source, PushError::NotValidated { .. }) => Exit::Found,
        error if error.is_refusal() => Exit::Usage,
        _ => Exit::Tool,
    };
    let hint = error.hint();
    Failure::new(exit, error, hint)
}

/// What was done, for people.
pub(super) fn text(root: &Path, args: &SyncUpstreamArgs, specs: &[ForkSpec], followed: &Followed) -> String {
    let mut text = String::new();
    for FollowedFork { fork, pins, push } in &followed.forks {
        if let Some(update) = pins {
            home(&mut text, root, update);
        }
        if let Some(record) = push {
            pushed(&mut text, fork, record);
        }
    }
    followed.consumers.iter().for_each(|update| home(&mut text, root, update));
    followed.checks.iter().for_each(|of_home| checks(&mut text, root, of_home));
    if args.update_pins && specs.iter().all(|spec| spec.consumers.is_empty()) {
        line(&mut text, "pins: no consumers in fork.toml");
    }
    text
}

fn pushed(text: &mut String, fork: &str, PushRecord { pushed, validation }: &PushRecord) {
    let (branch, head) = (printable(&pushed.branch), pushed.new_head.short());
    let done = if pushed.was_there { "was there already" } else { "pushed and read back" };
    let patches = counted(pushed.patches, "patch", "patches");
    line(
        text,
        &format!("{fork}: {branch} of {} at {head}, {patches}, {done}", printable(&pushed.repository)),
    );
    if let Some(backup) = &pushed.backup {
        line(text, &format!("  the old head is kept there as {}", printable(backup)));
    }
    match validation {
        ValidationRecord::Passed { report, matrix, .. } => {
            line(text, &format!("  passed {} ({})", printable(matrix), printable(report)));
        }
        ValidationRecord::Unvalidated => line(text, "  UNVALIDATED: no gate has passed it"),
    }
}

fn home(text: &mut String, root: &Path, update: &HomeUpdate) {
    let where_ = match &update.branch {
        Some((branch, head)) => {
            format!("{branch} at {}", head.short())
        }
        None => "nothing changed".to_owned(),
    };
    line(text, &format!("pins in {}: {where_}", printable(&update.consumer)));
    if let Some(backup) = &update.backup {
        line(text, &format!("  what the branch led to before is kept there as {}", printable(backup)));
    }
    if update.branch.is_some() {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let place = update.repository.strip_prefix(&root).unwrap_or(&update.repository);
        long(text, &format!("  in {}", printable(&place.display().to_string())));
    }
    update.pins.iter().for_each(|update| pin(text, update));
}

fn checks(text: &mut String, root: &Path, checks: &HomeChecks) {
    line(text, &format!("checks of {} at {}:", printable(&checks.consumer), checks.commit.short()));
    for run in &checks.runs {
        let state = match run.result {
            CheckResult::Pass => "pass",
            CheckResult::Fail => "FAIL",
            CheckResult::Skipped => "skipped",
        };
        let what =
            run.probe.as_ref().map_or_else(String::new, |probe| format!("probe {}: ", printable(probe)));
        line(text, &format!("  {state:<7} {what}{} ({})", printable(&run.command), printable(&run.why)));
        for (name, figure) in &run.numbers {
            line(text, &format!("            {} {figure}", printable(name)));
        }
        if let (CheckResult::Fail, Some(log)) = (run.result, &run.log) {
            let place = log.strip_prefix(root).unwrap_or(log);
            long(text, &format!("          log: {}", printable(&place.display().to_string())));
        }
    }
}

fn pin(text: &mut String, update: &PinUpdate) {
    let state = match (update.commit, update.findings.iter().any(|finding| finding.weight == Weight::Error)) {
        (Some(_), _) => "moved",
        (None, true) => "NOT moved",
        (None, false) => "stands right already",
    };
    line(text, &format!("  {} ({}) to {}: {state}", update.fork, update.kind, update.to.short()));
    for edit in &update.edits {
        let at = edit.line.map_or_else(String::new, |line| format!(":{line}"));
        line(text, &format!("    {}{at}", printable(&edit.file)));
    }
    for finding in &update.findings {
        let file = finding.file.as_ref().map_or_else(String::new, |file| format!("{}: ", printable(file)));
        line(text, &format!("    {file}{}", printable(&finding.message)));
        if let Some(hint) = &finding.hint {
            line(text, &format!("      hint: {}", printable(hint)));
        }
    }
    for left in &update.leftovers {
        line(
            text,
            &format!("    still there: {}:{} {}", printable(&left.file), left.line, printable(&left.word)),
        );
    }
}
