//! Consumers of leaves, and the keys of their leaves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509::{Certificate, Fingerprint, UnixTime};

use crate::permission::Identity;

/// Maximum consumers with stored keys, about 1 KiB each. Beyond it, the least recently active consumer gets a new key.
pub const CONSUMERS_MAX: u64 = 1_024;
/// Leaf profile for consumers on this machine. These consumers have no certificate.
const LOCAL: &str = "minted-for-this-machine";

/// A consumer on one connection.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    /// The profile of the consumer's leaves: unique for each consumer.
    pub(super) profile: Arc<str>,
    /// Identity of the consumer for permission requests and keys.
    pub(super) identity: Arc<Identity>,
    /// Address that is charged for new names.
    pub(super) address: IpAddr,
    /// End of validity of the consumer's identity; `None` if it does not expire.
    pub(super) until: Option<UnixTime>,
}

impl Consumer {
    /// Returns the consumer that represents all programs on this machine that connect without a certificate.
    pub(super) fn local() -> Self {
        Self {
            profile: LOCAL.into(),
            identity: Arc::new(Identity {
                whole: LOCAL.into(),
                subject: "local".to_owned(),
                names: Vec::new(),
            }),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            until: None,
        }
    }

    /// Returns whether the consumer is only identified as a process on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.until.is_none()
    }

    /// Identifies a consumer by subject and names of its certificate, so that a renewed certificate is the same consumer. Consumers
    /// with equal names but different `roots` are different, because other proxies of the store may trust other CAs.
    pub(super) fn of_chain(
        chain: Option<&[CertificateDer<'_>]>,
        roots: &Fingerprint,
        from: SocketAddr,
    ) -> Option<Self> {
        let leaf = Certificate::parse(chain?.first()?).ok()?;
        let who = format!("minted-for {roots} {} {:?}", leaf.subject.text, leaf.subject_alt_names);
        let profile: Arc<str> = who.into();
        let identity = Arc::new(Identity {
            whole: Arc::clone(&profile),
            subject: leaf.subject.text,
            names: leaf.subject_alt_names.iter().map(ToString::to_string).collect(),
        });
        let address = from.ip().to_canonical();
        Some(Self { profile, identity, address, until: Some(leaf.not_after) })
    }
}

/// Returns a digest of all roots, independent of their order.
pub(super) fn digest_of_roots(roots: &[Vec<u8>]) -> Fingerprint {
    let mut each: Vec<_> = roots.iter().map(|root| *Fingerprint::of(root).as_bytes()).collect();
    each.sort_unstable();
    each.dedup();
    Fingerprint::of(&each.concat())
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey};

    use super::*;
    use crate::mint::new_root;
    use http_relay::clock::now;

    #[test]
    fn consumer_profile_depends_on_the_set_of_roots() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let shown = CertificateDer::from(new_root(&key, now()).unwrap());
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let profile = |roots: &[&[u8]]| {
            let roots: Vec<_> = roots.iter().map(|root| root.to_vec()).collect();
            let roots = digest_of_roots(&roots);
            Consumer::of_chain(Some(std::slice::from_ref(&shown)), &roots, from).unwrap().profile
        };
        let one = profile(&[b"first", b"second"]);
        assert_eq!(one, profile(&[b"second", b"first", b"second"]), "in whatever order");
        assert_ne!(one, profile(&[b"first"]));
        assert_ne!(one, profile(&[b"first", b"third"]));
    }
}
