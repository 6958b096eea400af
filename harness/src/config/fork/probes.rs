//! `[[probes]]`: a downstream's own benchmarks and scripts, whose exit codes and figures are worth keeping; and the command
//! lines that `check` of `[[consumers]]` holds, too.

use std::collections::BTreeMap;

use regex::Regex;
use toml::Spanned;

use super::{
    super::reader::{Keys, Table},
    consumers::{ConsumerHome, home},
};

/// A command as a person writes it. No shell reads it: words are split as a shell would, and nothing else is done to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// As it stands in the file.
    pub text: String,
    /// The program and its arguments; never empty.
    pub words: Vec<String>,
}

/// A benchmark or script of somebody downstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeSpec {
    /// What it is called in records.
    pub name: String,
    /// Where it lies; it runs in a clone of that, with the pins moved that stand there.
    pub home: ConsumerHome,
    /// The command.
    pub command: CommandLine,
    /// Figures in what it prints: the first group of each pattern, at its last match.
    pub numbers: BTreeMap<String, String>,
}

const KEY: &str = "probes";
const KEYS: Keys = Keys::new(&["name", "fork", "repository", "checkout", "branch", "command", "numbers"]);

pub(super) fn read(root: &Table<'_, '_>) -> Option<Vec<ProbeSpec>> {
    if !root.has(KEY) {
        return Some(Vec::new());
    }
    let probes: Vec<Option<ProbeSpec>> = root.tables(KEY, KEYS).iter().map(probe).collect();
    probes.into_iter().collect()
}

fn probe(table: &Table<'_, '_>) -> Option<ProbeSpec> {
    let name = table.required::<String>("name").map(Spanned::into_inner);
    let home = home(table, "a probe");
    let command = table.required::<String>("command").and_then(|line| command_line(table, &line));
    let numbers = numbers(table);
    Some(ProbeSpec { name: name?, home: home?, command: command?, numbers: numbers? })
}

fn numbers(table: &Table<'_, '_>) -> Option<BTreeMap<String, String>> {
    if !table.has("numbers") {
        return Some(BTreeMap::new());
    }
    let numbers = table.open_table("numbers")?;
    let pattern = |key: Spanned<String>| {
        let key = key.into_inner();
        let pattern = numbers.required::<String>(&key)?;
        match Regex::new(pattern.get_ref()) {
            Ok(regex) if regex.captures_len() > 1 => Some((key, pattern.into_inner())),
            Ok(_) => {
                numbers.problem(pattern.span(), "the pattern has no group: put the figure in parentheses");
                None
            }
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                numbers.problem(pattern.span(), format!("the pattern is none: {last}"));
                None
            }
        }
    };
    let patterns: Vec<Option<(String, String)>> = numbers.keys().into_iter().map(pattern).collect();
    patterns.into_iter().collect()
}

pub(super) fn command_line(table: &Table<'_, '_>, line: &Spanned<String>) -> Option<CommandLine> {
    match shlex::split(line.get_ref()) {
        Some(words) if !words.is_empty() => Some(CommandLine { text: line.get_ref().clone(), words }),
        Some(_) => {
            table.problem(line.span(), "the command is empty");
            None
        }
        None => {
            table.problem(line.span(), "a quotation mark of the command is not closed");
            None
        }
    }
}
