//! Places where private keys may be.

pub mod policies;
