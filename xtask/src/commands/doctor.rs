//! `doctor`: what this machine has, what it lacks, and how to get it.

use std::{fmt::Write, path::Path};

use harness::build::{
    Layout,
    doctor::{Need, ToolReport, diagnose},
};
use serde::Serialize;

use crate::{
    cli::Format,
    exit::{Exit, Failure},
    output::{Document, print_text, printable},
};

/// Looks at every tool and prints what was found. A missing tool that nothing runs without is a finding.
pub(crate) fn run(root: &Path, format: Format) -> Result<Exit, Failure> {
    let tools = diagnose(&Layout::of_repository(root));
    match format {
        Format::Json => Document::new("doctor", 1, Tools { tools: &tools }).print()?,
        Format::Text => print_text(&table(&tools))?,
    }
    Ok(if tools.iter().any(ToolReport::is_blocking) { Exit::Found } else { Exit::Pass })
}

#[derive(Serialize)]
struct Tools<'t> {
    tools: &'t [ToolReport],
}

fn table(tools: &[ToolReport]) -> String {
    let widest = tools.iter().map(|tool| tool.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for tool in tools {
        let state = match (tool.found, tool.need) {
            (true, _) => "found",
            (false, Need::Required) => "MISSING",
            (false, Need::Provisioned) => "later",
            (false, Need::Useful) if tool.is_low() => "low",
            (false, Need::Useful) => "absent",
        };
        let mut details: Vec<String> = tool.version.iter().map(|version| printable(version)).collect();
        details.extend(tool.path.iter().map(|path| printable(&path.display().to_string())));
        if !tool.found {
            details.push(format!("needed for {}; get it: {}", tool.needed_for, tool.how_to_get));
        }
        row(&mut text, &format!("{state:<8} {:<widest$} ", tool.name), &details.join(", "));
    }
    let missing = tools.iter().filter(|tool| tool.is_blocking()).count();
    let summary = match missing {
        0 => "nothing that is required is missing".to_owned(),
        1 => "one required tool is missing".to_owned(),
        _ => format!("{missing} required tools are missing"),
    };
    writeln!(text, "\n{summary}").expect("text grows");
    if tools.iter().any(|tool| !tool.found && tool.need == Need::Provisioned) {
        text += "what is marked `later` comes with the first `cargo xtask gate`\n";
    }
    if tools.iter().any(ToolReport::is_low) {
        text += "what is marked `low` is less than a whole run takes\n";
    }
    text
}

/// How wide the table is, in columns; only a path can be wider.
const WIDTH: usize = 100;

/// Breaks the details at words, and puts what follows below their begin.
fn row(text: &mut String, lead: &str, details: &str) {
    let mut line = lead.to_owned();
    let mut fresh = true;
    for word in details.split(' ') {
        if !fresh && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(text, "{line}").expect("text grows");
            line = " ".repeat(lead.chars().count());
        }
        fresh = false;
        line.push(' ');
        line += word;
    }
    writeln!(text, "{line}").expect("text grows");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, found: bool, need: Need) -> ToolReport {
        ToolReport {
            name: name.to_owned(),
            found,
            need,
            version: found.then(|| "1.2".to_owned()),
            path: found.then(|| format!("/bin/{name}").into()),
            needed_for: "every build".to_owned(),
            how_to_get: "ask".to_owned(),
        }
    }

    #[test]
    fn a_missing_tool_is_shown_with_the_way_to_get_it() {
        let tools = [tool("git", true, Need::Required), tool("c++", false, Need::Required)];
        insta::assert_snapshot!(table(&tools), @"
        found    git  1.2, /bin/git
        MISSING  c++  needed for every build; get it: ask

        one required tool is missing
        ");
    }

    #[test]
    fn what_the_gate_brings_itself_is_not_missing() {
        let text = table(&[tool("cmake", false, Need::Provisioned)]);
        assert!(text.starts_with("later "), "{text}");
        assert!(text.contains("nothing that is required is missing"), "{text}");
    }

    #[test]
    fn less_than_advised_is_low_and_keeps_to_the_width() {
        let mut disk = tool("disk", false, Need::Useful);
        disk.version = Some("5 GiB of 6 advised".to_owned());
        disk.path = Some("/somewhere/that/is/rather/deep/below/the/root".into());
        disk.how_to_get = "free space, or move the checkout".to_owned();
        insta::assert_snapshot!(table(&[disk]), @"
        low      disk  5 GiB of 6 advised, /somewhere/that/is/rather/deep/below/the/root, needed for every
                       build; get it: free space, or move the checkout

        nothing that is required is missing
        what is marked `low` is less than a whole run takes
        ");
    }
}
