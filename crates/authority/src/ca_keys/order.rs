//! Orders to CA keys.

use std::fmt;

use futures_util::future::BoxFuture;
use keys::{Deadline, KeyType, SignError};
use x509::UnixTime;

use crate::issue::IssueRequest;
use crate::keystore::{KeyStoreError, NewKey};
use crate::tree::Ca;

/// Holds the private keys of certification authorities, and signs with them.
pub trait CaKeys: Send + Sync + fmt::Debug {
    /// Makes a key, to be stored by the caller in its own transaction.
    ///
    /// # Errors
    /// [`KeyStoreError`]
    fn make<'a>(&'a self, wanted: NewCaKey<'a>) -> BoxFuture<'a, Result<NewKey, KeyStoreError>>;

    /// Signs a document.
    ///
    /// # Errors
    /// [`SignError::Failed`] when the order is refused; [`SignError::Unavailable`] and [`SignError::Late`] when the same
    /// order may succeed later. Never later than shortly after `deadline`.
    fn sign<'a>(
        &'a self,
        order: SigningOrder<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>>;

    /// Whether orders are accepted now.
    ///
    /// # Errors
    /// [`SignError::Unavailable`], [`SignError::Late`].
    fn ready(&self) -> BoxFuture<'_, Result<(), SignError>>;

    /// Location of the keys.
    fn custody(&self) -> Custody;
}

/// Where the CA keys are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Custody {
    /// This process opens them.
    Here,
    /// A signer process opens them; this one cannot.
    Apart,
}

/// A CA key to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewCaKey<'a> {
    /// Its type.
    pub kind: KeyType,
    /// The key provider to make it in; `None`: sealed in the database.
    pub provider: Option<&'a str>,
    /// For people.
    pub label: &'a str,
}

/// A document for a CA key to sign.
#[derive(Clone, Copy, Debug)]
pub struct SigningOrder<'a> {
    /// The key.
    pub key: CaKey<'a>,
    /// The purpose of the signature.
    pub purpose: Purpose<'a>,
    /// The DER that is signed: tbsCertificate, tbsCertList or certificationRequestInfo.
    pub tbs: &'a [u8],
}

/// Which key signs.
#[derive(Clone, Copy, Debug)]
pub enum CaKey<'a> {
    /// That of a stored CA.
    Of(&'a Ca),
    /// One that [`CaKeys::make`] just made, of a CA that is not stored yet.
    New(&'a NewKey),
}

/// Why a CA key signs.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// A certificate by a profile.
    Certificate {
        /// The request for the certificate.
        request: &'a IssueRequest,
        /// The moment for which the certificate was planned.
        planned_at: UnixTime,
    },
    /// A certificate revocation list.
    Crl {
        /// Which of the CA's: 0 the full one, from 1 a shard, below 0 the delta.
        shard: i64,
    },
    /// The certificate of the CA's OCSP responder (RFC 6960 section 4.2.2.2).
    OcspResponder,
    /// The certificate that SCEP clients encrypt to (RFC 8894 section 3.5.2).
    ScepRecipient,
    /// The certificate of a CA: its own, or one below it.
    CaCertificate {
        /// The certified key, where it was just made; otherwise it is that of a stored CA.
        subject_key: Option<&'a NewKey>,
    },
    /// The request of a CA to an external parent.
    CaRequest,
}
