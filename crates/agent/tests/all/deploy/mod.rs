//! Tests of deployment to this host: files, crashes and real servers.

mod configs;
mod crash;
mod daemon;
mod exec;
mod files;
mod keystores;
mod killed;
mod policy;
mod servers;
pub(crate) mod world;
