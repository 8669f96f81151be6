//! The library as programs load it, against a key service.

#![allow(clippy::unwrap_used)]

mod c;
mod certificates;
mod fork;
mod identity;
mod service;
mod signing;
mod world;
