//! Nodes: who they are, that they are there, and what the others are told.

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
use crate::work::{Beat, BeatAnswer};

/// The URI in a node's certificate.
#[must_use]
pub fn node_uri(node: Uuid) -> String {
    NodeId(*node.as_bytes()).uri()
}

/// The DNS name in a node's certificate, by which the other nodes know it.
#[must_use]
pub fn node_domain(node: Uuid) -> String {
    NodeId(*node.as_bytes()).dns()
}

/// Which nodes to list.
#[derive(Clone, Debug, Default)]
pub struct NodeQuery {
    /// Name or identity of their site.
    pub site: Option<String>,
    /// Retired ones too.
    pub retired: bool,
}

impl Sites {
    /// A node by its identity.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; those of the database.
    #[crate::boxed]
    pub async fn node(&self, id: Uuid) -> Result<NodeRow, SiteError> {
        tables::Places::of(self.store()).node(id).await?.ok_or(SiteError::NotFound("node"))
    }

    /// A node by its name or its identity.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; those of the database.
    #[crate::boxed]
    pub async fn node_called(&self, name: &str) -> Result<NodeRow, SiteError> {
        match name.parse() {
            Ok(id) => self.node(id).await,
            Err(_) => {
                tables::Places::of(self.store()).node_named(name).await?.ok_or(SiteError::NotFound("node"))
            }
        }
    }

    /// Nodes by name.
    ///
    /// # Errors
    /// [`SiteError::NotFound`] for a site that is not there; those of the database.
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
        Ok(tables::Places::of(self.store()).nodes(&filter, after, limit).await?)
    }

    /// Milliseconds from a node to others and back, as it last said it to this server.
    #[must_use]
    pub fn measured(&self, node: Uuid) -> BTreeMap<Uuid, u32> {
        self.0.beats.measured(node)
    }

    /// Nodes that are there, and those that are neither there nor retired, as of the last look.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.0.view.counts()
    }

    /// Retires a node: it is not let in any more, and the others are told that it is gone. That it is hostile may
    /// be said of one that is retired already, and again.
    ///
    /// # Errors
    /// [`SiteError::Retired`] for one that is, unless it is hostile; others.
    #[crate::boxed]
    pub async fn retire(&self, id: Uuid, retirement: NodeRetirement, actor: &str) -> Result<(), SiteError> {
        let hostile = retirement == NodeRetirement::Hostile;
        self.node(id).await?;
        // Beside its retirement, which alone keeps it out.
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
                    // What follows for a hostile one may not have been done the last time.
                    Ok(done || hostile)
                }
                .boxed()
            })
            .await?;
        self.0.beats.forget(id);
        self.0.numbers.forget(id);
        self.look().await?;
        if done { Ok(()) } else { Err(SiteError::Retired) }
    }

    /// Whether the certificate shown is the node's own. The door has checked its chain, its time and its name; here it is
    /// the key, so that nobody else's certificate of that name works as the node. Asks the database for nodes only that
    /// joined since the last look.
    ///
    /// # Errors
    /// [`SiteError::OtherKey`], [`SiteError::Retired`]; those of the database.
    #[crate::boxed]
    pub async fn check_key(&self, node: Uuid, certificate_der: &[u8]) -> Result<(), SiteError> {
        let shown = enrollment::shown_key(certificate_der).ok_or(SiteError::OtherKey)?;
        match self.node_status(node).await? {
            NodeStatus::Node { spki_sha256, .. } if spki_sha256 == shown => Ok(()),
            NodeStatus::Retired => Err(SiteError::Retired),
            NodeStatus::Node { .. } | NodeStatus::Unknown => Err(SiteError::OtherKey),
        }
    }

    async fn node_status(&self, node: Uuid) -> Result<NodeStatus, SiteError> {
        match self.0.view.node_status(node) {
            NodeStatus::Unknown => {
                self.look().await?;
                Ok(self.0.view.node_status(node))
            }
            known => Ok(known),
        }
    }

    /// Takes a node's beat, and tells it what changed among the others. No statement to the database, unless its address is
    /// another than before.
    ///
    /// # Errors
    /// [`SiteError::Retired`], [`SiteError::Invalid`] for an address that is none; those of the database.
    #[crate::boxed]
    pub async fn beat(&self, node: Uuid, beat: Beat) -> Result<BeatAnswer, SiteError> {
        let NodeStatus::Node { address, .. } = self.node_status(node).await? else {
            return Err(SiteError::Retired);
        };
        if let Some(other) = beat.address.filter(|other| *other != address) {
            self.move_to(node, other).await?;
        }
        let now = self.now_us();
        self.0.beats.heard(node, now, beat.measured);
        if beat.since > self.0.view.last() {
            // Another server knows more than this one.
            self.look().await?;
        }
        Ok(BeatAnswer {
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

/// A node's attributes: its site's, and its own over them. Should there be too many, which no node is let in with, none:
/// they satisfy no policy.
#[must_use]
pub fn attributes_of(node: &NodeRow) -> Attributes {
    let (site, own) = (stored_attributes(&node.site_attributes), stored_attributes(&node.attributes));
    site.with(&own).unwrap_or_default()
}

/// `HOST:PORT`, `ADDRESS:PORT`, `[ADDRESS]:PORT`.
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
    fits().ok_or_else(|| SiteError::Invalid(format!("the address {text:?} has to be HOST:PORT")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
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
