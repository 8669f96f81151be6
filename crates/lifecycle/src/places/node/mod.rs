//! A node's own side: it joins, keeps who it is, says that it is there, and knows the others.

mod folder;
mod members;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyless::places::StatementError;
use keys::PrivateKey;
use keys::sealed::{NodeKey, SealedError};
use parking_lot::Mutex;
use store::Clock;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::Fingerprint;
use zeroize::Zeroizing;

use super::BEAT_EVERY;
use super::work::{Beat, BeatAnswer, EnrolledNode, NodeEnrolment, NodeRenewal};
use crate::deploy::StateError;
use crate::joining::host::{
    ApiError, HostError, Identity, REQUEST, ServerApi, bare_csr, first_trust, server_of,
};
use folder::{Folder, Settings};

pub use members::Members;

/// What the control plane is told that we are.
const PROGRAM: &str = concat!("bulla-node/", env!("CARGO_PKG_VERSION"));
/// For a beat and its answer, the connection included. Its lease is over by then; the next beat is worth more.
const BEAT_WITHIN: Duration = Duration::from_secs(5);
/// Beats are so far apart, whatever the control plane says.
const BEATS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
/// Between two beats that came to nothing at most: a node is to be there within seconds once it can.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two tries to renew the certificate, seconds.
const RENEW_PAUSE_SECONDS: i64 = 60;

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Join first.
    #[error("{0} holds no node: it joins with the address of a control plane and a token")]
    NotJoined(PathBuf),
    /// It is one already.
    #[error("this is the node {name} of {server} already: remove {folder} to join another")]
    Joined {
        /// Its name.
        name: String,
        /// Its control plane.
        server: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// The key to which others seal.
    #[error("the node's KEM key: {0}")]
    Kem(#[from] SealedError),
    /// What is said of it is not to be believed.
    #[error("what the control plane says of this node: {0}")]
    Statement(#[from] StatementError),
    /// Its folder, its control plane, or what that is trusted by.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<StateError> for NodeError {
    fn from(error: StateError) -> Self {
        Self::Host(error.into())
    }
}

impl From<ApiError> for NodeError {
    fn from(error: ApiError) -> Self {
        Self::Host(error.into())
    }
}

/// How to become a node.
#[derive(Debug)]
pub struct JoinOptions {
    /// `https://HOST[:PORT]`.
    pub server: String,
    /// Used once.
    pub token: Zeroizing<String>,
    /// Certificates the server's own stands below, PEM; the host's roots when neither this nor `ca_sha256` is given.
    pub ca_pem: Option<String>,
    /// SHA-256 of the server's certificate, or of one above it that it sends.
    pub ca_sha256: Option<Fingerprint>,
    /// The node's name; one made of its identity when absent.
    pub name: Option<String>,
    /// `HOST:PORT` where the other nodes ask it.
    pub address: String,
    /// The node's folder.
    pub state: PathBuf,
}

/// What a node shows itself with to the others, and believes them by.
#[derive(Clone)]
pub struct NodeIdentity {
    /// Its certificate and what stands above it, DER.
    pub chain: Vec<Vec<u8>>,
    /// Its key.
    pub key: PrivateKey,
    /// Certificates below which those of all nodes stand, PEM.
    pub ca_pem: String,
}

impl std::fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeIdentity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// What others need of a node that runs. Clones share everything.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    /// Who it is.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Opens what is sealed for it.
    pub kem: Arc<NodeKey>,
    /// Who is there, itself included, as the control plane last said.
    pub members: watch::Receiver<Arc<Members>>,
    /// Renewed by itself.
    pub identity: watch::Receiver<Arc<NodeIdentity>>,
    measured: Arc<Mutex<BTreeMap<Uuid, u32>>>,
}

impl NodeHandle {
    /// Milliseconds to others and back, to be told with the next beats.
    pub fn measured(&self, measured: BTreeMap<Uuid, u32>) {
        *self.measured.lock() = measured;
    }
}

/// A node of the key service.
pub struct Node {
    folder: Folder,
    settings: Settings,
    identity: Identity,
    statement_key: Vec<u8>,
    api: ServerApi,
    clock: Clock,
    address: Option<String>,
    /// What is known of the others.
    known: Members,
    /// Whether it is otherwise than what was told here.
    untold: bool,
    members: watch::Sender<Arc<Members>>,
    shown: watch::Sender<Arc<NodeIdentity>>,
    handle: NodeHandle,
    /// When to try again to renew the certificate, seconds.
    renew_again_at: i64,
}

impl Node {
    /// Makes this host a node, unless it is that one already. Its keys are made here. Repeated after a lost answer, the
    /// same keys with the same token get the same node.
    ///
    /// # Errors
    /// [`NodeError`]; nothing but the keys is kept then.
    pub async fn join(options: &JoinOptions, clock: Clock) -> Result<Self, NodeError> {
        let server = server_of(&options.server)?;
        let folder = Folder::new(&options.state)?;
        match folder.settings()? {
            Some(settings) if settings.server == server => {}
            Some(settings) => {
                let folder = options.state.clone();
                return Err(NodeError::Joined { name: settings.name, server: settings.server, folder });
            }
            None => join(&folder, server, options).await?,
        }
        let node = Self::open(&options.state, clock)?;
        Ok(Self { address: Some(options.address.clone()), ..node })
    }

    /// Opens the node of a folder. Asks nobody.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn open(state: &Path, clock: Clock) -> Result<Self, NodeError> {
        let folder = Folder::new(state)?;
        let not_joined = || NodeError::NotJoined(state.to_owned());
        let settings = folder.settings()?.ok_or_else(not_joined)?;
        let identity = folder.own().identity()?.ok_or_else(not_joined)?;
        let kem = Arc::new(folder.kem()?.ok_or_else(not_joined)?);
        let statement_key = key_of(&settings.statement_key)?;
        let api = api_of(&folder, &settings, &identity)?;
        let (members, told) = watch::channel(Arc::default());
        let (shown, showing) = watch::channel(Arc::new(shown_of(&folder, &identity)?));
        let handle = NodeHandle {
            id: settings.node,
            name: settings.name.clone(),
            kem,
            members: told,
            identity: showing,
            measured: Arc::default(),
        };
        let (known, untold, address, renew_again_at) = (Members::default(), false, None, 0);
        Ok(Self {
            folder,
            settings,
            identity,
            statement_key,
            api,
            clock,
            address,
            known,
            untold,
            members,
            shown,
            handle,
            renew_again_at,
        })
    }

    /// What others need of it.
    #[must_use]
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Says that it is there, and learns of the others, until stopped. A control plane that is away is waited for.
    pub async fn run(&mut self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("node-beat");
        let mut failures = 0_u32;
        let mut next = Instant::now();
        loop {
            let turn = async {
                tokio::time::sleep_until(next).await;
                self.renew_if_due().await;
                self.beat().await
            };
            let beaten = tokio::select! {
                () = stop.cancelled() => return,
                beaten = turn => beaten,
            };
            next = match beaten {
                Ok(pause) => {
                    failures = 0;
                    next.max(Instant::now() - pause) + pause
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // Now and then: it may be away for days.
                    if failures.is_power_of_two() {
                        tracing::warn!(%error, failures, "the control plane did not hear this node");
                    }
                    self.forget();
                    Instant::now() + (BEAT_EVERY * failures.min(100)).min(PAUSE_MAX)
                }
            };
        }
    }

    /// One beat; how long until the next.
    async fn beat(&mut self) -> Result<Duration, NodeError> {
        let beat = Beat {
            address: self.address.clone(),
            since: self.known.since(),
            measured: self.handle.measured.lock().clone(),
        };
        let answer: BeatAnswer = self.api.post("/api/v1/key-nodes/self/beat", &beat, BEAT_WITHIN).await?;
        let more = answer.membership.more;
        self.untold |= self.known.take(answer.membership, &self.statement_key, self.clock.now_seconds());
        if more {
            return Ok(Duration::ZERO);
        }
        self.tell();
        Ok(Duration::from_millis(answer.beat_every_ms).clamp(BEATS.0, BEATS.1))
    }

    /// Whose statement is over is believed no more, also while nobody says so.
    fn forget(&mut self) {
        self.untold |= self.known.forget_ended(self.clock.now_seconds());
        self.tell();
    }

    fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.members.send_replace(Arc::new(self.known.clone()));
        }
    }

    /// A failure is only told: the certificate is good for a while yet.
    async fn renew_if_due(&mut self) {
        let now = self.clock.now_seconds();
        if now < self.renew_again_at || !self.identity.is_due(now) {
            return;
        }
        self.renew_again_at = now.saturating_add(RENEW_PAUSE_SECONDS);
        match self.renew().await {
            Ok(()) => {
                tracing::info!(until = self.identity.leaf.not_after.0, "the node's certificate is renewed")
            }
            Err(error) => {
                tracing::warn!(%error, until = self.identity.leaf.not_after.0, "the node's certificate is not renewed yet");
            }
        }
    }

    async fn renew(&mut self) -> Result<(), NodeError> {
        let renewal = NodeRenewal { csr_pem: bare_csr(&self.identity.key)? };
        let enrolled: EnrolledNode = self.api.post("/api/v1/key-nodes/self/renew", &renewal, REQUEST).await?;
        let statement_key = key_of(&enrolled.statement_key)?;
        enrolled.statement.verify(&statement_key)?;
        self.folder.own().write_certificate(&self.identity.key, &enrolled.certificate_pem)?;
        self.folder.own().add_ca(&enrolled.ca_pem)?;
        self.settings.statement_key = enrolled.statement_key;
        self.folder.write_settings(&self.settings)?;
        self.statement_key = statement_key;
        if let Some(identity) = self.folder.own().identity()? {
            self.identity = identity;
            self.api = api_of(&self.folder, &self.settings, &self.identity)?;
            self.shown.send_replace(Arc::new(shown_of(&self.folder, &self.identity)?));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("settings", &self.settings).finish_non_exhaustive()
    }
}

