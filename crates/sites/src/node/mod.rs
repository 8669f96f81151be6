//! A key service as a node of a control plane: it joins by a token, says that it is there, learns of the other nodes and
//! of what is sealed to policies, and signs by what it can open. What it cannot open it asks the others for.
//!
//! What it was told last is in its folder: a node starts, and signs, while the control plane is away.

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
use enrollment::client::{self, Api, ApiError, Identity, JoinError, JoinOptions, REQUEST, bare_csr};
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

/// In the control plane's log.
const PROGRAM: &str = "bulla-node";
/// What the keys are known by among those of the service.
const SOURCE: &str = "sealed";

/// Why there is no node, or it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Join first.
    #[error("{0} holds no node: give the control plane's address and a token")]
    NotJoined(PathBuf),
    /// The folder belongs to a node already.
    #[error("this host is already the node {name} of {server}: remove {folder} to join again")]
    Joined {
        /// Its name.
        name: String,
        /// Its control plane.
        server: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// Joining failed, or what was joined with.
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

/// A node's identity.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its site's.
    pub site: String,
    /// Its control plane.
    pub server: String,
}

/// The certificate and trust anchors for connections with other nodes.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Its own.
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER).
    pub roots: Vec<Vec<u8>>,
}

impl NodeTls {
    /// TLS options of the listener for other nodes.
    #[must_use]
    pub fn server(&self) -> TlsOptions {
        let (certificate, client_roots) = (Arc::clone(&self.certificate), self.roots.clone());
        TlsOptions { certificate, client_roots, client_crls: Vec::new() }
    }

    fn client(&self) -> ClientTls {
        ClientTls { certificate: Arc::clone(&self.certificate), server_roots: self.roots.clone() }
    }
}

/// A node that has joined.
pub struct KeyNode {
    folder: Folder,
    name: String,
    site: String,
    address: String,
    clock: Clock,
    /// Over which it speaks to the control plane: made again with each certificate.
    api: RwLock<Arc<Api>>,
    shown: Mutex<(Settings, Identity)>,
    /// Who is there and what is sealed: looked at and changed in one go, never held over a wait.
    known: Mutex<NodeKnowledge>,
    /// Who is there, to be written down for the next start.
    to_note: watch::Sender<Option<Arc<KnownMembers>>>,
    /// Whether it is suspended, to be written down.
    to_suspend: watch::Sender<bool>,
    router: Router,
    keys: KeySet,
    metrics: NodeMetrics,
    /// What the control plane has that this node has not asked for yet.
    news: Notify,
    /// What was sealed for it signs no more: see [`beat`].
    is_suspended: AtomicBool,
}

/// A node's knowledge of members, policies and keys.
struct NodeKnowledge {
    members: Members,
    sealed: SealedKeys,
    /// When the members were written down.
    noted: Instant,
}

impl std::fmt::Debug for KeyNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl KeyNode {
    /// Makes this host a node that others ask at `address` (host and port): its keys are made here. Repeated after a lost
    /// answer, the same keys and the same token get the same node. With `custody` the key to which others' are sealed lies under its
    /// master key, and a copy of the folder opens nothing.
    ///
    /// # Errors
    /// [`NodeError`]; nothing but the keys is kept then.
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
        let (key, kem) = (folder.joined().key_or_new().await?, folder.kem_or_new(custody)?);
        let request = NodeEnrolment {
            token: options.token.expose().to_owned(),
            csr_pem: bare_csr(&key)?,
            kem: kem.public().to_text(),
            address: address.to_owned(),
            name: options.name.clone(),
        };
        let api = options.api(PROGRAM)?;
        let enrolled: EnrolledNode = api.post("/api/v1/key-nodes/enroll", &request, REQUEST).await?;
        folder.joined().write_certificate(&key, &enrolled.certificate_pem)?;
        let pin = options.keep_trust(folder.joined(), &enrolled.ca_pem)?;
        // Last: with it the node has joined.
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

