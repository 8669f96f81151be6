//! Places where private keys may be, as the control plane sees them: sites with their attributes, the key service nodes
//! at them, and who of them is there.
//!
//! A node joins by a token that is used once, and says every quarter of a second that it is there. What the others are told of it
//! is a [`Statement`](keyless::places::Statement), signed here: its site's attributes and those of its token, never what
//! it says of itself. [`work`] is what nodes and the control plane say to each other.

mod beats;
mod enrolment;
mod nodes;
mod numbers;
pub mod policies;
mod round;
mod sites;
mod statements;
mod view;
pub mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::authority::keystore::{KeyStore, KeyStoreError};
use keyless::places::{BadAttribute, StatementError};
use parking_lot::Mutex;
use serde_json::json;
use store::{AuditEvent, Clock, Store, StoreError};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::joining::{Certify, CertifyError, IdentityKey, check_name};
use beats::Beats;
use numbers::Numbers;
use round::Steadiness;
use view::View;

pub use keyless::places::Attributes;

pub use enrolment::{MadeNodeToken, NewNodeToken};
pub use nodes::{NodeQuery, attributes_of, node_domain, node_uri};
pub use sites::NewSite;

/// Sites at most: all their attributes are looked at whenever a policy is resolved, some hundred octets each.
pub const SITES_MAX: i64 = 1_000;
/// Nodes that are not retired at most: every server and every node holds the statements of all, 3 KB each.
pub const NODES_MAX: i64 = 10_000;
/// A node says this often that it is there.
pub const BEAT_EVERY: Duration = Duration::from_millis(250);
/// How long it is believed: three beats may be lost, or one come 800 ms late; where several servers hear them two, or one 500 ms
/// late, less what their writing takes and their clocks differ. Called gone by mistake, it comes back with its next
/// beat; meanwhile the others ask other nodes, and connect to it anew.
pub const LEASE: Duration = Duration::from_millis(1_100);
/// How long a node waits at most before it asks a control plane again that did not answer.
pub const AWAY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Within which all are told that a node is gone, from its death: its lease, the round that finds it over, that in which
/// another server reads so, and the beat that is answered so. What is left is for statements and for the way.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(
    LEASE.as_millis() + 2 * round::ROUND.as_millis() + BEAT_EVERY.as_millis() + 100 < TOLD_WITHIN.as_millis()
);
const _: () = assert!(LEASE.as_millis() > 4 * BEAT_EVERY.as_millis(), "three beats may be lost");
const _: () =
    assert!(LEASE.as_millis() > 3 * BEAT_EVERY.as_millis() + round::ROUND.as_millis(), "or two, elsewhere");

/// Why something about sites or nodes was not done.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Nothing by that identity or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// What was asked for makes no sense; what to change.
    #[error("{0}")]
    Invalid(String),
    /// An attribute that cannot be.
    #[error(transparent)]
    Attribute(#[from] BadAttribute),
    /// Another has that name.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Another node has that key.
    #[error("another node, perhaps a retired one, was enrolled with this key: make a new one")]
    KeyTaken,
    /// It changed since it was read.
    #[error("it has changed meanwhile: read it again")]
    Changed,
    /// A site with nodes stays.
    #[error("{0} nodes are at this site: retire them first")]
    NotEmpty(i64),
    /// No more are taken.
    #[error("there are {max} {what} already, and no more are taken")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        max: i64,
    },
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// The certificate or the KEM public key is not the node's.
    #[error("this is not the key the node was enrolled with")]
    OtherKey,
    /// Unknown, used, or expired: not told apart, so that guessing teaches nothing.
    #[error("the node token is not good: it is unknown, used, or expired")]
    Token,
    /// The request cannot be read, or is not signed by its key.
    #[error("the CSR is not good: {0}")]
    Csr(String),
    /// No certificate for the node.
    #[error(transparent)]
    Certify(#[from] CertifyError),
    /// The key that signs statements cannot be had.
    #[error("the key that signs statements cannot be had: {0}")]
    Signer(#[from] KeyStoreError),
    /// It does not sign.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What [`Places`] is built on.
pub struct PlacesParts {
    /// The database.
    pub store: Store,
    /// Keeps the key that signs statements.
    pub keystore: KeyStore,
    /// The time. Servers over one database agree about it to some hundred milliseconds.
    pub clock: Clock,
    /// Who signs nodes' certificates.
    pub certify: Arc<dyn Certify>,
    /// How the server knows a node's certificate again.
    pub identity: IdentityKey,
    /// Certificates below which those of the server and of all nodes stand, PEM.
    pub ca_pem: String,
}

/// Sites and nodes. Clones share everything.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

struct Inner {
    parts: PlacesParts,
    beats: Beats,
    view: View,
    /// Looks begun.
    looks: AtomicU64,
    /// One look at a time: the number of the last that came to its end. Those who come together need no second.
    looked: tokio::sync::Mutex<u64>,
    signer: OnceCell<Uuid>,
    steadiness: Mutex<Steadiness>,
    /// The numbers of the last changes of policies, wraps and sealed keys that this server knows of.
    numbers: Numbers,
}

impl Places {
    /// Over its parts. Have [`Places::run`] running beside it.
    #[must_use]
    pub fn new(parts: PlacesParts) -> Self {
        Self(Arc::new(Inner {
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

    fn parts(&self) -> &PlacesParts {
        &self.0.parts
    }

    fn store(&self) -> &Store {
        &self.0.parts.store
    }

    fn now_us(&self) -> i64 {
        self.0.parts.clock.now_us()
    }

    fn event(
        &self,
        actor: &str,
        action: &'static str,
        resource: String,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent { at_us: self.now_us(), actor: actor.to_owned(), action, resource, details }
    }
}

impl std::fmt::Debug for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

/// Attributes as they are stored; none when they cannot be read, which satisfies no policy.
#[must_use]
pub fn stored_attributes(json: &str) -> Attributes {
    serde_json::from_str(json).unwrap_or_default()
}

/// Sites and nodes are named where they could be meant by their identities.
fn check_place_name(name: &str) -> Result<(), PlaceError> {
    check_name(name).map_err(PlaceError::Invalid)?;
    if name.parse::<Uuid>().is_ok() {
        return Err(PlaceError::Invalid(format!("{name:?} is no name but an identity: choose another")));
    }
    Ok(())
}

fn to_store(attributes: &Attributes) -> String {
    json!(attributes).to_string()
}
