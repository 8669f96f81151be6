//! Between clients and servers.
//!
//! - [`edge`]: terminates TLS for certificates of a folder, signs through key services, hands what comes to upstreams.
//! - [`proxy`]: looks into the TLS of clients that trust its authority, with leaves of [`mint`] out of the
//!   [`certificate_store`].
//! - [`minting`]: hands leaves out of the same store to others that speak TLS.
//! - [`permission`]: asks whether there may be a leaf before anything is looked up or minted.

pub mod certificate_store;
mod clock;
mod doors;
pub mod edge;
mod http;
pub mod mint;
pub mod minting;
pub mod permission;
pub mod proxy;
mod relay;
pub mod revocation;
