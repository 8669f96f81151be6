//! External issuers (ACME, Vault, step-ca, exec, webhook) and the internal CA behind one trait [`Issuer`], dns-01 records, and
//! external encryption of the master key ([`custody`]).
//!
//! Callers get an issuer by name from [`Issuers`]. Each of these issuers enforces its limits and its circuit breaker, and verifies
//! issued certificates. Tests add their own issuers with [`Issuers::put`].

mod acme;
mod breaker;
mod check;
mod command;
mod config;
mod context;
mod counts;
pub mod custody;
mod delivery;
pub mod dns01;
mod error;
mod exec;
mod factory;
mod governed;
mod host_policy;
mod internal;
mod issuer;
mod jose;
mod memory;
mod order;
mod program_name;
mod programs;
mod provisioner_key;
mod readable_files;
mod registry;
mod responder;
mod secrets;
mod step_ca;
pub mod tables;
mod vault;
mod webhook;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use breaker::{Breaker, Health};
pub use check::Check;
pub use config::{
    AcmeConfig, ChallengeKind, Eab, ExecConfig, InternalConfig, IssuerConfig, IssuerKind, Limits,
    ListenerConfig, NameRule, Provisioner, StepCaConfig, VaultAuth, VaultConfig, VerifyConfig, WebhookConfig,
};
pub use context::IssuerContext;
pub use counts::{Counts, Tally};
pub use delivery::DeliveredChain;
pub use error::{IssuerError, Retry};
pub use host_policy::HostPolicy;
pub use issuer::{Issuer, IssuerIdentity};
pub use order::{ORDER_KEY_MAX, Order, Window};
pub use program_name::ProgramName;
pub use programs::{ProgramConfig, ProgramError, Programs};
pub use readable_files::ReadableFiles;
pub use registry::{INTERNAL, IssuerView, Issuers, ManageError, NewIssuer};
pub use responder::{ACME_TLS, Responders, TlsAlpnResponses};
pub use secrets::{BadSecret, MissingSecrets, Secrets};
