//! Reuses helpers of the other tests' ACME server.

#[path = "../all/acme/client.rs"]
pub(crate) mod client;
#[path = "../all/acme/net.rs"]
pub(crate) mod net;
#[path = "../all/acme/world.rs"]
pub(crate) mod world;
