//! The authenticated caller, and the names that it may request.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use x509::csr::CertificateRequest;
use x509::{Certificate, GeneralName};
use zeroize::Zeroizing;

use super::{ClientCa, Est, Refusal, refuse};
use crate::enrolment::{self, EnrolmentUser};
use crate::principal::Principal;
use crate::teams::OwnershipRights;
use crate::{ClientCertificateError, Peer, VerifiedClient};

/// An authenticated EST client. The variants are the methods of authentication.
#[derive(Debug)]
pub(super) enum Caller {
    /// Authenticated with a password. May request any name that the profile allows.
    User(EnrolmentUser),
    /// Authenticated with the certificate of a registration authority. May request any name that the profile allows.
    Registrar(Box<Certificate>),
    /// Authenticated with a certificate of this server. May request the names in the certificate.
    Holder(Box<Certificate>),
    /// Authenticated with a certificate of another CA. May request the names in the certificate.
    Foreigner(Box<Certificate>),
}

impl Caller {
    /// Returns the principal of the caller.
    pub(super) fn principal(&self) -> Principal {
        match self {
            Self::User(user) => Principal::from_password_owner(&user.actor),
            Self::Registrar(certificate) | Self::Holder(certificate) | Self::Foreigner(certificate) => {
                let actor = format!("certificate:{}", certificate.fingerprint);
                Principal::from_actor(&actor).with_certificate(certificate)
            }
        }
    }

    /// Returns the team on whose behalf the caller acts. Certificates of other CAs have no team.
    pub(super) fn rights(&self) -> OwnershipRights {
        match self {
            Self::User(user) => user.rights.clone(),
            Self::Registrar(_) | Self::Foreigner(_) => OwnershipRights::Nobody,
            Self::Holder(certificate) => OwnershipRights::CertificateHolder {
                issued_at_us: certificate.not_before.0.saturating_mul(1_000_000),
            },
        }
    }

    /// Checks that the caller may request the names of `request`.
    pub(super) fn check_names(&self, request: &CertificateRequest) -> Result<(), Refusal> {
        let (Self::Holder(certificate) | Self::Foreigner(certificate)) = self else { return Ok(()) };
        let own = enrolment::names(certificate);
        if !is_subject_covered(request, certificate, &own) {
            return refuse(
                StatusCode::FORBIDDEN,
                format!(
                    "the subject must be empty or equal to the subject of the client certificate ({})",
                    certificate.subject.text
                ),
            );
        }
        match request.names().into_iter().find(|name| !own.contains(name)) {
            Some(name) => refuse(
                StatusCode::FORBIDDEN,
                format!(
                    "{name} is not in the client certificate, so a request with this certificate cannot include it"
                ),
            ),
            None => Ok(()),
        }
    }
}

/// Returns whether the client's certificate covers the requested subject. The subject must be empty, the same as in the
/// certificate, or consist of common names that the certificate contains.
fn is_subject_covered(
    request: &CertificateRequest,
    certificate: &Certificate,
    own: &HashSet<GeneralName>,
) -> bool {
    let subject = &request.subject;
    if subject.is_empty() || subject.matches(&certificate.subject) {
        return true;
    }
    let in_it = |name: &String| {
        certificate.subject.common_names.contains(name)
            || GeneralName::parse(name).is_ok_and(|name| own.contains(&name))
    };
    subject.attribute_count() == subject.common_names.len() && subject.common_names.iter().all(in_it)
}

impl Est {
    /// Authenticates the caller for a profile: by password if the request has an `Authorization` header, otherwise by client
    /// certificate. The profile need not exist.
    pub(super) async fn caller(
        &self,
        profile: &str,
        request: &Request<Bytes>,
        peer: &Peer,
    ) -> Result<Caller, Refusal> {
        if let Some(given) = request.headers().get(header::AUTHORIZATION) {
            return self.user(profile, given.as_bytes()).await;
        }
        let Some(client) = self.client(peer).await? else {
            return refuse(StatusCode::UNAUTHORIZED, "a client certificate or a password is required");
        };
        let certificate = client.certificate();
        let registrar = self.inner.options.registrars.contains(&certificate.public_key.spki_sha256);
        // A certificate of one profile must not give access to another profile, which may allow longer lifetimes or other usages,
        // or require no approval.
        if let Some(own) = client.profile().filter(|own| *own != profile && !registrar) {
            return refuse(
                StatusCode::FORBIDDEN,
                format!(
                    "the client certificate has the profile {own:?}; the profile {profile:?} requires a password"
                ),
            );
        }
        let owned = Box::new(certificate.clone());
        if registrar {
            return Ok(Caller::Registrar(owned));
        }
        if client.profile().is_some() {
            return Ok(Caller::Holder(owned));
        }
        let takes = |ca: &ClientCa| {
            ca.profiles.iter().any(|name| name == profile)
                && client.is_below(std::slice::from_ref(&ca.certificate))
        };
        if self.inner.options.client_cas.iter().any(takes) {
            return Ok(Caller::Foreigner(owned));
        }
        tracing::warn!(
            issuer = certificate.issuer.text,
            profile,
            "rejected EST with a certificate of another CA: est.client_cas does not allow this profile for that CA"
        );
        refuse(
            StatusCode::FORBIDDEN,
            format!("client certificates of this CA are not accepted for the profile {profile:?}"),
        )
    }

