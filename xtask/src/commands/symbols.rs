//! `symbols`: do two static archives export the same names?

use std::fmt::Write;

use harness::build::symbols::{Collision, Strength, SymbolsError, collisions, exports};
use serde::Serialize;

use crate::{
    cli::{Format, SymbolsArgs},
    exit::{Exit, Failure, exit_of_read},
    output::{Document, print_text, printable},
};

/// How many weak collisions are listed for people.
const SHOWN_WEAK: usize = 5;

/// How many members are named of those that define one name.
const SHOWN_MEMBERS: usize = 3;

/// Compares the archives. A strong name that both export is a finding; weak ones are told.
pub(crate) fn run(args: &SymbolsArgs) -> Result<Exit, Failure> {
    let (first, second) = (exports(&args.first)?, exports(&args.second)?);
    let found = collisions(&first, &second);
    let strong = found.iter().any(|collision| collision.strength == Strength::Strong);
    let mut unread: Vec<String> = Vec::new();
    for (path, exports) in [(&args.first, &first), (&args.second, &second)] {
        unread.extend(exports.unread.iter().map(|member| format!("{}({member})", path.display())));
    }
    let document = Symbols {
        first: args.first.display().to_string(),
        second: args.second.display().to_string(),
        exported: [first.symbols.len(), second.symbols.len()],
        collisions: &found,
        unread,
    };
    match args.format {
        Format::Json => Document::new("symbols", 1, &document).print()?,
        Format::Text => print_text(&document.text())?,
    }
    Ok(match (strong, document.unread.is_empty()) {
        (true, _) => Exit::Found,
        (false, false) => Exit::Inconclusive,
        (false, true) => Exit::Pass,
    })
}

/// A few of the members.
fn some(members: &[String]) -> String {
    let shown = members.iter().take(SHOWN_MEMBERS).cloned().collect::<Vec<_>>().join(", ");
    match members.len().saturating_sub(SHOWN_MEMBERS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl From<SymbolsError> for Failure {
    fn from(error: SymbolsError) -> Self {
        let exit = match &error {
            SymbolsError::Io { source, .. } => exit_of_read(source),
            _ => Exit::Usage,
        };
        let hint = error.hint().to_owned();
        Self::new(exit, error, Some(hint))
    }
}

#[derive(Serialize)]
struct Symbols<'s> {
    first: String,
    second: String,
    exported: [usize; 2],
    collisions: &'s [Collision],
    unread: Vec<String>,
}

impl Symbols<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{}", printable(&line)).expect("text grows");
        line(format!("{}: {} symbols exported", self.first, self.exported[0]));
        line(format!("{}: {} symbols exported", self.second, self.exported[1]));
        let (strong, weak): (Vec<_>, Vec<_>) =
            self.collisions.iter().partition(|collision| collision.strength == Strength::Strong);
        for collision in &strong {
            let (first, second) = (some(&collision.first), some(&collision.second));
            line(format!("COLLIDES  {} ({first} and {second})", collision.symbol));
        }
        for collision in weak.iter().take(SHOWN_WEAK) {
            line(format!("weak      {}", collision.symbol));
        }
        if weak.len() > SHOWN_WEAK {
            line(format!("weak      {} more, which the linker folds", weak.len() - SHOWN_WEAK));
        }
        for member in &self.unread {
            line(format!("not read  {member}: no object with symbols that can be read"));
        }
        line(format!("{} strong and {} weak names in both", strong.len(), weak.len()));
        text
    }
}
