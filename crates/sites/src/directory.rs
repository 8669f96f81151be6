//! The directory of sites and nodes: the handle that clones share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use authority::keystore::KeyStore;
use enrollment::{Certify, IdentityKey, check_name};
use keyless::places::Attributes;
use parking_lot::Mutex;
use serde_json::json;
use store::{AuditEvent, Clock, Store};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::beats::Beats;
use crate::error::SiteError;
use crate::numbers::Numbers;
use crate::steadiness::Steadiness;
use crate::view::View;

/// Sites at most: all their attributes are looked at whenever a policy is resolved, some hundred bytes each.
pub const SITES_MAX: i64 = 1_000;
/// Nodes that are not retired at most: every server and every node holds the statements of all, 3 KB each.
pub const NODES_MAX: i64 = 10_000;
/// What [`Sites`] is built on.
pub struct SitesParts {
    /// The database.
    pub store: Store,
    /// Keeps the key that signs statements.
    pub keystore: KeyStore,
    /// The time. Servers over one database agree about it to some hundred milliseconds.
    pub clock: Clock,
    /// Issues nodes' certificates.
    pub certify: Arc<dyn Certify>,
    /// How the server knows a node's certificate again.
    pub identity: IdentityKey,
    /// Certificates below which those of the server and of all nodes stand, PEM.
    pub ca_pem: String,
}

/// Sites and nodes. Clones share everything.
#[derive(Clone)]
pub struct Sites(pub(crate) Arc<DirectoryState>);

pub(crate) struct DirectoryState {
    pub(crate) parts: SitesParts,
    pub(crate) beats: Beats,
    pub(crate) view: View,
    /// Number of rounds begun.
    pub(crate) looks: AtomicU64,
    /// One look at a time: the number of the last that came to its end. Those who come together need no second.
    pub(crate) looked: tokio::sync::Mutex<u64>,
    pub(crate) signer: OnceCell<Uuid>,
    pub(crate) steadiness: Mutex<Steadiness>,
    /// The numbers of the last changes of policies, wraps and sealed keys that this server knows of.
    pub(crate) numbers: Numbers,
}

impl Sites {
    /// Creates the directory from its parts. The caller must run [`Sites::run`] as well.
    #[must_use]
    pub fn new(parts: SitesParts) -> Self {
        Self(Arc::new(DirectoryState {
            parts,
            beats: Beats::default(),
            view: View::default(),
            looks: AtomicU64::new(0),
            looked: tokio::sync::Mutex::default(),
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

/// Attributes as they are stored; none when they cannot be read, which satisfies no policy.
#[must_use]
pub fn stored_attributes(json: &str) -> Attributes {
    serde_json::from_str(json).unwrap_or_default()
}

/// Sites and nodes are named where they could be meant by their identities.
pub(crate) fn check_site_name(name: &str) -> Result<(), SiteError> {
    check_name(name).map_err(SiteError::Invalid)?;
    if name.parse::<Uuid>().is_ok() {
        return Err(SiteError::Invalid(format!("{name:?} is no name but an identity: choose another")));
    }
    Ok(())
}

pub(crate) fn to_store(attributes: &Attributes) -> String {
    json!(attributes).to_string()
}
