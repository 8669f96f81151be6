//! Clients that Debian does not have, or only old: `.ci/interop acme` builds them.

// Helpers are shared with the other tests, each of which uses its part.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../all/http.rs"]
mod http;
mod lego;
#[path = "../all/place.rs"]
mod place;

/// Helpers of the other tests' ACME server.
mod acme {
    #[path = "../../all/acme/client.rs"]
    pub(crate) mod client;
    #[path = "../../all/acme/net.rs"]
    pub(crate) mod net;
    #[path = "../../all/acme/world.rs"]
    pub(crate) mod world;
}
