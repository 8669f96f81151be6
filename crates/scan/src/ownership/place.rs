//! Where something was found: what rules look at.

use std::net::IpAddr;

use store::ownership::OWNERSHIP_NAMES_MAX;
use store::{EndpointKey, InventoryRow, Store, StoreError};

use super::rule::{Rule, Rules};

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
        Self {
            host: self.host.to_ascii_lowercase(),
            server_name: self.server_name.to_ascii_lowercase(),
            address: self.address.map(|address| address.to_canonical()),
            names: self.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            issuer: self.issuer.to_lowercase(),
            protocol: self.protocol.to_ascii_lowercase(),
            group: self.group.to_ascii_lowercase(),
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
    /// The rules for endpoints of the inventory, in their order. Two statements at most, whatever their number, and none
    /// without a rule.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn of_found(
        &self,
        store: &Store,
        found: &[InventoryRow],
    ) -> Result<Vec<Option<&Rule>>, StoreError> {
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
        let place = |(number, row): (usize, &InventoryRow)| {
            let mut place = Place::of(&row.endpoint, row.last.as_ref().and_then(|last| last.address));
            if let Some(leaf) = &row.leaf {
                place.issuer.clone_from(&leaf.issuer);
                place = place.named(names.get(&leaf.sha256).map_or(&[][..], Vec::as_slice));
            }
            place.group = groups.remove(&number).unwrap_or_default();
            place
        };
        Ok(found.iter().enumerate().map(place).collect())
    }
}
