//! TLS towards clients: one configuration, one set of ticket keys, and a leaf for each host name.

use std::sync::Arc;
use std::time::Duration;

use http_relay::cipher_suites::provider;
use http_relay::client::Client;
use http_relay::clock::now;
use http_relay::opening::ClientHelloFields;
use keys::KeyError;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509::HostOrIp;

use super::mirror::MirroredServer;
use crate::certificate_store::{CertificateStore, FetchError, KeyRecipients, LeafId, RateLimitKey};
use crate::mint::{Authority, KeysByOwner, LeafKeyKind, LeafKeySharing, MintError, Minter};

/// Maximum unread bytes in rustls, for each direction of a connection.
const BUFFER_MAX: usize = 64 << 10;

tokio::task_local! {
    /// The leaf certificate for the TLS handshake of the current task.
    static LEAF: Arc<CertifiedKey>;
}

#[derive(Debug)]
struct HandshakeLeafResolver;

impl ResolvesServerCert for HandshakeLeafResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        LEAF.try_with(Arc::clone).ok()
    }
}

/// Reason why the handshake with a client failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotIntercepted {
    #[error(transparent)]
    NoLeaf(#[from] FetchError),
    #[error("TLS handshake timeout")]
    Late,
    #[error("the TLS handshake with the client failed: {0}")]
    Handshake(std::io::Error),
}

/// The TLS server for intercepted connections.
pub(super) struct Interception {
    minter: Minter,
    trusted: Authority,
    store: CertificateStore,
    /// Keys of users, if each user has its own keys.
    users: Option<KeysByOwner>,
    acceptor: TlsAcceptor,
    /// Acceptor that offers only HTTP/1.1.
    http1: TlsAcceptor,
    profile: Arc<str>,
    timeout: Duration,
}

impl Interception {
    pub(super) fn new(
        minter: Minter,
        trusted: Authority,
        store: CertificateStore,
        users: Option<KeysByOwner>,
        timeout: Duration,
    ) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(HandshakeLeafResolver));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Most clients prefer a SHA-384 suite, which processors do not accelerate.
        config.ignore_client_order = true;
        // Stateless tickets: the server stores nothing for session resumption.
        config.ticketer = Ticketer::new()?;
        // One ticket is enough: a client with several concurrent requests uses one HTTP/2 connection.
        config.send_tls13_tickets = 1;
        let profile = minter.profile().into();
        let mut http1 = config.clone();
        http1.alpn_protocols.remove(0);
        Ok(Self {
            minter,
            trusted,
            store,
            users,
            acceptor: Arc::new(config).into(),
            http1: Arc::new(http1).into(),
            profile,
            timeout,
        })
    }

    /// Returns the CA, for users who want to trust it.
    pub(super) fn trusted(&self) -> &Authority {
        &self.trusted
    }

    /// Performs the handshake for a ClientHello, with a leaf for `name`, or a mirrored leaf if the server's certificate is known.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: &HostOrIp,
        mirrored: Option<&MirroredServer>,
        hello: &ClientHelloFields,
        client: &Client,
    ) -> Result<TlsStream<S>, NotIntercepted> {
        // HTTP/2 is not negotiated if the server does not support it, unless the client supports nothing else.
        let acceptor = match mirrored {
            Some(MirroredServer { http2: false, .. }) if hello.http1 => &self.http1,
            _ => &self.acceptor,
        };
        let handshake = async {
            let leaf = self.leaf(name, mirrored, hello, client).await?;
            let accepting = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(BUFFER_MAX)));
            LEAF.scope(leaf, accepting).await.map_err(NotIntercepted::Handshake)
        };
        tokio::time::timeout(self.timeout, handshake).await.unwrap_or(Err(NotIntercepted::Late))
    }

    async fn leaf(
        &self,
        name: &HostOrIp,
        mirrored: Option<&MirroredServer>,
        hello: &ClientHelloFields,
        client: &Client,
    ) -> Result<Arc<CertifiedKey>, FetchError> {
        let template = mirrored.map(|mirrored| Arc::clone(&mirrored.template));
        let of_user = self.users.as_ref().zip(client.user.as_ref());
        let of_user = of_user.map(|(keys, user)| (keys.clone(), Arc::clone(user)));
        let id = LeafId {
            // A mirrored leaf is identified by its certificate, so that all its hosts share one leaf.
            name: template.as_ref().map_or(name, |template| template.first_name()).clone(),
            authority: self.minter.authority().fingerprint(),
            kind: if hello.ecdsa { LeafKeyKind::P256 } else { LeafKeyKind::Rsa2048 },
            keys: of_user.as_ref().map_or(self.minter.keys(), |_| LeafKeySharing::ByUser),
            user: of_user.as_ref().map(|(_, user)| Arc::clone(user)),
            profile: Arc::clone(&self.profile),
            mirrored: template.as_ref().map(|template| template.fingerprint()),
            key_recipients: KeyRecipients::Nobody,
        };
        let now = now();
        let (minter, name, kind) = (self.minter.clone(), id.name.clone(), id.kind);
        let mint = move || async move {
            let minter = match of_user {
                Some((keys, user)) => minter.with_keys(keys.of(&user).map_err(no_key)?),
                None => minter,
            };
            match template {
                Some(template) => minter.mint_mirrored(&template, kind, now).await,
                None => minter.mint(&name, kind, now).await,
            }
        };
        Ok(Arc::clone(&self.store.fetch(&id, RateLimitKey::from(client), now, mint).await?.certified))
    }
}

fn no_key(error: Arc<KeyError>) -> MintError {
    MintError::NoKey(error.to_string())
}

/// Returns whether the session was resumed by a ticket.
pub(super) fn was_resumed<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
}
