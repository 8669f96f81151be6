//! Reconciliation: the policy key of every generation is wrapped to exactly the nodes that satisfy the policy.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::keys::sealed::{KemPublic, PolicyKey, SealedError, WrapContext};
use futures_util::FutureExt;
use keyless::places::AttributeClasses;
use store::PAGE_ROWS_MAX;
use uuid::Uuid;

use super::check::attributes_of;
use super::error::PolicyError;
use super::registry::{KeyPolicies, WALK_EVERY, stored_formula};
use crate::tables;
use crate::tables::{GenerationRow, NewWrap, PolicyNode, PolicyRow, WrapKey};

/// Number of policy keys wrapped and stored in one transaction: 0.2 s of CPU time, and 1.2 MB.
const BATCH: usize = 1_000;

/// Counts of wrapped policy keys that a reconciliation pass created or withdrew.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReconcileResult {
    /// Number of created wrapped policy keys.
    pub made: usize,
    /// Number of withdrawn wrapped policy keys.
    pub withdrawn: usize,
    /// Number of wrapped policy keys that could not be created. Their nodes do not have the generation yet.
    pub failed: usize,
}

/// The input for wrapping policy keys.
struct PassInput {
    /// Generations by policy and number.
    generations: BTreeMap<(Uuid, u32), GenerationRow>,
    /// Nodes by id, in the order of the database.
    nodes: Vec<PolicyNode>,
    /// For each policy, the sorted indexes in `nodes` of the nodes that satisfy it.
    satisfying: HashMap<Uuid, Vec<u32>>,
    /// Fingerprint of the policies, generations and nodes.
    fingerprint: u64,
}

impl KeyPolicies {
    /// Returns whether something changed since the last pass, or a full pass is due.
    pub(super) async fn is_due(&self) -> Result<bool, PolicyError> {
        let change = tables::SiteTables::of(self.store()).last_change().await?;
        let passes = self.0.passes.lock().await;
        let is_over = passes.walked.is_none_or(|walked| walked.elapsed() >= WALK_EVERY);
        Ok(is_over || passes.seen.is_none() || change != passes.change)
    }

    /// Creates missing wrapped policy keys and withdraws obsolete ones. If neither policies nor nodes changed since the last pass
    /// of this process, checks the wrapped policy keys only once a minute. Reads and writes them in batches.
    ///
    /// # Errors
    /// Database errors. Completed work stays.
    ///
    /// # Cancellation
    /// Completed work stays; the next pass does the rest.
    #[crate::boxed]
    pub async fn reconcile(&self) -> Result<ReconcileResult, PolicyError> {
        let mut passes = self.0.passes.lock().await;
        // Read first: later changes are left for another pass.
        let change = tables::SiteTables::of(self.store()).last_change().await?;
        let pass_input = self.pass_input().await?;
        let seen = pass_input.fingerprint;
        let is_over = passes.walked.is_none_or(|walked| walked.elapsed() >= WALK_EVERY);
        passes.change = change;
        if passes.seen == Some(seen) && !is_over {
            return Ok(ReconcileResult::default());
        }
        passes.seen = None;
        let (done, is_complete) = self.walk(&pass_input, change).await?;
        passes.walked = Some(Instant::now());
        self.0.failed_wraps.store(done.failed, Relaxed);
        // A failure is retried by the next pass.
        passes.seen = is_complete.then_some(seen);
        if done != ReconcileResult::default() {
            let ReconcileResult { made, withdrawn, failed } = done;
            tracing::info!(made, withdrawn, failed, "wraps of key policies brought up to date");
        }
        Ok(done)
    }

