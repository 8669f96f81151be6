//! Client certificates. [`ClientCertificates::verify`] returns the identity in a client certificate only after a revocation check.
//!
//! The TLS handshake verifies the chain but not its revocation, and a connection may last longer than its certificate. The listener
//! therefore passes on an opaque [`PresentedChain`], which is verified again for each request.

mod error;
mod presented;
mod statuses;

use std::fmt;
use std::sync::Arc;

use store::{Clock, StoreError};
use x509::crl::{CrlSet, CrlVerdict, ParseError};
use x509::{Certificate, Fingerprint, UnixTime};

pub use error::ClientCertificateError;
pub use presented::PresentedChain;
use statuses::RevocationStatus;
pub(crate) use statuses::StatusCache;

use crate::issue::IssuedRef;
use crate::profile::ProfileError;
use crate::revoke::{CertificateStatus, status_of};
use crate::{Authority, Peer};

/// Maximum length of a presented chain. Usual chains have two or three certificates.
const CHAIN_MAX: usize = 8;

/// A TLS client certificate that is currently valid and not revoked. The handshake verified its chain. Only
/// [`ClientCertificates::verify`] creates a value.
#[derive(Clone, Debug)]
pub struct VerifiedClient {
    /// Certificates of the chain, leaf first.
    chain: Arc<[Arc<Certificate>]>,
    profile: Option<Arc<str>>,
}

impl VerifiedClient {
    /// Returns the client's own certificate, the leaf of the chain.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.chain[0]
    }

    /// Returns the certificates in DER, leaf first.
    pub fn chain_ders(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(|certificate| certificate.der.as_ref())
    }

    /// Returns the profile with which a CA of this server issued the certificate; `None` for a certificate of another CA.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// Returns whether the chain leads to one of these CAs, directly or through CA certificates that the client presented.
    #[must_use]
    pub fn is_below(&self, cas: &[Certificate]) -> bool {
        let signed = |certificate: &Certificate, ca: &Certificate| {
            ca.is_ca()
                && certificate.issuer.matches(&ca.subject)
                && certificate.signed_by(&ca.public_key).is_ok()
        };
        let (mut certificate, mut above) = (&self.chain[0], &self.chain[1..]);
        loop {
            if cas.iter().any(|ca| signed(certificate, ca)) {
                return true;
            }
            // Certificates in a chain are in order (RFC 8446 section 4.4.2).
            let Some((next, rest)) = above.split_first() else { return false };
            if !signed(certificate, next) {
                return false;
            }
            (certificate, above) = (next, rest);
        }
    }
}

/// Verifier of client certificates. Clones are cheap.
#[derive(Clone)]
pub struct ClientCertificates {
    clock: Clock,
    /// The authority that has the revocation status of certificates from this server's CAs; `None` in a process without a CA.
    authority: Option<Authority>,
    statuses: Arc<StatusCache>,
}

impl ClientCertificates {
    /// Creates a verifier for a process without a CA, which checks revocation only with CRLs.
    #[must_use]
    pub fn without_authority(clock: Clock) -> Self {
        Self { clock, authority: None, statuses: Arc::default() }
    }

    /// Replaces the CRLs (DER) of other CAs.
    ///
    /// # Errors
    /// [`ParseError`]; the previous CRLs then stay in use.
    pub fn replace_crls(&self, ders: &[Vec<u8>]) -> Result<(), ParseError> {
        let crls = CrlSet::parse(ders)?;
        for issuer in crls.superseded() {
            tracing::warn!(
                issuer,
                "an older CRL of a client CA is ignored, because a newer one is configured"
            );
        }
        let outdated = crls.outdated(UnixTime(self.clock.now_seconds()));
        if outdated > 0 {
            tracing::error!(
                outdated,
                "CRLs of client CAs are past their nextUpdate; they stay in use until newer ones are available"
            );
        }
        self.statuses.replace_crls(crls);
        Ok(())
    }

    /// Verifies and returns the client certificate, which must be suitable for TLS clients; `None` if the client presented none.
    ///
    /// A revocation by this process takes effect at the next call, a revocation by another node within five seconds.
    ///
    /// # Errors
    /// [`ClientCertificateError`]
    #[crate::boxed]
    pub async fn verify(&self, peer: &Peer) -> Result<Option<VerifiedClient>, ClientCertificateError> {
        match self.verify_for_renewal(peer).await? {
            Some(client) if !can_authenticate_client(client.certificate()) => {
                Err(ClientCertificateError::NotForClients)
            }
            other => Ok(other),
        }
    }

