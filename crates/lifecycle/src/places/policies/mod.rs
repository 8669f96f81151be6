//! Policies: which nodes may open which private keys.
//!
//! A policy has a pair, one a generation. Keys are sealed to its public half by whoever has them; its private half is
//! wrapped to every node whose attributes satisfy the formula ([`KeyPolicies::reconcile`]), and kept here, sealed under
//! the master key, for nodes that come later. After a rotation the keys are sealed anew here ([`KeyPolicies::reseal`]),
//! and the former generation goes once nothing is sealed to it.

mod check;
mod keys;
mod reconcile;
mod reseal;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::keys::Context;
use ::keys::sealed::{PolicyKey, SealedError};
use authority::keystore::KeyStore;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use keyless::places::{Formula, FormulaError};
use parking_lot::Mutex;
use serde_json::json;
use store::places::{
    GenerationRow, KeyChange, KeyState, PolicyChange, PolicyRemoval, PolicyRow, SEALED_SEEDS,
};
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use check::{Attribute, Resolved, ResolvedNode, ResolvedSite};
pub use keys::NewSealedKey;
pub use reconcile::Reconciled;
pub use view::{GenerationView, LAGGING_MAX, PolicyView};

use super::work::{KeyNews, News, PolicyNews, WrapNews};
use reconcile::Passes;

/// Policies at most: each look holds all of them beside all nodes.
pub const POLICIES_MAX: i64 = 1_000;
/// Generations of a policy at most: there are two while its keys are sealed anew, more when it is rotated meanwhile.
pub const GENERATIONS_MAX: usize = 8;
/// Sealed keys at most, as many as a key service holds: 2.5 KB each on every node.
pub const SEALED_KEYS_MAX: i64 = 100_000;
/// Changes of each kind in an answer to a node.
pub const STATE_ROWS_MAX: usize = 500;
/// Between two looks whether something changed: one statement.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two passes that look at every wrap, whether something changed or not.
const WALK_EVERY: Duration = Duration::from_secs(60);
/// How often what was removed long ago is forgotten.
const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// For how long nodes are told that something is gone: their certificates live for 7 days. µs.
const REMOVED_KEPT_US: i64 = 30 * 86_400 * 1_000_000;
/// Who does what nobody asked for.
const ACTOR: &str = "system:key-policies";