    async fn pass_input(&self) -> Result<PassInput, PolicyError> {
        let policies = self.all_policies().await?;
        let (mut generations, mut after) = (BTreeMap::new(), Uuid::nil());
        loop {
            let page =
                tables::SiteTables::of(self.store()).all_policy_generations(after, PAGE_ROWS_MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            generations.extend(page.into_iter().map(|row| ((row.policy, row.generation), row)));
        }
        let nodes = self.placed_nodes().await?;
        // Evaluating thousands of policies and nodes takes CPU time, so it runs on a blocking thread.
        let pass_input = tokio::task::spawn_blocking(move || PassInput::of(&policies, generations, nodes));
        pass_input.await.map_err(|_| PolicyError::Stopped)
    }

    async fn all_policies(&self) -> Result<Vec<PolicyRow>, PolicyError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = tables::SiteTables::of(self.store()).policies(after.as_ref(), PAGE_ROWS_MAX).await?;
            all.extend(page.rows);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Compares the required and the existing wrapped policy keys, both sorted by primary key. `seen` is the last change before the
    /// input was read; other servers' changes since then have higher numbers. The second result is true if no work is left for
    /// another pass.
    async fn walk(&self, pass_input: &PassInput, seen: i64) -> Result<(ReconcileResult, bool), PolicyError> {
        let (mut done, mut is_complete) = (ReconcileResult::default(), true);
        let mut wanted = pass_input.wanted().peekable();
        let (mut missing, mut stray, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = tables::SiteTables::of(self.store()).live_wraps(after, PAGE_ROWS_MAX).await?;
            after = page.last().copied();
            for found in page {
                while let Some(next) = wanted.next_if(|(key, _)| *key < found) {
                    missing.push(next);
                    is_complete &= self.wrap_batch(pass_input, &mut missing, &mut done).await?;
                }
                if wanted.next_if(|(key, _)| *key == found).is_none() {
                    stray.push(found);
                }
            }
            let is_last = after.is_none();
            if is_last {
                for next in wanted.by_ref() {
                    missing.push(next);
                    is_complete &= self.wrap_batch(pass_input, &mut missing, &mut done).await?;
                }
            }
            is_complete &= self.wrap(pass_input, &missing, &mut done).await?;
            for some in stray.chunks(BATCH) {
                done.withdrawn += self.withdraw_wraps(some.to_vec(), seen).await?;
            }
            missing.clear();
            stray.clear();
            if is_last {
                return Ok((done, is_complete));
            }
        }
    }

    /// Calls [`Self::wrap`] if a batch of missing wrapped policy keys is full, which bounds the memory.
    async fn wrap_batch(
        &self,
        pass_input: &PassInput,
        missing: &mut Vec<(WrapKey, usize)>,
        done: &mut ReconcileResult,
    ) -> Result<bool, PolicyError> {
        if missing.len() < BATCH {
            return Ok(true);
        }
        let is_whole = self.wrap(pass_input, missing, done).await?;
        missing.clear();
        Ok(is_whole)
    }

    /// Creates and stores wrapped policy keys. Returns false when their input is outdated.
    async fn wrap(
        &self,
        pass_input: &PassInput,
        missing: &[(WrapKey, usize)],
        done: &mut ReconcileResult,
    ) -> Result<bool, PolicyError> {
        if missing.is_empty() {
            return Ok(true);
        }
        let mut nodes: Vec<Uuid> = missing.iter().map(|(key, _)| key.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut ids: Vec<Uuid> =
            missing.iter().filter_map(|(key, _)| Some(pass_input.generation(key)?.id)).collect();
        ids.dedup();
        let (kems, seeds) = self
            .store()
            .write("key_policy_wraps_of", move |tx| {
                async move {
                    let kems = tables::node_kems(tx, nodes).await?;
                    Ok((kems, tables::policy_seeds(tx, ids).await?))
                }
                .boxed()
            })
            .await?;
        let (mut pairs, mut work) = (HashMap::<Uuid, Option<Arc<PolicyKey>>>::new(), Vec::new());
        for (key, policy_node) in missing {
            let Some(generation) = pass_input.generation(key) else { continue };
            let pair = pairs.entry(generation.id).or_insert_with(|| {
                let opened = self.open_seed(generation, seeds.get(&generation.id));
                let logged = opened.inspect_err(|error| {
                    tracing::error!(policy = %key.policy, %error, "the key of a policy cannot be wrapped for its nodes");
                });
                logged.ok().map(Arc::new)
            });
            let kem = kems.get(&key.node).and_then(|bytes| KemPublic::parse(bytes).ok());
            match pair.clone().zip(kem) {
                Some((pair, kem)) => work.push((*key, pair, kem, pass_input.nodes[*policy_node].clone())),
                None => done.failed += 1,
            }
        }
        let count = work.len();
        // Takes CPU time, so it runs on a blocking thread.
        let made = tokio::task::spawn_blocking(move || {
            work.into_iter()
                .filter_map(|(key, pair, kem, policy_node)| make(key, &pair, &kem, policy_node).ok())
                .collect()
        });
        let made: Vec<NewWrap> = made.await.unwrap_or_default();
        done.failed += count - made.len();
        if made.is_empty() {
            return Ok(true);
        }
        let stored = self
            .store()
            .write("key_policy_wraps_put", move |tx| {
                async move { tables::put_wraps(tx, &made).await }.boxed()
            })
            .await?;
        done.made += stored.unwrap_or_default();
        Ok(stored.is_some())
    }

    async fn withdraw_wraps(&self, keys: Vec<WrapKey>, seen: i64) -> Result<usize, PolicyError> {
        let at = self.now_us();
        let withdrawn = self.store().write("key_policy_wraps_withdraw", move |tx| {
            async move { tables::withdraw_wraps(tx, &keys, seen, at).await }.boxed()
        });
        Ok(withdrawn.await?)
    }
}

impl PassInput {
    fn of(
        policies: &[PolicyRow],
        generations: BTreeMap<(Uuid, u32), GenerationRow>,
        nodes: Vec<PolicyNode>,
    ) -> Self {
        let classes = AttributeClasses::of(nodes.iter().map(attributes_of));
        let who = |policy: &PolicyRow| {
            let formula = stored_formula(&policy.formula);
            (policy.id, formula.map(|formula| classes.satisfying(&formula)).unwrap_or_default())
        };
        let satisfying = policies.iter().map(who).collect();
        let mut pass_input = Self { generations, nodes, satisfying, fingerprint: 0 };
        pass_input.fingerprint = pass_input.fingerprint();
        pass_input
    }

    fn generation(&self, key: &WrapKey) -> Option<&GenerationRow> {
        self.generations.get(&(key.policy, key.generation))
    }

    /// Returns the primary keys of the required wrapped policy keys in the order of the database, each with its node's index.
    fn wanted(&self) -> impl Iterator<Item = (WrapKey, usize)> + '_ {
        self.generations.keys().flat_map(|(policy, generation)| {
            let nodes = self.satisfying.get(policy).map(Vec::as_slice).unwrap_or_default();
            nodes.iter().map(|at| {
                let at = *at as usize;
                let node = self.nodes[at].id;
                (WrapKey { policy: *policy, generation: *generation, node }, at)
            })
        })
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for key in self.wanted() {
            key.hash(&mut hasher);
        }
        self.generations.values().for_each(|row| row.id.hash(&mut hasher));
        self.nodes.hash(&mut hasher);
        hasher.finish()
    }
}

fn make(
    key: WrapKey,
    pair: &PolicyKey,
    kem: &KemPublic,
    policy_node: PolicyNode,
) -> Result<NewWrap, SealedError> {
    let (policy, node) = (key.policy.into_bytes(), key.node.into_bytes());
    let context = WrapContext { policy, generation: key.generation, node };
    Ok(NewWrap { key, blob: pair.wrap_for(kem, &context)?, policy_node })
}
