//! The door to git: the only folder naming `git2`, and the only one running the `git` program.

#![allow(clippy::disallowed_types, reason = "this is the one door to git2")]

pub mod apply;
pub mod attributes;
pub mod checkout;
pub mod clone;
mod command;
pub mod commits;
pub mod export;
#[cfg(test)]
pub(crate) mod fixture;
pub mod history;
pub mod ids;
pub mod mails;
pub mod merge;
pub mod mirror;
pub mod refs;
pub mod remote;
pub mod store;
pub mod tree_path;
pub mod worktree;
