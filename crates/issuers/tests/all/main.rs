//! Tests of issuers with real programs and accurate fakes, in one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod authority_of_tests;
mod fake;
mod named;
mod tables;
mod world;

mod configuration;
mod dns;
mod exec;
mod internal;
mod limits;
mod lying;
mod vault;
mod webhook;
