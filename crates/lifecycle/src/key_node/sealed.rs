//! What is sealed to policies: opened where this node satisfies them, asked of others where it does not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyless::Source;
use keyless::places::Formula;
use keyless::routing::{Holders, NodeId, Router};
use keys::sealed::{NodeKey, PolicyKey, SealContext, SealedError, WrapContext};
use keys::{KeyRef, PrivateKey};
use uuid::Uuid;
use x509::SpkiHash;

use super::members::Members;
use crate::places::work::{KeyNews, News, PolicyNews, WrapNews};

/// Sealed keys that a node holds: 2 to 5 KB each.
pub const SEALED_KEYS_MAX: usize = 100_000;

/// A policy, and who satisfies it.
struct Policy {
    told: PolicyNews,
    formula: Formula,
    nodes: HashSet<NodeId>,
    holders: Arc<Holders>,
}

/// A sealed key.
struct Sealed {
    told: KeyNews,
    /// Its SubjectPublicKeyInfo, DER.
    spki: Vec<u8>,
    /// What is sealed.
    blob: Vec<u8>,
    /// What it is now; `None` until it was looked at.
    source: Option<Source>,
}

/// A generation of a policy.
type Generation = (Uuid, u32);

/// All of it, and what this node makes of it.
pub(super) struct SealedKeys {
    node: Uuid,
    kem: NodeKey,
    router: Router,
    /// All that changed up to this number is here.
    next: i64,
    policies: HashMap<Uuid, Policy>,
    /// In base64.
    wraps: HashMap<Generation, String>,
    opened: HashMap<Generation, Arc<PolicyKey>>,
    keys: HashMap<SpkiHash, Sealed>,
    broken: HashSet<SpkiHash>,
}

/// A key to be opened: which, by what, and its octets.
type ToOpen = (SpkiHash, Arc<PolicyKey>, Vec<u8>, SealContext);
/// How that went.
type Opened = Vec<(SpkiHash, Result<PrivateKey, SealedError>)>;

impl SealedKeys {
    pub(super) fn new(node: Uuid, kem: NodeKey, router: Router) -> Self {
        Self {
            node,
            kem,
            router,
            next: 0,
            policies: HashMap::new(),
            wraps: HashMap::new(),
            opened: HashMap::new(),
            keys: HashMap::new(),
            broken: HashSet::new(),
        }
    }

    /// To be asked for from here on.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// Keys that are sealed for this node and do not open.
    pub(super) fn broken(&self) -> usize {
        self.broken.len()
    }

    /// Takes a page; nothing is opened yet.
    pub(super) fn take(&mut self, page: News, members: &Members) {
        self.next = page.next;
        for policy in page.policies {
            self.take_policy(policy, members);
        }
        for wrap in page.wraps {
            self.take_wrap(wrap);
        }
        for key in page.keys {
            self.take_key(key);
        }
    }

    fn take_policy(&mut self, told: PolicyNews, members: &Members) {
        if told.removed {
            self.policies.remove(&told.id);
            return;
        }
        let formula: Formula = match told.formula.parse() {
            Ok(formula) => formula,
            Err(error) => {
                tracing::error!(policy = told.name, %error, "a policy's formula is not understood; update the program");
                return;
            }
        };
        let nodes = members.satisfying(&formula);
        let holders = match self.policies.remove(&told.id) {
            Some(known) => {
                self.router.change_holders(&known.holders, nodes.iter().copied().collect());
                known.holders
            }
            None => self.router.holders(nodes.iter().copied().collect()),
        };
        self.policies.insert(told.id, Policy { told, formula, nodes, holders });
    }

    /// Keys under it are looked at again.
    fn take_wrap(&mut self, told: WrapNews) {
        let which = (told.policy, told.generation);
        self.opened.remove(&which);
        match told.blob {
            Some(blob) => drop(self.wraps.insert(which, blob)),
            None => drop(self.wraps.remove(&which)),
        }
        for key in self.keys.values_mut().filter(|key| (key.told.policy, key.told.generation) == which) {
            key.source = None;
        }
    }

    fn take_key(&mut self, told: KeyNews) {
        let Ok(spki) = STANDARD.decode(&told.spki) else {
            tracing::error!(key = told.name, "a sealed key's public half is not base64");
            return;
        };
        let which = SpkiHash::of(&spki);
        self.broken.remove(&which);
        // Not base64: it opens as little as what was changed on its way.
        let blob = told.blob.as_ref().map(|blob| STANDARD.decode(blob).unwrap_or_default());
        let Some(blob) = blob else { return drop(self.keys.remove(&which)) };
        if self.keys.len() < SEALED_KEYS_MAX || self.keys.contains_key(&which) {
            self.keys.insert(which, Sealed { told, spki, blob, source: None });
        } else {
            tracing::error!(
                key = told.name,
                "a node holds {SEALED_KEYS_MAX} sealed keys: this one does not sign"
            );
        }
    }

