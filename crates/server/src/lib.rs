//! HTTP: routes, authentication, problem documents, OpenAPI, listeners. No SQL, no cryptography.

pub mod access;
pub mod api;
pub mod conditional;
mod events;
pub mod extract;
mod guard;
pub mod idempotency;
pub mod limit;
pub mod listen;
pub mod metrics;
mod openapi;
pub mod paging;
mod peer;
pub mod problem;
mod rotating;
mod router;
pub mod routes;
mod state;
pub mod time;

pub use listen::{Running, Server, ServerOptions};
pub use peer::Peer;
pub use problem::Problem;
pub use router::{BODY_MAX, public_router, router};
pub use state::{State, StateBuilder};
