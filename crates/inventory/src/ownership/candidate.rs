//! Where something was found: what rules look at.

use std::collections::BTreeMap;
use std::net::IpAddr;

use store::ownership::OWNERSHIP_NAMES_MAX;
use store::{EndpointKey, InventoryRow, Store, StoreError};

use super::rule::{Assignment, Rules};
use scan::target::CloudStore;

/// Where something was found, and what. Texts that are not known are empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// Name, address or path.
    pub host: String,
    /// The name asked for.
    pub server_name: String,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// What the certificate speaks for: its subject alternative names, at most [`OWNERSHIP_NAMES_MAX`].
    pub names: Vec<String>,
    /// Who issued the certificate.
    pub issuer: String,
    /// What is spoken, or where it is kept: `tls`, `smtp`, `aws-acm`.
    pub protocol: String,
    /// The group of the watch that looks there.
    pub group: String,
    /// The tags that clouds and clusters give to it, or to the certificate wherever they keep it: one key may have several
    /// values then.
    pub tags: Vec<(String, String)>,
}

impl Place {
    /// An endpoint. Its address is the one connected to, else the one it is told apart by, else its host if that is one.
    #[must_use]
    pub fn of(endpoint: &EndpointKey, connected: Option<IpAddr>) -> Self {
        let address =
            connected.or_else(|| endpoint.address.parse().ok()).or_else(|| endpoint.host.parse().ok());
        Self {
            host: endpoint.host.clone(),
            server_name: endpoint.server_name.clone(),
            address,
            protocol: endpoint.protocol.clone(),
            ..Self::default()
        }
    }

    /// In lower case, once for all the rules it is held against.
    pub(super) fn lower(&self) -> Self {
        // Most endpoints are asked for by their host's name: once is enough.
        let server_name = if self.server_name == self.host { "" } else { &self.server_name };
        Self {
            host: self.host.to_ascii_lowercase(),
            server_name: server_name.to_ascii_lowercase(),
            address: self.address.map(|address| address.to_canonical()),
            names: self.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            issuer: self.issuer.to_lowercase(),
            protocol: self.protocol.to_ascii_lowercase(),
            group: self.group.to_ascii_lowercase(),
            tags: self
                .tags
                .iter()
                .map(|(key, value)| (key.to_ascii_lowercase(), value.to_ascii_lowercase()))
                .collect(),
        }
    }

    /// With the first of these names.
    #[must_use]
    pub fn named(mut self, names: &[String]) -> Self {
        self.names = names.iter().take(OWNERSHIP_NAMES_MAX).cloned().collect();
        self
    }
}

impl Rules {
    /// Whom the rules name for endpoints of the inventory, in their order. Four statements at most, whatever their number,
    /// and none without a rule.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn of_found(
        &self,
        store: &Store,
        found: &[InventoryRow],
    ) -> Result<Vec<Option<Assignment>>, StoreError> {
        if self.is_empty() {
            return Ok(vec![None; found.len()]);
        }
        let places = self.places(store, found).await?;
        Ok(places.iter().map(|place| self.of(place)).collect())
    }

    /// Endpoints of the inventory as places, with what some rule looks at.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn places(&self, store: &Store, found: &[InventoryRow]) -> Result<Vec<Place>, StoreError> {
        let mut leaves = Vec::new();
        if self.look_at_names() {
            leaves.extend(found.iter().filter_map(|row| row.leaf.as_ref()).map(|leaf| leaf.sha256));
            leaves.sort_unstable();
            leaves.dedup();
        }
        let names = store.ownership_names(leaves).await?;
        let mut endpoints = Vec::new();
        if self.look_at_sources() {
            endpoints.extend(found.iter().map(|row| row.endpoint.clone()));
        }
        let mut groups = store.ownership_groups(&endpoints).await?;
        let kept = |row: &InventoryRow| (row.endpoint.clone(), row.leaf.as_ref().map(|leaf| leaf.sha256));
        let mut tags = self.tags(store, found.iter().map(kept).collect()).await?;
        let place = |(number, row): (usize, &InventoryRow)| {
            let mut place = Place::of(&row.endpoint, row.last.as_ref().and_then(|last| last.address));
            if let Some(leaf) = &row.leaf {
                place.issuer.clone_from(&leaf.issuer);
                place = place.named(names.get(&leaf.sha256).map_or(&[][..], Vec::as_slice));
            }
            place.group = groups.remove(&number).unwrap_or_default();
            place.tags = std::mem::take(&mut tags[number]);
            place
        };
        Ok(found.iter().enumerate().map(place).collect())
    }

    /// The tags of endpoints with the certificates they show, in their order: of a place in a cloud its own, of anything
    /// else those that the certificate has wherever it is kept. Two statements at most, and none when no rule looks at tags.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn tags(
        &self,
        store: &Store,
        found: Vec<(EndpointKey, Option<[u8; 32]>)>,
    ) -> Result<Vec<Vec<(String, String)>>, StoreError> {
        let mut tags = vec![Vec::new(); found.len()];
        if !self.look_at_tags() {
            return Ok(tags);
        }
        let (mut numbers, mut places, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (endpoint, leaf)) in found.iter().enumerate() {
            if CloudStore::named(&endpoint.protocol).is_some() {
                numbers.push(number);
                places.push(endpoint.clone());
            } else {
                leaves.extend(*leaf);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        for (index, text) in store.kept_tags_of_places(&places).await? {
            tags[numbers[index]] = read(&text);
        }
        let of_leaves = store.kept_tags_of_certificates(leaves).await?;
        for (number, (endpoint, leaf)) in found.iter().enumerate() {
            let kept = leaf.as_ref().and_then(|leaf| of_leaves.get(leaf));
            if let (None, Some(kept)) = (CloudStore::named(&endpoint.protocol), kept) {
                tags[number] = kept.iter().flat_map(|text| read(text)).collect();
            }
        }
        Ok(tags)
    }
}

/// Tags as kept. What is none of ours has none.
fn read(text: &str) -> Vec<(String, String)> {
    let tags: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    tags.into_iter().collect()
}
