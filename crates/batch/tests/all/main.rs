//! Tests of the batch: every lane beside what plain numbers make of the same.

#![allow(clippy::unwrap_used)]

mod lanes;
#[cfg(target_os = "linux")]
mod stack;
