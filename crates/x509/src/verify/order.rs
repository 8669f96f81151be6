//! Order of the certificates in a server's chain.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Certificate;

/// Result of checking the order of the certificates after the leaf. RFC 5246 section 7.4.2 requires that each certificate directly
/// certifies the previous one. RFC 8446 section 4.4.2 still recommends this order, and some clients rely on it.
#[derive(Clone, Debug, Default)]
pub struct ChainOrder {
    /// Whether the order is wrong: some certificate comes before every certificate that it certifies.
    pub misordered: bool,
    /// Certificates that are on no path from the leaf, by issuer and subject names.
    pub strays: Vec<Arc<Certificate>>,
    /// Repeated certificates, including repetitions of the leaf.
    pub duplicates: Vec<Arc<Certificate>>,
    /// Whether the server also sent the self-issued certificate at the top of the chain. Harmless, but wastes bytes: clients must
    /// already have this certificate to trust it.
    pub anchor_included: bool,
}

/// Checks the order of `sent`, the certificates after `leaf`. Alternative paths (cross-signed intermediates) are in order if each
/// certificate comes after one that it certifies.
#[must_use]
pub fn chain_order(leaf: &Arc<Certificate>, sent: &[Arc<Certificate>]) -> ChainOrder {
    let mut order = ChainOrder::default();
    let mut seen = HashSet::from([leaf.fingerprint]);
    let mut chain: Vec<Link> = vec![Link::new(leaf)];
    for certificate in sent {
        if seen.insert(certificate.fingerprint) {
            chain.push(Link::new(certificate));
        } else {
            order.duplicates.push(certificate.clone());
        }
    }
    let reached = reachable(&chain);
    for (index, link) in chain.iter().enumerate().skip(1) {
        if !reached[index] {
            order.strays.push(link.certificate.clone());
            continue;
        }
        order.misordered |= !chain[..index].iter().any(|below| below.issuer == link.subject);
        order.anchor_included |= link.issuer == link.subject;
    }
    order
}

struct Link<'a> {
    certificate: &'a Arc<Certificate>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
}

impl<'a> Link<'a> {
    fn new(certificate: &'a Arc<Certificate>) -> Self {
        let subject = certificate.subject.folded();
        Self { certificate, subject, issuer: certificate.issuer.folded() }
    }
}

/// Returns which certificates of `chain` are on a path from the first one, by issuer and subject names.
fn reachable(chain: &[Link<'_>]) -> Vec<bool> {
    let mut reached = vec![false; chain.len()];
    let mut open = vec![0];
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut reached[index], true) {
            continue;
        }
        let issuer = &chain[index].issuer;
        open.extend((0..chain.len()).filter(|&i| !reached[i] && chain[i].subject == *issuer));
    }
    reached
}
