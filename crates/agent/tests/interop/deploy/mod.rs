//! Deployment to servers that need root, or that Debian does not have.

#[path = "../../all/deploy/daemon.rs"]
mod daemon;
#[path = "../../all/deploy/world.rs"]
mod world;

mod mail;
mod proxies;
