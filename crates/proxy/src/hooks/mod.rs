//! Hooks: services of the operator that decide about requests, or change requests and responses. They speak Envoy's external
//! authorization (`ext_authz`) or external processing (`ext_proc`) over gRPC.
//!
//! The proxy calls a hook when the policy has allowed a request, before it injects credentials: a hook never gets an injected value.
//! Responses are searched for injected values before a hook gets them.
//!
//! - `options`: the configuration; `channel`: the connection to the service; `hook`: one hook with its limits.
//! - `fields`: header fields in messages, and the changes that a hook may make.
//! - `authorization`, `processor`: the two protocols. `session`: all hooks of one request.

mod authorization;
mod channel;
pub mod envoy;
mod exchange;
mod fault;
mod fields;
mod hook;
mod options;
mod processor;
mod session;

pub use hook::Hooks;
pub use options::{BadHook, HookOptions, HookProtocol, OnError};

pub(crate) use exchange::HookFacts;
pub(crate) use session::{HookDecision, HookEnd, HookSession, RequestKind};
