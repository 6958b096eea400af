//! Whatever needs several stages at once: how good the gate itself is, how much noise it has to clear, and what if a patch
//! were gone.

pub mod calibrate;
pub mod probe;
pub mod selftest;
pub mod trial;
