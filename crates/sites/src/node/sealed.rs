//! Keys sealed to policies: opened where this node satisfies the policy, delegated to other nodes otherwise. Nothing here blocks:
//! [`super::learn`] takes the keys to open, opens them, and returns them.

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
use crate::work::{News, PolicyUpdate, SealedKeyUpdate, WrapUpdate};

/// Maximum number of sealed keys on a node, 2 to 5 KB each.
pub const SEALED_KEYS_MAX: usize = 100_000;

/// A generation of a policy.
pub(super) type Generation = (Uuid, u32);

/// A policy and its formula.
struct Policy {
    update: PolicyUpdate,
    /// Name of the policy, passed to the key set with each key of the policy.
    name: Arc<str>,
    /// The formula. `None` if this version does not understand it: no node satisfies it then.
    formula: Option<Formula>,
    nodes: HashSet<NodeId>,
    holders: Arc<Holders>,
}

struct Sealed {
    update: SealedKeyUpdate,
    /// SubjectPublicKeyInfo in DER.
    spki: Vec<u8>,
    /// The sealed bytes.
    blob: Vec<u8>,
    /// The signer in use. The previous one stays until the new one is opened.
    source: Option<Source>,
    is_settled: bool,
}

impl Sealed {
    fn generation(&self) -> Generation {
        (self.update.policy, self.update.generation)
    }
}

/// All sealed keys, and their signers on this node.
pub(super) struct SealedKeys {
    node: Uuid,
    kem: Arc<NodeKey>,
    router: Router,
    /// All changes up to this number are applied.
    next: i64,
    policies: HashMap<Uuid, Policy>,
    /// Policy keys wrapped to this node, in base64.
    wraps: HashMap<Generation, String>,
    opened: HashMap<Generation, Arc<PolicyKey>>,
    /// Generations whose wrapped policy key this node could not open.
    failed: HashSet<Generation>,
    keys: HashMap<SpkiHash, Sealed>,
    /// Keys that could not be opened with the private key of their policy.
    broken: HashSet<SpkiHash>,
}

/// Results of opening wrapped policy keys. `None` for a failure.
pub(super) type Unwrapped = Vec<(Generation, Option<Arc<PolicyKey>>)>;

pub(super) struct WrapToOpen {
    pub(super) which: Generation,
    pub(super) wrap: Vec<u8>,
    pub(super) context: WrapContext,
}

pub(super) struct KeyToOpen {
    pub(super) which: SpkiHash,
    pub(super) by: Arc<PolicyKey>,
    pub(super) blob: Vec<u8>,
    pub(super) context: SealContext,
}

pub(super) struct OpenedKey {
    pub(super) which: SpkiHash,
    /// Policy and generation that the key is sealed to.
    pub(super) of: ([u8; 16], u32),
    pub(super) opened: Result<PrivateKey, SealedError>,
}

impl SealedKeys {
    pub(super) fn new(node: Uuid, kem: NodeKey, router: Router) -> Self {
        Self {
            node,
            kem: Arc::new(kem),
            router,
            next: 0,
            policies: HashMap::new(),
            wraps: HashMap::new(),
            opened: HashMap::new(),
            failed: HashSet::new(),
            keys: HashMap::new(),
            broken: HashSet::new(),
        }
    }

