//! CA keys in a separate process: a server requests signatures over a Unix socket, and the signer checks each order.
//!
//! [`SealedKeys`] stores the keys, [`SignerServer`] serves orders, [`SignerClient`] is the server's side. The checks are in
//! `authority::signer_checks`. See docs/internals/signer.md.

mod client;
mod custody;
mod frame;
mod message;
mod server;
mod socket_access;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use client::SignerClient;
pub use custody::SealedKeys;
pub use server::{SignerOptions, SignerServer, StartError};
pub use socket_access::{SocketAccess, UnknownUser, uid_of};
