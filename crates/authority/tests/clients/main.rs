//! Tests with clients that Debian does not have, or has only in old versions. `.ci/interop acme` builds them.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unused_imports,
    reason = "the helpers shared with tests/all have more than is used here"
)]
// With the features of the whole workspace its futures are nested deeper than rustc's default limit.
#![recursion_limit = "256"]

mod acme;
#[path = "../all/fixture.rs"]
mod fixture;
#[path = "../all/http.rs"]
mod http;
mod lego;
