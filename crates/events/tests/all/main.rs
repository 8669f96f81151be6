//! Tests of the event interface: the text of every kind, and its row in the documentation.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod documented;
mod text;
