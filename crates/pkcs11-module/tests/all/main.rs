//! The library, loaded as programs load it, with a key service.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod c;
mod certificates;
mod fork;
mod identity;
mod service;
mod signing;
mod world;
