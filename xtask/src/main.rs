//! `cargo xtask`: parse, call `harness`, render, exit code.
fn main() {}