    /// Who the node of a folder is, without asking anybody. `None` when there is none.
    ///
    /// # Errors
    /// [`NodeError`] when the folder cannot be read.
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

    /// Has the node of a folder find its control plane at another address, from its next start on. Does nothing where there is no node.
    ///
    /// # Errors
    /// [`NodeError`] when the folder cannot be read or written.
    pub fn move_to(state: &Path, server: &str) -> Result<(), NodeError> {
        let folder = Folder::new(state)?;
        let Some(settings) = folder.settings()? else { return Ok(()) };
        Ok(folder.write_settings(&Settings { server: server.to_owned(), ..settings })?)
    }

    /// Opens a node that has joined, as it knew itself last. Its keys go into `keys`. Nothing is asked of anybody, but
    /// other nodes are connected to, as the options say.
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
            .map_err(|_| JoinError::Identity("the key that signs statements is not base64".to_owned()))?;
        let members = Members::restored(folder.members()?, statement_key);
        router.set_members(members.list());
        let mut sealed = SealedKeys::new(settings.node, folder.kem_or_new(custody)?, router.clone());
        let log = folder.pages();
        let pages = log.read::<News>()?;
        let is_one = pages.len() < 2;
        pages.into_iter().for_each(|page| sealed.take(page, &members));
        if !is_one {
            log.replace(&sealed.whole())?;
        }
        let is_suspended = AtomicBool::new(folder.is_suspended());
        let node = Self {
            name: settings.name.clone(),
            site: settings.site.clone(),
            address: address.to_owned(),
            clock,
            api: RwLock::new(Arc::new(api)),
            shown: Mutex::new((settings, identity)),
            known: Mutex::new(NodeKnowledge { members, sealed, noted: Instant::now() }),
            to_note: watch::Sender::new(None),
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

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Why this node has no usable key, where it has none.
    #[must_use]
    pub fn why_no_keys(&self) -> String {
        if self.is_suspended.load(Ordering::Acquire) {
            return "the control plane refuses it: was it retired? (`bulla key node show NAME`)".to_owned();
        }
        match self.known.lock().sealed.broken() {
            0 => "it was told of no sealed key yet: `bulla key list` lists them, `bulla key seal` makes them"
                .to_owned(),
            broken => format!("none of {broken} keys that are sealed for it opens; the log names each"),
        }
    }

    /// The other nodes.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// What it shows them now.
    ///
    /// # Errors
    /// [`NodeError`] when what the control plane gave cannot be used.
    pub fn tls(&self) -> Result<NodeTls, NodeError> {
        let shown = self.shown.lock();
        Ok(tls_of(&shown.0, &shown.1)?)
    }

    /// Says that it is there, learns what is new and renews its certificate, until stopped; none of it waits for the
    /// others. `on_tls` is told of each new certificate. A control plane that is away is waited for, as is a folder that
    /// fails; what is known stays.
    pub async fn run(&self, on_tls: impl Fn(&NodeTls), stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("key-node");
        let all = async {
            tokio::join!(
                self.beat(),
                self.learn(),
                self.renew(on_tls),
                self.note_members(),
                self.note_suspended()
            )
        };
        stop.run_until_cancelled(all).await;
    }

    fn api(&self) -> Arc<Api> {
        Arc::clone(&self.api.read())
    }

    /// Does something with the folder on a thread of its own: a disk that is slow costs no beat, for all that a node does for itself
    /// is one task.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || work(&folder)).await;
        done.unwrap_or_else(|error| Err(JoinError::Identity(format!("the folder: {error}")).into()))
    }

    /// Has the keys that may sign now be those of the service.
    fn put_keys(&self) {
        let known = self.known.lock();
        let is_suspended = self.is_suspended.load(Ordering::Acquire);
        let sources = if is_suspended { Vec::new() } else { known.sealed.sources() };
        // Under the lock: who puts later knows more.
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
