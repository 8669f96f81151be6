//! The tick.
