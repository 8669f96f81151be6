//! TLS to PostgreSQL, with libpq's `sslmode` and `sslrootcert`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// libpq's `sslmode`, without `allow`, which is treated as `prefer`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SslMode {
    Disable,
    /// Encrypted if the server supports it. The server is not authenticated.
    Prefer,
    /// Encrypted; the server is not authenticated unless `sslrootcert` is given.
    Require,
    /// The server's chain must end at a trusted root.
    VerifyCa,
    /// Same as `VerifyCa`, and the server's certificate must name the host.
    VerifyFull,
}

impl SslMode {
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

/// Connector that creates TLS connections for tokio-postgres.
#[derive(Clone)]
pub(super) struct MakeTls {
    config: Arc<ClientConfig>,
}

impl MakeTls {
    /// Creates a connector. `roots` is libpq's `sslrootcert`: a PEM file, or `system`. Without it the system's roots are used;
    /// libpq would use `~/.postgresql/root.crt`.
    pub(super) fn new(mode: SslMode, roots: Option<&str>) -> Result<Self, String> {
        Self::build(mode, roots.is_some(), || load_roots(roots))
    }

    /// Creates a connector that trusts these certificates (PEM), or the system's roots.
    pub(super) fn with_pem(mode: SslMode, roots: Option<&str>) -> Result<Self, String> {
        Self::build(mode, roots.is_some(), || roots.map_or_else(|| load_roots(None), parse_roots))
    }

    fn build(
        mode: SslMode,
        has_roots: bool,
        roots: impl FnOnce() -> Result<RootCertStore, String>,
    ) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let checking = match (mode, has_roots) {
            (SslMode::VerifyFull, _) => CertificateCheck::ChainAndName,
            // Same as libpq when a root is given without a mode.
            (SslMode::VerifyCa, _) | (SslMode::Require, true) => CertificateCheck::Chain,
            (SslMode::Disable | SslMode::Prefer | SslMode::Require, _) => CertificateCheck::Nothing,
        };
        let webpki = match checking {
            CertificateCheck::Nothing => None,
            CertificateCheck::Chain | CertificateCheck::ChainAndName => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots()?), Arc::clone(&provider))
                    .build()
                    .map_err(|error| error.to_string())?,
            ),
        };
        let verifier = Verifier { checking, webpki, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }
}

fn parse_roots(pem: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("the roots are not PEM: {error}"))?;
        store.add(certificate).map_err(|error| format!("a root cannot be used: {error}"))?;
    }
    if store.is_empty() {
        return Err("the roots contain no certificate in PEM".to_owned());
    }
    Ok(store)
}

fn load_roots(roots: Option<&str>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match roots {
        None | Some("system") => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err("this system has no root certificates: set sslrootcert=FILE".to_owned());
            }
        }
        Some(path) => {
            let bad = |error: &dyn std::fmt::Display| format!("sslrootcert={path}: {error}");
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
                store.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
            }
            if store.is_empty() {
                return Err(bad(&"the file contains no certificate"));
            }
        }
    }
    Ok(store)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CertificateCheck {
    Nothing,
    Chain,
    ChainAndName,
}

/// Verifier of server certificates, with the checks that the mode requires. Always checks that the server has its certificate's
/// key.
#[derive(Debug)]
struct Verifier {
    checking: CertificateCheck,
    webpki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(webpki) = &self.webpki else { return Ok(ServerCertVerified::assertion()) };
        match webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // rustls checks the chain before the name (`WebPkiServerVerifier`), so the chain is valid.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.checking == CertificateCheck::Chain => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for MakeTls {
    type Stream = Encrypted<S>;
    type TlsConnect = Connector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connector> {
        // A Unix socket has no name and needs no TLS. The error occurs only once TLS is started.
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other);
        Ok(Connector { connector: TlsConnector::from(Arc::clone(&self.config)), name })
    }
}

pub(super) struct Connector {
    connector: TlsConnector,
    name: io::Result<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Encrypted(self.connector.connect(self.name?, stream).await?)) })
    }
}

pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    /// Disables channel binding: SCRAM runs without it. `verify-full` provides the same protection.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
