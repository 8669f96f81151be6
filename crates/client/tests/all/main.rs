//! The client and its agent against a store that answers as a test wants it to. Against a real one: `server`'s tests.

// A test that cannot go on fails where it stands.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agent;
mod store;