    /// Returns the change number from which to request updates.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn kem(&self) -> Arc<NodeKey> {
        Arc::clone(&self.kem)
    }

    /// Applies a page of updates. Opens nothing yet.
    pub(super) fn take(&mut self, page: News, members: &Members) {
        if page.anew {
            self.policies.clear();
            self.wraps.clear();
            self.opened.clear();
            self.failed.clear();
            self.keys.clear();
            self.broken.clear();
        }
        self.next = page.next;
        if !page.policies.is_empty() {
            // Check all keys without a signer again: their policy may be in this page.
            self.keys.values_mut().filter(|key| key.source.is_none()).for_each(|key| key.is_settled = false);
        }
        for policy in page.policies {
            self.apply_policy(policy, members);
        }
        for wrap in page.wraps {
            self.apply_wrap(wrap);
        }
        for key in page.keys {
            self.apply_key(key);
        }
    }

    fn apply_policy(&mut self, update: PolicyUpdate, members: &Members) {
        if update.removed {
            self.policies.remove(&update.id);
            return;
        }
        let formula = update.formula.parse::<Formula>();
        let formula = formula.inspect_err(|error| {
            tracing::error!(policy = update.name, %error, "the formula of a policy cannot be parsed; update Bulla on this node");
        });
        let formula = formula.ok();
        let nodes = formula.as_ref().map(|formula| members.satisfying(formula)).unwrap_or_default();
        let holders = match self.policies.remove(&update.id) {
            Some(known) => {
                self.router.change_holders(&known.holders, nodes.iter().copied().collect());
                known.holders
            }
            None => self.router.holders(nodes.iter().copied().collect()),
        };
        let name = update.name.as_str().into();
        self.policies.insert(update.id, Policy { update, name, formula, nodes, holders });
    }

    /// Applies a new or withdrawn wrapped policy key. After a replacement, the keys sealed to its generation continue to sign until
    /// they are opened with the new policy key. After a withdrawal, these keys stop signing.
    fn apply_wrap(&mut self, update: WrapUpdate) {
        let which = (update.policy, update.generation);
        self.opened.remove(&which);
        self.failed.remove(&which);
        let is_withdrawn = update.blob.is_none();
        match update.blob {
            Some(blob) => drop(self.wraps.insert(which, blob)),
            None => drop(self.wraps.remove(&which)),
        }
        for (spki, key) in self.keys.iter_mut().filter(|(_, key)| key.generation() == which) {
            key.is_settled = false;
            self.broken.remove(spki);
            if is_withdrawn {
                key.source = None;
            }
        }
    }

    fn apply_key(&mut self, update: SealedKeyUpdate) {
        let Ok(spki) = STANDARD.decode(&update.spki) else {
            tracing::error!(key = update.name, "the public key of a sealed key is not base64");
            return;
        };
        let which = SpkiHash::of(&spki);
        self.broken.remove(&which);
        // Invalid base64 counts as a sealed key that cannot be opened, like a corrupt one.
        let blob = update.blob.as_ref().map(|blob| STANDARD.decode(blob).unwrap_or_default());
        let before = self.keys.remove(&which);
        let Some(blob) = blob else { return };
        if self.keys.len() >= SEALED_KEYS_MAX {
            tracing::error!(
                key = update.name,
                "a node can hold at most {SEALED_KEYS_MAX} sealed keys: this key cannot sign"
            );
            return;
        }
        // A key that is sealed again to the same policy continues to sign meanwhile.
        let source =
            before.filter(|before| before.update.policy == update.policy).and_then(|before| before.source);
        self.keys.insert(which, Sealed { update, spki, blob, source, is_settled: false });
    }

    /// Applies added, changed and removed members.
    pub(super) fn apply_member_changes(&mut self, changed: &[Uuid], members: &Members) {
        for policy in self.policies.values_mut() {
            let Some(formula) = &policy.formula else { continue };
            let mut is_other = false;
            for node in changed {
                let id = NodeId(*node.as_bytes());
                is_other |= match members.satisfies(*node, formula) {
                    true => policy.nodes.insert(id),
                    false => policy.nodes.remove(&id),
                };
            }
            if is_other {
                self.router.change_holders(&policy.holders, policy.nodes.iter().copied().collect());
            }
        }
    }

    /// Returns the wrapped policy keys that are not yet opened.
    pub(super) fn to_unwrap(&self) -> Vec<WrapToOpen> {
        let is_new = |which: &Generation| !self.opened.contains_key(which) && !self.failed.contains(which);
        let new = self.wraps.iter().filter(|(which, _)| is_new(which));
        let to_unwrap = new.map(|(which, wrap)| WrapToOpen {
            which: *which,
            wrap: STANDARD.decode(wrap).unwrap_or_default(),
            context: WrapContext {
                policy: *which.0.as_bytes(),
                generation: which.1,
                node: *self.node.as_bytes(),
            },
        });
        to_unwrap.collect()
    }

    pub(super) fn apply_unwrapped(&mut self, unwrapped: Unwrapped) {
        for (which, key) in unwrapped {
            match key {
                Some(key) => drop(self.opened.insert(which, key)),
                None => drop(self.failed.insert(which)),
            }
        }
    }

    /// Returns up to `max` keys that this node can open and has not yet processed.
    pub(super) fn to_open(&self, max: usize) -> Vec<KeyToOpen> {
        let unsettled = self.keys.iter().filter(|(_, key)| !key.is_settled);
        let to_open = unsettled.filter_map(|(which, key)| {
            let by = Arc::clone(self.opened.get(&key.generation())?);
            let context = SealContext {
                policy: *key.update.policy.as_bytes(),
                generation: key.update.generation,
                spki_sha256: *which.as_bytes(),
            };
            Some(KeyToOpen { which: *which, by, blob: key.blob.clone(), context })
        });
        to_open.take(max).collect()
    }

    pub(super) fn apply_opened(&mut self, opened: Vec<OpenedKey>) {
        for OpenedKey { which, of, opened } in opened {
            let Some(key) = self.keys.get_mut(&which) else { continue };
            // The key was sealed again meanwhile: it will be opened again.
            if (*key.update.policy.as_bytes(), key.update.generation) != of {
                continue;
            }
            key.is_settled = true;
            key.source = match opened {
                Ok(opened) => Some(Source::Sealed(Arc::new(opened) as KeyRef)),
                Err(error) => {
                    tracing::error!(key = key.update.name, %error, "a sealed key cannot be opened on this node");
                    self.broken.insert(which);
                    // Another node may be able to open the key.
                    routed(&self.router, &self.policies, key)
                }
            };
        }
    }

    /// Delegates keys that this node cannot open to other nodes.
    pub(super) fn delegate_unopened_keys(&mut self) {
        for key in self.keys.values_mut().filter(|key| !key.is_settled) {
            key.is_settled = true;
            if !matches!(key.source, Some(Source::Routed(_))) {
                key.source = routed(&self.router, &self.policies, key);
            }
        }
    }

    /// Returns the keys with their names and policy names, for the key set.
    pub(super) fn sources(&self) -> Vec<(String, Source, Option<Arc<str>>)> {
        let policy = |key: &Sealed| Some(Arc::clone(&self.policies.get(&key.update.policy)?.name));
        let known = |key: &Sealed| Some((key.update.name.clone(), key.source.clone()?, policy(key)));
        self.keys.values().filter_map(known).collect()
    }

    /// Returns the number of keys that this node has opened, and the number of all other keys, which are delegated to other nodes
    /// if possible.
    pub(super) fn counts(&self) -> (usize, usize) {
        let own = self.keys.values().filter(|key| matches!(key.source, Some(Source::Sealed(_)))).count();
        (own, self.keys.len() - own)
    }

    /// Returns the number of keys that are sealed for this node but could not be opened.
    pub(super) fn broken(&self) -> usize {
        let unopened = self.keys.values().filter(|key| self.failed.contains(&key.generation())).count();
        self.broken.len() + unopened
    }

    /// Returns all policies, wrapped policy keys and sealed keys as one page.
    pub(super) fn snapshot(&self) -> News {
        News {
            next: self.next,
            policies: self.policies.values().map(|policy| policy.update.clone()).collect(),
            wraps: self.wraps.iter().map(wrap_of).collect(),
            keys: self.keys.values().map(|key| key.update.clone()).collect(),
            ..News::default()
        }
    }
}

/// Builds a signer that delegates to other nodes. `None` while the policy is unknown, and for unsupported key types.
fn routed(router: &Router, policies: &HashMap<Uuid, Policy>, key: &Sealed) -> Option<Source> {
    let policy = policies.get(&key.update.policy)?;
    router.key(&policy.holders, &key.spki).map(|routed| Source::Routed(Arc::new(routed)))
}

fn wrap_of((which, blob): (&Generation, &String)) -> WrapUpdate {
    WrapUpdate { policy: which.0, generation: which.1, blob: Some(blob.clone()) }
}
