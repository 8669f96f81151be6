//! Tests of deployment to servers that need root or that are not in Debian.

#[path = "../../all/deploy/daemon.rs"]
mod daemon;
#[path = "../../all/deploy/world.rs"]
mod world;

mod mail;
mod proxies;
