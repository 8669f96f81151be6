//! A certification authority (CA) with its certificates and key.

use std::fmt;
use std::sync::Arc;

use coded::named;
use futures_util::future::BoxFuture;
use keys::{Deadline, KeyRef, KeyType, SignError, Signer};
use uuid::Uuid;
use x509::{Certificate, UnixTime};

use crate::keystore::{KeyId, KeyStore};

named! {
    /// State of a CA, which determines the documents that it still signs.
    pub enum CaState: "CA state" {
        /// Issues certificates.
        Active => "active",
        /// Issues no more certificates, but still signs CRLs and OCSP responses.
        Retiring => "retiring",
        /// The CA no longer signs anything.
        Retired => "retired",
    }
}

/// Certificates in DER, each signed by the next.
pub type DerChain = Arc<[Arc<[u8]>]>;

/// A certification authority (CA) with its certificate and key.
#[derive(Clone, Debug)]
pub struct Ca {
    /// Identifier of the CA. It is part of the URLs in issued certificates.
    pub id: Uuid,
    /// Name of the CA, unique.
    pub name: String,
    /// The CA's own certificate, as opposed to a cross-signed one.
    pub certificate: Arc<Certificate>,
    /// Chain that a server sends after a certificate issued by this CA, in order: the certificate of this CA and of its parents,
    /// without the root. Empty for a root.
    pub chain: DerChain,
    /// Alternate chains through cross-signed certificates; at most eight.
    pub alternates: Arc<[DerChain]>,
    /// Certificate of the root; `None` if the root belongs to an external parent and was not imported.
    pub anchor: Option<Arc<[u8]>>,
    /// Signer with the CA key. It does not check the state of the CA: check [`Self::may_issue`] before use.
    pub signer: KeyRef,
    /// Identifier of the CA key.
    pub key_id: KeyId,
    /// State of the CA. The certificate must also be valid for issuance: see [`Self::may_issue`].
    pub state: CaState,
    /// Path of the credential, for a CA in the credential store. This server does not trust such a CA, and issues from it only if a
    /// request names it.
    pub credential: Option<Arc<str>>,
    /// Parent CA on this server.
    pub parent: Option<Uuid>,
    /// Time in microseconds at which the CA was last made the default; `None` if it never was. See
    /// [`crate::Authority::issuing_ca`].
    pub default_since_us: Option<i64>,
    /// Time of creation or import in microseconds.
    pub created_at_us: i64,
    /// Time in microseconds after which the CA issues no more certificates.
    pub retiring_at_us: Option<i64>,
    /// Time in microseconds after which the CA no longer signs anything.
    pub retired_at_us: Option<i64>,
}

impl Ca {
    /// Returns whether the CA is a root, that is, whether its issuer and subject are the same.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.certificate.is_self_issued()
    }

    /// Returns whether the CA can issue at `now`: it is active and its certificate is valid.
    #[must_use]
    pub fn may_issue(&self, now: UnixTime) -> bool {
        let certificate = &self.certificate;
        self.state == CaState::Active && certificate.not_before <= now && now <= certificate.not_after
    }

    /// Returns whether the CA still signs CRLs and OCSP responses.
    #[must_use]
    pub fn publishes(&self) -> bool {
        self.state != CaState::Retired
    }

    /// Returns the subjectKeyIdentifier of the CA, which issued certificates contain as authorityKeyIdentifier.
    #[must_use]
    pub fn key_identifier(&self) -> Vec<u8> {
        let own = self.certificate.subject_key_id.clone();
        own.unwrap_or_else(|| x509::build::key_id(self.signer.spki()).to_vec())
    }
}

/// A CA whose CSR waits for the certificate of an external parent.
#[derive(Clone, Debug)]
pub struct PendingCa {
    /// Identifier of the CA. It stays the same after the CA is activated.
    pub id: Uuid,
    /// Name of the CA, unique among all CAs.
    pub name: String,
    /// Identifier of the key.
    pub key_id: KeyId,
    /// The CSR (RFC 2986) in DER.
    pub request: Arc<[u8]>,
    /// SubjectPublicKeyInfo of the key in DER. The certificate must contain it.
    pub spki: Arc<[u8]>,
    /// Creation time in microseconds.
    pub created_at_us: i64,
}

/// A signer that decrypts its key at the first use, so that listing CAs decrypts no keys.
pub(crate) struct LazySigner {
    pub(crate) keystore: KeyStore,
    pub(crate) id: KeyId,
    pub(crate) kind: KeyType,
    pub(crate) spki: Arc<[u8]>,
}

impl Signer for LazySigner {
    fn key_type(&self) -> KeyType {
        self.kind
    }

    fn spki(&self) -> &[u8] {
        &self.spki
    }

    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            let opened = tokio::time::timeout_at(deadline.into(), self.keystore.signer(self.id)).await;
            let opened = opened.map_err(|_| SignError::Late)?;
            let key = opened.map_err(|error| SignError::Unavailable(error.to_string()))?;
            key.sign(message, deadline).await
        })
    }
}

impl fmt::Debug for LazySigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({}, {})", self.kind, self.id)
    }
}
