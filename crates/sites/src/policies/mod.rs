//! Policies: which nodes may open which private keys.
//!
//! A policy has one key pair per generation. Any owner of a private key can seal it to the policy's public key. The policy's
//! private key is wrapped to every node whose attributes satisfy the formula ([`KeyPolicies::reconcile`]). It is also stored here,
//! sealed under the master key, for nodes that join later. After a rotation the keys are sealed again here
//! ([`KeyPolicies::reseal`]), and the old generation is deleted once no key is sealed to it.

mod check;
mod error;
mod passes;
mod reconcile;
mod registry;
mod reseal;
mod sealed_keys;
mod view;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use serde_json::json;
use store::{Cursor, Page};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::tables;
use crate::tables::{KeyChange, KeyStateChanges, PolicyChange, PolicyRemoval, PolicyRow};
use crate::work::{News, PolicyUpdate, SealedKeyUpdate, WrapUpdate};

pub use check::{Attribute, Resolved, ResolvedNode, ResolvedSite};
pub use error::{GENERATIONS_MAX, PolicyError};
pub use reconcile::ReconcileResult;
pub use registry::{KeyPolicies, SEALED_KEYS_MAX};
pub use sealed_keys::NewSealedKey;
pub use view::{GenerationView, LAGGING_MAX, PolicyView};

/// Maximum number of policies. Each evaluation loads all policies and all nodes.
pub const POLICIES_MAX: i64 = 1_000;
/// Maximum number of changes of each kind in a response to a node.
pub const STATE_ROWS_MAX: usize = 500;
/// Interval of checks for changes. Each check takes one SQL statement.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval in which old records of deletions are removed.
const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// Time in µs for which nodes are notified of deletions. The certificates of nodes are valid for 7 days.
const REMOVED_KEPT_US: i64 = 30 * 86_400 * 1_000_000;

