//! `[base]`: the upstream commit that a stack sits on.

use std::str::FromStr;

use toml::Spanned;

use super::super::reader::{Keys, Table};
use crate::tools::git::ids::{CommitId, TreeId};

/// The upstream commit that a stack sits on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseSpec {
    /// The commit.
    pub commit: CommitId,
    /// Its tree, for checking.
    pub tree: Option<TreeId>,
    /// The tag that names it, for checking and for people.
    pub tag: Option<String>,
}

pub(super) const KEYS: Keys = Keys::new(&["commit", "tree", "tag"]);

pub(super) fn read(table: &Table<'_, '_>) -> Option<BaseSpec> {
    let commit = id::<CommitId>(table, "commit", table.required::<String>("commit")?);
    let tree = match table.optional::<String>("tree") {
        Some(tree) => Some(id::<TreeId>(table, "tree", tree)?),
        None => None,
    };
    let tag = table.optional::<String>("tag").map(Spanned::into_inner);
    Some(BaseSpec { commit: commit?, tree, tag })
}

pub(super) fn id<T: FromStr>(table: &Table<'_, '_>, key: &str, text: Spanned<String>) -> Option<T> {
    let id = text.get_ref().parse().ok();
    if id.is_none() {
        table.problem(text.span(), format!("`{key}` must be a full object id of 40 hexadecimal digits"));
    }
    id
}
