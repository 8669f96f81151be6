//! The interface of an issuer.

use std::fmt::Debug;

use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyRef, Secret};
use uuid::Uuid;
use x509::Certificate;
use x509::crl::Reason;

use crate::config::IssuerKind;
use crate::delivery::Delivered;
use crate::error::IssuerError;
use crate::order::{Order, Window};

/// A certification authority that can issue. Every method is bounded in time by the order's deadline or the issuer's own limit.
pub trait Issuer: Send + Sync + Debug {
    /// Its type.
    fn kind(&self) -> IssuerKind;

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

    /// The window in which the issuer suggests to renew (ARI, RFC 9773); `None`, the default, without a suggestion.
    ///
    /// # Errors
    /// [`IssuerError`]. Callers then go by the lifetime: a failed request must not stop a renewal.
    fn renewal_window<'a>(
        &'a self,
        _certificate: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        async { Ok(None) }.boxed()
    }

    /// Whether it could issue: reachable, credentials accepted. Issues nothing. The text is for a person.
    ///
    /// # Errors
    /// [`IssuerError`] as issuing would give.
    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>>;

    /// Revokes a certificate by proof of its private key (RFC 8555 section 7.6), anyone who ordered it.
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

/// Which configured issuer this is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerIdentity {
    /// Its row.
    pub id: Uuid,
    /// Its name, for people and metrics.
    pub name: String,
}
