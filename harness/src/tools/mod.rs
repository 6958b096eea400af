//! The outside world, one door a tool. No stage of the pipeline is known here.

pub mod child;
pub mod memory;
