//! Whatever needs several stages at once: how good the gate itself is, and what if a patch were gone.

pub mod probe;
pub mod selftest;
pub mod trial;
