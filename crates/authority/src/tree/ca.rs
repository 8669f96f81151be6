//! A CA as its users see it.

use std::fmt;
use std::sync::Arc;

use coded::named;
use futures_util::future::BoxFuture;
use keys::{Deadline, KeyRef, KeyType, SignError, Signer};
use uuid::Uuid;
use x509::{Certificate, UnixTime};

use crate::keystore::{KeyId, KeyStore};

named! {
    /// State of a CA.
    pub enum CaState: "CA state" {
        /// Issues.
        Active => "active",
        /// Issues no more; its CRLs and OCSP responses go on.
        Retiring => "retiring",
        /// Signs nothing any more.
        Retired => "retired",
    }
}

/// Certificates in DER, each signed by the next.
pub type DerChain = Arc<[Arc<[u8]>]>;

/// A certification authority with its certificate and key.
#[derive(Clone, Debug)]
pub struct Ca {
    /// Its identity; it stands in the addresses its certificates carry.
    pub id: Uuid,
    /// Its name, unique.
    pub name: String,
    /// Its certificate.
    pub certificate: Arc<Certificate>,
    /// What a server sends above a certificate issued here, in order: this authority's certificate, then upwards
    /// without the root. Empty for a root.
    pub chain: DerChain,
    /// Other such chains, through cross-signed certificates; at most eight.
    pub alternates: Arc<[DerChain]>,
    /// The root's certificate; none when it lies above an external parent and was not imported.
    pub anchor: Option<Arc<[u8]>>,
    /// Signs with its key, and does what its state allows no matter what: ask [`Self::may_issue`].
    pub signer: KeyRef,
    /// Its key.
    pub key_id: KeyId,
    /// The state.
    pub state: CaState,
    /// The path of the credential that it is, for one that the credential store keeps. Nobody here trusts it, and
    /// nothing is issued from it that does not name it.
    pub credential: Option<Arc<str>>,
    /// The authority here that signed it.
    pub parent: Option<Uuid>,
    /// Since when it was chosen as the default, µs: see [`crate::Authority::issuing_ca`].
    pub default_since_us: Option<i64>,
    /// When it was made or imported, µs.
    pub created_at_us: i64,
    /// Since when it issues no more, µs.
    pub retiring_at_us: Option<i64>,
    /// Since when it signs nothing more, µs.
    pub retired_at_us: Option<i64>,
}

impl Ca {
    /// Whether it is a root: issuer and subject are one.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.certificate.is_self_issued()
    }

    /// Whether it issues at `now`: it is active and its certificate is valid.
    #[must_use]
    pub fn may_issue(&self, now: UnixTime) -> bool {
        let certificate = &self.certificate;
        self.state == CaState::Active && certificate.not_before <= now && now <= certificate.not_after
    }

    /// Whether it still signs CRLs and OCSP responses.
    #[must_use]
    pub fn publishes(&self) -> bool {
        self.state != CaState::Retired
    }

    /// Its subjectKeyIdentifier, which what it issues carries as authorityKeyIdentifier.
    #[must_use]
    pub fn key_identifier(&self) -> Vec<u8> {
        let own = self.certificate.subject_key_id.clone();
        own.unwrap_or_else(|| x509::build::key_id(self.signer.spki()).to_vec())
    }
}

/// An authority whose request waits for the certificate of an external parent.
#[derive(Clone, Debug)]
pub struct PendingCa {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique among all.
    pub name: String,
    /// Its key.
    pub key_id: KeyId,
    /// The certification request (RFC 2986), DER.
    pub request: Arc<[u8]>,
    /// The key's DER SubjectPublicKeyInfo, which the certificate must have.
    pub spki: Arc<[u8]>,
    /// Creation time, µs.
    pub created_at_us: i64,
}

/// Opens its key when it is used: a list of authorities opens none.
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
