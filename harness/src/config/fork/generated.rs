//! `[[generated]]`: files of the fork that a command makes, so that a conflict in them is settled by running it.

use toml::Spanned;

use super::super::reader::{Keys, Table};
use crate::tools::git::tree_path::TreePath;

/// Files that a command makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedSpec {
    /// The program and its arguments, run at the root of the checked out tree.
    pub command: Vec<String>,
    /// The files, or the folders that hold them.
    pub paths: Vec<TreePath>,
}

impl GeneratedSpec {
    /// Whether the command makes the file at `path`.
    pub fn makes(&self, path: &TreePath) -> bool {
        self.paths.iter().any(|made| match path.as_bytes().strip_prefix(made.as_bytes()) {
            Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        })
    }
}

const KEYS: Keys = Keys::new(&["command", "paths"]);

pub(super) fn read(root: &Table<'_, '_>) -> Option<Vec<GeneratedSpec>> {
    let tables = root.tables("generated", KEYS);
    let specs: Vec<Option<GeneratedSpec>> = tables.iter().map(generated).collect();
    specs.into_iter().collect()
}

fn generated(table: &Table<'_, '_>) -> Option<GeneratedSpec> {
    let command = table.required_list::<String>("command");
    let paths = table.required_list::<String>("paths");
    let path = |path: Spanned<String>| {
        let read = TreePath::new(path.get_ref().as_bytes());
        read.map_err(|error| table.problem(path.span(), error.to_string())).ok()
    };
    let paths: Vec<Option<TreePath>> = paths?.into_inner().into_iter().map(path).collect();
    let paths = paths.into_iter().collect::<Option<_>>()?;
    Some(GeneratedSpec {
        command: command?.into_inner().into_iter().map(Spanned::into_inner).collect(),
        paths,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_what_lies_below_it_and_nothing_beside_it() {
        let made =
            GeneratedSpec { command: vec!["true".to_owned()], paths: vec![TreePath::new("a/b").unwrap()] };
        for (path, expected) in [("a/b", true), ("a/b/c", true), ("a/bc", false), ("a", false)] {
            assert_eq!(made.makes(&TreePath::new(path).unwrap()), expected, "{path}");
        }
    }
}
