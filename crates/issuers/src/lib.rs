//! External issuers (ACME, Vault, step-ca, exec, webhook) and the own CA, behind one [`Issuer`]; dns-01 records, and who
//! outside wraps the master key ([`custody`]).
//!
//! Callers take an issuer by name from [`Issuers`]; what they get is already held to its limits, its circuit breaker
//! and the check that what came back is what was asked for. Tests put their own with [`Issuers::put`].

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

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use breaker::{Breaker, Health};
pub use check::Check;
pub use config::{
    AcmeConfig, ChallengeKind, Eab, ExecConfig, InternalConfig, IssuerConfig, IssuerKind, Limits,
    ListenerConfig, NameRule, Provisioner, StepCaConfig, VaultAuth, VaultConfig, VerifyConfig, WebhookConfig,
};
pub use context::IssuerContext;
pub use counts::{Counts, Tally};
pub use delivery::Delivered;
pub use error::{IssuerError, Retry};
pub use host_policy::HostPolicy;
pub use issuer::{Issuer, IssuerIdentity};
pub use order::{ORDER_KEY_MAX, Order, Window};
pub use program_name::ProgramName;
pub use programs::{ProgramConfig, ProgramError, Programs};
pub use readable_files::ReadableFiles;
pub use registry::{INTERNAL, IssuerView, Issuers, ManageError, NewIssuer};
pub use responder::{ACME_TLS, Responders, TlsAlpnAnswers};
pub use secrets::{BadSecret, Rebound, Secrets};
