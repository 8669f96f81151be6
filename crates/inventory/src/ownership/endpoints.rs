//! Applies rules to endpoints of the inventory.

use std::collections::BTreeMap;

use scan::target::CloudStore;
use store::{EndpointKey, InventoryRow, Store, StoreError};

use super::assignment::Assignment;
use super::candidate::Candidate;
use super::rule::Rules;
use crate::tables;

impl Rules {
    /// Returns the assignment of each endpoint, in the order of `found`. Sends at most four statements, whatever the number of
    /// endpoints, and none if there are no rules.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn assignments_for(
        &self,
        store: &Store,
        found: &[InventoryRow],
    ) -> Result<Vec<Option<Assignment>>, StoreError> {
        if self.is_empty() {
            return Ok(vec![None; found.len()]);
        }
        let places = self.places(store, found).await?;
        Ok(places.iter().map(|candidate| self.of(candidate)).collect())
    }

    /// Converts endpoints to candidates, with the fields that the rules need.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn places(&self, store: &Store, found: &[InventoryRow]) -> Result<Vec<Candidate>, StoreError> {
        let mut leaves = Vec::new();
        if self.uses_names() {
            leaves.extend(found.iter().filter_map(|row| row.leaf.as_ref()).map(|leaf| leaf.sha256));
            leaves.sort_unstable();
            leaves.dedup();
        }
        let names = tables::Ownership::of(store).names(leaves).await?;
        let mut endpoints = Vec::new();
        if self.uses_sources() {
            endpoints.extend(found.iter().map(|row| row.endpoint.clone()));
        }
        let mut groups = tables::Ownership::of(store).groups(&endpoints).await?;
        let kept = |row: &InventoryRow| (row.endpoint.clone(), row.leaf.as_ref().map(|leaf| leaf.sha256));
        let mut tags = self.tags(store, found.iter().map(kept).collect()).await?;
        let candidate = |(number, row): (usize, &InventoryRow)| {
            let mut candidate = Candidate::of(&row.endpoint, row.last.as_ref().and_then(|last| last.address));
            if let Some(leaf) = &row.leaf {
                candidate.issuer.clone_from(&leaf.issuer);
                candidate = candidate.named(names.get(&leaf.sha256).map_or(&[][..], Vec::as_slice));
            }
            candidate.group = groups.remove(&number).unwrap_or_default();
            candidate.tags = std::mem::take(&mut tags[number]);
            candidate
        };
        Ok(found.iter().enumerate().map(candidate).collect())
    }

    /// Returns the tags of each endpoint. A cloud resource has its own tags; any other endpoint has the tags of all resources that
    /// contain its certificate. Sends at most two statements, and none if no rule uses tags.
    ///
    /// # Errors
    /// Database errors.
    pub(crate) async fn tags(
        &self,
        store: &Store,
        found: Vec<(EndpointKey, Option<[u8; 32]>)>,
    ) -> Result<Vec<Vec<(String, String)>>, StoreError> {
        let mut tags = vec![Vec::new(); found.len()];
        if !self.uses_tags() {
            return Ok(tags);
        }
        let (mut numbers, mut places, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (endpoint, leaf)) in found.iter().enumerate() {
            if endpoint.protocol.parse::<CloudStore>().is_ok() {
                numbers.push(number);
                places.push(endpoint.clone());
            } else {
                leaves.extend(*leaf);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        for (index, text) in tables::ResourceTags::of(store).of_resources(&places).await? {
            tags[numbers[index]] = read(&text);
        }
        let of_leaves = tables::ResourceTags::of(store).tags_of_certificates(leaves).await?;
        for (number, (endpoint, leaf)) in found.iter().enumerate() {
            let kept = leaf.as_ref().and_then(|leaf| of_leaves.get(leaf));
            if let (None, Some(kept)) = (endpoint.protocol.parse::<CloudStore>().ok(), kept) {
                tags[number] = kept.iter().flat_map(|text| read(text)).collect();
            }
        }
        Ok(tags)
    }
}

/// Parses stored tags. Returns none for an invalid text.
fn read(text: &str) -> Vec<(String, String)> {
    let tags: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    tags.into_iter().collect()
}
