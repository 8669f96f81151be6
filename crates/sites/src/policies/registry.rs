//! The handle of a database's policies, and the key pairs of their generations.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use keyless::places::Formula;
use keys::Context;
use keys::sealed::PolicyKey;
use parking_lot::Mutex;
use shared::Shared;
use store::{AuditEvent, Clock, Store};
use uuid::Uuid;

use super::error::PolicyError;
use super::passes::PassState;
use crate::tables::{GenerationRow, SEALED_SEEDS};

/// Maximum number of sealed keys, equal to a key service's limit: 2.5 KB each on every node.
pub const SEALED_KEYS_MAX: i64 = 100_000;
/// Interval of full passes over all wrapped policy keys, also without changes.
pub(super) const WALK_EVERY: Duration = Duration::from_secs(60);
/// Actor of automatic changes in the audit log.
pub(super) const ACTOR: &str = "system:key-policies";

/// Policies of one database. Clones share their state.
#[derive(Clone)]
pub struct KeyPolicies(pub(super) Shared<RegistryState>);

pub(super) struct RegistryState {
    pub(super) store: Store,
    pub(super) keystore: KeyStore,
    pub(super) clock: Clock,
    /// Allows one pass at a time in this process.
    pub(super) passes: tokio::sync::Mutex<PassState>,
    /// Number of wrapped policy keys that the last pass could not create.
    pub(super) failed_wraps: AtomicUsize,
    /// Number of keys that the last pass could not seal again, and number of policies whose keys all failed.
    pub(super) stuck: AtomicUsize,
    /// Time of the last log line about stuck policies.
    pub(super) stuck_logged_at: Mutex<Option<Instant>>,
}

impl KeyPolicies {
    /// Creates the registry over a database and its master keys. The caller must also run [`Self::run`].
    #[must_use]
    pub fn new(store: Store, keystore: KeyStore, clock: Clock) -> Self {
        keystore.register_sealed_column(&SEALED_SEEDS);
        let (passes, failed_wraps, stuck) =
            (tokio::sync::Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Shared::new(RegistryState {
            store,
            keystore,
            clock,
            passes,
            failed_wraps,
            stuck,
            stuck_logged_at: Mutex::default(),
        }))
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn now_us(&self) -> i64 {
        self.0.clock.now_us()
    }

    /// Returns two counts of failures in the last pass of this process: wrapped policy keys that could not be created, and keys
    /// that could not be resealed.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        (self.0.failed_wraps.load(Relaxed), self.0.stuck.load(Relaxed))
    }

    /// Generates a key pair, with its private half sealed under the master key.
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

    /// Decrypts the key pair of a generation.
    pub(super) fn open_seed(
        &self,
        row: &GenerationRow,
        sealed: Option<&Vec<u8>>,
    ) -> Result<PolicyKey, PolicyError> {
        let failed = |why: String| PolicyError::Seed { generation: row.generation, why };
        let sealed = sealed.ok_or_else(|| failed("the key is missing".to_owned()))?;
        let seed = self.0.keystore.keyring().open_sealed(&seed_context(&row.id), sealed);
        let seed = seed.map_err(|error| failed(error.to_string()))?;
        let key = PolicyKey::from_seed(&seed).map_err(|error| failed(error.to_string()))?;
        if key.public().as_bytes() != row.public {
            return Err(failed("the key belongs to another generation".to_owned()));
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

/// Parses a stored formula. `None` when it is malformed: no node satisfies it then.
pub(super) fn stored_formula(text: &str) -> Option<Formula> {
    Formula::parse(text).ok()
}
