//! Tests of the event interface: the text of every kind, its row in the documentation, and the generated reference.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod documented;
mod reference;
mod text;
