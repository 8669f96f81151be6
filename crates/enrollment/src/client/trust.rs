//! How a host verifies the certificate of the server that it joins.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509::Fingerprint;

use super::error::JoinError;
use super::identity::Identity;

/// Method by which the server's certificate is verified.
#[derive(Debug)]
pub(super) enum Trust {
    /// Against the host's trust store.
    System,
    /// Against the given roots, in DER.
    Roots(Vec<Vec<u8>>),
    /// Against the fingerprint of the server's certificate, or of a CA certificate in the chain that it sends.
    Pinned(Fingerprint),
}

impl Trust {
    pub(super) fn roots(pem: &str) -> Result<Self, JoinError> {
        let roots: Vec<_> = x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect();
        if roots.is_empty() {
            return Err(JoinError::Trust("the CA file contains no certificate".to_owned()));
        }
        Ok(Self::Roots(roots))
    }

    /// Builds the TLS configuration, with the host's client certificate if it has one.
    pub(super) fn client_config(&self, identity: Option<&Identity>) -> Result<ClientConfig, JoinError> {
        let failed = |error: Error| JoinError::Trust(format!("TLS cannot be set up: {error}"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let builder = match self {
            Self::System => builder.with_root_certificates(root_store(outbound::tls::system_roots())?),
            Self::Roots(roots) => builder.with_root_certificates(root_store(roots.clone())?),
            Self::Pinned(pin) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin: *pin, provider }))
            }
        };
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = identity.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
                let key = PrivatePkcs8KeyDer::from(identity.key.to_pkcs8_der().to_vec());
                builder.with_client_auth_cert(chain, key.into()).map_err(failed)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn root_store(roots: Vec<Vec<u8>>) -> Result<RootCertStore, JoinError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
    if store.is_empty() {
        return Err(JoinError::Trust(
            "no CA certificate to verify the server with: give --ca or --ca-sha256, or install ca-certificates"
                .to_owned(),
        ));
    }
    Ok(store)
}

/// Parses `https://HOST[:PORT]` and removes a trailing slash.
pub(super) fn parse_server_url(text: &str) -> Result<String, JoinError> {
    let wrong = || JoinError::Server(text.to_owned());
    let url = text.trim_end_matches('/');
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let plain = uri.path() == "/" || uri.path().is_empty();
    let named = uri.host().is_some_and(|host| !host.is_empty());
    let clean = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if uri.scheme_str() == Some("https") && plain && named && clean && uri.query().is_none() {
        return Ok(url.to_owned());
    }
    Err(wrong())
}

/// A verifier that trusts one certificate: the server's own, or a CA in the chain that the server sends.
#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // A pinned leaf needs no chain check. The signature check below proves that the server has the leaf's key.
        if Fingerprint::of(leaf) == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let anchor = above.iter().find(|der| Fingerprint::of(der) == self.pin).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(anchor.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider)).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(leaf, above, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_server_url;

    #[test]
    fn server_url_must_be_https_with_a_host() {
        for (text, expected) in [
            ("https://pki.example", Some("https://pki.example")),
            ("https://pki.example:8443/", Some("https://pki.example:8443")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("http://pki.example", None),
            ("pki.example", None),
            ("https://", None),
            ("https://user@pki.example", None),
            ("https://pki.example/path", None),
            ("https://pki.example/?a=b", None),
        ] {
            assert_eq!(parse_server_url(text).ok().as_deref(), expected, "{text}");
        }
    }
}
