//! The other end of a connection.

pub use authority::Peer;