    async fn user(&self, profile: &str, authorization: &[u8]) -> Result<Caller, Refusal> {
        let wrong = || refuse(StatusCode::UNAUTHORIZED, "the user name or password is wrong");
        let Some(passwords) = &self.inner.passwords else {
            return refuse(StatusCode::UNAUTHORIZED, "passwords are not accepted: use a client certificate");
        };
        let Some(pair) = basic(authorization) else { return wrong() };
        let Some((user, password)) = pair.split_once(':') else { return wrong() };
        match passwords.user(profile, user, password).await {
            Ok(Some(name)) => Ok(Caller::User(name)),
            Ok(None) => wrong(),
            Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }

    /// Returns the client certificate that authenticates the client.
    async fn client(&self, peer: &Peer) -> Result<Option<VerifiedClient>, Refusal> {
        verified(self.inner.authority.client_certificates().verify(peer).await)
    }

    /// Returns the certificate to renew, with which the client authenticated. Certificates that are not for TLS clients are
    /// accepted too, so that a server can renew its server certificate.
    pub(super) async fn certificate_to_renew(&self, peer: &Peer) -> Result<Option<VerifiedClient>, Refusal> {
        verified(self.inner.authority.client_certificates().verify_for_renewal(peer).await)
    }

    /// Checks that the holder of the key to certify is the peer of this connection (RFC 7030 section 3.5).
    pub(super) fn check_channel_binding(
        &self,
        request: &CertificateRequest,
        peer: &Peer,
    ) -> Result<(), Refusal> {
        if !self.inner.options.require_channel_binding {
            return Ok(());
        }
        let Some(binding) = &peer.channel_binding else {
            return refuse(
                StatusCode::BAD_REQUEST,
                "this server requires requests that are bound to their TLS connection, which needs TLS 1.3",
            );
        };
        let given = request.challenge_password.as_deref().unwrap_or_default();
        if keys::constant_time_eq(given.as_bytes(), STANDARD.encode(binding).as_bytes()) {
            Ok(())
        } else {
            refuse(
                StatusCode::BAD_REQUEST,
                "the challenge password must be the tls-exporter value (RFC 9266) of this connection, in base64",
            )
        }
    }
}

fn verified(
    client: Result<Option<VerifiedClient>, ClientCertificateError>,
) -> Result<Option<VerifiedClient>, Refusal> {
    match client {
        Ok(client) => Ok(client),
        Err(ClientCertificateError::Store(error)) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        }
        Err(error @ (ClientCertificateError::Revoked | ClientCertificateError::NotForClients)) => {
            refuse(StatusCode::FORBIDDEN, error.to_string())
        }
        Err(error) => refuse(StatusCode::UNAUTHORIZED, error.to_string()),
    }
}

/// Returns `USER:PASSWORD` of an Authorization header (RFC 7617).
fn basic(header: &[u8]) -> Option<Zeroizing<String>> {
    /// Maximum length in bytes of a header value to parse.
    const HEADER_MAX: usize = 1_024;
    let text = std::str::from_utf8(header).ok().filter(|text| text.len() <= HEADER_MAX)?;
    let (scheme, pair) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    String::from_utf8(STANDARD.decode(pair.trim()).ok()?).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::basic;

    #[test]
    fn basic_credentials_are_parsed() {
        assert_eq!(basic(b"Basic YTpi").as_deref().map(String::as_str), Some("a:b"));
        assert_eq!(basic(b"basic  YTpi ").as_deref().map(String::as_str), Some("a:b"));
        for bad in [&b""[..], b"Basic", b"Bearer YTpi", b"Basic %", b"Basic /w==", &[b'x'; 2_000]] {
            assert!(basic(bad).is_none());
        }
    }
}
