//! The door to git: the only folder naming `git2`, and the only one running the `git` program.

pub mod apply;
