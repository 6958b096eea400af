//! What goes to stdout: one text or one JSON document, and nothing beside it.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Who made a document or a report.
pub(crate) const GENERATED_BY: &str = concat!("regraft ", env!("CARGO_PKG_VERSION"));

/// A machine-readable document: its schema, who made it, and its content.
#[derive(Debug, Serialize)]
pub(crate) struct Document<T> {
    schema: Schema,
    generated_by: &'static str,
    #[serde(flatten)]
    content: T,
}

#[derive(Debug, Serialize)]
struct Schema {
    name: &'static str,
    version: u32,
}

impl<T: Serialize> Document<T> {
    /// Wraps the content. The version rises when a key changes its meaning or goes.
    pub(crate) fn new(name: &'static str, version: u32, content: T) -> Self {
        Self { schema: Schema { name, version }, generated_by: GENERATED_BY, content }
    }

    /// Prints the document on stdout.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(self).expect("documents have text keys only");
        text.push('\n');
        print_text(&text)
    }
}

/// Prints a text on stdout. A reader that went away (`| head`) is no failure.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Tool, format!("cannot write to stdout: {error}"), None))
        }
        _ => Ok(()),
    }
}

/// The text without control characters, which could move a terminal's cursor or colour a lie; tabs become spaces.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("    "),
            // Besides C0 and C1: marks that reorder what follows them.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\tc\u{202e}d é"), "a\\u{1b}[31mb    c\\u{202e}d é");
    }
}
