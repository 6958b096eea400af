//! `patch-report`: which patches are still needed, with proof.

use std::{env, env::consts::OS, fmt::Write as _, path::Path};

use harness::{
    build::Layout,
    cause::{
        probe::{Probed, run_probes},
        trial::{Trial, TrialError, TrialRequest, try_patches},
    },
    config::{fork::fork_names, load_builds, load_fork, load_matrix},
    event::EventSink,
    evidence::{EvidenceError, page, render, report::ForkReport, report_fork, trials::TrialVerdict},
    fork::{open::Source, target::Onto},
    matrix::{Filter, backends_of, expand_cells},
};
use serde::Serialize;

use super::gate::command_line;
use crate::{
    cli::{PatchReportArgs, ReportFormat},
    exit::{Exit, Failure, each},
    output::{Document, GENERATED_BY, print_text, printable},
};

/// Reports on each fork and prints what was found.
pub(crate) fn run(root: &Path, args: &PatchReportArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let names = if args.forks.is_empty() { fork_names(root) } else { args.forks.clone() };
    if let Some(query) = &args.explain {
        refuse_ambiguous(query, &names)?;
    }
    let specs = names.iter().map(|name| load_fork(root, name)).collect::<Result<Vec<_>, _>>()?;
    let onto = Onto::from(args.onto.as_str());
    let source = args.mirrors.mirror_root.clone().map_or(Source::Remotes, Source::Mirrors);
    let (trials, probed) = match args.trial.is_some() || args.probes {
        true => tried(root, args, &onto, &source, events)?,
        false => (Vec::new(), Vec::new()),
    };
    if args.format == ReportFormat::Text {
        print_text(&(trial_text(&trials) + &probe_text(&probed)))?;
    }
    let (forks, failed) = each(specs, |spec| {
        let name = spec.name.clone();
        report_fork(root, spec, &onto, &source, events).map_err(|error| failure(&name, error))
    });
    if let Some(failure) = failed {
        if !forks.is_empty() {
            show(args, forks)?;
        }
        return Err(failure);
    }
    // Of a fork that shares no history with upstream nothing is known, patch by patch.
    let known = forks.iter().all(|fork| fork.base.is_some());
    show(args, forks)?;
    // What a trial shows is an answer; that it showed nothing is none.
    let open = trials.iter().any(|trial| trial.verdict == TrialVerdict::Inconclusive);
    Ok(match open || !known || probed.iter().any(|probe| probe.result == "inconclusive") {
        _ if probed.iter().any(|probe| probe.result == "fail") => Exit::Found,
        true => Exit::Inconclusive,
        false => Exit::Pass,
    })
}

