//! Callouts: HTTPS requests to services that an operator configured (issuers, webhooks, chat and paging channels), and sessions at
//! databases.

mod cache;
mod client;
mod config;
mod databases;
mod error;
mod posts;
mod signature;

/// Boxes the future of a public `async fn`. Otherwise every crate that awaits the function compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use cache::ClientCache;
pub use client::{HttpClient, Reply, Request, excerpt};
pub use config::HttpConfig;
pub use databases::{DatabaseSession, DatabaseTarget, Databases};
pub use db::postgres::{RemoteError, RemoteLogin, RemoteTls};
pub use error::HttpError;
pub use posts::{Posts, Service};
pub use signature::SigningKey;
