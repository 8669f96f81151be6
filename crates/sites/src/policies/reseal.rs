//! Resealing after a rotation: keys are sealed to the newest generation, and old generations are deleted.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::keys::sealed::{KemPublic, PolicyKey, SealContext};
use futures_util::FutureExt;
use serde_json::json;
use store::PAGE_ROWS_MAX;
use uuid::Uuid;

use super::error::PolicyError;
use super::registry::{ACTOR, KeyPolicies, WALK_EVERY};
use crate::tables;
use crate::tables::{GenerationRow, ResealedKey};

/// Number of keys sealed again in one transaction: 0.15 s of CPU time, with 0.6 MB of opened keys in memory.
const BATCH: usize = 250;

impl KeyPolicies {
    /// Seals keys of old generations to the newest one, if every node that needs the newest generation has it. Deletes generations
    /// without sealed keys. Returns the number of resealed keys. A failing policy does not stop the others.
    ///
    /// # Errors
    /// Database errors. Completed work stays.
    ///
    /// # Cancellation
    /// Completed work stays; the next call does the rest.
    #[crate::boxed]
    pub async fn reseal(&self) -> Result<usize, PolicyError> {
        let (may_log, mut stuck) = (self.may_log_stuck(), 0);
        let count = self.reseal_all(may_log, &mut stuck).await;
        self.0.stuck.store(stuck, Relaxed);
        count
    }

    async fn reseal_all(&self, may_log: bool, stuck: &mut usize) -> Result<usize, PolicyError> {
        let (mut count, mut after) = (0, Uuid::nil());
        loop {
            let page = tables::SiteTables::of(self.store()).policies_behind(after, PAGE_ROWS_MAX).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = *last;
            for policy in page {
                match self.reseal_policy(policy, may_log).await {
                    Ok((done, left)) => {
                        count += done;
                        *stuck += left;
                    }
                    // The database failed: the other policies would fail, too.
                    Err(error @ PolicyError::Store(_)) => return Err(error),
                    Err(error) => {
                        *stuck += 1;
                        if may_log {
                            tracing::error!(%policy, %error, "the keys of a policy cannot be resealed");
                        }
                    }
                }
            }
        }
    }

    /// Returns whether this pass may log stuck keys. Limits the log: passes run with every change, and keys can stay stuck for
    /// days.
    fn may_log_stuck(&self) -> bool {
        let mut logged_at = self.0.stuck_logged_at.lock();
        let is_over = logged_at.is_none_or(|logged_at| logged_at.elapsed() >= WALK_EVERY);
        if is_over {
            *logged_at = Some(Instant::now());
        }
        is_over
    }

    /// Returns the number of keys sealed again, and of keys that could not be opened.
    async fn reseal_policy(&self, id: Uuid, may_log: bool) -> Result<(usize, usize), PolicyError> {
        let view = match self.view(id).await {
            Err(PolicyError::NotFound(_)) => return Ok((0, 0)),
            view => view?,
        };
        let Some(newest) = view.generations.last() else { return Ok((0, 0)) };
        // A node must get the new policy key before keys that are sealed to it.
        if newest.row.generation != view.row.generation || !newest.lagging.is_empty() {
            return Ok((0, 0));
        }
        let newest = newest.row.clone();
        let rows = view.generations.into_iter().map(|generation| (generation.row.generation, generation.row));
        let (count, stuck) = self.reseal_keys(id, &newest, rows.collect(), may_log).await?;
        let (number, name) = (newest.generation, view.row.name);
        let details = json!({"name": name, "generation": number, "keys": count});
        let event = self.event(ACTOR, "key_policy.retire_generations", format!("key-policy/{id}"), details);
        let retired = self.store().write("key_policy_generations_retire", move |tx| {
            async move {
                let retired = tables::retire_generations(tx, id, number).await?;
                store::audit_if(tx, retired > 0, event).await
            }
            .boxed()
        });
        retired.await?;
        Ok((count, stuck))
    }

    async fn reseal_keys(
        &self,
        policy: Uuid,
        newest: &GenerationRow,
        rows: HashMap<u32, GenerationRow>,
        may_log: bool,
    ) -> Result<(usize, usize), PolicyError> {
        let to = KemPublic::parse(&newest.public).map_err(PolicyError::Pair)?;
        let (mut count, mut stuck, mut after) = (0, 0, [0; 32]);
        loop {
            let keys = tables::SiteTables::of(self.store())
                .sealed_keys_behind(policy, newest.generation, &after, BATCH)
                .await?;
            let Some(last) = keys.last() else { return Ok((count, stuck)) };
            after = last.spki_sha256;
            let pairs = self.pairs_of(&rows, &keys, may_log).await?;
            let (to, into, all) = (to.clone(), newest.generation, keys.len());
            let made = tokio::task::spawn_blocking(move || {
                keys.into_iter()
                    .filter_map(|key| reseal_key(policy, key, &pairs, &to, into, may_log))
                    .collect()
            });
            let made: Vec<ResealedKey> = made.await.unwrap_or_default();
            stuck += all - made.len();
            if made.is_empty() {
                continue;
            }
            let at = self.now_us();
            count += self
                .store()
                .write("sealed_keys_reseal", move |tx| {
                    async move { tables::reseal_keys(tx, policy, into, made, at).await }.boxed()
                })
                .await?;
        }
    }

    /// Returns the key pairs to which these keys are sealed, without those that cannot be decrypted.
    async fn pairs_of(
        &self,
        rows: &HashMap<u32, GenerationRow>,
        keys: &[ResealedKey],
        may_log: bool,
    ) -> Result<HashMap<u32, PolicyKey>, PolicyError> {
        let mut numbers: Vec<u32> = keys.iter().map(|key| key.from).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let needed: Vec<&GenerationRow> = numbers.iter().filter_map(|number| rows.get(number)).collect();
        let ids: Vec<Uuid> = needed.iter().map(|row| row.id).collect();
        let seeds = self
            .store()
            .write("key_policy_seeds", move |tx| async move { tables::policy_seeds(tx, ids).await }.boxed());
        let seeds = seeds.await?;
        let mut pairs = HashMap::new();
        for row in needed {
            match self.open_seed(row, seeds.get(&row.id)) {
                Ok(pair) => drop(pairs.insert(row.generation, pair)),
                Err(error) if may_log => {
                    tracing::error!(policy = %row.policy, %error, "keys of a policy cannot be resealed");
                }
                Err(_) => {}
            }
        }
        Ok(pairs)
    }
}

/// Seals a key to the newest generation. `None` if the key cannot be opened: it keeps its generation.
fn reseal_key(
    policy: Uuid,
    key: ResealedKey,
    pairs: &HashMap<u32, PolicyKey>,
    to: &KemPublic,
    into: u32,
    may_log: bool,
) -> Option<ResealedKey> {
    let from =
        SealContext { policy: policy.into_bytes(), generation: key.from, spki_sha256: key.spki_sha256 };
    // If the key pair is missing, the key is not at fault; the missing pair is reported separately.
    let pair = pairs.get(&key.from)?;
    match pair.reseal(&key.blob, &from, to, &SealContext { generation: into, ..from }) {
        Ok(blob) => Some(ResealedKey { blob, ..key }),
        Err(error) => {
            if may_log {
                let spki_sha256 = x509::SpkiHash::from_bytes(key.spki_sha256);
                tracing::error!(%policy, %spki_sha256, %error, "a sealed key cannot be resealed: seal the key again");
            }
            None
        }
    }
}
