//! Creates the keys, leaves and chains that servers present.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509::crl::Revoked;
use x509::{DAY, Fingerprint, UnixTime};

use crate::FleetError;
use crate::forge::{
    AlternativeName, Authority, Order, Role, forge, forge_self_signed, ocsp_good, random_serial,
};
use crate::key::{Key, ServerKey};
use crate::key_kind::KeyKind;
use crate::kind::{Chain, EndpointBehavior, Issuer, Kind, Leaf, Naming, SerialForm};

/// Maximum RSA keys created; further RSA servers share them, and the expected results reflect that. Creating a key takes a tenth of
/// a second.
const RSA_KEYS_MAX: usize = 8;

/// Certificate, chain, key and staple of one server.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) leaf: CertificateDer<'static>,
    /// The chain above the leaf; shared by all servers of the same issuer.
    pub(crate) above: Arc<[CertificateDer<'static>]>,
    pub(crate) key: Arc<Key>,
    pub(crate) staple: Option<Box<[u8]>>,
}

impl Served {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.leaf)
    }

    pub(crate) fn chain(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        std::iter::once(&self.leaf).chain(self.above.iter())
    }

    /// Returns the value that rustls needs for one handshake. It contains a copy of the chain, so it is not cached.
    pub(crate) fn certified(&self) -> CertifiedKey {
        let mut certified =
            CertifiedKey::new(self.chain().cloned().collect(), Arc::new(ServerKey(self.key.clone())));
        certified.ocsp = self.staple.as_ref().map(|staple| staple.to_vec());
        certified
    }
}

/// Names, address and start of validity for the certificate of a server.
#[derive(Clone, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) host: &'a str,
    /// Additional names in the certificate.
    pub(crate) more: &'a [String],
    pub(crate) address: [u8; 4],
    /// Days from the start of the fleet to the start of the validity; negative in the past.
    pub(crate) from_days: i64,
}

