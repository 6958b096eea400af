//! `patch-report`: which patches are still needed, with proof.

use std::path::Path;

use harness::{
    config::{fork::fork_names, load_fork},
    event::EventSink,
    evidence::{EvidenceError, render, report::ForkReport, report_fork},
    fork::{open::Source, target::Onto},
};
use serde::Serialize;

use crate::{
    cli::{PatchReportArgs, ReportFormat},
    exit::{Exit, Failure, each},
    output::{Document, print_text},
};

/// Reports on each fork and prints what was found.
pub(crate) fn run(root: &Path, args: &PatchReportArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let names = if args.forks.is_empty() { fork_names(root) } else { args.forks.clone() };
    if let Some(query) = &args.explain {
        refuse_ambiguous(query, &names)?;
    }
    let specs = names.iter().map(|name| load_fork(root, name)).collect::<Result<Vec<_>, _>>()?;
    let onto = Onto::from(args.onto.as_str());
    let source = args.mirror_root.clone().map_or(Source::Remotes, Source::Mirrors);
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
    show(args, forks)?;
    Ok(Exit::Pass)
}

fn show(args: &PatchReportArgs, forks: Vec<ForkReport>) -> Result<(), Failure> {
    match args.format {
        ReportFormat::Json => Document::new("patch-report", 1, Reports { forks }).print()?,
        ReportFormat::Markdown => print_text(&joined(&forks, render::markdown))?,
        ReportFormat::Text => match &args.explain {
            Some(query) => print_text(&explained(&forks, query)?)?,
            None => print_text(&joined(&forks, render::table))?,
        },
    }
    Ok(())
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
