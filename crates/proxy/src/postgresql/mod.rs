//! PostgreSQL: sessions of clients with databases, in which the proxy logs in with a credential that the client never sees.
//!
//! - `packet`: the first packets of a client, and `message`: messages of both sides, with their encodings.
//! - `login`: the proxy's login at the server (SCRAM-SHA-256).
//! - `cancel`: keys by which clients cancel their own queries.
//! - `failure`: errors as a client gets them.
//! - `session`: a client's connection, from its first packet to its end.

mod cancel;
mod failure;
mod login;
pub mod message;
pub mod packet;
mod session;

pub use cancel::CancelKey;

pub(crate) use session::PostgresqlServer;
