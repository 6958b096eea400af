//! `[[registry]]`: crates of the fork that are published, too, so that one version can mean two codebases.

use toml::Spanned;

use super::super::reader::{Keys, Table};

/// A crate that is both published and in the fork's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySpec {
    /// Its name.
    pub krate: String,
    /// A folder of sources that use it, relative to the repository root.
    pub used_by: Option<String>,
}

const KEYS: Keys = Keys::new(&["crate", "used-by"]);

pub(super) fn read(root: &Table<'_, '_>) -> Option<Vec<RegistrySpec>> {
    let specs: Vec<Option<RegistrySpec>> = root
        .tables("registry", KEYS)
        .iter()
        .map(|table| {
            let krate = table.required::<String>("crate")?.into_inner();
            let used_by = table.optional::<String>("used-by").map(Spanned::into_inner);
            Some(RegistrySpec { krate, used_by })
        })
        .collect();
    specs.into_iter().collect()
}
