//! The agent on TCP with TLS: CredHub's API for clients without support for Unix sockets, such as Concourse.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use keys::Secret;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Searches};
use super::caller::{self, AcceptedSecrets};
use super::disk::DiskCache;
use super::{AgentError, CONNECTIONS_MAX, DRAIN, connection};
use crate::Client;

/// Timeout of a TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Timeout at startup for the stream of changes. Values that are read after it has begun stay fresh until they change.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);

/// Listener options of an agent on TCP.
pub struct TlsAgentOptions {
    /// The listen address and port.
    pub listen: SocketAddr,
    /// The certificate with its chain, PEM.
    pub certificate: Vec<u8>,
    /// The certificate's private key, PEM.
    pub key: Secret,
    /// The agent's own token, with which clients log in.
    pub token: Secret,
    /// The file that stores the cache across a restart, encrypted with a key derived from the token.
    pub cache_file: Option<PathBuf>,
}

/// An agent that listens on TCP.
pub struct TlsAgent {
    listener: TcpListener,
    tls: TlsAcceptor,
    client: Client,
    callers: AcceptedSecrets,
    disk: Option<DiskCache>,
}

impl TlsAgent {
    /// Binds the address, and reads the cache from its file. Sends no request to the store yet.
    ///
    /// # Errors
    /// [`AgentError::Tls`] if certificate and key cannot be used; [`AgentError::Io`].
    #[crate::boxed]
    pub async fn bind(client: Client, options: TlsAgentOptions) -> Result<Self, AgentError> {
        let tls = server_config(&options).map_err(|error| AgentError::Tls(error.to_string()))?;
        let io = |source| AgentError::Io { path: options.listen.to_string().into(), source };
        let listener = inbound::listen(options.listen).map_err(io)?;
        let token = Arc::new(options.token);
        let disk = options.cache_file.map(|path| DiskCache::open(path, &token)).transpose()?;
        if let Some(disk) = &disk {
            disk.load(&client)?;
        }
        let callers = AcceptedSecrets::new(token);
        Ok(Self { listener, tls: TlsAcceptor::from(Arc::new(tls)), client, callers, disk })
    }

    /// Returns the listen address with its port.
    ///
    /// # Errors
    /// An error of the system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Requests in progress then get five seconds.
    pub async fn serve(self, stop: CancellationToken) {
        let answers = answer::router(self.client.clone(), Searches::WholeNames, stop.clone());
        let (router, tls) = (caller::with_authentication(answers, self.callers), self.tls);
        let tasks = ServiceTasks::stopped_by(stop.clone());
        if let Some(disk) = self.disk {
            tasks.spawn(disk.keep(self.client.clone(), stop.clone()));
        }
        self.client.wait_until_following(FOLLOWED_WITHIN).await;
        let handler = move |stream: TcpStream, _: SocketAddr| {
            let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
            async move {
                match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, router, stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake timed out"),
                }
            }
        };
        let slots = Slots::new(CONNECTIONS_MAX);
        Acceptor::new(&tasks, slots, WhenFull::Wait).run(&self.listener, Arc::new(handler)).await;
        if !tasks.close(DRAIN).await {
            tracing::warn!("closed connections that had not finished");
        }
    }
}

fn server_config(options: &TlsAgentOptions) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let chain = CertificateDer::pem_slice_iter(&options.certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(options.key.expose().as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
