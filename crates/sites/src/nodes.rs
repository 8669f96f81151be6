//! Nodes: identity, heartbeats, and the statements about them.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use keyless::places::Attributes;
use keyless::routing::NodeId;
use serde_json::json;
use store::{Cursor, Page};
use uuid::Uuid;
use x509::HostName;

use crate::directory::{Sites, stored_attributes};
use crate::error::SiteError;
use crate::tables;
use crate::tables::{NodeFilter, NodeRetirement, NodeRow};
use crate::timing::{BEAT_EVERY, LEASE};
use crate::view::NodeStatus;
use crate::work::{Heartbeat, HeartbeatResponse};

/// Returns the URI in a node's certificate.
#[must_use]
pub fn node_uri(node: Uuid) -> String {
    NodeId(*node.as_bytes()).uri()
}

/// Returns the DNS name in a node's certificate, by which other nodes recognize it.
#[must_use]
pub fn node_domain(node: Uuid) -> String {
    NodeId(*node.as_bytes()).dns()
}

/// Filter for listing nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeQuery {
    /// Name or id of the site.
    pub site: Option<String>,
    /// Whether to include retired nodes.
    pub retired: bool,
}

impl Sites {
    /// Returns a node by its id.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn node(&self, id: Uuid) -> Result<NodeRow, SiteError> {
        tables::SiteTables::of(self.store()).node(id).await?.ok_or(SiteError::NotFound("node"))
    }

    /// Returns a node by its name or id.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn node_by_name_or_id(&self, name: &str) -> Result<NodeRow, SiteError> {
        match name.parse() {
            Ok(id) => self.node(id).await,
            Err(_) => tables::SiteTables::of(self.store())
                .node_named(name)
                .await?
                .ok_or(SiteError::NotFound("node")),
        }
    }

    /// Lists nodes, ordered by name.
    ///
    /// # Errors
    /// [`SiteError::NotFound`] for a site that does not exist; database errors.
    #[crate::boxed]
    pub async fn nodes(
        &self,
        query: &NodeQuery,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<NodeRow>, SiteError> {
        let site = match &query.site {
            Some(site) => Some(self.site(site).await?.id),
            None => None,
        };
        let filter = NodeFilter { site, retired: query.retired };
        Ok(tables::SiteTables::of(self.store()).nodes(&filter, after, limit).await?)
    }

    /// Returns the round-trip times in milliseconds from a node to others, as last reported to this server.
    #[must_use]
    pub fn measured(&self, node: Uuid) -> BTreeMap<Uuid, u32> {
        self.0.beats.measured(node)
    }

    /// Returns the numbers of present and of absent nodes (without retired ones), as of the last view update.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.0.view.counts()
    }

    /// Retires a node: the server rejects it from then on, and the other nodes are notified. A node that is already retired can
    /// still be marked as hostile, also repeatedly.
    ///
    /// # Errors
    /// [`SiteError`]; [`SiteError::Retired`] for a node that is already retired, unless it is marked as hostile.
    #[crate::boxed]
    pub async fn retire(&self, id: Uuid, retirement: NodeRetirement, actor: &str) -> Result<(), SiteError> {
        let hostile = retirement == NodeRetirement::Hostile;
        self.node(id).await?;
        // Also disables the node's identity, although the retirement alone is enough.
        let identity = enrollment::identity_revision(self.store(), id).await?;
        let details = json!({"hostile": hostile});
        let (at, event) =
            (self.now_us(), self.event(actor, "key_node.retire", format!("key-node/{id}"), details));
        let done = self
            .store()
            .write("key_node_retire", move |tx| {
                async move {
                    let done = tables::retire_node(tx, id, at, retirement).await?;
                    if let (true, Some(revision)) = (done, identity) {
                        store::delete_identity(tx, id, revision).await?;
                    }
                    let known = !done && hostile && tables::mistrust_node(tx, id).await?;
                    store::audit_if(tx, done || known, event).await?;
                    // The follow-up actions for a hostile node may have failed the last time.
                    Ok(done || hostile)
                }
                .boxed()
            })
            .await?;
        self.0.beats.forget(id);
        self.0.numbers.forget(id);
        self.update_view().await?;
        if done { Ok(()) } else { Err(SiteError::Retired) }
    }

    /// Checks that the presented certificate has the node's own key. The TLS listener has already checked chain, validity and name.
    /// The key check rejects another certificate with the same name. Queries the database only for nodes that joined since the last
    /// view update.
    ///
    /// # Errors
    /// [`SiteError::OtherKey`], [`SiteError::Retired`]; database errors.
    #[crate::boxed]
    pub async fn check_key(&self, node: Uuid, certificate_der: &[u8]) -> Result<(), SiteError> {
        let presented = enrollment::certificate_spki_sha256(certificate_der).ok_or(SiteError::OtherKey)?;
        match self.node_status(node).await? {
            NodeStatus::Node { spki_sha256, .. } if spki_sha256 == presented => Ok(()),
            NodeStatus::Retired => Err(SiteError::Retired),
            NodeStatus::Node { .. } | NodeStatus::Unknown => Err(SiteError::OtherKey),
        }
    }

    async fn node_status(&self, node: Uuid) -> Result<NodeStatus, SiteError> {
        match self.0.view.node_status(node) {
            NodeStatus::Unknown => {
                self.update_view().await?;
                Ok(self.0.view.node_status(node))
            }
            known => Ok(known),
        }
    }

    /// Accepts a node's heartbeat, and returns the changes of other nodes. Queries the database only if the node is new, its
    /// address changed, or it knows a newer state than this server.
    ///
    /// # Errors
    /// [`SiteError::Retired`], [`SiteError::Invalid`] for an invalid address; database errors.
    #[crate::boxed]
    pub async fn beat(&self, node: Uuid, beat: Heartbeat) -> Result<HeartbeatResponse, SiteError> {
        let NodeStatus::Node { address, .. } = self.node_status(node).await? else {
            return Err(SiteError::Retired);
        };
        if let Some(other) = beat.address.filter(|other| *other != address) {
            self.move_to(node, other).await?;
        }
        let now = self.now_us();
        self.0.beats.record(node, now, beat.measured);
        if beat.since > self.0.view.last() {
            // The node has seen a newer state, from another server.
            self.update_view().await?;
        }
        Ok(HeartbeatResponse {
            now_ms: now / 1_000,
            beat_every_ms: BEAT_EVERY.as_millis() as u64,
            lease_ms: LEASE.as_millis() as u64,
            membership: self.0.view.membership(beat.since, now / 1_000_000),
            state: self.0.numbers.of(node),
        })
    }

    async fn move_to(&self, node: Uuid, address: String) -> Result<(), SiteError> {
        check_address(&address)?;
        let (actor, details) = (format!("node:{node}"), json!({"address": address}));
        let event = self.event(&actor, "key_node.move", format!("key-node/{node}"), details);
        self.store()
            .write("key_node_address", move |tx| {
                async move {
                    let done = tables::set_node_address(tx, node, &address).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        Ok(())
    }
}

/// Returns a node's attributes: the attributes of its site, overridden by its own. If there are too many, which enrolment prevents,
/// returns an empty set, which satisfies no policy.
#[must_use]
pub fn attributes_of(node: &NodeRow) -> Attributes {
    let (site, own) = (stored_attributes(&node.site_attributes), stored_attributes(&node.attributes));
    site.with(&own).unwrap_or_default()
}

/// Checks an address: `HOST:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
pub(super) fn check_address(text: &str) -> Result<(), SiteError> {
    let fits = || {
        let (host, port) = text.rsplit_once(':')?;
        port.parse::<u16>().ok().filter(|port| *port > 0)?;
        let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let known = match v6 {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
            None => host.parse::<std::net::Ipv4Addr>().is_ok() || HostName::parse(host).is_ok(),
        };
        known.then_some(())
    };
    fits().ok_or_else(|| SiteError::Invalid(format!("the address {text:?} must be HOST:PORT")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_require_a_host_and_a_port() {
        for good in ["a.example:2410", "10.0.0.1:1", "[2001:db8::1]:65535", "localhost:9"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        for bad in
            ["a.example", ":1", "a.example:0", "a.example:65536", "2001:db8::1:2410", "[a]:1", "a b:1", ""]
        {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
