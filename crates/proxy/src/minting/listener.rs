//! Listeners for consumers: TLS servers that get leaves from the proxy.

use std::sync::Arc;

use keyless::server::{BoundSocket, TlsError, TlsOptions, mutual_tls};
use tokio::net::{TcpListener, UnixListener};
use x509::Fingerprint;

use super::consumer;
use super::options::{ConsumerAddress, StartError};
use crate::revocation::{LoadedCrls, RevocationGuard, RevocationLists, RevocationMetrics};

/// TLS of consumers, which authenticate by certificates.
#[derive(Clone)]
pub(super) struct ConsumerTls {
    pub(super) guarded: Arc<RevocationGuard>,
    /// Digest of the trust anchors for client certificates.
    pub(super) roots: Fingerprint,
}

/// A socket that consumers connect to.
pub(super) enum Listener {
    Tcp(TcpListener, Option<ConsumerTls>),
    Unix(UnixListener, BoundSocket),
}

/// Opens the socket.
pub(super) async fn listen(
    listen: ConsumerAddress,
    revoked: Option<RevocationLists>,
    metrics: RevocationMetrics,
) -> Result<Listener, StartError> {
    let failed = |endpoint: String| move |source| StartError::Bind { endpoint, source };
    match listen {
        ConsumerAddress::Loopback(address) if !address.ip().to_canonical().is_loopback() => {
            Err(StartError::InTheClear(address))
        }
        ConsumerAddress::Loopback(address) => {
            let listener = inbound::listen(address).map_err(failed(address.to_string()))?;
            Ok(Listener::Tcp(listener, None))
        }
        ConsumerAddress::Tls(address, tls) => {
            let lists = LoadedCrls::of(revoked.as_ref())?;
            let roots = consumer::digest_of_roots(&tls.client_roots);
            let build = move |crls: &[Vec<u8>]| {
                let mut config = mutual_tls(&TlsOptions { client_crls: crls.to_vec(), ..tls.clone() })?;
                config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
                Ok::<_, TlsError>(config)
            };
            let config = build(&lists.ders)?;
            let build = Box::new(move |crls: &[Vec<u8>]| build(crls).map_err(|error| error.to_string()));
            let guarded = RevocationGuard::new(config, lists, revoked, build, (metrics, "minting"));
            let listener = inbound::listen(address).map_err(failed(address.to_string()))?;
            Ok(Listener::Tcp(listener, Some(ConsumerTls { guarded: Arc::new(guarded), roots })))
        }
        ConsumerAddress::Socket(path) => {
            let bound = BoundSocket::at(&path).await.map_err(failed(path.display().to_string()))?;
            Ok(Listener::Unix(bound.1, bound.0))
        }
    }
}
