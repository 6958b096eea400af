//! `sync-upstream`: what becomes of a fork's stack on a newer upstream?

use std::{fmt::Write, path::Path};

use harness::{
    config::fork::ForkSpec,
    event::EventSink,
    fork::{graph::forks_in_order, open::Source, target::Onto},
    rebase::{
        forecast::{Cause, PatchFate},
        sync::{ConflictEntry, ForkForecast, PatchEntry, SyncError, forecast_fork},
        text::counted,
    },
};
use serde::Serialize;

use super::sync_run;
use crate::{
    cli::{Format, SyncUpstreamArgs},
    exit::{Exit, Failure, each},
    output::{Document, print_text, printable},
};

/// The width that tables keep to, in columns.
pub(super) const WIDTH: usize = 100;

/// Rebases each fork, or forecasts it and prints what was found.
pub(crate) fn run(root: &Path, args: &SyncUpstreamArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    if !args.dry_run {
        return sync_run::run(root, args, events);
    }
    let specs = forks(root, args)?;
    let onto = Onto::from(args.onto.as_deref().unwrap_or("latest"));
    let source = args.mirrors.mirror_root.clone().map_or(Source::Remotes, Source::Mirrors);
    let (forks, failed) = each(specs, |spec| {
        let name = spec.name.clone();
        forecast_fork(root, spec, &onto, &source, events).map_err(|error| failure(&name, error))
    });
    if let Some(failure) = failed {
        if !forks.is_empty() {
            show(args, forks)?;
        }
        return Err(failure);
    }
    let clean = forks.iter().flat_map(|fork| &fork.patches).all(|patch| is_clean(patch.fate));
    show(args, forks)?;
    Ok(if clean { Exit::Pass } else { Exit::Conflict })
}

fn show(args: &SyncUpstreamArgs, forks: Vec<ForkForecast>) -> Result<(), Failure> {
    match args.format {
        Format::Json => Document::new("sync-upstream", 1, Forecasts { forks }).print(),
        Format::Text => print_text(&forks.iter().map(table).collect::<Vec<_>>().join("\n")),
    }
}

/// The forks that were asked for, what they build on first.
pub(super) fn forks(root: &Path, args: &SyncUpstreamArgs) -> Result<Vec<ForkSpec>, Failure> {
    forks_in_order(root, &args.forks).map_err(|error| {
        let hint = error.hint();
        Failure::new(Exit::Usage, error, hint)
    })
}

#[derive(Serialize)]
struct Forecasts {
    forks: Vec<ForkForecast>,
}

fn failure(name: &str, error: SyncError) -> Failure {
    let exit = if error.is_refusal() { Exit::Usage } else { Exit::Tool };
    let hint = error.hint();
    Failure::of_fork(exit, "forecast", name, error, hint)
}

fn is_clean(fate: PatchFate) -> bool {
    !matches!(fate, PatchFate::Conflicted | PatchFate::Blocked)
}

/// One fork's forecast as a table for people.
fn table(fork: &ForkForecast) -> String {
    let mut text = String::new();
    let of = fork.frontier.as_ref().map_or(0, |frontier| frontier.of);
    let (base, onto) = (printable(&fork.base.place()), printable(&fork.onto.place()));
    let title = format!(
        "{}: {} on {base}, forecast on {onto}, {} later",
        fork.name,
        counted(fork.patches.len(), "patch", "patches"),
        counted(of, "commit", "commits")
    );
    line(&mut text, &title);
    text.push('\n');
    let widest = fork.patches.iter().map(|patch| printable(&patch.subject).chars().count()).max();
    let subject_width = widest.unwrap_or_default().clamp("patch".len(), 52);
    line(&mut text, &format!("  #  {:<subject_width$}  {:<10}  {:<10}  needs", "patch", "in stack", "alone"));
    for patch in &fork.patches {
        let needs: Vec<String> = patch.depends_on.iter().map(ToString::to_string).collect();
        line(
            &mut text,
            &format!(
                "{:>3}  {:<subject_width$}  {:<10}  {:<10}  {}",
                patch.number,
                shortened(&printable(&patch.subject), subject_width),
                patch.fate.word(),
                patch.alone.word(),
                needs.join(" "),
            ),
        );
        for conflict in &patch.conflicts {
            line(&mut text, &format!("       {}", conflict_text(conflict)));
        }
    }
    text.push('\n');
    line(&mut text, &summary(&fork.patches));
    if let Some(frontier) = &fork.frontier {
        let date = frontier.date.as_deref().map_or(String::new(), |date| format!(", {}", &date[..10]));
        let short = frontier.commit.short();
        let place = match frontier.index {
            index if index == frontier.of => "the target itself".to_owned(),
            0 => "the base".to_owned(),
            index => format!("commit {index} of {}", frontier.of),
        };
        line(&mut text, &format!("whole stack without a conflict up to {short} ({place}{date})"));
    }
    text
}

