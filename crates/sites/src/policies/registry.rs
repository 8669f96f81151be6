//! The handle on the policies of one database, and the pairs of their generations.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use keyless::places::Formula;
use keys::Context;
use keys::sealed::PolicyKey;
use parking_lot::Mutex;
use store::{AuditEvent, Clock, Store};
use uuid::Uuid;

use super::error::PolicyError;
use super::passes::Passes;
use crate::tables::{GenerationRow, SEALED_SEEDS};

/// Sealed keys at most, as many as a key service holds: 2.5 KB each on every node.
pub const SEALED_KEYS_MAX: i64 = 100_000;
/// Between two passes that look at every wrap, whether something changed or not.
pub(super) const WALK_EVERY: Duration = Duration::from_secs(60);
/// The actor of automatic changes in the audit log.
pub(super) const ACTOR: &str = "system:key-policies";

/// Policies of one database. Clones share everything.
#[derive(Clone)]
pub struct KeyPolicies(pub(super) Arc<RegistryState>);

pub(super) struct RegistryState {
    pub(super) store: Store,
    pub(super) keystore: KeyStore,
    pub(super) clock: Clock,
    /// One pass at a time in this process.
    pub(super) passes: tokio::sync::Mutex<Passes>,
    /// Wraps that the last pass could not make.
    pub(super) unmade: AtomicUsize,
    /// Keys that the last look could not seal again, and policies of which it could seal none.
    pub(super) stuck: AtomicUsize,
    /// Time of the last log line about stuck policies.
    pub(super) stuck_told: Mutex<Option<Instant>>,
}

impl KeyPolicies {
    /// Creates the registry over a database and its master keys. The caller must run [`Self::run`] as well.
    #[must_use]
    pub fn new(store: Store, keystore: KeyStore, clock: Clock) -> Self {
        keystore.also_sealed(&SEALED_SEEDS);
        let (passes, unmade, stuck) =
            (tokio::sync::Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(RegistryState {
            store,
            keystore,
            clock,
            passes,
            unmade,
            stuck,
            stuck_told: Mutex::default(),
        }))
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn now_us(&self) -> i64 {
        self.0.clock.now_us()
    }

    /// Wraps that could not be made, and keys that could not be sealed again, by the last pass of this process.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        (self.0.unmade.load(Relaxed), self.0.stuck.load(Relaxed))
    }

    /// A new pair, its private half sealed under the master key.
    pub(super) fn new_generation(
        &self,
        policy: Uuid,
        number: u32,
    ) -> Result<(GenerationRow, Vec<u8>), PolicyError> {
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
    pub(super) fn open_seed(
        &self,
        row: &GenerationRow,
        sealed: Option<&Vec<u8>>,
    ) -> Result<PolicyKey, PolicyError> {
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

    pub(super) fn event(
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
pub(super) fn stored_formula(text: &str) -> Option<Formula> {
    Formula::parse(text).ok()
}
