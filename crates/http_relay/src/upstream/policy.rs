//! Policies by host name: routes to upstreams and TLS verification.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use x509::HostOrIp;

use super::super::target::Origin;
use super::parent::Parent;
use super::tls::connectors;
use crate::cipher_suites::provider;
use crate::names::{BadRule, Names};

/// Options for the upstreams of a host name pattern: trust, client certificate and route.
#[derive(Clone, Debug)]
pub struct UpstreamPolicy {
    /// Additional trust anchors, DER.
    pub roots: Vec<Vec<u8>>,
    /// Whether certificates are verified. Without verification, an attacker between proxy and upstream is not detected.
    pub verify: bool,
    /// Client certificate to present if an upstream requests one.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Route to the upstreams, if it differs from the default.
    pub route: Option<UpstreamRoute>,
}

impl Default for UpstreamPolicy {
    fn default() -> Self {
        Self { roots: Vec::new(), verify: true, certificate: None, route: None }
    }
}

/// Route to an upstream: direct, or through a parent proxy.
#[derive(Clone, Debug, Default)]
pub enum UpstreamRoute {
    /// The relay connects to the upstream itself.
    #[default]
    Direct,
    /// The relay connects through this parent proxy.
    Parent(Arc<Parent>),
}

/// Policies for upstreams, by host name or address.
#[derive(Clone, Debug, Default)]
pub struct UpstreamPolicies {
    /// Route to hosts without a policy.
    pub route: UpstreamRoute,
    policies: Vec<UpstreamPolicy>,
    names: Names<usize>,
}

impl UpstreamPolicies {
    /// Adds a policy for names (`NAME`, `*.NAME`) and addresses.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn add(&mut self, names: &[String], policy: UpstreamPolicy) -> Result<(), BadRule> {
        // Number 0 is the default policy.
        let number = self.policies.len() + 1;
        for name in names {
            self.names.add(name, number)?;
        }
        self.policies.push(policy);
        Ok(())
    }
}

/// TLS configurations and route of one policy. One configuration offers HTTP/1.1 only; the other offers HTTP/2 first. They share
/// TLS sessions with each other, but not with other policies.
pub(super) struct Compiled {
    pub(super) http1: TlsConnector,
    pub(super) http2: TlsConnector,
    pub(super) route: UpstreamRoute,
    /// Whether certificates of upstreams are verified.
    pub(super) verifies: bool,
}

/// Policies by name, ready for use. An origin's policy never changes, so a pooled connection always has the right one.
pub(super) struct Policies {
    all: Vec<Compiled>,
    names: Names<usize>,
}

impl Policies {
    pub(super) fn new(options: &UpstreamPolicies, roots: RootCertStore) -> Result<Self, rustls::Error> {
        let usual = Arc::new(roots);
        let mut all = vec![compiled(&UpstreamPolicy::default(), &usual, &options.route)?];
        for policy in &options.policies {
            all.push(compiled(policy, &usual, &options.route)?);
        }
        Ok(Self { all, names: options.names.clone() })
    }

    /// Returns the policy of a name.
    pub(super) fn of(&self, name: &HostOrIp) -> &Compiled {
        &self.all[self.names.get(name).copied().unwrap_or(0)]
    }

    /// Returns whether a policy is configured for this exact name, not only for a parent domain.
    pub(super) fn name(&self, name: &HostOrIp) -> bool {
        self.names.has(name)
    }

    /// Returns the policy of the TLS server name, or else the host, of an origin.
    pub(super) fn of_origin(&self, origin: &Origin) -> &Compiled {
        self.of(origin.server.as_ref().unwrap_or(&origin.target.name))
    }

    /// Returns the default policy, which is also used for parent proxies.
    pub(super) fn usual(&self) -> &Compiled {
        &self.all[0]
    }
}

fn compiled(
    policy: &UpstreamPolicy,
    usual: &Arc<RootCertStore>,
    route: &UpstreamRoute,
) -> Result<Compiled, rustls::Error> {
    let provider = Arc::new(provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = if policy.verify {
        let mut roots = Arc::clone(usual);
        for root in &policy.roots {
            Arc::make_mut(&mut roots).add(CertificateDer::from(root.as_slice()))?;
        }
        // Without roots, no certificate is trusted.
        builder.with_root_certificates(roots)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    };
    let config = match &policy.certificate {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from((**own).clone()))),
    };
    let (http1, http2) = connectors(config);
    let route = policy.route.as_ref().unwrap_or(route).clone();
    Ok(Compiled { http1, http2, route, verifies: policy.verify })
}

/// A verifier that accepts any certificate if the peer proves possession of its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
