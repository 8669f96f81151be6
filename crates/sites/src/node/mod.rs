//! A key service as a node of a control plane: it joins with a token, sends heartbeats, receives the other members and the sealed
//! keys, and signs with the keys that it can open. For other keys it asks other nodes.
//!
//! Its directory stores the last known state, so a node starts and signs while the control plane is unreachable.

mod beat;
mod folder;
mod learn;
mod members;
mod metrics;
mod renew;
mod sealed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use enrollment::client::{self, Api, ApiError, Identity, JoinError, JoinOptions, REQUEST_TIMEOUT, bare_csr};
use enrollment::state_folder::StateError;
use keyless::KeySet;
use keyless::client::ClientTls;
use keyless::routing::{NodeId, Router, RouterOptions, RoutingMetrics};
use keyless::server::TlsOptions;
use keys::Keyring;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use store::Clock;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::work::{EnrolledNode, News, NodeEnrolment};
use folder::{Folder, KnownMembers, Settings};
use members::Members;
use sealed::SealedKeys;

pub use metrics::NodeMetrics;
pub use sealed::SEALED_KEYS_MAX;

/// Name of this program in the control plane's log.
const PROGRAM: &str = "bulla-node";
/// Source name of sealed keys in the key set.
const SOURCE: &str = "sealed";

/// Reason why a node cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The directory contains no node. Join first.
    #[error("{0} contains no node: give the control plane's address and a token")]
    NotJoined(PathBuf),
    /// The directory already contains a node.
    #[error("this host is already the node {name} of {server}: remove {folder} to join again")]
    Joined {
        /// Name of the node.
        name: String,
        /// URL of the node's control plane.
        server: String,
        /// The node's directory.
        folder: PathBuf,
    },
    /// Joining failed, or its result is invalid.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl From<StateError> for NodeError {
    fn from(error: StateError) -> Self {
        Self::Join(error.into())
    }
}

impl From<ApiError> for NodeError {
    fn from(error: ApiError) -> Self {
        Self::Join(error.into())
    }
}

/// Identity of a joined node, as stored in its directory.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// UUID that the control plane assigned to the node.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Name of its site.
    pub site: String,
    /// URL of the node's control plane.
    pub server: String,
}

/// The certificate and trust anchors for connections with other nodes.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Certificate of the node, with its private key.
    pub certificate: Arc<CertifiedKey>,
    /// Trust anchors in DER.
    pub roots: Vec<Vec<u8>>,
}

impl NodeTls {
    /// Returns the TLS options of the listener for other nodes.
    #[must_use]
    pub fn server(&self) -> TlsOptions {
        let (certificate, client_roots) = (Arc::clone(&self.certificate), self.roots.clone());
        TlsOptions { certificate, client_roots, client_crls: Vec::new() }
    }

    fn client(&self) -> ClientTls {
        ClientTls { certificate: Arc::clone(&self.certificate), server_roots: self.roots.clone() }
    }
}

/// A node of the key service that has joined its control plane.
pub struct KeyNode {
    folder: Folder,
    name: String,
    site: String,
    address: String,
    clock: Clock,
    /// Client of the control plane. Rebuilt with each new certificate.
    api: RwLock<Arc<Api>>,
    presented: Mutex<(Settings, Identity)>,
    /// Members and sealed keys. Never locked across an await.
    known: Mutex<NodeKnowledge>,
    /// Members to write to disk for the next start.
    to_persist: watch::Sender<Option<Arc<KnownMembers>>>,
    /// Whether the node is suspended, to write to disk.
    to_suspend: watch::Sender<bool>,
    router: Router,
    keys: KeySet,
    metrics: NodeMetrics,
    /// Notification that the control plane has updates for this node.
    news: Notify,
    /// Whether the sealed keys no longer sign: see [`beat`].
    is_suspended: AtomicBool,
}

/// Members, policies and keys known to a node.
struct NodeKnowledge {
    members: Members,
    sealed: SealedKeys,
    /// Time when the members were last written.
    persisted: Instant,
}

