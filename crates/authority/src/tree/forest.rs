//! Cache of all CAs and their chains.

use std::collections::HashMap;
use std::sync::Arc;

use flight::Cache;
use keys::KeyType;
use parking_lot::RwLock;
use uuid::Uuid;
use x509::{Certificate, Fingerprint};

use super::ca::{Ca, CaState, DerChain, LazySigner, PendingCa};
use super::error::CaError;
use crate::keystore::KeyStore;
use crate::tables::{CaCertificateRole, CaCertificateRow, CaRows, CaWithKey};

/// Maximum number of CAs in one path. It exceeds the depth of any CA tree and limits the traversal of damaged data.
const PATH_MAX: usize = 16;
/// Maximum number of alternate chains of one CA.
const ALTERNATES_MAX: usize = 8;

/// Cache of all CAs. The CAs are read again after a change on this node, or when the change counter in the database differs. The
/// counter is checked every [`crate::AuthorityOptions::cache_lifetime`].
pub struct CaCache {
    pub(super) cache: Cache<(), Arc<CaSnapshot>, CaError>,
    /// The last cached state, perhaps out of date. It avoids reading unchanged data again.
    pub(super) last: RwLock<Option<Arc<CaSnapshot>>>,
}

impl Default for CaCache {
    fn default() -> Self {
        Self { cache: Cache::with_entries_max(1), last: RwLock::default() }
    }
}

/// A snapshot of all CAs.
#[derive(Debug, Default)]
pub(crate) struct CaSnapshot {
    pub(super) generation: i64,
    /// All CAs, oldest first.
    pub(crate) all: Vec<Arc<Ca>>,
    pub(crate) pending: Vec<Arc<PendingCa>>,
    pub(super) by_id: HashMap<Uuid, Arc<Ca>>,
    pub(super) by_name: HashMap<String, Arc<Ca>>,
    pub(super) by_certificate: HashMap<Fingerprint, Arc<Ca>>,
}

/// A CA while its chains are being built.
struct Node {
    row: CaWithKey,
    state: CaState,
    certificate: Arc<Certificate>,
    above: Vec<Arc<[u8]>>,
    /// Certificates from before a renewal that are still valid; empty for a root.
    earlier: Vec<Arc<[u8]>>,
    crosses: Vec<(Arc<[u8]>, Option<Uuid>)>,
}

impl CaSnapshot {
    pub(super) fn build(rows: CaRows, keystore: &KeyStore, now_us: i64) -> Self {
        let mut certificates: HashMap<Uuid, Vec<CaCertificateRow>> = HashMap::new();
        for row in rows.certificates {
            certificates.entry(row.ca_id).or_default().push(row);
        }
        let mut forest = Self { generation: rows.generation, ..Self::default() };
        let mut nodes = Vec::new();
        for row in rows.cas {
            let own = certificates.remove(&row.ca.id).unwrap_or_default();
            if let Some(request) = &row.ca.request {
                forest.pending.push(Arc::new(pending(&row, request)));
            } else {
                nodes.extend(node(row, own, now_us));
            }
        }
        let by_id: HashMap<Uuid, &Node> = nodes.iter().map(|node| (node.row.ca.id, node)).collect();
        for node in &nodes {
            let Some(ca) = authority(node, &by_id, keystore) else { continue };
            let ca = Arc::new(ca);
            forest.by_id.insert(ca.id, Arc::clone(&ca));
            forest.by_name.insert(ca.name.clone(), Arc::clone(&ca));
            forest.by_certificate.insert(ca.certificate.fingerprint, Arc::clone(&ca));
            forest.all.push(ca);
        }
        forest
    }
}

fn pending(row: &CaWithKey, request: &[u8]) -> PendingCa {
    PendingCa {
        id: row.ca.id,
        name: row.ca.name.clone(),
        key_id: row.ca.key_id,
        request: request.into(),
        spki: row.spki.as_slice().into(),
        created_at_us: row.ca.created_at_us,
    }
}

