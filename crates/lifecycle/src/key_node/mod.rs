//! A key service as a node of a control plane: it joins by a token, says that it is there, learns of the other nodes and
//! of what is sealed to policies, and signs by what it can open. What it cannot open it asks the others for.
//!
//! What it was told last is in its folder: a node starts, and signs, while the control plane is away.

mod folder;
mod members;
mod metrics;
mod sealed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyless::KeySet;
use keyless::client::ClientTls;
use keyless::routing::{NodeId, Router, RouterOptions, RoutingMetrics};
use keyless::server::TlsOptions;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use store::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::deploy::StateError;
use crate::joining::client::{self, Api, ApiError, Identity, JoinError, JoinOptions, REQUEST, bare_csr};
use crate::places::work::{
    Beat, BeatAnswer, EnrolledNode, MEASURED_MAX, Membership, News, NodeEnrolment, NodeRenewal,
};
use folder::{Folder, Settings};
use members::Members;
use sealed::SealedKeys;

pub use metrics::NodeMetrics;
pub use sealed::SEALED_KEYS_MAX;

/// In the control plane's log.
const PROGRAM: &str = "bulla-node";
/// Until the control plane says otherwise.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// For the answer to a beat: the next one is due long before.
const BEAT_WITHIN: Duration = Duration::from_secs(5);
/// Between two beats while the control plane does not answer, at most: it is asked by all nodes then.
const BEAT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two tries to renew the certificate, seconds.
const RENEW_PAUSE_SECONDS: i64 = 60;
/// Between two notes of who is there: what a restart knows before it is told.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// Octets of what was told of sealed keys, before it is written anew as one: beyond twice what it is then.
const PAGES_MIN: u64 = 1 << 20;
/// A control plane that refuses this node for so long has retired it: what was sealed for it signs no more, until it is let
/// in again. Longer than a server takes that starts with another database by mistake and is stopped at once.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// What the keys are known by among those of the service.
const SOURCE: &str = "sealed";

/// Why there is no node, or it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Join first.
    #[error("{0} holds no node: give the control plane's address and a token")]
    NotJoined(PathBuf),
    /// It is one already.
    #[error("this host is the node {name} of {server} already: remove {folder} to join anew")]
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

/// Who a node is.
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

/// What it shows other nodes, and believes them by.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Its own.
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER).
    pub roots: Vec<Vec<u8>>,
}

impl NodeTls {
    /// Towards those who ask it.
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
    settings: Settings,
    identity: Identity,
    api: Api,
    clock: Clock,
    address: String,
    members: Members,
    sealed: SealedKeys,
    router: Router,
    keys: KeySet,
    /// Octets of the pages in the folder, and when they were one.
    pages: (u64, u64),
    renew_again_at: i64,
    noted: Instant,
    /// Since when the control plane refuses this node.
    refused_since: Option<Instant>,
    is_suspended: bool,
    metrics: NodeMetrics,
}