impl KeyPolicies {
    /// Wraps policy keys to nodes and reseals keys after changes, until stopped.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("key_policies");
        let every = |period| {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let (mut checks, mut purges) = (every(POLL_INTERVAL), every(PURGE_EVERY));
        loop {
            let work = async {
                tokio::select! {
                    _ = checks.tick() => self.reconcile_if_due().await,
                    _ = purges.tick() => self.purge().await,
                }
            };
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = work => done,
            };
            if let Err(error) = done {
                tracing::warn!(%error, "the periodic check of key policies failed");
            }
        }
    }

    /// Runs a reconciliation pass, if something changed since the last one or a full pass is due.
    async fn reconcile_if_due(&self) -> Result<(), PolicyError> {
        if self.is_due().await? {
            self.reconcile().await?;
            self.reseal().await?;
        }
        Ok(())
    }

    async fn purge(&self) -> Result<(), PolicyError> {
        Ok(tables::SiteTables::of(self.store())
            .purge_deletion_records(self.now_us() - REMOVED_KEPT_US)
            .await
            .map(drop)?)
    }

    /// Creates a policy, and wraps its key to the nodes that satisfy it.
    ///
    /// # Errors
    /// [`PolicyError::Nobody`], [`PolicyError::Formula`], [`PolicyError::NameTaken`], [`PolicyError::Full`] and others.
    #[crate::boxed]
    pub async fn create(&self, name: &str, formula: &str, actor: &str) -> Result<PolicyView, PolicyError> {
        check_name(name)?;
        let resolved = self.check(formula).await?;
        if resolved.nodes.is_empty() {
            return Err(resolved.no_node_error());
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
                    if tables::count_policies(tx).await? >= POLICIES_MAX {
                        return Ok(None);
                    }
                    let done = tables::insert_policy(tx, &policy, &generation, &seed).await?;
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

    /// Returns a policy by its name or id.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn policy(&self, name: &str) -> Result<PolicyRow, PolicyError> {
        let found = match name.parse() {
            Ok(id) => tables::SiteTables::of(self.store()).policy(id).await?,
            Err(_) => tables::SiteTables::of(self.store()).policy_named(name).await?,
        };
        found.ok_or(PolicyError::NotFound("key policy"))
    }

    /// Lists policies, ordered by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn policies(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PolicyRow>, PolicyError> {
        Ok(tables::SiteTables::of(self.store()).policies(after, limit).await?)
    }

    /// Creates a policy's next generation, and wraps the generation's private key to the policy's nodes. The keys sealed to the
    /// policy are then resealed to the new generation step by step.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`], [`PolicyError::Rotating`], [`PolicyError::Changed`] and others.
    #[crate::boxed]
    pub async fn rotate(&self, id: Uuid, actor: &str) -> Result<PolicyView, PolicyError> {
        let before = tables::SiteTables::of(self.store())
            .policy(id)
            .await?
            .ok_or(PolicyError::NotFound("key policy"))?;
        if tables::SiteTables::of(self.store()).policy_generations(id).await?.len() >= GENERATIONS_MAX {
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
                    let done = tables::rotate_policy(tx, &generation, &seed, at).await?;
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

    /// Rotates every policy whose newest generation is or was wrapped to a node. Call it for a retired node that is no longer
    /// trusted. Returns the rotated policies. A repeated call rotates only the remaining policies, because the node never gets the
    /// new generations.
    ///
    /// # Errors
    /// Errors of [`Self::rotate`], after all policies were tried.
    #[crate::boxed]
    pub async fn rotate_policies_of_node(&self, node: Uuid, actor: &str) -> Result<Vec<Uuid>, PolicyError> {
        let (mut rotated, mut failed) = (Vec::new(), None);
        for policy in tables::SiteTables::of(self.store()).policies_of_node(node).await? {
            match self.rotate(policy, actor).await {
                Ok(_) => rotated.push(policy),
                // The policy was deleted, or rotated by another request, since the node was retired.
                Err(PolicyError::NotFound(_) | PolicyError::Changed) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(rotated), Err)
    }

    /// Deletes a policy to which no key is sealed.
    ///
    /// # Errors
    /// [`PolicyError::HasKeys`], [`PolicyError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete(&self, id: Uuid, actor: &str) -> Result<(), PolicyError> {
        let event = self.event(actor, "key_policy.delete", format!("key-policy/{id}"), json!({}));
        let at = self.now_us();
        let removal = self
            .store()
            .write("key_policy_delete", move |tx| {
                async move {
                    let removal = tables::remove_policy(tx, id, at).await?;
                    store::audit_if(tx, removal == PolicyRemoval::Done, event).await?;
                    Ok(removal)
                }
                .boxed()
            })
            .await?;
        match removal {
            PolicyRemoval::Done => self.reconcile().await.map(drop),
            PolicyRemoval::HasKeys(keys) => Err(PolicyError::HasKeys(keys)),
            PolicyRemoval::NotFound => Err(PolicyError::NotFound("key policy")),
        }
    }

    /// Returns the changes after the number `after` that a node must apply. Repeat the call with the returned `next` until there
    /// are no more.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn state_of(&self, node: Uuid, after: i64) -> Result<KeyStateChanges, PolicyError> {
        Ok(tables::SiteTables::of(self.store()).state(node, after.max(0), STATE_ROWS_MAX).await?)
    }

    /// Same as [`Self::state_of`], in the form sent to nodes.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn news(&self, node: Uuid, after: i64) -> Result<News, PolicyError> {
        let KeyStateChanges { policies, wraps, keys, next, more, anew } = self.state_of(node, after).await?;
        let policies = policies.into_iter().map(|policy| {
            let PolicyChange { id, name, formula, generation, removed, .. } = policy;
            PolicyUpdate { id, name, formula, generation, removed }
        });
        let wraps = wraps.into_iter().map(|wrap| {
            let blob = wrap.blob.map(|blob| STANDARD.encode(blob));
            WrapUpdate { policy: wrap.policy, generation: wrap.generation, blob }
        });
        let keys = keys.into_iter().map(|key| {
            let KeyChange { spki, name, kind, policy, generation, blob, .. } = key;
            let blob = blob.map(|blob| STANDARD.encode(blob));
            SealedKeyUpdate { spki: STANDARD.encode(spki), name, kind, policy, generation, blob }
        });
        let (policies, wraps, keys) = (policies.collect(), wraps.collect(), keys.collect());
        Ok(News { next, more, anew, policies, wraps, keys })
    }
}

/// Checks a policy's name. It is used in commands and URLs, and must differ from an id.
fn check_name(name: &str) -> Result<(), PolicyError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && name.len() <= 64 && name.bytes().all(plain) && name.parse::<Uuid>().is_err() {
        return Ok(());
    }
    Err(PolicyError::Invalid(format!(
        "{name:?} is not a policy name: a letter or digit, then letters, digits, `.`, `_` and `-`, at most 64 in total, \
         and not a UUID"
    )))
}
