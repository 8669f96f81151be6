//! Client certificates (mutual TLS): trust anchors, revocation, and the header fields that describe the client to upstreams.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;
use s2n_tls::callbacks::VerifyHostNameCallback;
use s2n_tls::config::Builder;
use s2n_tls::connection::Connection;
use s2n_tls::enums::ClientAuthType;
use s2n_tls::error::Error;
use tokio_util::sync::CancellationToken;
use x509::crl::{CrlSet, CrlVerdict};
use x509::{Certificate, GeneralName};

/// Header field with the client certificate (RFC 9440).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// Header field with the issuers of the client certificate (RFC 9440).
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
/// Envoy's header field with the client certificate.
const FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

coded::named! {
    /// Whether the server requests client certificates, and whether clients must present one.
    pub enum ClientCertificates: "client certificate mode" {
        /// The server requests no client certificate.
        Off => "off",
        /// Clients may present a certificate. An untrusted certificate still fails the handshake.
        Optional => "optional",
        /// Clients must present a certificate.
        Required => "required",
    }
}

/// Options of client authentication by certificates (mutual TLS).
#[derive(Clone, Debug)]
pub struct ClientAuth {
    /// Whether client certificates are requested, and whether they are required.
    pub mode: ClientCertificates,
    /// Trust anchors (DER) of client certificates.
    pub roots: Vec<Vec<u8>>,
    /// Certificate revocation lists. If set, a client is refused when its issuer has no list.
    pub lists: Option<ClientCrls>,
}

/// Source of the certificate revocation lists. It is called outside of the threads that serve connections.
#[derive(Clone)]
pub struct ClientCrls(Arc<ReadCrls>);

type ReadCrls = dyn Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync;

impl ClientCrls {
    /// Creates a source of CRLs. `read` returns all CRLs (DER), or the reason why they cannot be read.
    pub fn new(read: impl Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    fn load(&self) -> Result<CrlSet, String> {
        CrlSet::parse(&(self.0)()?).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for ClientCrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCrls").finish_non_exhaustive()
    }
}

/// The certificate revocation lists cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("invalid CRLs for client certificates: {0}")]
pub struct BadClientCrls(String);

/// Reason why a client with a trusted certificate is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ClientRefused {
    #[error("the client certificate is revoked")]
    Revoked,
    #[error("no CRL of the client certificate's issuer is configured")]
    NoList,
    #[error("cannot parse the client certificate")]
    Unreadable,
}

/// Authentication of clients by certificates and the current revocation lists.
pub(super) struct ClientAuthenticator {
    auth: ClientAuth,
    lists: RwLock<Arc<CrlSet>>,
}

/// A callback that accepts every host name: clients are identified by their certificates only.
struct AnyHostVerifier;

impl VerifyHostNameCallback for AnyHostVerifier {
    fn verify_host_name(&self, _: &str) -> bool {
        true
    }
}

impl ClientAuthenticator {
    pub(super) fn new(auth: ClientAuth) -> Result<Self, BadClientCrls> {
        let lists = auth.lists.as_ref().map(ClientCrls::load).transpose().map_err(BadClientCrls)?;
        Ok(Self { auth, lists: RwLock::new(Arc::new(lists.unwrap_or_default())) })
    }

    /// Configures the TLS library to request client certificates.
    pub(super) fn add_to(&self, builder: &mut Builder) -> Result<(), Error> {
        let mode = match self.auth.mode {
            ClientCertificates::Off => ClientAuthType::None,
            ClientCertificates::Optional => ClientAuthType::Optional,
            ClientCertificates::Required => ClientAuthType::Required,
        };
        builder.set_client_auth_type(mode)?;
        builder.set_verify_host_callback(AnyHostVerifier)?;
        for root in &self.auth.roots {
            builder.trust_pem(x509::pem::encode("CERTIFICATE", root).as_bytes())?;
        }
        Ok(())
    }

