//! Signing orders for CA keys.

use std::fmt;

use futures_util::future::BoxFuture;
use keys::{Deadline, KeyType, SignError};
use x509::UnixTime;

use crate::issue::IssueRequest;
use crate::keystore::{KeyStoreError, NewKey};
use crate::tree::Ca;

/// Access to the private keys of CAs: generates keys and signs documents.
pub trait CaKeys: Send + Sync + fmt::Debug {
    /// Generates a key. The caller stores it in its own transaction.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>>;

    /// Signs a document. Returns shortly after `deadline` at the latest.
    ///
    /// # Errors
    /// [`SignError::Failed`] if the order is rejected; [`SignError::Unavailable`] and [`SignError::Late`] if the same order may
    /// succeed later.
    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>>;

    /// Checks that orders are currently accepted.
    ///
    /// # Errors
    /// [`SignError::Unavailable`], [`SignError::Late`].
    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>>;

    /// Returns whether this process or only a separate signer process can use the keys.
    fn custody(&self) -> CaKeyLocation;
}

/// Whether the CA keys are in this process or in a separate signer process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CaKeyLocation {
    /// This process can use the keys.
    InProcess,
    /// Only a separate signer process can use the keys.
    Apart,
}

/// A CA key to generate.
#[derive(Clone, Copy, Debug)]
pub struct NewCaKey<'a> {
    /// Type of the key to generate.
    pub kind: KeyType,
    /// Key provider that generates the key; `None` for a key stored encrypted in the database.
    pub provider: Option<&'a str>,
    /// Human-readable label.
    pub label: &'a str,
}

/// A document for a CA key to sign.
#[derive(Clone, Copy, Debug)]
pub struct SigningOrder<'a> {
    /// Key that signs `tbs`: the key of a stored CA, or a new key.
    pub key: CaKey<'a>,
    /// Purpose of the signature, which determines the checks of a signer process.
    pub purpose: SigningPurpose<'a>,
    /// The DER that is signed: tbsCertificate, tbsCertList or certificationRequestInfo.
    pub tbs: &'a [u8],
}

/// The CA key that signs: the key of a stored CA, or a new key.
#[derive(Clone, Copy, Debug)]
pub enum CaKey<'a> {
    /// The key of a stored CA.
    Of(&'a Ca),
    /// A key from [`CaKeys::make`], of a CA that is not stored yet.
    New(&'a NewKey),
}

/// The purpose of a signature with a CA key. It determines what a signer process checks.
#[derive(Clone, Copy, Debug)]
pub enum SigningPurpose<'a> {
    /// A certificate issued with a profile.
    Certificate {
        /// The request for the certificate.
        request: &'a IssueRequest,
        /// Time at which the certificate was planned. A signer process compares this time with its own clock.
        planned_at: UnixTime,
    },
    /// A certificate revocation list.
    Crl {
        /// CRL of the CA: 0 for the full CRL, a positive number for a shard, a negative number for the delta CRL.
        shard: i64,
    },
    /// The certificate of the CA's OCSP responder (RFC 6960 section 4.2.2.2).
    OcspResponder,
    /// The certificate with which SCEP clients encrypt (RFC 8894 section 3.5.2).
    ScepRecipient,
    /// A CA certificate: of the CA itself or of a subordinate CA.
    CaCertificate {
        /// The certified key if it is newly generated; `None` if it belongs to a stored CA.
        subject_key: Option<&'a NewKey>,
    },
    /// The CSR of a CA to an external parent CA.
    CaRequest,
}
