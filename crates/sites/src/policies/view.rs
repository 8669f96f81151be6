//! A policy with the state of its generations.

use std::collections::HashSet;

use uuid::Uuid;

use super::check::attributes_of;
use super::error::PolicyError;
use super::registry::{KeyPolicies, stored_formula};
use crate::tables;
use crate::tables::{GenerationRow, PolicyNode, PolicyRow};

/// Maximum number of listed nodes that do not have a generation yet.
pub const LAGGING_MAX: usize = 20;

/// A policy with its generations.
#[derive(Clone, Debug)]
pub struct PolicyView {
    /// The stored row.
    pub row: PolicyRow,
    /// Number of nodes that satisfy the policy.
    pub nodes: usize,
    /// Generations, newest last.
    pub generations: Vec<GenerationView>,
}

/// A generation of a policy.
#[derive(Clone, Debug)]
pub struct GenerationView {
    /// The stored row.
    pub row: GenerationRow,
    /// Number of nodes that have the generation's private key.
    pub wrapped: u64,
    /// Number of keys sealed to the generation.
    pub keys: u64,
    /// Names of nodes that need the generation and do not have it, at most [`LAGGING_MAX`].
    pub lagging: Vec<String>,
}

impl KeyPolicies {
    /// Returns a policy with its state.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn view(&self, id: Uuid) -> Result<PolicyView, PolicyError> {
        let row = tables::SiteTables::of(self.store())
            .policy(id)
            .await?
            .ok_or(PolicyError::NotFound("key policy"))?;
        let formula = stored_formula(&row.formula);
        let mut placed = self.placed_nodes().await?;
        placed.retain(|node| formula.as_ref().is_some_and(|it| it.satisfied_by(&attributes_of(node))));
        let (wrapped, keys) = (
            tables::SiteTables::of(self.store()).wraps_of_policy(id).await?,
            tables::SiteTables::of(self.store()).sealed_keys_by_generation(id).await?,
        );
        let mut generations = Vec::new();
        for generation in tables::SiteTables::of(self.store()).policy_generations(id).await? {
            let number = generation.generation;
            let has = wrapped.get(&number).copied().unwrap_or_default();
            let lagging = self.lagging(&placed, id, number, has).await?;
            let keys = keys.get(&number).copied().unwrap_or_default();
            generations.push(GenerationView { row: generation, wrapped: has, keys, lagging });
        }
        Ok(PolicyView { row, nodes: placed.len(), generations })
    }

    async fn lagging(
        &self,
        placed: &[PolicyNode],
        policy: Uuid,
        generation: u32,
        wrapped: u64,
    ) -> Result<Vec<String>, PolicyError> {
        // The number matches, so the nodes are the right ones, except briefly while one node is replaced by another.
        if wrapped == placed.len() as u64 {
            return Ok(Vec::new());
        }
        let have: HashSet<Uuid> = tables::SiteTables::of(self.store())
            .wrapped_nodes(policy, generation)
            .await?
            .into_iter()
            .collect();
        let lagging = placed.iter().filter(|node| !have.contains(&node.id));
        Ok(lagging.take(LAGGING_MAX).map(|node| node.name.clone()).collect())
    }
}