impl std::fmt::Debug for KeyNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl KeyNode {
    /// Joins this host as a node that others reach at `address` (host and port). Its keys are generated here. Repeating the call
    /// after a lost response, with the same keys and token, returns the same node. With `custody` its decryption key is stored
    /// under a master key, so that a copy of the directory opens nothing.
    ///
    /// # Errors
    /// [`NodeError`]. The generated keys stay in the directory, so that the call can be repeated.
    #[crate::boxed]
    pub async fn join(
        options: &JoinOptions,
        address: &str,
        custody: Option<&Keyring>,
    ) -> Result<NodeStatus, NodeError> {
        let server = options.server()?;
        let folder = Folder::new(&options.state)?;
        if let Some(settings) = folder.settings()? {
            let folder = options.state.clone();
            return Err(NodeError::Joined { name: settings.name, server: settings.server, folder });
        }
        let (key, kem) =
            (folder.joined().load_or_generate_key().await?, folder.load_or_create_kem_key(custody)?);
        let request = NodeEnrolment {
            token: options.token.expose().to_owned(),
            csr_pem: bare_csr(&key)?,
            kem: kem.public().to_text(),
            address: address.to_owned(),
            name: options.name.clone(),
        };
        let api = options.api(PROGRAM)?;
        let enrolled: EnrolledNode = api.post("/api/v1/key-nodes/enroll", &request, REQUEST_TIMEOUT).await?;
        folder.joined().write_certificate(&key, &enrolled.certificate_pem)?;
        let pin = options.store_trust_anchors(folder.joined(), &enrolled.ca_pem)?;
        // The settings are written last: a directory with settings counts as a joined node.
        folder.write_settings(&Settings {
            node: enrolled.node,
            name: enrolled.name,
            site: enrolled.site,
            server,
            pin,
            statement_key: enrolled.statement_key,
            nodes_ca_pem: enrolled.ca_pem,
        })?;
        Self::status(&options.state)?.ok_or_else(|| NodeError::NotJoined(options.state.clone()))
    }

    /// Returns the identity of the node in a directory, without a network request. `None` when there is no node.
    ///
    /// # Errors
    /// [`NodeError`] when the directory cannot be read.
    pub fn status(state: &Path) -> Result<Option<NodeStatus>, NodeError> {
        if !state.exists() {
            return Ok(None);
        }
        let settings = Folder::new(state)?.settings()?;
        Ok(settings.map(|Settings { node, name, site, server, .. }| NodeStatus {
            id: node,
            name,
            site,
            server,
        }))
    }

    /// Changes the control plane's address for the node in a directory. The new address takes effect at the node's next start. Does
    /// nothing when there is no node.
    ///
    /// # Errors
    /// [`NodeError`] when the directory cannot be read or written.
    pub fn move_to(state: &Path, server: &str) -> Result<(), NodeError> {
        let folder = Folder::new(state)?;
        let Some(settings) = folder.settings()? else { return Ok(()) };
        Ok(folder.write_settings(&Settings { server: server.to_owned(), ..settings })?)
    }

    /// Opens a joined node with its last known state. Adds its keys to `keys`. Sends nothing to the control plane, but connects to
    /// other nodes according to the options.
    ///
    /// # Errors
    /// [`NodeError`]
    #[crate::boxed]
    pub async fn open(
        state: &Path,
        address: &str,
        keys: KeySet,
        (metrics, routing): (NodeMetrics, RoutingMetrics),
        (options, custody): (RouterOptions, Option<&Keyring>),
        clock: Clock,
    ) -> Result<Self, NodeError> {
        let folder = Folder::new(state)?;
        let not_joined = || NodeError::NotJoined(state.to_owned());
        let settings = folder.settings()?.ok_or_else(not_joined)?;
        let identity = folder.joined().identity()?.ok_or_else(not_joined)?;
        let api = api_of(&folder, &settings, &identity)?;
        let own = NodeId(*settings.node.as_bytes());
        let tls = tls_of(&settings, &identity)?;
        let router = Router::new(own, &tls.client(), options, routing).map_err(tls_failed)?;
        let statement_key = STANDARD.decode(&settings.statement_key);
        let statement_key = statement_key
            .map_err(|_| JoinError::Identity("the statement signing key is not base64".to_owned()))?;
        let members = Members::restored(folder.members()?, statement_key);
        router.set_members(members.list());
        let mut sealed =
            SealedKeys::new(settings.node, folder.load_or_create_kem_key(custody)?, router.clone());
        let log = folder.pages();
        let pages = log.read::<News>()?;
        let is_one = pages.len() < 2;
        pages.into_iter().for_each(|page| sealed.take(page, &members));
        if !is_one {
            log.replace(&sealed.snapshot())?;
        }
        let is_suspended = AtomicBool::new(folder.is_suspended());
        let node = Self {
            name: settings.name.clone(),
            site: settings.site.clone(),
            address: address.to_owned(),
            clock,
            api: RwLock::new(Arc::new(api)),
            presented: Mutex::new((settings, identity)),
            known: Mutex::new(NodeKnowledge { members, sealed, persisted: Instant::now() }),
            to_persist: watch::Sender::new(None),
            to_suspend: watch::Sender::new(is_suspended.load(Ordering::Relaxed)),
            router,
            keys,
            metrics,
            news: Notify::new(),
            is_suspended,
            folder,
        };
        node.open_all().await;
        Ok(node)
    }