    /// Verifies like [`Self::verify`], but for any key usage. The result identifies no caller. It only allows the holder of the key
    /// to renew the certificate.
    ///
    /// # Errors
    /// [`ClientCertificateError`]
    #[crate::boxed]
    pub async fn verify_for_renewal(
        &self,
        peer: &Peer,
    ) -> Result<Option<VerifiedClient>, ClientCertificateError> {
        let Some(presented) = &peer.client_certificate else { return Ok(None) };
        let ders = presented.ders();
        if ders.len() > CHAIN_MAX {
            return Err(ClientCertificateError::Unreadable);
        }
        let chain: Result<Arc<[Arc<Certificate>]>, _> =
            ders.iter().map(|der| Certificate::parse(der).map(Arc::new)).collect();
        let chain = chain.map_err(|_| ClientCertificateError::Unreadable)?;
        let now = UnixTime(self.clock.now_seconds());
        if now < chain[0].not_before || now > chain[0].not_after {
            return Err(ClientCertificateError::NotValidNow);
        }
        let profile = self.check(&chain[0], Depth::Leaf).await?;
        for certificate in &chain[1..] {
            self.check(certificate, Depth::Above).await?;
        }
        Ok(Some(VerifiedClient { chain, profile }))
    }

    /// Returns whether names in certificates of this profile may identify a client. Returns false for a deleted profile, and for a
    /// profile that gives any hostname to any requester.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn names_identify(&self, profile: &str) -> Result<bool, ClientCertificateError> {
        let Some(authority) = &self.authority else { return Ok(true) };
        match authority.profile(profile).await {
            Ok(profile) => Ok(!profile.names.allows_any_host()),
            Err(ProfileError::Store(error)) => Err(ClientCertificateError::Store(error)),
            Err(ProfileError::Unknown(_)) => Ok(false),
            Err(error) => {
                tracing::warn!(profile, %error, "cannot read the profile of a client certificate; its names are not \
                 accepted as an identity");
                Ok(false)
            }
        }
    }

    /// Checks the revocation status and returns the profile of a certificate of this server. The database has the status of
    /// certificates of this server. The status of other certificates is in the CRLs of their CAs.
    async fn check(
        &self,
        certificate: &Certificate,
        depth: Depth,
    ) -> Result<Option<Arc<str>>, ClientCertificateError> {
        let revocation_status = match &self.authority {
            None => RevocationStatus::IssuedElsewhere,
            Some(authority) => {
                let (authority, fingerprint) = (authority.clone(), certificate.fingerprint);
                let lookup = move || async move { authority.revocation_status(fingerprint).await };
                self.statuses.revocation_status(fingerprint, lookup).await?
            }
        };
        let verdict = self.statuses.crls().verdict(certificate);
        match (revocation_status, verdict) {
            (RevocationStatus::Revoked, _) | (_, CrlVerdict::Revoked) => Err(ClientCertificateError::Revoked),
            (RevocationStatus::Good(profile), _) => Ok(Some(profile)),
            (RevocationStatus::IssuedElsewhere, CrlVerdict::NoList)
                if depth == Depth::Leaf && !self.statuses.crls().is_empty() =>
            {
                Err(ClientCertificateError::NoCrl(certificate.issuer.text.clone()))
            }
            (RevocationStatus::IssuedElsewhere, _) => Ok(None),
        }
    }
}

/// Returns whether a certificate may authenticate a TLS client (RFC 5280 section 4.2.1.12).
fn can_authenticate_client(certificate: &Certificate) -> bool {
    const ACCEPTED: [&str; 2] = ["1.3.6.1.5.5.7.3.2", "2.5.29.37.0"];
    let purposes = certificate.extended_key_usage.as_ref();
    purposes.is_none_or(|purposes| purposes.iter().any(|purpose| ACCEPTED.contains(&purpose.as_str())))
}

/// Position of a certificate in its chain. Only the client's own certificate needs a CRL.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Depth {
    Leaf,
    Above,
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").finish_non_exhaustive()
    }
}

impl Authority {
    async fn revocation_status(&self, fingerprint: Fingerprint) -> Result<RevocationStatus, StoreError> {
        let record = self.issued(&IssuedRef::Fingerprint(fingerprint)).await?;
        let now_us = self.clock().now_us();
        Ok(match record.map(|record| (status_of(&record, now_us), record.profile)) {
            Some((CertificateStatus::Revoked { .. }, _)) => RevocationStatus::Revoked,
            Some((_, profile)) => RevocationStatus::Good(profile.into()),
            None => RevocationStatus::IssuedElsewhere,
        })
    }

    /// Returns a verifier that uses the revocations of this CA.
    #[must_use]
    pub fn client_certificates(&self) -> ClientCertificates {
        ClientCertificates {
            clock: self.clock().clone(),
            authority: Some(self.clone()),
            statuses: Arc::clone(self.client_statuses()),
        }
    }
}
