//! Redis: sessions of clients with servers of its protocol (RESP), in which the proxy logs in with a credential that the client never
//! sees.
//!
//! The proxy reads the client's commands and passes the server's replies without reading them. The server must answer each command,
//! so the proxy sends another command in the place of a refused one: a command with an unknown name, which the server answers with an
//! error. Replies then keep their order, also with pipelining, in transactions, and with Pub/Sub.
//!
//! - [`command`]: commands of a client in its bytes.
//! - `handling`: which commands are forwarded, refused, or need a decision.
//! - `reply`: errors as a client gets them, and commands in the place of refused ones.
//! - `login`: the proxy's login at the server.
//! - `stream`: the client's connection; `filter`: its commands on their way to the server.
//! - `opening`: commands of a client before it is authenticated.
//! - `databases`: decisions about the databases of a session.
//! - `session`: a client's connection, from its first command to its end.

pub mod command;
mod databases;
mod filter;
mod handling;
mod login;
mod opening;
mod reply;
mod session;
mod stream;

pub(crate) use session::RedisServer;
