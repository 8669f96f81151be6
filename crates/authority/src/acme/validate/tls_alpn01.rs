//! Validation with tls-alpn-01 (RFC 8737; RFC 8738 for IP addresses).

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use x509::{Certificate, GeneralName, SignatureAlgorithm, der};

use super::{Failure, Proven, ValidationRequest};
use crate::acme::identifier::Identifier;
use crate::acme::jose::sha256;
use crate::acme::problem::Kind;

const PROTOCOL: &[u8] = b"acme-tls/1";
/// OID of id-pe-acmeIdentifier (RFC 8737 section 6.1).
const ACME_IDENTIFIER: &str = "1.3.6.1.5.5.7.1.31";

/// Returns the TLS configuration of the handshake.
pub(crate) fn config() -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // In a resumed session the server sends no certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Performs the TLS handshake over `stream` and checks the certificate.
pub(crate) async fn prove(
    config: Arc<ClientConfig>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    identifier: &Identifier,
    question: &ValidationRequest,
    endpoint: &str,
) -> Result<Proven, Failure> {
    let name = server_name(identifier);
    let name = ServerName::try_from(name.clone())
        .map_err(|error| Failure::permanent(Kind::Malformed, format!("{name}: {error}")))?;
    let tls = |error: io::Error| Failure::transient(Kind::Tls, format!("{endpoint}: {error}"));
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(tls)?;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(PROTOCOL) {
        return Err(Failure::transient(
            Kind::Tls,
            format!("{endpoint} did not negotiate the protocol acme-tls/1"),
        ));
    }
    let leaf = session.peer_certificates().and_then(|chain| chain.first());
    let expected = sha256(question.key_authorization().as_bytes());
    judge(leaf.map_or(&[][..], |leaf| leaf.as_ref()), identifier, &expected)
        .map_err(|reason| Failure::transient(Kind::Unauthorized, format!("{endpoint}: {reason}")))?;
    Ok(Proven::by(format!("TLS handshake with {endpoint}")))
}

/// Returns the server name for SNI: the name, or the reverse name of an IP address (RFC 8738 section 6).
fn server_name(identifier: &Identifier) -> String {
    match identifier {
        Identifier::Dns(name) => name.clone(),
        Identifier::Ip(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Identifier::Ip(IpAddr::V6(address)) => {
            let mut name = String::new();
            for octet in address.octets().iter().rev() {
                let _ = write!(name, "{:x}.{:x}.", octet & 15, octet >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

/// Checks the certificate (RFC 8737 section 3): self-signed, only this name, and the hash in a critical extension.
fn judge(der: &[u8], identifier: &Identifier, expected: &[u8; 32]) -> Result<(), String> {
    let certificate =
        Certificate::parse(der).map_err(|error| format!("cannot parse the certificate: {error}"))?;
    let named = match (&certificate.subject_alt_names[..], identifier) {
        ([GeneralName::Dns(found)], Identifier::Dns(name)) => found.eq_ignore_ascii_case(name),
        ([GeneralName::Ip(found)], Identifier::Ip(address)) => found == address,
        _ => false,
    };
    if !named {
        let names = certificate.names().join(", ");
        return Err(format!("the certificate is for {names:?}, not only for {identifier}"));
    }
    if !certificate.is_self_issued() || certificate.signed_by(&certificate.public_key).is_err() {
        return Err("the certificate is not self-signed".to_owned());
    }
    let found = acme_identifier(der).ok_or("the certificate has no critical acmeIdentifier extension")?;
    match aws_lc_rs::constant_time::verify_slices_are_equal(&found, expected) {
        Ok(()) => Ok(()),
        Err(_) => {
            Err("the acmeIdentifier extension of the certificate belongs to another key authorization"
                .to_owned())
        }
    }
}

/// Returns the content of the critical acmeIdentifier extension, which must occur exactly once.
fn acme_identifier(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut tbs = der::Reader::new(certificate).sequence().ok()?.sequence().ok()?;
    let mut extensions = loop {
        let element = tbs.any().ok()?;
        if element.tag == der::tag::context_constructed(3) {
            break der::Reader::new(element.content).sequence().ok()?;
        }
    };
    let mut found = None;
    while !extensions.is_empty() {
        let mut extension = extensions.sequence().ok()?;
        let oid = extension.expect(der::tag::OID).ok()?;
        if der::oid_text(oid.content) != ACME_IDENTIFIER {
            continue;
        }
        let critical = extension.optional(der::tag::BOOLEAN).ok()?.is_some_and(|flag| flag.content == [0xff]);
        let value = extension.expect(der::tag::OCTET_STRING).ok()?;
        let mut inner = der::Reader::new(value.content);
        let hash = inner.expect(der::tag::OCTET_STRING).ok()?;
        inner.end().ok()?;
        if !critical || found.replace(hash.content.to_vec()).is_some() {
            return None;
        }
    }
    found
}

/// A verifier that accepts any certificate but checks the handshake signature: without this check, a copy of a certificate would
/// suffice. The default verifier is unsuitable, because it parses the certificate first and rejects the critical extension.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    fn check(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let bad = |error: CertificateError| Error::InvalidCertificate(error);
        let certificate = Certificate::parse(certificate).map_err(|_| bad(CertificateError::BadEncoding))?;
        let algorithm = SignatureAlgorithm::from_tls_scheme(u16::from(signed.scheme));
        let verified = algorithm.is_some_and(|algorithm| {
            x509::verify_signature(&certificate.public_key, &algorithm, message, signed.signature()).is_ok()
        });
        if verified {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(bad(CertificateError::BadSignature))
        }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::check(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::check(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_use_reverse_names_as_sni() {
        let name = |text: &str| server_name(&Identifier::Ip(text.parse().unwrap()));
        assert_eq!(name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        assert_eq!(
            name("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }
}
