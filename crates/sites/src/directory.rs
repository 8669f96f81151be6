//! The directory of sites and nodes: the handle that clones share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use authority::keystore::KeyStore;
use enrollment::{Certify, IdentityHasher, TrustAnchors, check_name};
use keyless::places::Attributes;
use parking_lot::Mutex;
use serde_json::json;
use shared::Shared;
use store::{AuditEvent, Clock, Store};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::beats::PendingHeartbeats;
use crate::error::SiteError;
use crate::numbers::Numbers;
use crate::steadiness::HeartbeatContinuity;
use crate::view::View;

/// Maximum number of sites. All their attributes, a few hundred bytes each, are read whenever a policy is evaluated.
pub const SITES_MAX: i64 = 1_000;
/// Maximum number of nodes that are not retired. Every server and every node stores the statements of all nodes, 3 KB each.
pub const NODES_MAX: i64 = 10_000;
/// Dependencies of [`Sites`].
pub struct SitesParts {
    /// Database of sites and nodes.
    pub store: Store,
    /// Key store with the key that signs statements.
    pub keystore: KeyStore,
    /// Clock of this server. The clocks of servers with the same database must agree to within a few hundred milliseconds.
    pub clock: Clock,
    /// Issuer of nodes' certificates.
    pub certify: Arc<dyn Certify>,
    /// Key by which the server recognizes nodes' certificates.
    pub identity: IdentityHasher,
    /// PEM trust anchors for the certificates of the server and of all nodes.
    pub ca_pem: TrustAnchors,
}

/// Sites and nodes. Clones share their state.
#[derive(Clone)]
pub struct Sites(pub(crate) Shared<DirectoryState>);

pub(crate) struct DirectoryState {
    pub(crate) parts: SitesParts,
    pub(crate) beats: PendingHeartbeats,
    pub(crate) view: View,
    /// Number of view updates that were started.
    pub(crate) view_updates_started: AtomicU64,
    /// Number of the last completed view update. The lock serializes updates; concurrent callers share an update.
    pub(crate) view_updated: tokio::sync::Mutex<u64>,
    pub(crate) signer: OnceCell<Uuid>,
    pub(crate) steadiness: Mutex<HeartbeatContinuity>,
    /// The numbers of the last known changes of policies, wrapped policy keys and sealed keys.
    pub(crate) numbers: Numbers,
}

impl Sites {
    /// Creates the directory from its parts. The caller must also run [`Sites::run`].
    #[must_use]
    pub fn new(parts: SitesParts) -> Self {
        Self(Shared::new(DirectoryState {
            parts,
            beats: PendingHeartbeats::default(),
            view: View::default(),
            view_updates_started: AtomicU64::new(0),
            view_updated: tokio::sync::Mutex::default(),
            signer: OnceCell::new(),
            steadiness: Mutex::default(),
            numbers: Numbers::default(),
        }))
    }

    pub(crate) fn parts(&self) -> &SitesParts {
        &self.0.parts
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.parts.store
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.0.parts.clock.now_us()
    }

    pub(crate) fn event(
        &self,
        actor: &str,
        action: &'static str,
        resource: String,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent { at_us: self.now_us(), actor: actor.to_owned(), action, resource, details }
    }
}

impl std::fmt::Debug for Sites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sites").finish_non_exhaustive()
    }
}

/// Parses stored attributes. Returns an empty set if they are malformed; an empty set satisfies no policy.
#[must_use]
pub fn stored_attributes(json: &str) -> Attributes {
    serde_json::from_str(json).unwrap_or_default()
}

/// Checks a site's name. The name must not look like an id, because requests name sites by name or id.
pub(crate) fn check_site_name(name: &str) -> Result<(), SiteError> {
    check_name(name).map_err(SiteError::Invalid)?;
    if name.parse::<Uuid>().is_ok() {
        return Err(SiteError::Invalid(format!("{name:?} is an ID, not a name: choose a name")));
    }
    Ok(())
}

pub(crate) fn to_store(attributes: &Attributes) -> String {
    json!(attributes).to_string()
}