/// Why something about policies was not done.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Nothing by that identity or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// What was asked for makes no sense; what to change.
    #[error("{0}")]
    Invalid(String),
    /// Not a formula.
    #[error("not a formula: {0}")]
    Formula(#[from] FormulaError),
    /// A policy that nobody satisfies keeps keys from everybody.
    #[error("no enrolled node satisfies `{formula}`; {there_are}")]
    Nobody {
        /// Of which formula.
        formula: String,
        /// The attributes that there are.
        there_are: String,
    },
    /// Another has that name.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Somebody else rotated it at the same time.
    #[error("it has changed meanwhile: look at it again")]
    Changed,
    /// Sealed to another generation than the newest.
    #[error("the key is sealed to generation {given}, and the newest is {newest}: seal it again")]
    Behind {
        /// As it came.
        given: u32,
        /// As it should be.
        newest: u32,
    },
    /// Keys are sealed to it.
    #[error("{0} keys are sealed to this policy: seal them to another one, or withdraw them first")]
    HasKeys(i64),
    /// Former rotations go on.
    #[error(
        "there are {GENERATIONS_MAX} generations already: wait until their keys are sealed to the newest"
    )]
    Rotating,
    /// No more are taken.
    #[error("there are {max} {what} already, and no more are taken")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        max: i64,
    },
    /// Not sealed as it should be.
    #[error("the sealed key is not good: {0}")]
    SealedKey(SealedError),
    /// The private half of a generation cannot be had.
    #[error("the private half of the policy's generation {generation} cannot be opened: {why}")]
    Seed {
        /// Which.
        generation: u32,
        /// Why not.
        why: String,
    },
    /// Who satisfies what was not looked at to the end.
    #[error("the look at who satisfies which policies was broken off")]
    Stopped,
    /// The cryptographic library.
    #[error("no pair can be made: {0}")]
    Pair(SealedError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Policies of one database. Clones share everything.
#[derive(Clone)]
pub struct KeyPolicies(Arc<Inner>);

struct Inner {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    /// One pass at a time in this process.
    passes: tokio::sync::Mutex<Passes>,
    /// Wraps that the last pass could not make.
    unmade: AtomicUsize,
    /// Keys that the last look could not seal anew, and policies of which it could seal none.
    stuck: AtomicUsize,
    /// When what is stuck was last told.
    stuck_told: Mutex<Option<Instant>>,
}

impl KeyPolicies {
    /// Over a database and its master keys. Have [`Self::run`] running beside it.
    #[must_use]
    pub fn new(store: Store, keystore: KeyStore, clock: Clock) -> Self {
        keystore.also_sealed(&SEALED_SEEDS);
        let (passes, unmade, stuck) =
            (tokio::sync::Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Inner { store, keystore, clock, passes, unmade, stuck, stuck_told: Mutex::default() }))
    }

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn now_us(&self) -> i64 {
        self.0.clock.now_us()
    }

    /// Wraps that could not be made, and keys that could not be sealed anew, by the last pass of this process.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        (self.0.unmade.load(Relaxed), self.0.stuck.load(Relaxed))
    }

    /// Keeps wraps and sealed keys as they should be, until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("key_policies");
        let every = |period| {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let (mut looks, mut purges) = (every(LOOK_EVERY), every(PURGE_EVERY));
        loop {
            let work = async {
                tokio::select! {
                    _ = looks.tick() => self.look().await,
                    _ = purges.tick() => self.purge().await,
                }
            };
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = work => done,
            };
            if let Err(error) = done {
                tracing::warn!(%error, "a look at the policies of keys failed");
            }
        }
    }

    /// A pass, if something changed since the last one or the time has come.
    async fn look(&self) -> Result<(), PolicyError> {
        if self.is_due().await? {
            self.reconcile().await?;
            self.reseal().await?;
        }
        Ok(())
    }

    async fn purge(&self) -> Result<(), PolicyError> {
        Ok(self.store().purge_key_state(self.now_us() - REMOVED_KEPT_US).await.map(drop)?)
    }

    /// Makes a policy, and wraps it to the nodes that satisfy it.
    ///
    /// # Errors
    /// [`PolicyError::Nobody`], [`PolicyError::Formula`], [`PolicyError::NameTaken`], [`PolicyError::Full`] and others.
    pub async fn create(&self, name: &str, formula: &str, actor: &str) -> Result<PolicyView, PolicyError> {
        check_name(name)?;
        let resolved = self.check(formula).await?;
        if resolved.nodes.is_empty() {
            return Err(resolved.nobody());
        }
        let (id, at) = (Uuid::now_v7(), self.now_us());
        let policy = PolicyRow {
            id,
            name: name.to_owned(),
            formula: resolved.formula.to_string(),
            generation: 1,
            revision: 1,
            changed: 0,
            created_by: actor.to_owned(),
            created_at_us: at,
            updated_at_us: at,
        };
        let (generation, seed) = self.new_generation(id, 1)?;
        let details = json!({"name": name, "formula": policy.formula, "nodes": resolved.nodes.len()});
        let event = self.event(actor, "key_policy.create", format!("key-policy/{id}"), details);
        let made = self
            .store()
            .write("key_policy_create", move |tx| {
                async move {
                    if store::places::count_policies(tx).await? >= POLICIES_MAX {
                        return Ok(None);
                    }
                    let done = store::places::insert_policy(tx, &policy, &generation, &seed).await?;
                    store::audit_if(tx, done, event).await.map(Some)
                }
                .boxed()
            })
            .await?;
        match made {
            None => Err(PolicyError::Full { what: "policies", max: POLICIES_MAX }),
            Some(false) => Err(PolicyError::NameTaken(name.to_owned())),
            Some(true) => {
                self.reconcile().await?;
                self.view(id).await
            }
        }
    }

    /// A policy by its name or its identity.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; those of the database.
    pub async fn policy(&self, name: &str) -> Result<PolicyRow, PolicyError> {
        let found = match name.parse() {
            Ok(id) => self.store().key_policy(id).await?,
            Err(_) => self.store().key_policy_named(name).await?,
        };
        found.ok_or(PolicyError::NotFound("key policy"))
    }

    /// Policies by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn policies(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PolicyRow>, PolicyError> {
        Ok(self.store().key_policies(after, limit).await?)
    }

    /// Gives a policy its next generation, and wraps it to its nodes. Its keys are sealed to it by and by.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`], [`PolicyError::Rotating`], [`PolicyError::Changed`] and others.
    pub async fn rotate(&self, id: Uuid, actor: &str) -> Result<PolicyView, PolicyError> {
        let before = self.store().key_policy(id).await?.ok_or(PolicyError::NotFound("key policy"))?;
        if self.store().policy_generations(id).await?.len() >= GENERATIONS_MAX {
            return Err(PolicyError::Rotating);
        }
        let next = before.generation.checked_add(1).ok_or(PolicyError::Changed)?;
        let (generation, seed) = self.new_generation(id, next)?;
        let details = json!({"name": before.name, "generation": next});
        let event = self.event(actor, "key_policy.rotate", format!("key-policy/{id}"), details);
        let at = self.now_us();
        let done = self
            .store()
            .write("key_policy_rotate", move |tx| {
                async move {
                    let done = store::places::rotate_policy(tx, &generation, &seed, at).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if !done {
            return Err(PolicyError::Changed);
        }
        self.reconcile().await?;
        self.view(id).await
    }

    /// Rotates every policy of which a node has, or had, the newest generation: for one that is retired and not trusted any
    /// more. Says which. Repeated, it does what is left: the generations made since are not the node's.
    ///
    /// # Errors
    /// Those of [`Self::rotate`], after all were tried.
    pub async fn rotate_of_node(&self, node: Uuid, actor: &str) -> Result<Vec<Uuid>, PolicyError> {
        let (mut rotated, mut failed) = (Vec::new(), None);
        for policy in self.store().policies_of_node(node).await? {
            match self.rotate(policy, actor).await {
                Ok(_) => rotated.push(policy),
                // Removed, or rotated by another since the node was retired.
                Err(PolicyError::NotFound(_) | PolicyError::Changed) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(rotated), Err)
    }

    /// Removes a policy to which no key is sealed.
    ///
    /// # Errors
    /// [`PolicyError::HasKeys`], [`PolicyError::NotFound`]; those of the database.
    pub async fn delete(&self, id: Uuid, actor: &str) -> Result<(), PolicyError> {
        let event = self.event(actor, "key_policy.delete", format!("key-policy/{id}"), json!({}));
        let at = self.now_us();
        let removal = self
            .store()
            .write("key_policy_delete", move |tx| {
                async move {
                    let removal = store::places::remove_policy(tx, id, at).await?;
                    store::audit_if(tx, removal == PolicyRemoval::Done, event).await?;
                    Ok(removal)
                }
                .boxed()
            })
            .await?;
        match removal {
            PolicyRemoval::Done => self.reconcile().await.map(drop),
            PolicyRemoval::HasKeys(keys) => Err(PolicyError::HasKeys(keys)),
            PolicyRemoval::NotThere => Err(PolicyError::NotFound("key policy")),
        }
    }

    /// What changed for a node since the number `after`: ask again with its `next` until there is no more.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn state_of(&self, node: Uuid, after: i64) -> Result<KeyState, PolicyError> {
        Ok(self.store().key_state(node, after.max(0), STATE_ROWS_MAX).await?)
    }

    /// [`Self::state_of`], as nodes are told it.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn news(&self, node: Uuid, after: i64) -> Result<News, PolicyError> {
        let KeyState { policies, wraps, keys, next, more, anew } = self.state_of(node, after).await?;
        let policies = policies.into_iter().map(|policy| {
            let PolicyChange { id, name, formula, generation, removed, .. } = policy;
            PolicyNews { id, name, formula, generation, removed }
        });
        let wraps = wraps.into_iter().map(|wrap| {
            let blob = wrap.blob.map(|blob| STANDARD.encode(blob));
            WrapNews { policy: wrap.policy, generation: wrap.generation, blob }
        });
        let keys = keys.into_iter().map(|key| {
            let KeyChange { spki, name, kind, policy, generation, blob, .. } = key;
            let blob = blob.map(|blob| STANDARD.encode(blob));
            KeyNews { spki: STANDARD.encode(spki), name, kind, policy, generation, blob }
        });
        let (policies, wraps, keys) = (policies.collect(), wraps.collect(), keys.collect());
        Ok(News { next, more, anew, policies, wraps, keys })
    }

    /// A new pair, its private half sealed under the master key.
    fn new_generation(&self, policy: Uuid, number: u32) -> Result<(GenerationRow, Vec<u8>), PolicyError> {
        let key = PolicyKey::generate().map_err(PolicyError::Pair)?;
        let row = GenerationRow {
            id: Uuid::now_v7(),
            policy,
            generation: number,
            public: key.public().as_bytes().to_vec(),
            created_at_us: self.now_us(),
        };
        let seed = self.0.keystore.keyring().seal(&seed_context(&row.id), &*key.seed());
        Ok((row, seed))
    }

    /// The pair of a generation, of its sealed private half.
    fn open_seed(&self, row: &GenerationRow, sealed: Option<&Vec<u8>>) -> Result<PolicyKey, PolicyError> {
        let failed = |why: String| PolicyError::Seed { generation: row.generation, why };
        let sealed = sealed.ok_or_else(|| failed("it is gone".to_owned()))?;
        let seed = self.0.keystore.keyring().open_sealed(&seed_context(&row.id), sealed);
        let seed = seed.map_err(|error| failed(error.to_string()))?;
        let key = PolicyKey::from_seed(&seed).map_err(|error| failed(error.to_string()))?;
        if key.public().as_bytes() != row.public {
            return Err(failed("it is that of another generation".to_owned()));
        }
        Ok(key)
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

impl std::fmt::Debug for KeyPolicies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPolicies").finish_non_exhaustive()
    }
}

fn seed_context(generation: &Uuid) -> Context<'_> {
    Context { table: SEALED_SEEDS.table, row: generation.as_bytes(), column: SEALED_SEEDS.column }
}

/// As it is stored; `None` for one that cannot be read, which nobody satisfies.
fn stored_formula(text: &str) -> Option<Formula> {
    Formula::parse(text).ok()
}

/// Policies are named in commands and addresses, and never like an identity.
fn check_name(name: &str) -> Result<(), PolicyError> {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'_' | b'-');
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && name.len() <= 64 && name.bytes().all(plain) && name.parse::<Uuid>().is_err() {
        return Ok(());
    }
    Err(PolicyError::Invalid(format!(
        "{name:?} is no name of a policy: a letter or digit, then letters, digits, `.`, `_` and `-`, 64 at most, and no UUID"
    )))
}