/// Makes the trials and runs the probes that were asked for, of one fork.
fn tried(
    root: &Path,
    args: &PatchReportArgs,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<(Vec<Trial>, Vec<Probed>), Failure> {
    let [name] = args.forks.as_slice() else {
        let hint = "cargo xtask patch-report FORK --trial".to_owned();
        let message = "trials and probes take their time: they are of one fork";
        return Err(Failure::new(Exit::Usage, message, Some(hint)));
    };
    let spec = load_fork(root, name)?;
    let builds = load_builds(root)?;
    let matrix = load_matrix(root, &args.matrix, &builds)?;
    let plan = expand_cells(&matrix, backends_of(OS)).select(&Filter::new(args.filter.clone()))?;
    let layout = Layout { mirrors: args.mirrors.mirror_root.clone(), ..Layout::of_repository(root) };
    let reports = args.report_dir.clone().unwrap_or_else(|| root.join("reports/trials"));
    let request = TrialRequest {
        root,
        layout: &layout,
        spec: &spec,
        onto,
        source,
        builds: &builds,
        matrix: &matrix,
        plan: &plan,
        reports: &reports,
        generated_by: GENERATED_BY.to_owned(),
        command: command_line(env::args_os().skip(1)),
    };
    let failed = |error| trial_failure(name, error);
    let trials = match &args.trial {
        Some(wanted) => try_patches(&request, wanted, events).map_err(failed)?,
        None => Vec::new(),
    };
    let probed = match args.probes {
        true => run_probes(&request, events).map_err(failed)?,
        false => Vec::new(),
    };
    Ok((trials, probed))
}

fn probe_text(probed: &[Probed]) -> String {
    let mut text = String::new();
    for Probed { number, subject, what, result, why } in probed {
        let line = format!("probe of patch {number}, {subject}: {what}: {result} ({why})");
        writeln!(text, "{}\n", printable(&line)).expect("text grows");
    }
    text
}

fn trial_failure(name: &str, error: TrialError) -> Failure {
    let exit = if error.is_refusal() { Exit::Usage } else { Exit::Tool };
    let hint = error.hint();
    Failure::of_fork(exit, "try the patches of", name, error, hint)
}

fn trial_text(trials: &[Trial]) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{}", printable(&line)).expect("text grows");
    for trial in trials {
        let build = trial.build.as_deref().map_or_else(String::new, |build| format!(", build {build}"));
        line(format!("trial without patch {}: {}{build}", trial.number, trial.subject));
        if !trial.with_it.is_empty() {
            let numbers: Vec<String> = trial.with_it.iter().map(ToString::to_string).collect();
            line(format!("  left out with it, since they need it: {}", numbers.join(", ")));
        }
        line(format!("  the rest on the new upstream: {}", trial.rest));
        line(format!("  {}", trial.verdict.sentence()));
        line(format!("  {}", trial.why));
        if let Some(report) = &trial.report {
            line(format!("  the gate's report: {report}"));
        }
        line(String::new());
    }
    text
}

fn show(args: &PatchReportArgs, forks: Vec<ForkReport>) -> Result<(), Failure> {
    match args.format {
        ReportFormat::Json => Document::new("patch-report", 1, Reports { forks }).print()?,
        ReportFormat::Markdown => print_text(&joined(&forks, render::markdown))?,
        ReportFormat::Html => print_text(&page(&forks)?)?,
        ReportFormat::Text => match &args.explain {
            Some(query) => print_text(&explained(&forks, query)?)?,
            None => print_text(&joined(&forks, render::table))?,
        },
    }
    Ok(())
}

fn page(forks: &[ForkReport]) -> Result<String, Failure> {
    page::html(forks)
        .map_err(|error| Failure::new(Exit::Tool, format!("cannot write the page: {error}"), None))
}

fn joined(forks: &[ForkReport], text: impl Fn(&ForkReport) -> String) -> String {
    forks.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Every fork has a patch 1, and a report on each takes its time: a number needs its fork.
fn refuse_ambiguous(query: &str, names: &[String]) -> Result<(), Failure> {
    // Seven digits can be the begin of a commit's id.
    if names.len() == 1 || query.len() >= 7 || query.parse::<usize>().is_err() {
        return Ok(());
    }
    let hint = format!("name one fork: {}", names.join(", "));
    Err(Failure::new(Exit::Usage, format!("patch {query} of which fork?"), Some(hint)))
}

fn explained(forks: &[ForkReport], query: &str) -> Result<String, Failure> {
    let cases: Vec<String> = forks.iter().filter_map(|fork| render::explanation(fork, query)).collect();
    if cases.is_empty() {
        let hint = "name a number, the begin of a commit's id, a file, or a part of a subject".to_owned();
        return Err(Failure::new(Exit::Usage, format!("no patch is meant by `{query}`"), Some(hint)));
    }
    Ok(cases.join("\n"))
}

#[derive(Serialize)]
struct Reports {
    forks: Vec<ForkReport>,
}

pub(super) fn failure(name: &str, error: EvidenceError) -> Failure {
    let exit = if error.is_refusal() { Exit::Usage } else { Exit::Tool };
    let hint = error.hint();
    Failure::of_fork(exit, "report on", name, error, hint)
}
