//! The configuration: its layers, and the part of it that client commands read.

mod client;
mod layers;

pub use client::{ClientConfiguration, ClientSettings, FIRST_PROFILE};
pub use layers::{Key, Kind, Layers, Origin, UnknownVariables, default_path, lookup, variable_of};
