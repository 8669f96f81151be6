//! The binary as its users see it, run against a simulated estate.

mod configuration;
mod endings;
mod help;
mod inventory;
mod outputs;
mod postgres;
mod resume;
mod world;
