//! The HTTP server: routes, authentication, problem documents, OpenAPI, listeners. Contains no SQL and no cryptography.

pub mod access;
pub mod conditional;
mod credhub;
mod events;
pub mod extract;
mod face_limit;
mod gates;
pub mod idempotency;
mod key_services;
mod keyed_limit;
pub mod limit;
pub mod listen;
pub mod metrics;
mod openapi;
pub mod paging;
mod peer;
pub mod problem;
mod proxy_requests;
mod rotating;
mod router;
pub mod routes;
pub mod routing;
mod sign_in_limit;
mod state;
pub mod time;
mod upkeep;

pub use extract::BODY_MAX;
pub use key_services::KeyServices;
pub use listen::{Running, Server, ServerOptions};
pub use peer::Peer;
pub use problem::Problem;
pub use proxy_requests::{NotHeld, NotReplayed, ProxyRequests, RecentQuery};
pub use router::{
    credential_operations, credential_router_for_pages, public_router, router, with_web_console,
};
pub use state::{Component, Components, Issuance, KeyNodes, State, StateBuilder};
