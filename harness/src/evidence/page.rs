//! The report as one HTML page: everything that is known, the dependency graph, and a chart of where each patch begins to
//! conflict. It needs no network and no script; whatever a repository says is shown as text. Equal reports give equal bytes.

use askama::Template;

use super::{
    provenance::{FileOrigin, Provenance},
    recommend::shown,
    render::{self, recommendation_word, state_word},
    report::{ForkReport, PatchReport, Section},
};
use crate::tools::{child::printable, clock::seconds_of};

/// The page of some forks' reports.
///
/// # Errors
/// When the template cannot be filled in.
pub fn html(forks: &[ForkReport]) -> Result<String, askama::Error> {
    let names: Vec<String> = forks.iter().map(|fork| printable(&fork.name)).collect();
    let page = Page {
        names: shown(&names, 6),
        age: render::AGE,
        forks: forks.iter().enumerate().map(|(at, fork)| fork_page(at, fork)).collect(),
    };
    page.render()
}

#[derive(Template)]
#[template(path = "patch-report.html")]
struct Page {
    names: String,
    age: &'static str,
    forks: Vec<ForkPage>,
}

struct ForkPage {
    id: String,
    title: String,
    rows: Vec<Row>,
    residue: String,
    lines: Vec<String>,
    unknown: Vec<String>,
    chart: Option<Chart>,
    graph: Option<Graph>,
    cases: Vec<CasePage>,
    sections: Vec<SectionPage>,
}

struct Row {
    id: String,
    cells: [String; 6],
    reason: String,
}

