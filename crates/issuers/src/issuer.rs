//! The trait [`Issuer`], which all types of issuers implement.

use std::fmt::Debug;

use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyRef, Secret};
use uuid::Uuid;
use x509::Certificate;
use x509::crl::Reason;

use crate::config::IssuerKind;
use crate::delivery::DeliveredChain;
use crate::error::IssuerError;
use crate::order::{Order, Window};

/// A certification authority. Every method is limited by the order's deadline or the issuer's own timeout.
pub trait Issuer: Send + Sync + Debug {
    /// Returns the type of the issuer, such as `acme`.
    fn kind(&self) -> IssuerKind;

    /// Obtains a certificate for the order's CSR. The same [`Order::key`] with the same public key returns the same certificate,
    /// also after a crash, if the CA supports it.
    ///
    /// # Errors
    /// [`IssuerError`]; [`IssuerError::retry`] says whether and when to retry.
    ///
    /// # Cancellation
    /// Dropping the future interrupts the order. A retry with the same key continues it.
    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>>;

    /// Revokes a certificate that this issuer issued.
    ///
    /// # Errors
    /// [`IssuerError`]. An already revoked certificate is not an error.
    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>>;

    /// Returns the renewal window that the issuer suggests (ARI, RFC 9773). `None`, the default, when there is no suggestion.
    ///
    /// # Errors
    /// [`IssuerError`]. Callers then use the lifetime: a failed request must not prevent a renewal.
    fn renewal_window<'a>(
        &'a self,
        _certificate: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        async { Ok(None) }.boxed()
    }

    /// Checks that the issuer is reachable and accepts the credentials. Issues nothing. Returns a human-readable result.
    ///
    /// # Errors
    /// [`IssuerError`], as issuing would return it.
    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>>;

    /// Revokes a certificate with its private key as proof (RFC 8555 section 7.6). Any account may have ordered the certificate.
    ///
    /// # Errors
    /// [`IssuerError::Unsupported`] unless the issuer supports this.
    fn revoke_with_key<'a>(
        &'a self,
        _certificate: &'a Certificate,
        _key: KeyRef,
        _reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "revoke with a certificate's key" }) }.boxed()
    }

    /// Renews a certificate by mutual TLS with the certificate (`chain`, DER, leaf first) and its private key in PEM.
    ///
    /// # Errors
    /// [`IssuerError::Unsupported`] unless the issuer supports this.
    fn renew_with_key<'a>(
        &'a self,
        _chain: &'a [Vec<u8>],
        _key: &'a Secret,
    ) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "renew with a certificate's key" }) }.boxed()
    }

    /// Renews logins. Called about once a minute.
    ///
    /// # Errors
    /// [`IssuerError`].
    fn upkeep<'a>(&'a self) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Ok(()) }.boxed()
    }
}

/// Id and name of a configured issuer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerIdentity {
    /// Id of the issuer's row in the database.
    pub id: Uuid,
    /// Name of the issuer, for display and metrics.
    pub name: String,
}
