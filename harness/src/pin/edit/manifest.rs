//! The dependency entries of a Cargo manifest with the places of their values. It edits nothing.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::EditProblem;

/// The tables that hold dependencies, wherever they stand in a manifest.
const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// One dependency entry.
pub(super) struct Dependency<'t> {
    /// The crate's name: `package` where the entry renames it.
    pub(super) name: String,
    /// Where the entry's value begins.
    pub(super) at: usize,
    table: Option<&'t DeTable<'t>>,
    version: Option<Text>,
}

/// A text value and where it stands, quotes included.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) value: String,
    pub(super) range: Range<usize>,
    /// Where the key before it stands.
    pub(super) key: Range<usize>,
}

impl Dependency<'_> {
    /// A text of the entry's table, or the version of an entry that is only that.
    pub(super) fn text(&self, key: &str) -> Option<Text> {
        match self.table {
            Some(table) => text_of(table, key),
            None => self.version.clone().filter(|_| key == "version"),
        }
    }
}

/// A TOML file, parsed; every dependency of it.
pub(super) fn with_dependencies<T>(
    text: &str,
    then: impl FnOnce(&[Dependency<'_>]) -> Result<T, EditProblem>,
) -> Result<T, EditProblem> {
    let root = DeTable::parse(text)
        .map_err(|error| EditProblem::Unreadable { format: "TOML", reason: error.message().to_owned() })?;
    let mut found = Vec::new();
    collect(root.get_ref(), &mut found);
    then(&found)
}

/// `"new"`, quoted the way the old text was.
pub(super) fn requoted(old: &str, new: &str) -> String {
    let quote = if old.starts_with('\'') { '\'' } else { '"' };
    format!("{quote}{new}{quote}")
}

fn collect<'t>(table: &'t DeTable<'t>, found: &mut Vec<Dependency<'t>>) {
    for (key, value) in table.iter() {
        let DeValue::Table(inner) = value.get_ref() else { continue };
        match key.get_ref().as_ref() {
            name if TABLES.contains(&name) => entries(inner, found),
            "workspace" => collect(inner, found),
            // `[target.<platform>]` holds tables of dependencies a platform.
            "target" => inner.iter().for_each(|(_, platform)| {
                if let DeValue::Table(platform) = platform.get_ref() {
                    collect(platform, found);
                }
            }),
            // `[patch.<source>]` holds one table of entries a source.
            "patch" => inner.iter().for_each(|(_, source)| {
                if let DeValue::Table(source) = source.get_ref() {
                    entries(source, found);
                }
            }),
            _ => {}
        }
    }
}

fn entries<'t>(table: &'t DeTable<'t>, found: &mut Vec<Dependency<'t>>) {
    for (key, value) in table.iter() {
        let (name, at) = (key.get_ref().to_string(), value.span().start);
        match value.get_ref() {
            DeValue::Table(entry) => {
                let name = text_of(entry, "package").map_or(name, |package| package.value);
                found.push(Dependency { name, at, table: Some(entry), version: None });
            }
            DeValue::String(version) => {
                let version = Text { value: version.to_string(), range: value.span(), key: key.span() };
                found.push(Dependency { name, at, table: None, version: Some(version) });
            }
            _ => {}
        }
    }
}

fn text_of(table: &DeTable<'_>, key: &str) -> Option<Text> {
    let (found, value) = table.iter().find(|(found, _)| found.get_ref().as_ref() == key)?;
    let value: &Spanned<DeValue<'_>> = value;
    match value.get_ref() {
        DeValue::String(text) => {
            Some(Text { value: text.to_string(), range: value.span(), key: found.span() })
        }
        _ => None,
    }
}
