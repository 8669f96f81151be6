//! The client of the credential store, for programs that read secrets often.
//!
//! Built once and shared: [`Client`] is cheap to clone, connects when it is first asked, and recovers by itself from a
//! store that is away.
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
//! - **Asked once**: callers of one name share one request, and what is missed meanwhile goes with the next, up to
//!   [`NAMES_MAX`] names of one `POST /api/v1/lookup`.
//! - **Remembered** for [`Limits::ttl`]; then answered once more while it is made again; where the store does not answer,
//!   answered for [`Limits::lifetime`], and after that an error says why. That a name is not there is remembered for
//!   [`Limits::negative_ttl`].
//! - **Told of changes** over server-sent events: what changed is asked for again. After a gap in them everything is, once.
//! - **Bounded**: entries and bytes of the cache, the queue, answers, tries, retries, times.
//!
//! [`Agent`] serves the same API over this cache on a Unix socket.

mod agent;
mod batch;
mod cache;
mod client;
mod credential;
mod error;
mod events;
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
pub use limits::Limits;
pub use name::Name;
pub use stats::Stats;
pub use template::Template;
pub use transport::check_socket;
