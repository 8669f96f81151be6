//! Clients that Debian does not have, or only old: `.ci/interop acme` builds them.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unused_imports,
    reason = "the helpers shared with tests/all have more than is used here"
)]
// With the features of the whole workspace its futures are deeper than rustc looks by itself.
#![recursion_limit = "256"]

mod acme;
#[path = "../all/http.rs"]
mod http;
mod lego;
#[path = "../all/place.rs"]
mod place;
