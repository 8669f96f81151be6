//! Consumers of leaves, and the keys of their leaves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509::{Certificate, Fingerprint, UnixTime};

use crate::permission::Identity;

/// Consumers whose keys are kept, some 1 KiB each; of more, the one that asked the longest ago gets another key.
pub const CONSUMERS_MAX: u64 = 1_024;
/// Of anyone who shows no certificate, as it is on this machine.
const LOCAL: &str = "minted-for-this-machine";

/// One of them, on one connection.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    /// The profile of the consumer's leaves: unique for each consumer.
    pub(super) profile: Arc<str>,
    /// The consumer's identity for permission questions and for keys.
    pub(super) identity: Arc<Identity>,
    /// Charged for names that are new.
    pub(super) address: IpAddr,
    /// End of validity of the consumer's identity.
    pub(super) until: Option<UnixTime>,
}

impl Consumer {
    /// One on this machine.
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

    /// Whether it is known by being on this machine alone.
    pub(super) fn is_local(&self) -> bool {
        self.until.is_none()
    }

    /// By the certificate it has shown: its subject, and the names it is for, so that its next certificate makes it no other. Below other
    /// `roots` it is another, whatever it is called: who shares the store may ask others for certificates.
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

/// All of them, in whatever order they are configured.
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
    fn below_other_roots_it_is_another() {
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
