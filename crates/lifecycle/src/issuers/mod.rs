//! Who can issue: our authority and others, behind one [`Issuer`].
//!
//! Callers take an issuer by name from [`Issuers`]; what they get is already held to its limits, its circuit breaker
//! and the check that what came back is what was asked for. Tests put their own with [`Issuers::put`].

mod acme;
mod breaker;
mod bucket;
mod check;
pub(crate) mod command;
mod config;
mod context;
mod counts;
mod error;
mod exec;
mod governed;
pub(crate) mod http;
mod internal;
mod jose;
mod memory;
mod provisioner_key;
mod registry;
mod responder;
mod secrets;
pub(crate) mod signed;
mod step_ca;
pub(crate) mod vault;
mod webhook;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyRef, Secret};
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, GeneralName, UnixTime};

pub use breaker::{Breaker, Health};
pub use check::Check;
pub use config::{
    AcmeConfig, ChallengeKind, Eab, ExecConfig, HttpConfig, InternalConfig, IssuerConfig, Limits,
    ListenerConfig, NameRule, Provisioner, StepCaConfig, VaultAuth, VaultConfig, VerifyConfig, WebhookConfig,
};
pub use context::IssuerContext;
pub use counts::{Counts, Tally};
pub use error::{IssuerError, Retry};
pub use registry::{INTERNAL, IssuerView, Issuers, ManageError, NewIssuer};
pub use responder::{ACME_TLS, Responders, TlsAlpnAnswers};
pub use secrets::{BadSecret, Secrets};

/// One who can issue. Every method is bounded in time by the order's deadline or the issuer's own limit.
pub trait Issuer: Send + Sync + Debug {
    /// `internal`, `acme`, `vault`, `step_ca`, `exec` or `webhook`.
    fn kind(&self) -> &'static str;

    /// Obtains a certificate for the order's CSR. The same [`Order::key`] with the same public key gives the same
    /// certificate, also after a crash, wherever the other side allows it.
    ///
    /// # Errors
    /// [`IssuerError`]; [`IssuerError::retry`] says whether and when to try again.
    ///
    /// # Cancellation
    /// Dropping the future leaves the order where it is; asking again with the same key goes on from there.
    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Delivered, IssuerError>>;

    /// Revokes a certificate this issuer made.
    ///
    /// # Errors
    /// [`IssuerError`]; a certificate that is revoked already is no error.
    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>>;

    /// When the issuer would like it renewed (ARI, RFC 9773); `None` when it has no opinion.
    ///
    /// # Errors
    /// [`IssuerError`]. Callers then go by the lifetime: an answer that cannot be had must not stop a renewal.
    fn renewal_window<'a>(
        &'a self,
        certificate: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>>;

    /// Whether it could issue: reachable, credentials accepted. Issues nothing. The text is for a person.
    ///
    /// # Errors
    /// [`IssuerError`] as issuing would give.
    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>>;

    /// Revokes a certificate by proof of its private key (RFC 8555 section 7.6), whoever ordered it.
    ///
    /// # Errors
    /// [`IssuerError::Unsupported`] unless the issuer knows such.
    fn revoke_with_key<'a>(
        &'a self,
        _certificate: &'a Certificate,
        _key: KeyRef,
        _reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "revoke by a certificate's key" }) }.boxed()
    }

    /// Renews by mutual TLS with the certificate (`chain`, DER, leaf first) and its private key in PEM.
    ///
    /// # Errors
    /// [`IssuerError::Unsupported`] unless the issuer knows such.
    fn renew_with_key<'a>(
        &'a self,
        _chain: &'a [Vec<u8>],
        _key: &'a Secret,
    ) -> BoxFuture<'a, Result<Delivered, IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "renew by a certificate's key" }) }.boxed()
    }

    /// Keeps logins alive; called every minute or so.
    ///
    /// # Errors
    /// [`IssuerError`].
    fn upkeep<'a>(&'a self) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Ok(()) }.boxed()
    }
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Order {
    /// Names this wish for good: at most [`ORDER_KEY_MAX`] octets, the same at every repetition.
    pub key: String,
    /// A PKCS #10 request, signed.
    pub csr_der: Vec<u8>,
    /// The names the certificate must hold: no more, no less.
    pub names: Vec<GeneralName>,
    /// The issuer's own profile, role or provisioner, where it has such.
    pub profile: Option<String>,
    /// How long it should be valid, seconds; `None` leaves it to the issuer.
    pub lifetime_seconds: Option<i64>,
    /// The certificate this one takes the place of, in DER.
    pub replaces: Option<Arc<[u8]>>,
    /// When an answer is of no more use.
    pub deadline: Instant,
    /// Who wants it, as the audit names actors.
    pub requester: String,
}

/// Octets of the longest [`Order::key`].
pub const ORDER_KEY_MAX: usize = 200;

/// What came back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Delivered {
    /// DER, the leaf first, each signed by the next; roots left out.
    pub chain: Vec<Vec<u8>>,
}

/// When to renew, as the issuer suggests (RFC 9773 section 4.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Window {
    /// The first moment.
    pub start: UnixTime,
    /// The last moment. A window wholly in the past means: now.
    pub end: UnixTime,
    /// When to ask again, seconds: 60 to 86 400 whatever the issuer said.
    pub retry_after_seconds: u32,
    /// A page that tells people why.
    pub explanation: Option<String>,
}

/// Which configured issuer this is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerIdentity {
    /// Its row.
    pub id: Uuid,
    /// Its name, for people and metrics.
    pub name: String,
}

/// An issuer as configured, without limits, checks and memory: those are [`Issuers`]' concern.
fn build_inner(
    identity: &IssuerIdentity,
    config: &IssuerConfig,
    context: &IssuerContext,
) -> Result<Box<dyn Issuer>, IssuerError> {
    Ok(match config {
        IssuerConfig::Internal(config) => {
            Box::new(internal::Internal::new(config, context.authority.clone()))
        }
        IssuerConfig::Acme(config) => Box::new(acme::Acme::new(identity, config, context)?),
        IssuerConfig::Vault(config) => {
            Box::new(vault::Vault::new(config, context.clock.clone(), &context.resolver)?)
        }
        IssuerConfig::StepCa(config) => {
            Box::new(step_ca::StepCa::new(config, context.clock.clone(), &context.resolver)?)
        }
        IssuerConfig::Exec(config) => Box::new(exec::Exec::new(config)?),
        IssuerConfig::Webhook(config) => Box::new(webhook::Webhook::new(identity, config, context)?),
    })
}
