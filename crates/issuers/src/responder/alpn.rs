//! tls-alpn-01 (RFC 8737): a self-signed certificate with the digest of the key authorization.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use keys::{KeyType, PrivateKey, Signer};
use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{GeneralName, SerialNumber, UnixTime, der};

use crate::error::IssuerError;

/// The ALPN protocol that a validating server offers and the responder selects.
pub const ACME_TLS: &[u8] = b"acme-tls/1";
/// Object identifier id-pe-acmeIdentifier (RFC 8737 section 6.1).
const ACME_IDENTIFIER: &str = "1.3.6.1.5.5.7.1.31";
/// Maximum number of names under validation at a time. Each has a certificate in memory.
const NAMES_MAX: usize = 10_000;
/// Seconds for which the certificate is valid after its creation. Its start of validity is backdated by the same time, for clocks
/// that differ.
const LIFE: i64 = 7 * x509::DAY;
/// Maximum number of concurrent handshakes per listener.
const CONNECTIONS_MAX: usize = 64;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Certificates for names under validation, by the validating server's SNI.
#[derive(Debug, Default)]
pub struct TlsAlpnResponses(RwLock<HashMap<String, Arc<CertifiedKey>>>);

impl TlsAlpnResponses {
    /// Returns the certificate for `server_name`.
    #[must_use]
    pub fn get(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.read().get(&server_name.to_ascii_lowercase()).cloned()
    }

    pub(super) fn put(&self, name: &str, digest: &[u8; 32], now: i64) -> Result<(), IssuerError> {
        let certified = certificate(name, digest, UnixTime(now))?;
        let mut answers = self.0.write();
        if answers.len() >= NAMES_MAX {
            return Err(IssuerError::unavailable("too many concurrent validations; try again"));
        }
        answers.insert(challenge_sni(name), Arc::new(certified));
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.write().remove(&challenge_sni(name));
    }
}

impl ResolvesServerCert for TlsAlpnResponses {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == ACME_TLS));
        offered.then(|| self.get(hello.server_name()?))?
    }
}

/// Returns the SNI value: the name, or for an address its reverse name (RFC 8738 section 6).
fn challenge_sni(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let labels: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
        Err(_) => name.to_ascii_lowercase(),
    }
}

/// Generates the certificate of RFC 8737 section 3: the name as its only alternative name, the digest in a critical extension.
fn certificate(name: &str, digest: &[u8; 32], now: UnixTime) -> Result<CertifiedKey, IssuerError> {
    let failed = |what: String| IssuerError::Storage {
        reason: format!("the tls-alpn-01 certificate cannot be created: {what}"),
    };
    let key = PrivateKey::generate(KeyType::P256).map_err(|error| failed(error.to_string()))?;
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|error| failed(error.to_string()))?;
    let general =
        name.parse::<IpAddr>().map_or_else(|_| GeneralName::Dns(name.to_ascii_lowercase()), GeneralName::Ip);
    let subject = distinguished_name(&[(Attribute::CommonName, "ACME challenge".to_owned())]);
    let identifier = der::write(|w| {
        w.octets(digest);
    });
    let extensions = [
        Extension::subject_alt_names(&[general]),
        Extension::custom(ACME_IDENTIFIER, identifier).critical(true),
    ];
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random(serial),
        signature: key.algorithm(),
        issuer: &subject.der,
        subject: &subject.der,
        not_before: now.plus(-LIFE),
        not_after: now.plus(LIFE),
        spki: key.spki(),
        extensions: &extensions,
    });
    let signature = key.sign_now(&tbs).map_err(|error| failed(error.to_string()))?;
    let certificate = CertificateDer::from(signed(&tbs, &key.algorithm(), &signature));
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
    let signing = provider::sign::any_supported_type(&private).map_err(|error| failed(error.to_string()))?;
    Ok(CertifiedKey::new(vec![certificate], signing))
}

/// Accepts TLS only for `acme-tls/1`, and closes the connection after the handshake (RFC 8737 section 4).
pub(super) async fn serve(listener: TcpListener, answers: Arc<TlsAlpnResponses>, tasks: ServiceTasks) {
    let _guard = telemetry::tasks::guard("tls-alpn-01-listener");
    let Ok(acceptor) = acceptor(answers) else { return };
    let handler = move |stream: TcpStream, _: SocketAddr| {
        let acceptor = acceptor.clone();
        async move {
            let shake = async {
                let mut stream = acceptor.accept(stream).await?;
                tokio::io::AsyncWriteExt::shutdown(&mut stream).await
            };
            // Ignore a peer that closes the connection early.
            let _ = tokio::time::timeout(HANDSHAKE_LIMIT, shake).await;
        }
    };
    let slots = Slots::new(CONNECTIONS_MAX);
    Acceptor::new(&tasks, slots, WhenFull::Wait).run(&listener, Arc::new(handler)).await;
}

fn acceptor(answers: Arc<TlsAlpnResponses>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(answers);
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_use_reverse_names_as_sni() {
        let table = [
            ("A.example", "a.example"),
            ("192.0.2.7", "7.2.0.192.in-addr.arpa"),
            ("2001:db8::1", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"),
        ];
        for (name, sni) in table {
            assert_eq!(challenge_sni(name), sni);
        }
    }

    #[test]
    fn tls_alpn_certificate_conforms_to_rfc_8737() {
        let certified = certificate("A.example", &[7; 32], UnixTime(1_800_000_000)).unwrap();
        let leaf = x509::Certificate::parse(&certified.cert[0]).unwrap();
        assert_eq!(leaf.subject_alt_names, [GeneralName::Dns("a.example".to_owned())]);
        assert_eq!(leaf.unknown_critical, [ACME_IDENTIFIER]);
        assert!(leaf.signed_by(&leaf.public_key).is_ok());
        let digest = [&[4, 32][..], &[7; 32]].concat();
        assert!(leaf.der.windows(digest.len()).any(|part| part == digest));
    }

    #[test]
    fn tls_alpn_answers_are_added_and_removed() {
        let answers = TlsAlpnResponses::default();
        answers.put("a.example", &[1; 32], 1_800_000_000).unwrap();
        assert!(answers.get("A.Example").is_some());
        answers.remove("a.example");
        assert!(answers.get("a.example").is_none());
    }
}