impl std::fmt::Debug for KeyNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyNode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl KeyNode {
    /// Makes this host a node that others ask at `address` (host and port): its keys are made here. Repeated after a lost
    /// answer, the same keys and the same token get the same node.
    ///
    /// # Errors
    /// [`NodeError`]; nothing but the keys is kept then.
    pub async fn join(options: &JoinOptions, address: &str) -> Result<NodeStatus, NodeError> {
        let server = options.server()?;
        let folder = Folder::new(&options.state)?;
        if let Some(settings) = folder.settings()? {
            let folder = options.state.clone();
            return Err(NodeError::Joined { name: settings.name, server: settings.server, folder });
        }
        let (key, kem) = (folder.joined().key_or_new().await?, folder.kem_or_new()?);
        let request = NodeEnrolment {
            token: options.token.to_string(),
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

    /// Opens a node that has joined, as it knew itself last. Its keys go into `keys`. Nothing is asked of anybody, but
    /// other nodes are connected to.
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn open(
        state: &Path,
        address: &str,
        keys: KeySet,
        (metrics, routing): (NodeMetrics, RoutingMetrics),
        clock: Clock,
    ) -> Result<Self, NodeError> {
        let folder = Folder::new(state)?;
        let not_joined = || NodeError::NotJoined(state.to_owned());
        let settings = folder.settings()?.ok_or_else(not_joined)?;
        let identity = folder.joined().identity()?.ok_or_else(not_joined)?;
        let api = api_of(&folder, &settings, &identity)?;
        let own = NodeId(*settings.node.as_bytes());
        let tls = tls_of(&settings, &identity)?;
        let router =
            Router::new(own, &tls.client(), RouterOptions::default(), routing).map_err(tls_failed)?;
        let statement_key = STANDARD.decode(&settings.statement_key);
        let statement_key = statement_key
            .map_err(|_| JoinError::Identity("the key that signs statements is not base64".to_owned()))?;
        let members = Members::restored(folder.members()?, statement_key);
        router.set_members(members.list());
        let mut sealed = SealedKeys::new(settings.node, folder.kem_or_new()?, router.clone());
        let (pages, octets) = folder.pages().read::<News>()?;
        pages.into_iter().for_each(|page| sealed.take(page, &members));
        sealed.open().await;
        keys.put_sources(SOURCE, sealed.sources());
        let node = Self {
            folder,
            settings,
            identity,
            api,
            clock,
            address: address.to_owned(),
            members,
            sealed,
            router,
            keys,
            pages: (octets, octets),
            renew_again_at: 0,
            noted: Instant::now(),
            refused_since: None,
            is_suspended: false,
            metrics,
        };
        node.count();
        Ok(node)
    }

    /// Who it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Where it is.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.settings.site
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
        Ok(tls_of(&self.settings, &self.identity)?)
    }

    /// Says that it is there and learns what is new, until stopped. `on_tls` is told of each new certificate. A control
    /// plane that is away is waited for; what is known stays.
    ///
    /// # Errors
    /// [`NodeError`] when its folder fails.
    pub async fn run(
        &mut self,
        on_tls: impl Fn(&NodeTls),
        stop: &CancellationToken,
    ) -> Result<(), NodeError> {
        let _live = telemetry::tasks::guard("key-node");
        let (mut failures, mut is_away) = (0_u32, false);
        loop {
            let turn = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                turn = self.turn(&on_tls) => turn,
            };
            let pause = match turn {
                Ok(pause) => {
                    self.metrics.is_away(false);
                    if std::mem::take(&mut is_away) {
                        tracing::info!("the control plane answers again");
                    }
                    failures = 0;
                    pause
                }
                Err(NodeError::Join(JoinError::Api(error))) => {
                    self.refused(&error);
                    self.metrics.is_away(true);
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!(%error, "the control plane does not answer; what is known stays");
                    }
                    failures = failures.saturating_add(1);
                    client::backoff(failures, error.retry_after()).clamp(BEAT_EVERY, BEAT_PAUSE_MAX)
                }
                Err(error) => return Err(error),
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One beat, and what follows from it; when the next one is due.
    async fn turn(&mut self, on_tls: &impl Fn(&NodeTls)) -> Result<Duration, NodeError> {
        let began = Instant::now();
        let beat = Beat {
            address: Some(self.address.clone()),
            since: self.members.since(),
            measured: self.measured(),
        };
        let answer: BeatAnswer = self.api.post("/api/v1/key-nodes/self/beat", &beat, BEAT_WITHIN).await?;
        self.let_in();
        let more = answer.membership.more;
        self.take_members(answer.membership)?;
        if answer.state > self.sealed.next() {
            self.learn().await?;
        }
        self.count();
        if let Some(tls) = self.renew_if_due().await? {
            on_tls(&tls);
        }
        if more {
            return Ok(Duration::ZERO);
        }
        Ok(Duration::from_millis(answer.beat_every_ms.clamp(50, 60_000)).saturating_sub(began.elapsed()))
    }

    /// Milliseconds to the nearest of the others.
    fn measured(&self) -> BTreeMap<Uuid, u32> {
        let mut all = self.router.measured();
        all.sort_by_key(|(_, way)| *way);
        let milliseconds = |way: Duration| u32::try_from(way.as_millis()).unwrap_or(u32::MAX);
        let nearest = all.into_iter().take(MEASURED_MAX);
        nearest.map(|(node, way)| (Uuid::from_bytes(node.0), milliseconds(way))).collect()
    }

    fn take_members(&mut self, told: Membership) -> Result<(), NodeError> {
        let changed = self.members.take(told);
        if !changed.is_empty() {
            self.router.set_members(self.members.list());
            self.sealed.members_changed(&changed, &self.members);
            // At once when much changes seldom, and not at each of many changes.
            if self.noted.elapsed() >= NOTE_EVERY || self.members.count() < 100 {
                self.folder.write_members(&self.members.known())?;
                self.noted = Instant::now();
            }
        }
        Ok(())
    }

    /// Everything that is new of policies and sealed keys: kept first, then used.
    async fn learn(&mut self) -> Result<(), NodeError> {
        loop {
            let after = self.sealed.next().to_string();
            let page: News =
                self.api.get("/api/v1/key-nodes/self/state", &[("after", after.as_str())], REQUEST).await?;
            let log = self.folder.pages();
            log.append(&page)?;
            let more = page.more;
            self.sealed.take(page, &self.members);
            if !more {
                break;
            }
        }
        self.sealed.open().await;
        self.keys.put_sources(SOURCE, self.sealed.sources());
        self.compact()
    }

    /// Writes what is known as one page, once changes have made it twice as long.
    fn compact(&mut self) -> Result<(), NodeError> {
        let log = self.folder.pages();
        let now = log.octets();
        if now > PAGES_MIN.max(2 * self.pages.1) {
            log.replace(&self.sealed.whole())?;
            let octets = log.octets();
            self.pages = (octets, octets);
        }
        Ok(())
    }

    /// Whether the control plane says that this is a node no more: then it signs by nothing that was sealed for it.
    fn refused(&mut self, error: &ApiError) {
        if !matches!(error, ApiError::Refused { status: 401 | 403, .. }) {
            self.refused_since = None;
            return;
        }
        let began = self.refused_since.get_or_insert_with(Instant::now);
        if !self.is_suspended && began.elapsed() >= REFUSED_FOR {
            tracing::error!(%error, "the control plane knows this node no more: what was sealed for it signs no more");
            self.is_suspended = true;
            self.keys.put_sources(SOURCE, Vec::new());
        }
    }

    /// The control plane knows this node.
    fn let_in(&mut self) {
        self.refused_since = None;
        if std::mem::take(&mut self.is_suspended) {
            tracing::info!("the control plane knows this node again");
            self.keys.put_sources(SOURCE, self.sealed.sources());
        }
    }

    fn count(&self) {
        let (own, routed) = self.sealed.counts();
        self.metrics.sealed_keys(own, routed, self.sealed.broken());
        self.metrics.members(self.members.count());
    }

    /// A failure is only told: the certificate is good for a while yet.
    async fn renew_if_due(&mut self) -> Result<Option<NodeTls>, NodeError> {
        let now = self.clock.now_seconds();
        if now < self.identity.renew_at() || now < self.renew_again_at {
            return Ok(None);
        }
        self.renew_again_at = now.saturating_add(RENEW_PAUSE_SECONDS);
        let request = NodeRenewal { csr_pem: bare_csr(&self.identity.key)? };
        let renewed: Result<EnrolledNode, _> =
            self.api.post("/api/v1/key-nodes/self/renew", &request, REQUEST).await;
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(error) => {
                let until = self.identity.leaf.not_after.0;
                tracing::warn!(%error, until, "the node's certificate is not renewed yet");
                return Ok(None);
            }
        };
        let joined = self.folder.joined();
        joined.write_certificate(&self.identity.key, &renewed.certificate_pem)?;
        if !renewed.ca_pem.is_empty() {
            joined.add_ca(&renewed.ca_pem)?;
        }
        let Some(identity) = joined.identity()? else { return Ok(None) };
        self.identity = identity;
        self.settings.nodes_ca_pem = renewed.ca_pem;
        self.folder.write_settings(&self.settings)?;
        self.api = api_of(&self.folder, &self.settings, &self.identity)?;
        let tls = tls_of(&self.settings, &self.identity)?;
        self.router.change_tls(&tls.client()).map_err(tls_failed)?;
        tracing::info!(until = self.identity.leaf.not_after.0, "the node's certificate is renewed");
        Ok(Some(tls))
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
