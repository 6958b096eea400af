//! `[upstream]`: whose code a fork carries changes to.

use toml::Spanned;

use super::super::reader::{Keys, Table};
use crate::tools::git::mirror;

/// Whose code a fork carries changes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSpec {
    /// Where it is fetched from.
    pub repository: String,
    /// The branch that `latest` means.
    pub branch: String,
    /// What the names of releases begin with; `latest-tag` is the highest of them.
    pub tag_prefix: String,
    /// The folder inside the repository that the stack changes; the whole repository when absent.
    pub folder: Option<String>,
}

pub(super) const KEYS: Keys = Keys::new(&["repository", "branch", "tag-prefix", "folder"]);

pub(super) fn read(table: &Table<'_, '_>) -> Option<UpstreamSpec> {
    let repository = repository(table);
    let branch = table.required::<String>("branch").map(Spanned::into_inner);
    let tag_prefix = table.optional::<String>("tag-prefix").map(Spanned::into_inner).unwrap_or_default();
    let folder = table.optional::<String>("folder").map(Spanned::into_inner);
    Some(UpstreamSpec { repository: repository?, branch: branch?, tag_prefix, folder })
}

pub(super) fn repository(table: &Table<'_, '_>) -> Option<String> {
    let address = table.required::<String>("repository")?;
    let text = address.get_ref();
    if !mirror::is_acceptable(text) || mirror::owner_and_name(text).is_none() {
        table.problem(
            address.span(),
            "`repository` must be an https, ssh, git or file address, or a path, that ends in owner/name",
        );
        return None;
    }
    Some(address.into_inner())
}