    /// Returns the identity of a client after its handshake; `None` if it presented no certificate.
    pub(super) fn identity(
        &self,
        connection: &Connection,
    ) -> Result<Option<Arc<ClientIdentity>>, ClientRefused> {
        if !connection.client_cert_used() {
            return Ok(None);
        }
        let unreadable = |_| ClientRefused::Unreadable;
        let chain = connection.peer_cert_chain().map_err(unreadable)?;
        let mut shown = Vec::new();
        for certificate in chain.iter() {
            let certificate = certificate.map_err(unreadable)?;
            let der = certificate.der().map_err(unreadable)?;
            shown.push(Certificate::parse(der).map_err(|_| ClientRefused::Unreadable)?);
        }
        let leaf = shown.first().ok_or(ClientRefused::Unreadable)?;
        self.judge(&shown)?;
        Ok(Some(Arc::new(ClientIdentity::of(leaf))))
    }

    /// Rejects the chain if the leaf's issuer has no list, or if a list revokes any of the certificates.
    fn judge(&self, shown: &[Certificate]) -> Result<(), ClientRefused> {
        if self.auth.lists.is_none() {
            return Ok(());
        }
        let lists = Arc::clone(&self.lists.read());
        let verdicts: Vec<CrlVerdict> = shown.iter().map(|one| lists.verdict(one)).collect();
        match verdicts.first() {
            _ if verdicts.contains(&CrlVerdict::Revoked) => Err(ClientRefused::Revoked),
            Some(CrlVerdict::NoList) | None => Err(ClientRefused::NoList),
            Some(_) => Ok(()),
        }
    }

    /// Reloads the CRLs at the interval `every`, until `stop`. The previous CRLs stay in use if the new ones are invalid.
    pub(super) async fn keep(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("edge-client-crls");
        let Some(source) = self.auth.lists.clone() else { return };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let reading = source.clone();
            match tokio::task::spawn_blocking(move || reading.load()).await {
                Ok(Ok(lists)) => *self.lists.write() = Arc::new(lists),
                Ok(Err(error)) => {
                    tracing::warn!(
                        error,
                        "cannot reload the CRLs for client certificates; the current ones stay in use"
                    )
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot reload the CRLs for client certificates; the current ones stay in use")
                }
            }
        }
    }
}

/// Identity from a client's certificate, as sent to upstreams and written to the access log.
#[derive(Debug)]
pub(super) struct ClientIdentity {
    pub(super) subject: Arc<str>,
    client_cert: Option<HeaderValue>,
    forwarded: Option<HeaderValue>,
}

impl ClientIdentity {
    fn of(leaf: &Certificate) -> Self {
        let client_cert = format!(":{}:", BASE64.encode(&leaf.der));
        let mut forwarded = format!("Hash={}", leaf.fingerprint);
        let subject = leaf.subject.text.replace('\\', "\\\\").replace('"', "\\\"");
        if !subject.chars().any(char::is_control) {
            forwarded += &format!(";Subject=\"{subject}\"");
        }
        for name in &leaf.subject_alt_names {
            let (key, value) = match name {
                GeneralName::Dns(name) => ("DNS", name.to_string()),
                GeneralName::Uri(uri) => ("URI", uri.to_string()),
                _ => continue,
            };
            // Skip a value that could be parsed as a separate element. The whole certificate is still sent.
            if value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\",;=\\".contains(&byte)) {
                forwarded += &format!(";{key}={value}");
            }
        }
        Self {
            subject: leaf.subject.text.as_str().into(),
            client_cert: HeaderValue::try_from(client_cert).ok(),
            forwarded: HeaderValue::from_bytes(forwarded.as_bytes()).ok(),
        }
    }
}

/// Sets the header fields with the client's identity. Removes such fields that the request already has, even from a trusted proxy,
/// because the identity is verified here.
pub(super) fn set_fields(headers: &mut HeaderMap, identity: Option<&ClientIdentity>) {
    for name in [CLIENT_CERT, CLIENT_CERT_CHAIN, FORWARDED_CLIENT_CERT] {
        headers.remove(name);
    }
    let Some(identity) = identity else { return };
    for (name, value) in [(CLIENT_CERT, &identity.client_cert), (FORWARDED_CLIENT_CERT, &identity.forwarded)]
    {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
}
