//! Between clients and servers. So far the TLS terminator whose private keys are elsewhere.
//!
//! - [`edge`]: terminates TLS for certificates of a folder, signs through key services, hands what comes to upstreams.

pub mod edge;