    /// These came, changed or went.
    pub(super) fn members_changed(&mut self, changed: &[Uuid], members: &Members) {
        for policy in self.policies.values_mut() {
            let mut is_other = false;
            for node in changed {
                let id = NodeId(*node.as_bytes());
                is_other |= match members.satisfies(*node, &policy.formula) {
                    true => policy.nodes.insert(id),
                    false => policy.nodes.remove(&id),
                };
            }
            if is_other {
                self.router.change_holders(&policy.holders, policy.nodes.iter().copied().collect());
            }
        }
    }

    /// Opens what came, away from those who wait: 0.3 ms each.
    pub(super) async fn open(&mut self) {
        self.open_wraps();
        let to_open = self.to_open();
        if !to_open.is_empty() {
            let opening = tokio::task::spawn_blocking(move || open_all(to_open));
            for (which, opened) in opening.await.unwrap_or_default() {
                self.note(which, opened);
            }
        }
        self.route_the_rest();
    }

    fn open_wraps(&mut self) {
        for (which, wrap) in &self.wraps {
            if self.opened.contains_key(which) {
                continue;
            }
            let (policy, generation) = *which;
            let blob = STANDARD.decode(wrap).unwrap_or_default();
            let context = WrapContext { policy: *policy.as_bytes(), generation, node: *self.node.as_bytes() };
            match self.kem.unwrap_seed(&blob, &context) {
                Ok(key) => drop(self.opened.insert(*which, Arc::new(key))),
                Err(error) => {
                    tracing::error!(%policy, generation, %error, "a policy's key does not open here");
                }
            }
        }
    }

    fn to_open(&self) -> Vec<ToOpen> {
        let to_look_at = self.keys.iter().filter(|(_, key)| key.source.is_none());
        let to_open = to_look_at.filter_map(|(which, Sealed { told, blob, .. })| {
            let by = self.opened.get(&(told.policy, told.generation))?;
            let context = SealContext {
                policy: *told.policy.as_bytes(),
                generation: told.generation,
                spki_sha256: *which.as_bytes(),
            };
            Some((*which, Arc::clone(by), blob.clone(), context))
        });
        to_open.collect()
    }

    fn note(&mut self, which: SpkiHash, opened: Result<PrivateKey, SealedError>) {
        let Some(key) = self.keys.get_mut(&which) else { return };
        match opened {
            Ok(opened) => {
                self.broken.remove(&which);
                key.source = Some(Source::Own(Arc::new(opened) as KeyRef));
            }
            // Another node may have better luck.
            Err(error) if self.broken.insert(which) => {
                tracing::error!(key = key.told.name, %error, "a sealed key does not open here");
            }
            Err(_) => {}
        }
    }

    fn route_the_rest(&mut self) {
        for key in self.keys.values_mut().filter(|key| key.source.is_none()) {
            let Some(policy) = self.policies.get(&key.told.policy) else { continue };
            match self.router.key(&policy.holders, &key.spki) {
                Some(routed) => key.source = Some(Source::Routed(Arc::new(routed))),
                None => tracing::warn!(key = key.told.name, "a sealed key of a kind that signs for nobody"),
            }
        }
    }

    /// With their names, as a set of keys wants them.
    pub(super) fn sources(&self) -> Vec<(String, Source)> {
        let known = |key: &Sealed| Some((key.told.name.clone(), key.source.clone()?));
        self.keys.values().filter_map(known).collect()
    }

    /// How many open here, and how many are asked of others.
    pub(super) fn counts(&self) -> (usize, usize) {
        let own = self.keys.values().filter(|key| matches!(key.source, Some(Source::Own(_)))).count();
        (own, self.keys.len() - own)
    }

    /// Everything, as one page.
    pub(super) fn whole(&self) -> News {
        News {
            next: self.next,
            more: false,
            policies: self.policies.values().map(|policy| policy.told.clone()).collect(),
            wraps: self.wraps.iter().map(wrap_of).collect(),
            keys: self.keys.values().map(|key| key.told.clone()).collect(),
        }
    }
}

fn wrap_of((which, blob): (&Generation, &String)) -> WrapNews {
    WrapNews { policy: which.0, generation: which.1, blob: Some(blob.clone()) }
}

fn open_all(to_open: Vec<ToOpen>) -> Opened {
    to_open.into_iter().map(|(which, by, blob, context)| (which, by.open_key(&blob, &context))).collect()
}