/// Cached chain above a leaf, by issuer and chain form.
type ChainCacheEntry = (Issuer, Chain, Arc<[CertificateDer<'static>]>);

/// All CAs, which issue certificates to servers.
#[derive(Debug)]
pub(crate) struct FleetAuthorities {
    now: UnixTime,
    root: Authority,
    issuing: Authority,
    rsa_root: Authority,
    rsa_issuing: Authority,
    expired: Authority,
    deep: Vec<Authority>,
    private_root: Authority,
    private: Authority,
    /// An intermediate of the new root; `cross` is the cross certificate of the new root, issued by the trusted root.
    crossed: Authority,
    cross: CertificateDer<'static>,
    /// Base URL of the CRLs in the leaves' distribution points.
    crls: Option<String>,
    chains: Mutex<Vec<ChainCacheEntry>>,
    rsa: Mutex<Vec<Arc<Key>>>,
    rsa_next: Mutex<usize>,
}

impl FleetAuthorities {
    pub(crate) fn new(now: UnixTime, crls: Option<String>) -> Result<Self, FleetError> {
        let years = |from: i64, to: i64| (now.plus(from * 365 * DAY), now.plus(to * 365 * DAY));
        let key = || Key::generate(KeyKind::P256).map(Arc::new);
        let (from, to) = years(-2, 10);
        let (low_from, low_to) = years(-1, 5);
        let root = Authority::root("Fleet Root", key()?, from, to)?;
        let issuing = root.below("Fleet Issuing 1", key()?, low_from, low_to)?;
        let rsa_root =
            Authority::root("Fleet RSA Root", Arc::new(Key::generate(KeyKind::Rsa2048)?), from, to)?;
        let old_key = Arc::new(Key::legacy_rsa_ca());
        let rsa_issuing = rsa_root.below("Fleet RSA Issuing 1", old_key, low_from, low_to)?;
        let (expired_from, _) = years(-3, 0);
        let expired = root.below("Fleet Issuing 0", key()?, expired_from, now.plus(-10 * DAY))?;
        let mut deep = vec![root.below("Fleet Region", key()?, low_from, low_to)?];
        for name in ["Fleet Country", "Fleet City"] {
            let above = &deep[deep.len() - 1];
            let below = above.below(name, key()?, low_from, low_to)?;
            deep.push(below);
        }
        let private_root = Authority::root("Somebody's Root", key()?, from, to)?;
        let private = private_root.below("Somebody's Issuing", key()?, low_from, low_to)?;
        let next_root = Authority::root("Fleet Root of Tomorrow", key()?, low_from, to)?;
        let crossed = next_root.below("Fleet Issuing 2", key()?, low_from, low_to)?;
        let cross = root.below("Fleet Root of Tomorrow", next_root.key.clone(), low_from, low_to)?;
        Ok(Self {
            now,
            root,
            issuing,
            rsa_root,
            rsa_issuing,
            expired,
            deep,
            private_root,
            private,
            crossed,
            cross: cross.certificate,
            crls,
            chains: Mutex::new(Vec::new()),
            rsa: Mutex::new(Vec::new()),
            rsa_next: Mutex::new(0),
        })
    }

    /// Returns the roots that a scanner is configured to trust.
    pub(crate) fn roots(&self) -> [&CertificateDer<'static>; 2] {
        [&self.root.certificate, &self.rsa_root.certificate]
    }

    /// Returns a key of this type; RSA keys are reused.
    pub(crate) fn key(&self, kind: KeyKind) -> Result<Arc<Key>, FleetError> {
        if kind != KeyKind::Rsa2048 {
            return Key::generate(kind).map(Arc::new);
        }
        let index = {
            let mut next = self.rsa_next.lock();
            *next += 1;
            (*next - 1) % RSA_KEYS_MAX
        };
        // Locked while a key is created, so that two threads do not create a key for the same slot.
        let mut keys = self.rsa.lock();
        while keys.len() <= index {
            keys.push(Arc::new(Key::generate(kind)?));
        }
        Ok(keys[index].clone())
    }

    /// Creates the certificate, chain, key and staple of a server of this kind, with a new key or the given one.
    pub(crate) fn serve(
        &self,
        kind: &Kind,
        identity: &Identity<'_>,
        key: Option<Arc<Key>>,
    ) -> Result<Served, FleetError> {
        let key = key.map_or_else(|| self.key(kind.leaf.key), Ok)?;
        let order = self.order(&kind.leaf, identity);
        let leaf = match self.issuer(kind.leaf.issuer) {
            Some(issuer) => forge(&order, &key, issuer)?,
            None => forge_self_signed(&order, &key)?,
        };
        let staple = match (kind.serve, self.issuer(kind.leaf.issuer)) {
            (EndpointBehavior::Stapled, Some(issuer)) => {
                Some(ocsp_good(&order.serial, issuer, self.now)?.into_boxed_slice())
            }
            _ => None,
        };
        Ok(Served { leaf, above: self.above(kind.leaf.issuer, kind.chain), key, staple })
    }

    fn order(&self, leaf: &Leaf, identity: &Identity<'_>) -> Order {
        let not_before = self.now.plus(identity.from_days * DAY);
        let (common_name, names) = names(leaf.naming, identity);
        Order {
            role: Role::Server,
            common_name,
            names,
            serial: serial(leaf.serial),
            not_before,
            // Both ends are part of the validity (RFC 5280 section 4.1.2.5).
            not_after: not_before.plus(leaf.life_days * DAY - 1),
            signed_with: leaf.signed_with,
            crl_url: match (&self.crls, leaf.issuer) {
                (None, _) | (_, Issuer::Oneself) => None,
                (Some(base), issuer) => Some(format!("{base}{}", crl_path(issuer))),
            },
        }
    }

    /// Creates the CRL of an issuer; also returns its path in the distribution point.
    pub(crate) fn crl(&self, issuer: Issuer, revoked: &[Revoked]) -> Result<(String, Vec<u8>), FleetError> {
        let authority = self.issuer(issuer).ok_or(FleetError::Sign)?;
        let crl = crate::revocation::crl_of(&authority.key, &authority.name, self.now, revoked)?;
        Ok((crl_path(issuer), crl))
    }

    fn issuer(&self, issuer: Issuer) -> Option<&Authority> {
        match issuer {
            Issuer::Issuing => Some(&self.issuing),
            Issuer::Rsa => Some(&self.rsa_issuing),
            Issuer::Private => Some(&self.private),
            Issuer::Expired => Some(&self.expired),
            Issuer::Deep => self.deep.last(),
            Issuer::Crossed => Some(&self.crossed),
            Issuer::Oneself => None,
        }
    }

    /// Returns the chain above the leaf, created once per issuer and form.
    fn above(&self, issuer: Issuer, chain: Chain) -> Arc<[CertificateDer<'static>]> {
        let mut chains = self.chains.lock();
        if let Some((.., known)) = chains.iter().find(|(i, c, _)| (*i, *c) == (issuer, chain)) {
            return known.clone();
        }
        let above: Arc<[_]> = self.lay_out(issuer, chain).into();
        chains.push((issuer, chain, above.clone()));
        above
    }

    fn lay_out(&self, issuer: Issuer, chain: Chain) -> Vec<CertificateDer<'static>> {
        let mut path: Vec<_> = match issuer {
            Issuer::Issuing => vec![&self.issuing.certificate],
            Issuer::Rsa => vec![&self.rsa_issuing.certificate],
            Issuer::Private => vec![&self.private.certificate],
            Issuer::Expired => vec![&self.expired.certificate],
            Issuer::Deep => self.deep.iter().rev().map(|authority| &authority.certificate).collect(),
            Issuer::Crossed => vec![&self.crossed.certificate, &self.cross],
            Issuer::Oneself => Vec::new(),
        };
        match chain {
            Chain::Full => {}
            Chain::WithRoot if issuer == Issuer::Private => path.push(&self.private_root.certificate),
            Chain::WithRoot => path.push(&self.root.certificate),
            Chain::LeafAlone => path.clear(),
            Chain::Misordered => path.reverse(),
            Chain::Stray => path.push(&self.private.certificate),
            Chain::Huge(total) => path = path.into_iter().cycle().take(total - 1).collect(),
        }
        path.into_iter().cloned().collect()
    }
}

fn crl_path(issuer: Issuer) -> String {
    format!("/{issuer:?}.crl").to_ascii_lowercase()
}

fn names(naming: Naming, identity: &Identity<'_>) -> (Option<String>, Vec<AlternativeName>) {
    let host = identity.host;
    let own = |name: &str| AlternativeName::Dns(name.to_owned());
    // A common name holds 64 characters (RFC 5280 appendix A.1, ub-common-name).
    let common = |name: &str| (name.len() <= 64).then(|| name.to_owned());
    match naming {
        Naming::Own => {
            let names = std::iter::once(host).chain(identity.more.iter().map(String::as_str));
            (common(host), names.map(own).collect())
        }
        Naming::Other => (common("old.example"), vec![own("old.example"), own("www.old.example")]),
        Naming::Wildcard => {
            let parent = host.split_once('.').map_or(host, |(_, parent)| parent);
            let wildcard = format!("*.{parent}");
            (common(&wildcard), vec![own(&wildcard)])
        }
        Naming::CommonNameOnly => (common(host), Vec::new()),
        Naming::LongCommonName => (Some(LONG_NAME.to_owned()), vec![own(host)]),
        Naming::Hundred => {
            let more = (1..100).map(|i| AlternativeName::Dns(format!("alt{i}.{host}")));
            (common(host), std::iter::once(own(host)).chain(more).collect())
        }
        Naming::Address => (None, vec![AlternativeName::Address(identity.address)]),
    }
}

/// A common name of more than 64 characters. It is not a host name, so that its length is its only fault.
const LONG_NAME: &str =
    "The Department of Names That Go On for Longer Than Sixty-Four Characters, Main Building";

fn serial(serial: SerialForm) -> Vec<u8> {
    let mut random = random_serial();
    match serial {
        SerialForm::Random => {}
        SerialForm::Zero => random = vec![0],
        // Never 0xff, which would be a redundant byte before a byte with its highest bit set (X.690 section 8.3.2).
        SerialForm::Negative => random[0] = random[0] & 0x3f | 0x80,
        SerialForm::TooLong => random.extend([7; 8]),
        // Distinct serials: two certificates with the same issuer and serial would be the same certificate.
        SerialForm::Short => random.truncate(3),
    }
    random
}
