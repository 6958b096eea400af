//! `drop-fork`: give a fork up, once no patch of it is needed any more.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use harness::{
    config::{
        fork::{ForkSpec, fork_names},
        load_fork,
    },
    event::EventSink,
    evidence::report_whole,
    fork::{open::Source, target::Onto},
    pin::{
        drop::{Decision, Dropped, accepted_losses, decide, drop_fork, is_done, message},
        proof::{Candidate, find_proof},
        update::HomeUpdate,
    },
    rebase::sync::NamedCommit,
};
use serde::Serialize;

use super::patch_report;
use crate::{
    cli::{DropForkArgs, Format},
    exit::{Exit, Failure},
    output::{Document, print_text, printable},
};

/// What `--format json` prints.
#[derive(Serialize)]
struct Outcome {
    fork: String,
    onto: NamedCommit,
    #[serde(flatten)]
    decision: Decision,
    consumers: Vec<HomeUpdate>,
}

/// Judges the fork's patches and, when none is needed, rewrites its consumers.
pub(crate) fn run(root: &Path, args: &DropForkArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let spec = load_fork(root, &args.fork)?;
    let others = fork_names(root).into_iter().filter(|name| *name != args.fork);
    let others = others.map(|name| Ok((name.clone(), load_fork(root, &name)?)));
    let others: BTreeMap<String, ForkSpec> = others.collect::<Result<_, Failure>>()?;
    let source = args.mirrors.mirror_root.clone().map_or(Source::Remotes, Source::Mirrors);
    let onto = Onto::from(args.onto.as_str());
    let (whole, report) = report_whole(root, spec, &onto, &source, events)
        .map_err(|error| patch_report::failure(&args.fork, error))?;
    let accepted = accepted_losses(&whole.spec, &whole.replayed.steps, &args.accept_loss);
    let onto = whole.document.onto.clone();
    let mut outcome = Outcome {
        fork: args.fork.clone(),
        onto: onto.clone(),
        decision: decide(&report, &accepted),
        consumers: Vec::new(),
    };
    if let Decision::Ready { reasons } = &outcome.decision {
        let candidate = Candidate { head: onto.commit, tree: whole.target.onto.tree, patches: Vec::new() };
        let validated = match (find_proof(&root.join("reports"), &candidate), args.unvalidated) {
            (Some(proof), _) => {
                let report = proof.report.strip_prefix(root).unwrap_or(&proof.report).display();
                format!("A gate has passed this upstream commit: {report}")
            }
            (None, true) => "No gate has passed this upstream commit (--unvalidated).".to_owned(),
            (None, false) => {
                return Err(Failure::new(
                    Exit::Found,
                    format!("no gate has passed upstream {} that consumers would build from", onto.commit),
                    Some(
                        "run the gate on it first, or say --unvalidated, which the commits then tell"
                            .to_owned(),
                    ),
                ));
            }
        };
        let message = message(&report, &onto, reasons, &validated);
        let head =
            whole.replayed.steps.last().and_then(|step| step.commit).unwrap_or(whole.target.base.commit);
        let dropped = Dropped { spec: &whole.spec, store: &whole.store, onto, head, message };
        outcome.consumers = drop_fork(root, &dropped, &others, &source, events).map_err(|error| {
            let hint = error.hint();
            Failure::new(Exit::Tool, error, hint)
        })?;
    }
    match args.format {
        Format::Json => Document::new("drop-fork", 1, &outcome).print()?,
        Format::Text => print_text(&text(&outcome))?,
    }
    let is_done = outcome.consumers.iter().flat_map(|home| &home.pins).all(is_done);
    let is_ready = matches!(outcome.decision, Decision::Ready { .. });
    Ok(if is_ready && is_done { Exit::Pass } else { Exit::Found })
}

fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    let onto = outcome.onto.tag.clone().unwrap_or_else(|| outcome.onto.commit.short());
    let mut line = |line: String| {
        let _ = writeln!(text, "{}", printable(&line));
    };
    match &outcome.decision {
        Decision::Refused { live, missing } => {
            line(format!("fork {} cannot be given up for upstream {onto}", outcome.fork));
            for patch in live {
                line(format!("  patch {} is needed: {}", patch.number, patch.subject));
                line(format!("    {}", patch.why));
            }
            for missing in missing {
                line(format!("  {missing}"));
            }
        }
        Decision::Ready { reasons } => {
            line(format!("no patch of fork {} is needed on upstream {onto}", outcome.fork));
            for patch in reasons {
                line(format!("  patch {}: {}", patch.number, patch.subject));
                line(format!("    {}", patch.why));
            }
        }
    }
    for home in &outcome.consumers {
        match &home.branch {
            Some((branch, commit)) => {
                let place = home.repository.display();
                line(format!(
                    "{}: {} leads to {} in {place}",
                    home.consumer,
                    branch.trim_start_matches("refs/heads/"),
                    commit.short()
                ));
            }
            None => line(format!("{}: nothing was changed", home.consumer)),
        }
        for pin in &home.pins {
            for edit in &pin.edits {
                let at = edit.line.map_or(String::new(), |line| format!(":{line}"));
                line(format!("  {}{at}: {} becomes {}", edit.file, edit.old, edit.new));
            }
            for finding in &pin.findings {
                line(format!("  {}: {}", finding.file.as_deref().unwrap_or(pin.kind), finding.message));
            }
            for left in &pin.leftovers {
                line(format!("  {}:{} still has {}", left.file, left.line, left.word));
            }
        }
    }
    text
}
