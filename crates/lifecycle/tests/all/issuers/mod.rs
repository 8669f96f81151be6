//! Issuers against real programs and faithful fakes.

pub(crate) mod authority_of_tests;
pub(crate) mod fake;
pub(crate) mod named;
pub(crate) mod world;

mod configuration;
mod dns;
mod exec;
mod internal;
mod limits;
mod lying;
mod vault;
mod webhook;