/// Parses the rows of a CA. Returns `None` for an invalid row, so that the other CAs stay available.
fn node(row: CaWithKey, certificates: Vec<CaCertificateRow>, now_us: i64) -> Option<Node> {
    let broken = |what: &str| tracing::error!(ca = %row.ca.id, name = row.ca.name, "skipping a CA: {what}");
    let own = certificates.iter().find(|certificate| Some(certificate.sha256) == row.ca.sha256);
    let Some(own) = own else {
        broken("its certificate is not in the database");
        return None;
    };
    let Ok(certificate) = Certificate::parse(&own.der) else {
        broken("its certificate cannot be read");
        return None;
    };
    let state: CaState = match row.ca.state.parse() {
        Ok(state) => state,
        Err(error) => {
            broken(&format!("cas.state: {error}"));
            return None;
        }
    };
    let of = |role| certificates.iter().filter(move |certificate| certificate.role == role);
    let above = of(CaCertificateRole::Above).map(|above| above.der.as_slice().into()).collect();
    let earlier = of(CaCertificateRole::Own).filter(|one| Some(one.sha256) != row.ca.sha256);
    let earlier = earlier.filter(|one| one.not_after_us > now_us && !is_root(&one.der));
    let earlier = earlier.map(|one| one.der.as_slice().into()).collect();
    let crosses =
        of(CaCertificateRole::Cross).map(|cross| (cross.der.as_slice().into(), cross.issuer_ca)).collect();
    Some(Node { certificate: Arc::new(certificate), above, earlier, crosses, state, row })
}

fn authority(node: &Node, by_id: &HashMap<Uuid, &Node>, keystore: &KeyStore) -> Option<Ca> {
    let row = &node.row;
    let Ok(kind) = row.key_type.parse::<KeyType>() else {
        tracing::error!(ca = %row.ca.id, "skipping a CA: {:?} is not a key type", row.key_type);
        return None;
    };
    let (chain, anchor) = chain_of(node, by_id);
    let signer =
        LazySigner { keystore: keystore.clone(), id: row.ca.key_id, kind, spki: row.spki.as_slice().into() };
    Some(Ca {
        id: row.ca.id,
        name: row.ca.name.clone(),
        certificate: Arc::clone(&node.certificate),
        chain: chain.into(),
        alternates: alternate_chains(node, by_id).into(),
        anchor,
        signer: Arc::new(signer),
        key_id: row.ca.key_id,
        state: node.state,
        credential: super::specification::credential_path(&row.ca.specification),
        parent: row.ca.parent_id,
        default_since_us: row.default_since_us,
        created_at_us: row.ca.created_at_us,
        retiring_at_us: row.ca.retiring_at_us,
        retired_at_us: row.ca.retired_at_us,
    })
}

type Chain = Vec<Arc<[u8]>>;

/// Returns the chain of a CA from the CA upwards without the root, and the root as a separate value; `None` if the root is not
/// known.
fn chain_of(node: &Node, by_id: &HashMap<Uuid, &Node>) -> (Chain, Option<Arc<[u8]>>) {
    let mut chain = Chain::new();
    for step in path(node, by_id) {
        if step.certificate.is_self_issued() {
            return (chain, Some(Arc::clone(&step.certificate.der)));
        }
        chain.push(Arc::clone(&step.certificate.der));
        let (anchors, more) = step.above.iter().cloned().partition::<Chain, _>(|der| is_root(der));
        chain.extend(more);
        if let Some(anchor) = anchors.into_iter().next() {
            return (chain, Some(anchor));
        }
    }
    (chain, None)
}

/// Returns the alternate chains of a CA. They contain cross-signed certificates, or certificates that a renewal of this CA or of a
/// CA above it has replaced.
fn alternate_chains(node: &Node, by_id: &HashMap<Uuid, &Node>) -> Vec<DerChain> {
    let mut alternates = Vec::new();
    let mut below = Chain::new();
    for step in path(node, by_id) {
        let earlier = step.earlier.iter().map(|earlier| (earlier, step.row.ca.parent_id));
        let crosses = step.crosses.iter().map(|(cross, issuer)| (cross, *issuer));
        for (other, issuer) in earlier.chain(crosses) {
            let mut chain = below.clone();
            chain.push(Arc::clone(other));
            if let Some(issuer) = issuer.and_then(|id| by_id.get(&id)) {
                chain.extend(chain_of(issuer, by_id).0);
            }
            alternates.push(chain.into());
            if alternates.len() == ALTERNATES_MAX {
                return alternates;
            }
        }
        below.push(Arc::clone(&step.certificate.der));
    }
    alternates
}

/// Returns the path from this node to the root.
fn path<'a>(node: &'a Node, by_id: &'a HashMap<Uuid, &'a Node>) -> impl Iterator<Item = &'a Node> {
    let above = |node: &&'a Node| node.row.ca.parent_id.and_then(|id| by_id.get(&id).copied());
    std::iter::successors(Some(node), above).take(PATH_MAX)
}

fn is_root(der: &[u8]) -> bool {
    Certificate::parse(der).is_ok_and(|certificate| certificate.is_self_issued())
}
