//! Regraft's pipeline: `config → fork → stack → rebase → evidence → build → model → engine → matrix → judge →
//! verdict → report → pin → cause`. Imports go leftwards only; `tools` and `event` serve every stage.

pub mod build;
pub mod cause;
pub mod config;
pub mod engine;
pub mod event;
pub mod evidence;
pub mod fork;
pub mod gate;
pub mod judge;
pub mod matrix;
pub mod model;
pub mod pin;
pub mod rebase;
pub mod report;
pub mod stack;
pub mod tools;
pub mod verdict;
