//! TLS of the listener: a server certificate that can be replaced at runtime, and verification of client certificates.

use std::fmt;
use std::sync::Arc;

use keys::PrivateKey;
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};

/// Reason why the listener's TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain contains no certificate.
    #[error("the server's certificate chain is empty")]
    NoCertificate,
    /// The key or the certificate is invalid.
    #[error("the server's certificate or key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// A root for client certificates is invalid.
    #[error("a root for client certificates cannot be used: {0}")]
    BadRoot(rustls::Error),
    /// The verifier of client certificates cannot be created.
    #[error("client certificates cannot be verified: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// Combines a chain (DER, leaf first) with its key, as the certificate of a listener.
///
/// # Errors
/// [`TlsError`] when the key does not belong to the leaf, or rustls cannot use it.
pub fn server_certificate(chain: &[Vec<u8>], key: &PrivateKey) -> Result<Arc<CertifiedKey>, TlsError> {
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let chain = chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let pkcs8 = key.to_pkcs8_der();
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_slice()));
    let certified = CertifiedKey::new(chain, aws_lc_rs::sign::any_supported_type(&der)?);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

/// The current server certificate.
pub(super) struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl CurrentCertificate {
    pub(super) fn new(certificate: Arc<CertifiedKey>) -> Self {
        Self(RwLock::new(certificate))
    }

    pub(super) fn replace(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write() = certificate;
    }
}

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presented")
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// Returns the TLS settings: TLS 1.2 and 1.3, HTTP/2 preferred. Client certificates are optional and must chain to one of `roots`
/// (DER); an invalid one fails the handshake.
pub(super) fn config(
    presented: Arc<CurrentCertificate>,
    roots: &[Vec<u8>],
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = verifier(roots)?;
    assemble(presented, verifier.map(|known| Arc::new(AnyPurposeVerifier(known)) as Arc<_>))
}

/// Like [`config`], with the alert that CredHub clients expect for an expired certificate.
pub(super) fn credential_config(
    presented: Arc<CurrentCertificate>,
    roots: &[Vec<u8>],
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = verifier(roots)?;
    assemble(presented, verifier.map(|known| Arc::new(ExpiredAlertVerifier(known.clients)) as Arc<_>))
}

fn assemble(
    presented: Arc<CurrentCertificate>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(presented);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A verifier of client certificates, and its trust anchors.
struct ClientVerifier {
    clients: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
}

/// Creates a verifier; `None` without roots.
fn verifier(roots: &[Vec<u8>]) -> Result<Option<ClientVerifier>, TlsError> {
    if roots.is_empty() {
        return Ok(None);
    }
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(CertificateDer::from(root.clone())).map_err(TlsError::BadRoot)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(store);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider);
    Ok(Some(ClientVerifier { clients: verifier.allow_unauthenticated().build()?, roots }))
}

/// A verifier that also accepts client certificates that are valid only for TLS servers, because EST clients renew with them.
/// [`authority::ClientCertificates`] derives the identity and requires clientAuth.
struct AnyPurposeVerifier(ClientVerifier);

impl fmt::Debug for AnyPurposeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyPurpose")
    }
}

impl AnyPurposeVerifier {
    fn verify_as_server(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.0.roots, intermediates, now, algorithms.all)
    }
}

impl ClientCertVerifier for AnyPurposeVerifier {
    fn offer_client_auth(&self) -> bool {
        self.0.clients.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.clients.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.clients.verify_client_cert(end_entity, intermediates, now);
        match &verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            )) if self.verify_as_server(end_entity, intermediates, now).is_ok() => {
                Ok(ClientCertVerified::assertion())
            }
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clients.supported_verify_schemes()
    }
}

/// A verifier that sends the alert `certificate_unknown` (RFC 8446 section 6.2) for an expired client certificate. Java sends this
/// alert, and the tests of CredHub clients expect it.
#[derive(Debug)]
struct ExpiredAlertVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ExpiredAlertVerifier {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        verified.map_err(|error| match error {
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => {
                let why = std::io::Error::other("the client certificate has expired");
                CertificateError::Other(OtherError(Arc::new(why))).into()
            }
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