async fn join(folder: &Folder, server: String, options: &JoinOptions) -> Result<(), NodeError> {
    let key = folder.own().made_key().await?;
    let kem = folder.made_kem()?;
    let trust = first_trust(options.ca_pem.as_deref(), options.ca_sha256)?;
    let api = ServerApi::new(&server, &trust, None, PROGRAM)?;
    let request = NodeEnrolment {
        token: options.token.to_string(),
        csr_pem: bare_csr(&key)?,
        kem: kem.public().to_text(),
        address: options.address.clone(),
        name: options.name.clone(),
    };
    let enrolled: EnrolledNode = api.post("/api/v1/key-nodes/enroll", &request, REQUEST).await?;
    let said = enrolled.statement.verify(&key_of(&enrolled.statement_key)?)?;
    if said.node != enrolled.node || said.kem != *kem.public() {
        return Err(StatementError::Forged.into());
    }
    folder.own().write_certificate(&key, &enrolled.certificate_pem)?;
    let ca_pem = format!("{}{}", options.ca_pem.as_deref().unwrap_or_default(), enrolled.ca_pem);
    folder.own().write_ca(&ca_pem)?;
    let pin = if ca_pem.is_empty() { options.ca_sha256.map(|pin| pin.to_string()) } else { None };
    // Last: with it the node has joined.
    Ok(folder.write_settings(&Settings {
        node: enrolled.node,
        name: enrolled.name,
        site: enrolled.site,
        server,
        pin,
        statement_key: enrolled.statement_key,
    })?)
}

fn key_of(text: &str) -> Result<Vec<u8>, NodeError> {
    STANDARD.decode(text).map_err(|_| StatementError::NotEd25519.into())
}

fn api_of(folder: &Folder, settings: &Settings, identity: &Identity) -> Result<ServerApi, NodeError> {
    let trust = folder.own().trust(settings.pin.as_deref())?;
    Ok(ServerApi::new(&settings.server, &trust, Some(identity), PROGRAM)?)
}

fn shown_of(folder: &Folder, identity: &Identity) -> Result<NodeIdentity, NodeError> {
    let ca_pem = folder.own().ca()?;
    Ok(NodeIdentity { chain: identity.chain.clone(), key: identity.key.clone(), ca_pem })
}
