//! The library as programs load it, against a key service.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod c;
mod certificates;
mod fork;
mod identity;
mod service;
mod signing;
mod world;
