//! Client of the credential store, for programs that read secrets often.
//!
//! Create one [`Client`] and share it: clones are cheap. It connects with the first request, and reconnects automatically after an
//! outage of the store.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! let client = client::Client::builder("https://localhost:8844")
//!     .client_credentials("ci", "bulla_…")
//!     .roots(std::fs::read("root.pem").unwrap_or_default())
//!     .build()?;
//! let password = client.get("/team/database").await?;
//! let first = client.lookup(&["/team/pipeline/x", "/team/x"]).await?;
//! # Ok(()) }
//! ```
//!
//! - **Request coalescing**: concurrent callers of one name share one request. Cache misses during a request are batched into the
//!   next `POST /api/v1/lookup`, up to [`NAMES_MAX`] names.
//! - **Cache**: values are fresh for [`Limits::ttl`]. A stale value is served while it is refreshed and, if the store is
//!   unavailable, until [`Limits::lifetime`]; after that, calls fail with the reason. Missing names are cached for
//!   [`Limits::negative_ttl`].
//! - **Invalidation** by server-sent events: changed values are requested again. After a gap in the events, each value is requested
//!   again once.
//! - **Limits** apply to the entries and bytes of the cache, the queue, response sizes, attempts, retries and timeouts.
//!
//! [`Agent`] serves the same API over this cache on a Unix socket.

mod agent;
mod batch;
mod cache;
mod client;
mod credential;
mod error;
mod events;
mod leases;
mod limits;
mod login;
mod name;
mod stats;
mod template;
mod transport;

/// Boxes the future of a public `async fn`. Otherwise every crate that awaits it compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use agent::{Agent, AgentError, AgentOptions, TlsAgent, TlsAgentOptions};
pub use batch::NAMES_MAX;
pub use client::{Builder, Client};
pub use credential::Credential;
pub use error::Error;
pub use events::{Change, Changes};
pub use leases::NewLease;
pub use limits::Limits;
pub use name::Name;
pub use stats::Stats;
pub use template::Template;
pub use transport::check_socket;
