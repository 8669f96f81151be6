//! A policy with its state.

use std::collections::HashSet;

use uuid::Uuid;

use super::check::attributes_of;
use super::error::PolicyError;
use super::registry::{KeyPolicies, stored_formula};
use crate::tables;
use crate::tables::{GenerationRow, PolicyNode, PolicyRow};

/// Nodes without a wrap that are named.
pub const LAGGING_MAX: usize = 20;

/// A policy with its generations.
#[derive(Clone, Debug)]
pub struct PolicyView {
    /// As stored.
    pub row: PolicyRow,
    /// How many nodes satisfy it.
    pub nodes: usize,
    /// Its pairs, the newest last.
    pub generations: Vec<GenerationView>,
}

/// A pair of a policy.
#[derive(Clone, Debug)]
pub struct GenerationView {
    /// As stored.
    pub row: GenerationRow,
    /// Nodes that hold the key of the policy.
    pub wrapped: u64,
    /// Number of keys sealed to it.
    pub keys: u64,
    /// Names of nodes that should have it and have not, [`LAGGING_MAX`] at most.
    pub lagging: Vec<String>,
}

impl KeyPolicies {
    /// A policy with what became of it.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`]; those of the database.
    #[crate::boxed]
    pub async fn view(&self, id: Uuid) -> Result<PolicyView, PolicyError> {
        let row =
            tables::Places::of(self.store()).policy(id).await?.ok_or(PolicyError::NotFound("key policy"))?;
        let formula = stored_formula(&row.formula);
        let mut placed = self.placed_nodes().await?;
        placed.retain(|node| formula.as_ref().is_some_and(|it| it.satisfied_by(&attributes_of(node))));
        let (wrapped, keys) = (
            tables::Places::of(self.store()).wraps_of_policy(id).await?,
            tables::Places::of(self.store()).sealed_keys_by_generation(id).await?,
        );
        let mut generations = Vec::new();
        for generation in tables::Places::of(self.store()).policy_generations(id).await? {
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
        // As many as there should be: those they are, but for the moment in which one comes and one goes.
        if wrapped == placed.len() as u64 {
            return Ok(Vec::new());
        }
        let have: HashSet<Uuid> =
            tables::Places::of(self.store()).wrapped_nodes(policy, generation).await?.into_iter().collect();
        let lagging = placed.iter().filter(|node| !have.contains(&node.id));
        Ok(lagging.take(LAGGING_MAX).map(|node| node.name.clone()).collect())
    }
}
