//! `sync-upstream` without `--dry-run`: the rebase itself, and what a person has to do when it waits.

use std::path::Path;

use harness::{
    event::{Event, EventSink},
    fork::open::Source,
    pin::follow::Followed,
    rebase::{
        execute::{Faults, resolutions_folder},
        meaning::Weight,
        outcome::PatchOutcome,
        record::{Proof, RunPatch, RunRecord},
        resolution::import_rr_cache,
        run::{
            Action, Findings, RunError, SCHEMA, SCHEMA_VERSION, Sign, SyncOutcome, SyncRequest, Waiting,
            WaitingConflict, sync_fork,
        },
        text::counted,
    },
    report::{finding_text, rebase_summary, word},
};
use serde::Serialize;

use super::{
    sync_after,
    sync_upstream::{forks, line},
};
use crate::{
    cli::{Format, SyncUpstreamArgs},
    exit::{Exit, Failure, each},
    output::{Document, GENERATED_BY, print_text, printable},
};

/// Rebases each fork as far as it goes, and prints what became of it.
pub(crate) fn run(root: &Path, args: &SyncUpstreamArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let specs = forks(root, args)?;
    let action = match (args.r#continue, args.skip, args.abort) {
        (true, ..) => Action::Continue,
        (_, true, _) => Action::Skip,
        (_, _, true) => Action::Abort,
        _ => Action::Start,
    };
    if action != Action::Start && specs.len() > 1 {
        let error = "--continue, --skip and --abort go with one fork";
        return Err(Failure::new(Exit::Usage, error, Some("name the fork that waits".to_owned())));
    }
    sync_after::check(args, &specs)?;
    let reports = args.report_dir.clone().unwrap_or_else(|| root.join("reports"));
    let request = SyncRequest {
        onto: args.onto.as_deref(),
        source: args.mirrors.mirror_root.clone().map(Source::Mirrors),
        action,
        findings: if args.accept_meaning { Findings::Accepted } else { Findings::Open },
        sign: Sign::AsConfigured,
        reports: &reports,
        generated_by: GENERATED_BY,
        render: &rebase_summary,
        faults: &Faults::none(),
    };
    let (outcomes, failed) = each(specs.clone(), |spec| {
        let name = spec.name.clone();
        if let Some(rr_cache) = &args.import_rr_cache {
            import(root, &name, rr_cache, events)?;
        }
        sync_fork(root, spec, &request, events).map_err(|error| failure(&name, error))
    });
    let done = failed.is_none() && outcomes.iter().all(is_done);
    // Nothing follows a rebase that waits: what others build on has to be whole.
    let followed = if done { sync_after::run(root, args, &specs, events)? } else { None };
    let whole = followed.as_ref().is_none_or(Followed::is_whole);
    match args.format {
        _ if outcomes.is_empty() => {}
        Format::Json => {
            Document::new(SCHEMA, SCHEMA_VERSION, Outcomes::of(&outcomes, followed.as_ref())).print()?;
        }
        Format::Text => {
            let mut parts: Vec<String> = outcomes.iter().map(text).collect();
            parts.extend(followed.as_ref().map(|followed| sync_after::text(root, args, &specs, followed)));
            print_text(&parts.join("\n"))?;
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    Ok(match (done, whole) {
        (false, _) => Exit::Conflict,
        (true, false) => Exit::Found,
        (true, true) => Exit::Pass,
    })
}

fn import(root: &Path, name: &str, rr_cache: &Path, events: &dyn EventSink) -> Result<(), Failure> {
    let folder = resolutions_folder(name);
    let made = import_rr_cache(rr_cache, &root.join(&folder)).map_err(|error| {
        Failure::new(Exit::Tool, error, Some("name git's own folder, `.git/rr-cache`".to_owned()))
    })?;
    let text =
        format!("{} taken over into {}", counted(made.len(), "resolution", "resolutions"), folder.display());
    events.emit(Event::Note(text));
    Ok(())
}

fn is_done(outcome: &SyncOutcome) -> bool {
    match outcome {
        SyncOutcome::Finished(record) => record.open_findings == 0,
        SyncOutcome::Waits(_) => false,
        SyncOutcome::Aborted { .. } | SyncOutcome::Nothing(_) => true,
    }
}

/// The forks that were rebased, and those that wait.
#[derive(Serialize)]
struct Outcomes<'o> {
    forks: Vec<&'o RunRecord>,
    waiting: Vec<&'o Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    followed: Option<&'o Followed>,
}

impl<'o> Outcomes<'o> {
    fn of(outcomes: &'o [SyncOutcome], followed: Option<&'o Followed>) -> Self {
        let mut sorted = Self { forks: Vec::new(), waiting: Vec::new(), followed };
        for outcome in outcomes {
            match outcome {
                SyncOutcome::Finished(record) => sorted.forks.push(record),
                SyncOutcome::Waits(waiting) => sorted.waiting.push(waiting),
                SyncOutcome::Aborted { .. } | SyncOutcome::Nothing(_) => {}
            }
        }
        sorted
    }
}

fn failure(name: &str, error: RunError) -> Failure {
    let exit = match () {
        () if error.waits_for_a_person() => Exit::Conflict,
        () if error.is_refusal() => Exit::Usage,
        () => Exit::Tool,
    };
    let hint = error.hint();
    Failure::of_fork(exit, "rebase", name, error, hint)
}

fn text(outcome: &SyncOutcome) -> String {
    match outcome {
        SyncOutcome::Finished(record) => finished(record),
        SyncOutcome::Waits(waiting) => waits(waiting),
        SyncOutcome::Aborted { kept, set_aside } => {
            let mut text = match kept {
                Some(kept) => format!("given up; what stood in the work tree is kept as {kept}\n"),
                None => "given up; there was no work tree to keep\n".to_owned(),
            };
            for place in set_aside {
                long(&mut text, &format!("moved aside: {}", place.display()));
            }
            text
        }
        SyncOutcome::Nothing(why) => format!("nothing to rebase: {why}\n"),
    }
}

fn finished(record: &RunRecord) -> String {
    let mut text = String::new();
    let (base, onto) = (printable(&record.base.place()), printable(&record.onto.place()));
    line(&mut text, &format!("{}: rebased from {base} onto {onto}", record.name));
    text.push('\n');
    for patch in &record.patches {
        let commit = patch.new_commit.map_or_else(|| "-".to_owned(), |commit| commit.short());
        let subject = printable(&patch.forecast.subject);
        line(
            &mut text,
            &format!("{:>3}  {:<11}  {commit:<9}  {subject}", patch.forecast.number, word(patch.outcome)),
        );
        remarks(&mut text, patch);
    }
    text.push('\n');
    line(&mut text, &format!("head {}", record.head));
    long(&mut text, &format!("branch {} in {}", record.branch, record.store.display()));
    match &record.exported {
        Some(exported) => {
            long(
                &mut text,
                &format!(
                    "{}: {} written, {} removed, {} unchanged",
                    exported.folder.display(),
                    counted(patch_files(&exported.written), "patch", "patches"),
                    patch_files(&exported.removed),
                    exported.unchanged.len()
                ),
            );
            exported.notes.iter().for_each(|note| long(&mut text, &format!("  {}", printable(note))));
        }
        None => long(
            &mut text,
            &format!(
                "nothing exported: {} to look at (LOOK above); then run again with --accept-meaning",
                counted(record.open_findings, "change of meaning", "changes of meaning")
            ),
        ),
    }
    text
}

fn remarks(text: &mut String, patch: &RunPatch) {
    match &patch.proof {
        Some(Proof::PatchId { commit }) => {
            line(
                text,
                &format!(
                    "       upstream makes the same change: {} {}",
                    commit.commit.short(),
                    printable(&commit.subject)
                ),
            );
        }
        Some(Proof::Contained { lines, commits }) => {
            let by: Vec<String> = commits.iter().map(|commit| commit.commit.short()).collect();
            let by = if by.is_empty() { String::new() } else { format!(" (by {})", by.join(", ")) };
            line(
                text,
                &format!("       upstream has all {} that it adds{by}", counted(*lines, "line", "lines")),
            );
        }
        Some(Proof::Resolution) => line(text, "       resolved to what upstream has"),
        None => {}
    }
    for replayed in &patch.replayed {
        let missing = match replayed.missing.len() {
            0 => String::new(),
            missing => format!("; {} of the patch missing", counted(missing, "added line", "added lines")),
        };
        let path = printable(&replayed.path);
        long(
            text,
            &format!("       {path}: replayed from resolutions/{}; look at it{missing}", replayed.resolution),
        );
    }
    for finding in patch.findings.iter().filter(|finding| finding.weight == Weight::Look) {
        long(text, &format!("       {}", printable(&finding_text(finding))));
    }
}

fn waits(waiting: &Waiting) -> String {
    let mut text = String::new();
    let onto = printable(&waiting.onto.place());
    let subject = printable(&waiting.subject);
    line(
        &mut text,
        &format!(
            "{}: patch {} of {} needs a person on {onto}: {subject}",
            waiting.name, waiting.number, waiting.of
        ),
    );
    text.push('\n');
    for conflict in &waiting.conflicts {
        conflict_lines(&mut text, conflict);
    }
    for replayed in &waiting.replayed {
        let path = printable(&replayed.path);
        long(&mut text, &format!("  {path}: settled as in resolutions/{}; look at it", replayed.resolution));
    }
    for (name, why) in &waiting.refused {
        long(&mut text, &format!("  resolutions/{name} was tried, but {why}"));
    }
    for path in &waiting.generated {
        long(&mut text, &format!("  {}: will be made anew by its command", printable(path)));
    }
    let skipped = waiting.done.iter().filter(|(_, outcome)| *outcome == PatchOutcome::Skipped).count();
    let carried = waiting.done.iter().filter(|(_, outcome)| outcome.is_carried()).count();
    let (before, after) = (waiting.done.len(), waiting.of - waiting.number);
    text.push('\n');
    line(
        &mut text,
        &format!("{before} before it dealt with ({carried} carried, {skipped} left out), {after} after it"),
    );
    long(&mut text, &format!("work tree: {}", waiting.worktree.display()));
    let name = &waiting.name;
    line(&mut text, "resolve the files there, then one of");
    for (flag, what) in [
        ("--continue", "takes the files as they are"),
        ("--skip", "leaves the patch out"),
        ("--abort", "gives the rebase up; nothing is lost"),
    ] {
        line(&mut text, &format!("  cargo xtask sync-upstream {name} {flag:<10}  {what}"));
    }
    text
}

fn conflict_lines(text: &mut String, conflict: &WaitingConflict) {
    let what = match conflict.places {
        0 => printable(&conflict.kind),
        places => counted(places, "place", "places"),
    };
    long(text, &format!("  {} ({what})", printable(&conflict.path)));
    if let Some(culprit) = &conflict.culprit {
        line(text, &format!("    since {} {}", culprit.commit.short(), printable(&culprit.subject)));
    }
    if !conflict.needs.is_empty() {
        let needs: Vec<String> = conflict.needs.iter().map(ToString::to_string).collect();
        line(text, &format!("    patches that were left out change it too: {}", needs.join(", ")));
    }
    match (&conflict.submodule, conflict.places) {
        (Some(commits), _) => {
            for (side, commit) in ["before the patch", "upstream", "the patch"].iter().zip(commits) {
                let commit = commit.as_deref().unwrap_or("nothing");
                line(text, &format!("    {side}: {commit}"));
            }
            let path = printable(&conflict.path);
            long(
                text,
                &format!(
                    "    choose with `git update-index --cacheinfo 160000,COMMIT,{path}` or `git rm --cached {path}`"
                ),
            );
        }
        (None, 0) if conflict.kind.contains("split") => {
            long(
                text,
                "    its files went to several folders: put new ones where they belong, then --continue",
            );
        }
        (None, 0) => {
            long(text, "    keep it with `git add`, or drop it with `git rm`");
        }
        _ => {}
    }
}

/// How many of the files are patches.
fn patch_files(names: &[String]) -> usize {
    names.iter().filter(|name| name.ends_with(".patch")).count()
}

/// A line that holds a path or a command, and so is never cut.
pub(super) fn long(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}