fn conflict_text(conflict: &ConflictEntry) -> String {
    let kind = match conflict.kind.as_str() {
        "contents" => counted(conflict.hunks, "hunk", "hunks"),
        other => other.to_owned(),
    };
    let why = match (&conflict.cause, &conflict.culprit) {
        (Cause::Dependency, _) => "only without the rest of the stack".to_owned(),
        (Cause::Upstream, None) => "upstream".to_owned(),
        (Cause::Upstream, Some(culprit)) => format!("{} {}", culprit.commit.short(), culprit.subject),
    };
    format!("{} ({kind}): {}", printable(&conflict.path), printable(&why))
}

fn summary(patches: &[PatchEntry]) -> String {
    let count = |fate: PatchFate| patches.iter().filter(|patch| patch.fate == fate).count();
    let fates = [
        PatchFate::Applied,
        PatchFate::Merged,
        PatchFate::Absorbed,
        PatchFate::Conflicted,
        PatchFate::Blocked,
    ];
    let counts = fates.into_iter().filter(|fate| count(*fate) > 0);
    counts.map(|fate| format!("{} {}", count(fate), fate.word())).collect::<Vec<_>>().join(", ")
}

pub(super) fn line(text: &mut String, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", shortened(content.trim_end(), WIDTH));
}

pub(super) fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use harness::rebase::sync::{CulpritEntry, FrontierEntry, NamedCommit};

    use super::*;

    fn forecast() -> ForkForecast {
        let commit = |digit: char| digit.to_string().repeat(40).parse().unwrap();
        let patch = |number, subject: &str, fate, conflicts| PatchEntry {
            number,
            subject: subject.to_owned(),
            commit: None,
            file: Some(format!("{number:04}.patch")),
            fate,
            conflicts,
            depends_on: (1..number).collect(),
            alone: PatchFate::Merged,
            tree: "e".repeat(40).parse().unwrap(),
        };
        let conflict = |path: &str, cause, culprit: Option<&str>| ConflictEntry {
            path: path.to_owned(),
            cause,
            culprit: culprit.map(|subject| CulpritEntry { commit: commit('c'), subject: subject.to_owned() }),
            hunks: 2,
            kind: "contents".to_owned(),
        };
        let conflicts = vec![
            conflict("a/long/path.cpp", Cause::Upstream, Some(&"many words ".repeat(20))),
            conflict("b\u{1b}[31m.cpp", Cause::Dependency, None),
        ];
        ForkForecast {
            name: "mlx".to_owned(),
            base: NamedCommit { commit: commit('a'), tag: Some("v1".to_owned()) },
            onto: NamedCommit { commit: commit('b'), tag: None },
            frontier: Some(FrontierEntry {
                commit: commit('d'),
                index: 3,
                of: 7,
                date: Some("2026-01-31T12:00:00Z".to_owned()),
            }),
            patches: vec![
                patch(1, "first", PatchFate::Applied, vec![]),
                patch(2, &"long ".repeat(30), PatchFate::Conflicted, conflicts),
            ],
        }
    }

    #[test]
    fn the_table_fits_a_hundred_columns_and_shows_no_control_characters() {
        let table = table(&forecast());
        assert!(
            table.lines().all(|line| line.chars().count() <= WIDTH && !line.contains('\u{1b}')),
            "{table}"
        );
        insta::assert_snapshot!(table, @r"
        mlx: 2 patches on v1 (aaaaaaaaa), forecast on bbbbbbbbb, 7 commits later

          #  patch                                                 in stack    alone       needs
          1  first                                                 applied     merged
          2  long long long long long long long long long long l…  conflicted  merged      1
               a/long/path.cpp (2 hunks): ccccccccc many words many words many words many words many words …
               b\u{1b}[31m.cpp (2 hunks): only without the rest of the stack

        1 applied, 1 conflicted
        whole stack without a conflict up to ddddddddd (commit 3 of 7, 2026-01-31)
        ");
    }

    #[test]
    fn the_document_has_the_agreed_keys() {
        let document = serde_json::to_value(Forecasts { forks: vec![forecast()] }).unwrap();
        let fork = &document["forks"][0];
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(fork), ["name", "base", "onto", "frontier", "patches"]);
        assert_eq!(keys(&fork["base"]), ["commit", "tag"]);
        assert_eq!(keys(&fork["onto"]), ["commit"]);
        assert_eq!(keys(&fork["frontier"]), ["commit", "index", "of", "date"]);
        let patch = &fork["patches"][1];
        assert_eq!(
            keys(patch),
            ["number", "subject", "file", "fate", "conflicts", "depends_on", "alone", "tree"]
        );
        assert_eq!(keys(&patch["conflicts"][0]), ["path", "cause", "culprit", "hunks", "kind"]);
        assert_eq!(patch["conflicts"][0]["culprit"]["commit"], "c".repeat(40));
        assert_eq!(
            (&patch["fate"], &patch["conflicts"][1]["cause"]),
            (&"conflicted".into(), &"dependency".into())
        );
    }
}
