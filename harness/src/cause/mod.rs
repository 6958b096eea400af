//! Whatever needs several stages at once: how good the gate itself is.

pub mod selftest;
