//! The EST operations that issue a certificate.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use keys::{KeyType, PrivateKey, Signer};
use x509::csr::CertificateRequest;

use super::body::{self, CERTS_ONLY};
use super::{Est, Refusal, refuse};
use crate::Peer;
use crate::enrolment::{self, Enrolled, Enrolment, EnrolmentError, RequestedCertificate};
use crate::issue::{Issued, Source};
use crate::principal::Principal;
use crate::profile::Profile;
use crate::teams::OwnershipRights;

/// Attributes with which a client requests encryption of its new key (RFC 7030 section 4.4.1).
const KEY_ENCRYPTION: [&str; 2] = ["1.2.840.113549.1.9.16.2.37", "1.2.840.113549.1.9.16.2.54"];

impl Est {
    /// Handles `simpleenroll` (RFC 7030 section 4.2.1).
    pub(super) async fn enroll(
        &self,
        name: &str,
        http: &Request<Bytes>,
        peer: &Peer,
    ) -> Result<Response<Bytes>, Refusal> {
        let caller = self.caller(name, http, peer).await?;
        let profile = &self.profile(name).await?;
        let request = read(http)?;
        self.check_channel_binding(&request, peer)?;
        caller.check_names(&request)?;
        let (requester, rights) = (caller.principal(), caller.rights());
        let key = enrolment::key(&[
            b"enroll",
            profile.name.as_bytes(),
            requester.actor().as_bytes(),
            request.tbs(),
        ]);
        self.issue_for(profile, (requester, rights), key, request).await
    }

    /// Handles `simplereenroll` (RFC 7030 section 4.2.2). The client authenticates with the certificate to renew; the names must be
    /// unchanged.
    pub(super) async fn reenroll(
        &self,
        name: &str,
        http: &Request<Bytes>,
        peer: &Peer,
    ) -> Result<Response<Bytes>, Refusal> {
        let Some(client) = self.certificate_to_renew(peer).await? else {
            return refuse(
                StatusCode::UNAUTHORIZED,
                "renewal requires the certificate to renew as the TLS client certificate",
            );
        };
        let current_certificate =
            match enrolment::current_certificate(&self.inner.authority, &client.certificate().der).await {
                Err(EnrolmentError::Refused(reason)) => return refuse(StatusCode::FORBIDDEN, reason),
                other => other?,
            };
        let request = read(http)?;
        self.check_channel_binding(&request, peer)?;
        if let Some(reason) = enrolment::renewal_refusal(&current_certificate, &request, name) {
            return refuse(StatusCode::FORBIDDEN, reason);
        }
        let profile = &self.profile(name).await?;
        let rights = current_certificate.rights();
        let before = current_certificate.certificate.fingerprint;
        let key = enrolment::key(&[b"reenroll", profile.name.as_bytes(), before.as_bytes(), request.tbs()]);
        let requester = Principal::from_actor(&format!("certificate:{before}"))
            .with_certificate(&current_certificate.certificate);
        self.issue_for(profile, (requester, rights), key, request).await
    }

    /// Handles `serverkeygen` (RFC 7030 section 4.4). The server generates the key, sends it and does not store it.
    pub(super) async fn generate(
        &self,
        name: &str,
        http: &Request<Bytes>,
        peer: &Peer,
    ) -> Result<Response<Bytes>, Refusal> {
        let caller = self.caller(name, http, peer).await?;
        let profile = &self.profile(name).await?;
        let request = read(http)?;
        self.check_channel_binding(&request, peer)?;
        caller.check_names(&request)?;
        if request.other_attributes.iter().any(|oid| KEY_ENCRYPTION.contains(&oid.as_str())) {
            return refuse(
                StatusCode::BAD_REQUEST,
                "additional encryption of the private key is not supported: the TLS connection encrypts it",
            );
        }
        let Some(kind) = key_type(profile, &request) else {
            return refuse(
                StatusCode::BAD_REQUEST,
                "the profile allows no key type that the server can generate",
            );
        };
        let (requester, rights) = (caller.principal(), caller.rights());
        let key = enrolment::key(&[
            b"generate",
            profile.name.as_bytes(),
            requester.actor().as_bytes(),
            request.tbs(),
        ]);
        let made = match PrivateKey::generate_in_background(kind).await {
            Ok(made) => made,
            Err(error) => return refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        };
        let requested = RequestedCertificate { request, spki: Some(made.spki().to_vec()) };
        let issued = self.issue(profile, (requester, rights), key, requested).await?;
        Ok(body::key_and_certificate(&made.to_pkcs8_der(), &certs_only(&issued)))
    }

    /// Returns the response with a certificate for the key of `request`.
    async fn issue_for(
        &self,
        profile: &Arc<Profile>,
        requester: (Principal, OwnershipRights),
        key: String,
        request: CertificateRequest,
    ) -> Result<Response<Bytes>, Refusal> {
        let issued =
            self.issue(profile, requester, key, RequestedCertificate { request, spki: None }).await?;
        Ok(body::base64(CERTS_ONLY, &certs_only(&issued)))
    }

    async fn issue(
        &self,
        profile: &Arc<Profile>,
        (requester, rights): (Principal, OwnershipRights),
        key: String,
        requested: RequestedCertificate,
    ) -> Result<Issued, Refusal> {
        let enrolment = Enrolment {
            source: Source::Est,
            profile: Arc::clone(profile),
            requester,
            rights,
            key,
            requested,
        };
        match enrolment::enrol(&self.inner.authority, enrolment).await? {
            Enrolled::Issued(issued) => Ok(*issued),
            Enrolled::Waiting => Err(Refusal::Waiting),
        }
    }
}

/// Returns the key type of the CSR if the profile allows it, otherwise the first key type of the profile.
fn key_type(profile: &Profile, request: &CertificateRequest) -> Option<KeyType> {
    let requested = KeyType::of(&request.public_key).filter(|kind| profile.key_types.contains(kind));
    requested.or_else(|| profile.key_types.first().copied())
}

/// Returns a certs-only message with only the issued certificate (RFC 7030 section 4.2.3).
fn certs_only(issued: &Issued) -> Vec<u8> {
    x509::cms::certs_only(&[&issued.der], &[])
}

/// Parses the CSR in the body. Its signature proves that its creator has the key.
fn read(http: &Request<Bytes>) -> Result<CertificateRequest, Refusal> {
    let kind = http.headers().get(header::CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    if kind.is_some_and(|kind| !kind.starts_with(b"application/pkcs10")) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/pkcs10");
    }
    let request = match body::request(http.body()) {
        Ok(request) => request,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, error),
    };
    match request.verify() {
        Ok(()) => Ok(request),
        Err(error) => {
            refuse(StatusCode::BAD_REQUEST, format!("the request has no valid proof of possession: {error}"))
        }
    }
}
