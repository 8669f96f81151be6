//! Callouts: HTTPS requests to services that an operator configured (issuers, webhooks, chat and paging channels).

mod cache;
mod client;
mod config;
mod error;
mod posts;
mod signature;

pub use cache::ClientCache;
pub use client::{HttpClient, Reply, Request, excerpt};
pub use config::HttpConfig;
pub use error::HttpError;
pub use posts::{Posts, Service};
pub use signature::SigningKey;