struct CasePage {
    id: String,
    head: String,
    verdict: &'static str,
    reason: String,
    facts: Vec<(&'static str, String)>,
}

struct SectionPage {
    title: String,
    findings: Vec<String>,
    copies: Vec<CopyPage>,
}

struct CopyPage {
    head: String,
    files: Vec<FileRow>,
}

struct FileRow {
    path: String,
    state: &'static str,
    versions: String,
}

/// One bar a patch, over time. All places in pixels.
struct Chart {
    width: i64,
    height: i64,
    top: i64,
    bottom: i64,
    label_y: i64,
    ticks: Vec<Tick>,
    bars: Vec<Bar>,
    frontier: Option<i64>,
    frontier_title: String,
}

struct Tick {
    x: i64,
    label: String,
}

struct Bar {
    title: String,
    label: String,
    label_x: i64,
    text_y: i64,
    x: i64,
    y: i64,
    height: i64,
    clean: i64,
    conflict_x: i64,
    conflict: i64,
}

/// Patches from top to bottom, an arc for each dependency. All places in pixels.
struct Graph {
    width: i64,
    height: i64,
    spine: i64,
    text_x: i64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

struct Node {
    y: i64,
    text_y: i64,
    label: String,
}

struct Edge {
    path: String,
    title: String,
}

fn fork_page(at: usize, fork: &ForkReport) -> ForkPage {
    // Ids are numbers only: names are not trusted in them.
    let id = format!("fork-{at}");
    let patch_id = |patch: &PatchReport| format!("{id}-patch-{}", patch.forecast.number);
    let rows = fork.patches.iter().map(|patch| Row {
        id: patch_id(patch),
        cells: render::row(patch).map(|cell| printable(&cell)),
        reason: printable(&patch.reason),
    });
    let cases = fork.patches.iter().map(|patch| CasePage {
        id: patch_id(patch),
        head: printable(&format!("{} {}", patch.forecast.number, patch.forecast.subject)),
        verdict: recommendation_word(patch.recommendation),
        reason: printable(&format!("{}; {}", state_word(patch.state), patch.reason)),
        facts: render::facts(patch)
            .into_iter()
            .flat_map(|(head, facts)| facts.into_iter().map(move |fact| (head, printable(&fact))))
            .collect(),
    });
    let conditions =
        fork.retirement.iter().map(|condition| format!("fork: {}", render::condition_text(condition)));
    ForkPage {
        title: printable(&render::title(fork)),
        rows: rows.collect(),
        residue: printable(&render::residue(fork)),
        lines: render::frontier(fork).into_iter().chain(conditions).map(|line| printable(&line)).collect(),
        unknown: fork
            .unknown
            .iter()
            .map(|unknown| printable(&format!("{} ({})", unknown.what, unknown.why)))
            .collect(),
        chart: chart(fork),
        graph: graph(&fork.patches),
        cases: cases.collect(),
        sections: fork
            .sections
            .iter()
            .filter(|section| !section.findings.is_empty())
            .map(section_page)
            .collect(),
        id,
    }
}

fn section_page(section: &Section) -> SectionPage {
    let copies: Vec<Provenance> = match section.name.as_str() {
        "provenance" => serde_json::from_value(section.data.clone()).unwrap_or_default(),
        _ => Vec::new(),
    };
    SectionPage {
        title: printable(&section.title),
        findings: section.findings.iter().map(|finding| printable(finding)).collect(),
        copies: copies.iter().map(copy_page).collect(),
    }
}

fn copy_page(copy: &Provenance) -> CopyPage {
    let place = if copy.folder.is_empty() { "the copy" } else { &copy.folder };
    let versions = |file: &FileOrigin| match (&file.tags, &file.commits) {
        (Some((oldest, newest)), _) if oldest == newest => oldest.clone(),
        (Some((oldest, newest)), _) => format!("{oldest} to {newest}"),
        (None, Some((first, last))) if first == last => first.short(),
        (None, Some((first, last))) => format!("{} to {}", first.short(), last.short()),
        (None, None) => String::new(),
    };
    let files = copy.files.iter().map(|file| FileRow {
        path: printable(&file.path),
        state: file.state.word(),
        versions: printable(&versions(file)),
    });
    CopyPage { head: printable(&format!("every file of {place}")), files: files.collect() }
}

const LABELS: i64 = 44;
const PLOT: i64 = 820;
const ROW: i64 = 18;
const TOP: i64 = 24;
const TICKS: i64 = 5;

/// `None` where base and target are one, or their dates are not known.
fn chart(fork: &ForkReport) -> Option<Chart> {
    let span = fork.span.as_ref()?;
    let (from, to) = (seconds_of(&span.from)?, seconds_of(&span.to)?);
    if to <= from || fork.patches.is_empty() {
        return None;
    }
    let place = |seconds: i64| LABELS + (seconds - from).clamp(0, to - from) * PLOT / (to - from);
    let mut bars = Vec::new();
    for (at, patch) in (0..).zip(&fork.patches) {
        let y = TOP + at * ROW + 4;
        let first = patch.first_conflict.as_ref();
        let end = first.and_then(|first| seconds_of(&first.date)).map_or(LABELS + PLOT, place);
        let title = match first {
            Some(first) => format!(
                "{} {}: conflicts since {} {}, commit {} after the base, {}",
                patch.forecast.number,
                patch.forecast.subject,
                first.commit.short(),
                first.subject,
                first.index,
                first.date.get(..10).unwrap_or_default()
            ),
            None => format!("{} {}: no conflict", patch.forecast.number, patch.forecast.subject),
        };
        bars.push(Bar {
            title: printable(&title),
            label: patch.forecast.number.to_string(),
            label_x: LABELS - 8,
            text_y: y + 10,
            x: LABELS,
            y,
            height: ROW - 7,
            clean: end - LABELS,
            conflict_x: end,
            // A conflict with the very newest commit is to be seen, too.
            conflict: first.map_or(0, |_| (LABELS + PLOT - end).max(2)),
        });
    }
    let bottom = TOP + ROW * i64::try_from(fork.patches.len()).ok()? + 2;
    let days = (0..=TICKS).map(|tick| from + (to - from) * tick / TICKS);
    let ticks = days.map(|seconds| Tick { x: place(seconds), label: day(seconds) }).collect();
    let frontier = fork.frontier.as_ref();
    Some(Chart {
        width: LABELS + PLOT + 44,
        height: bottom + 6,
        top: TOP - 4,
        bottom,
        label_y: TOP - 10,
        ticks,
        bars,
        frontier: frontier.and_then(|frontier| seconds_of(frontier.date.as_deref()?)).map(place),
        frontier_title: printable(&render::frontier(fork).unwrap_or_default()),
    })
}

fn day(seconds: i64) -> String {
    let time =
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    crate::tools::clock::rfc3339(time).chars().take(10).collect()
}

const STEP: i64 = 20;
const LABEL_CHARS: usize = 90;

/// `None` where no patch needs another.
fn graph(patches: &[PatchReport]) -> Option<Graph> {
    let y = |at: usize| 14 + STEP * i64::try_from(at).unwrap_or_default();
    let mut edges = Vec::new();
    let mut reach = 0;
    for (at, patch) in patches.iter().enumerate() {
        for needed in &patch.forecast.depends_on {
            let Some(other) = patches.iter().position(|other| other.forecast.number == *needed) else {
                continue;
            };
            // Long arcs swing wider, so that they can be told apart.
            let swing = (24 + 7 * i64::try_from(at.abs_diff(other)).unwrap_or_default()).min(260);
            reach = reach.max(swing);
            let title = format!("patch {} needs patch {needed}", patch.forecast.number);
            edges.push((y(at), y(other), swing, title));
        }
    }
    if edges.is_empty() {
        return None;
    }
    let spine = reach * 3 / 4 + 16;
    let edges = edges.into_iter().map(|(from, to, swing, title)| {
        let path = format!("M{spine} {from} C{0} {from} {0} {to} {spine} {to}", spine - swing);
        Edge { path, title }
    });
    let nodes = patches.iter().enumerate().map(|(at, patch)| {
        let label = printable(&format!("{} {}", patch.forecast.number, patch.forecast.subject));
        Node { y: y(at), text_y: y(at) + 4, label: label.chars().take(LABEL_CHARS).collect() }
    });
    Some(Graph {
        width: spine + 700,
        height: y(patches.len()),
        spine,
        text_x: spine + 12,
        nodes: nodes.collect(),
        edges: edges.collect(),
    })
}
