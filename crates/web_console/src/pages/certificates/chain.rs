//! A diagram of a certificate chain: leaf, intermediates and root.

use jiff::Timestamp;
use serde_json::Value;
use x509::Certificate;

use crate::cell::Cell;
use crate::query::item;
use crate::{format, json};

/// A certificate of the chain.
pub(super) struct Link {
    pub(super) role: &'static str,
    pub(super) name: Cell,
    pub(super) ends: Cell,
    pub(super) key: String,
    pub(super) fingerprint: String,
}

/// Returns the links of a chain, leaf first. If the chain does not contain its root, the root is looked up in `authorities`, the
/// CAs of this server.
pub(super) fn links(pem: &str, authorities: &[Value], now: Timestamp) -> Vec<Link> {
    let parsed = x509::pem::certificates(pem.as_bytes()).filter_map(|(_, der)| Certificate::parse(&der).ok());
    let chain: Vec<Certificate> = parsed.collect();
    let mut links: Vec<Link> =
        chain.iter().enumerate().map(|(index, one)| link(index, one, authorities, now)).collect();
    if let Some(last) = chain.last().filter(|last| !last.is_self_issued()) {
        links.push(root_of(last, authorities, now));
    }
    links
}

fn link(index: usize, certificate: &Certificate, authorities: &[Value], now: Timestamp) -> Link {
    let role = match (index, certificate.is_self_issued()) {
        (0, _) => "Leaf",
        (_, true) => "Root",
        _ => "Intermediate",
    };
    let fingerprint = certificate.fingerprint.to_string();
    let authority = authorities.iter().find(|one| json::text(one, "/fingerprint") == fingerprint);
    let name = match certificate.subject.text.as_str() {
        "" => certificate.names().into_iter().next().unwrap_or_else(|| "no name".to_owned()),
        text => text.to_owned(),
    };
    Link {
        role,
        name: named(authority, name),
        ends: Cell::time(&certificate.not_after.to_string(), now),
        key: certificate.public_key.algorithm.name().into_owned(),
        fingerprint,
    }
}

/// Returns the root that signed the last certificate. Servers do not send the root, and it may be unknown.
fn root_of(last: &Certificate, authorities: &[Value], now: Timestamp) -> Link {
    let name = &last.issuer.text;
    let is_it = |one: &&Value| json::flag(one, "/root") && json::text(one, "/subject") == name.as_str();
    let authority = authorities.iter().find(is_it);
    let of = |pointer| authority.map_or("", |one| json::text(one, pointer));
    Link {
        role: "Root",
        name: named(authority, name.clone()),
        ends: Cell::time(of("/not_after"), now),
        key: format::key_type(of("/key_type")),
        fingerprint: of("/fingerprint").to_owned(),
    }
}

fn named(authority: Option<&Value>, name: String) -> Cell {
    match authority {
        Some(one) => Cell::link(item("/console/authorities", json::text(one, "/id")), name),
        None => Cell::text(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificates_produce_no_chain_links() {
        assert!(links("", &[], Timestamp::UNIX_EPOCH).is_empty());
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(links(broken, &[], Timestamp::UNIX_EPOCH).is_empty());
    }
}