    /// Returns the node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the node's site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns an error text that explains why this node has no usable key. Call it only if the node has none.
    #[must_use]
    pub fn no_usable_key_reason(&self) -> String {
        if self.is_suspended.load(Ordering::Acquire) {
            return "the control plane rejects this node: was it retired? (`bulla key node show NAME`)"
                .to_owned();
        }
        match self.known.lock().sealed.broken() {
            0 => "this node has received no sealed key yet: `bulla key list` lists sealed keys, `bulla key seal` creates them"
                .to_owned(),
            broken => format!("none of the {broken} keys sealed for this node can be opened; the log names each key"),
        }
    }

    /// Returns the router to the other nodes.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the current TLS credentials for other nodes.
    ///
    /// # Errors
    /// [`NodeError`] when the credentials from the control plane cannot be used.
    pub fn tls(&self) -> Result<NodeTls, NodeError> {
        let presented = self.presented.lock();
        Ok(tls_of(&presented.0, &presented.1)?)
    }

    /// Sends heartbeats, receives updates and renews the certificate, until stopped. These tasks do not wait for each other.
    /// `on_tls` is called with each new certificate. Retries while the control plane is unreachable or the directory fails; the
    /// known state stays.
    pub async fn run(&self, on_tls: impl Fn(&NodeTls), stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("key-node");
        let all = async {
            tokio::join!(
                self.beat(),
                self.learn(),
                self.renew(on_tls),
                self.persist_members(),
                self.persist_suspended()
            )
        };
        stop.run_until_cancelled(all).await;
    }

    fn api(&self) -> Arc<Api> {
        Arc::clone(&self.api.read())
    }

    /// Runs file work on a blocking thread: a slow disk must not delay heartbeats, which share a task with all other work of the
    /// node.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || work(&folder)).await;
        done.unwrap_or_else(|error| Err(JoinError::Identity(format!("state folder: {error}")).into()))
    }

    /// Replaces the node's keys in the service by the keys that may sign now.
    fn put_keys(&self) {
        let known = self.known.lock();
        let is_suspended = self.is_suspended.load(Ordering::Acquire);
        let sources = if is_suspended { Vec::new() } else { known.sealed.sources() };
        // Called under the lock, so that a later call has newer keys.
        self.keys.put_sealed(SOURCE, sources);
        let (own, routed) = known.sealed.counts();
        self.metrics.sealed_keys(own, routed, known.sealed.broken());
        self.metrics.members(known.members.count());
    }
}

fn api_of(folder: &Folder, settings: &Settings, identity: &Identity) -> Result<Api, JoinError> {
    client::api_of(PROGRAM, folder.joined(), &settings.server, settings.pin.as_deref(), identity)
}

fn tls_failed(error: rustls::Error) -> JoinError {
    JoinError::Trust(format!("TLS cannot be set up: {error}"))
}

fn tls_of(settings: &Settings, identity: &Identity) -> Result<NodeTls, JoinError> {
    let chain = identity.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivatePkcs8KeyDer::from(identity.key.to_pkcs8_der().to_vec()).into();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(tls_failed)?;
    let roots = x509::pem::certificates(settings.nodes_ca_pem.as_bytes()).map(|(_, der)| der).collect();
    Ok(NodeTls { certificate: Arc::new(CertifiedKey::new(chain, key)), roots })
}
