//! The outside world, one door a tool. No stage of the pipeline is known here.

pub mod archive;
pub mod cargo;
pub mod child;
pub mod clock;
pub mod conditions;
pub mod disk;
pub mod file;
pub mod git;
pub mod groups;
pub mod host;
pub mod http;
pub mod killed;
pub mod lock;
pub mod memory;
pub mod numbered;
pub mod process;
pub mod python;
pub mod talk;
