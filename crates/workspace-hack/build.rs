//! Cargo resolves build dependencies only for crates with a build script.

fn main() {}
