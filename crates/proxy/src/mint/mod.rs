//! Leaf certificates for whatever name a client asks for, each below an authority of the operator's.
//!
//! A leaf is one signature: all leaves of a process stand over the same few keys ([`LeafKeys`]), made from the system's
//! randomness and changed by time, or each over one of its own, or of its user ([`KeysOfLeaves`]). They are never derived from anything, and never the authority's.

mod authority;
mod intermediate;
mod keys;
mod likeness;
mod owners;
mod stock;

pub use self::authority::{Authority, BadAuthority, new_root};
pub use self::intermediate::Intermediates;
pub use self::keys::{KeysOfLeaves, LEAF_KEY_LIFE, LEAF_KEY_LIFE_MAX, LeafKey, LeafKeyKind, LeafKeys};
pub use self::likeness::{Likeness, NoLikeness};
pub use self::owners::KeysByOwner;
pub use self::stock::{RSA_STOCK, RsaStock};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use http_relay::host::LeafName;
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use x509::build::{self, CertificateSpec, Extension};
use x509::{BasicConstraints, DistinguishedName, GeneralName, KeyUsage, SerialNumber, UnixTime};
use zeroize::Zeroizing;

use keys::SignError;

/// How far the past a leaf begins, for clients whose clocks are behind.
const CLOCK_SKEW_S: i64 = 3_600;
/// The most a leaf may hold: browsers refuse longer from 2029 on (CA/Browser Forum ballot SC-081).
pub const VALIDITY_MAX: Duration = Duration::from_secs(47 * 86_400);
/// What a leaf still holds at least when it is handed out; an authority that ends sooner signs no more.
pub(crate) const VALIDITY_MIN: Duration = Duration::from_secs(60);
/// For the authority's signature.
pub const SIGN_TIMEOUT: Duration = Duration::from_secs(5);
/// id-kp-serverAuth (RFC 5280 section 4.2.1.12).
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
/// The longest common name (RFC 5280 appendix A.1, ub-common-name).
const COMMON_NAME_MAX: usize = 64;

/// Why there is no leaf.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MintError {
    /// The authority ends within a minute, or has.
    #[error("the authority of the leaves ends: give the proxy another one")]
    AuthorityEnds,
    /// The certificate that is mirrored ends within a minute, or has.
    #[error("the certificate that the leaf is to be like ends")]
    MirroredEnds,
    /// Its key.
    #[error("the authority's key did not sign: {0}")]
    NotSigned(#[from] SignError),
    /// The client needs an RSA key, and none is ready yet.
    #[error("no RSA key is ready yet")]
    NoRsaKey,
    /// The leaf's own key.
    #[error("no key for the leaf: {0}")]
    NoKey(String),
    /// The library.
    #[error("there is no randomness")]
    NoRandomness,
    /// The authority is not to have another below it (RFC 5280 section 4.2.1.9).
    #[error("the authority permits none below it: give one whose pathlen is 1 or more, or that has none")]
    NoneBelow,
    /// The intermediate's own.
    #[error("an intermediate's certificate is not sound: {0}")]
    Intermediate(#[from] BadAuthority),
}

/// A leaf, ready for handshakes.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The chain and the key.
    pub certified: Arc<CertifiedKey>,
    /// What it stands over.
    pub key: LeafKey,
    /// Its first second.
    pub not_before: UnixTime,
    /// Its last second.
    pub not_after: UnixTime,
}

/// Why a chain is no leaf's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadLeaf {
    /// There is no certificate, or one that is not read.
    #[error("its certificate cannot be read: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// It stands over another key.
    #[error("its certificate stands over another key")]
    OtherKey,
}

impl Leaf {
    /// One that was kept: its chain, its own certificate first.
    ///
    /// # Errors
    /// [`BadLeaf`]
    pub(crate) fn of_chain(chain: Vec<CertificateDer<'static>>, key: LeafKey) -> Result<Self, BadLeaf> {
        let own = x509::Certificate::parse(chain.first().map_or(&[], |der| der.as_ref()))?;
        if *own.public_key.spki != *key.spki() {
            return Err(BadLeaf::OtherKey);
        }
        let certified = Arc::new(CertifiedKey::new(chain, key.signing()));
        Ok(Self { certified, not_before: own.not_before, not_after: own.not_after, key })
    }

    /// Whether it is in force at `now`.
    #[must_use]
    pub fn holds_at(&self, now: UnixTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// The chain and the key in PEM, if the key is one to be handed out ([`KeysByOwner::of_consumers`]).
    #[must_use]
    pub fn to_pem(&self) -> Option<Zeroizing<String>> {
        let key = self.key.to_pkcs8_pem()?;
        let mut text = Zeroizing::new(self.chain_pem());
        text.push_str(&key);
        Some(text)
    }

    /// The chain in PEM, the leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.certified.cert.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
    }

    /// Octets it takes, its key aside, which all share.
    #[must_use]
    pub fn octets(&self) -> usize {
        const ITSELF: usize = size_of::<Leaf>() + size_of::<CertifiedKey>() + 2 * size_of::<usize>();
        self.certified.cert.iter().fold(ITSELF, |sum, der| sum + size_of::<CertificateDer<'_>>() + der.len())
    }
}

/// Makes leaves below an authority.
#[derive(Clone, Debug)]
pub struct Minter {
    /// The current one, for all clones.
    authority: Arc<RwLock<Arc<Authority>>>,
    keys: Arc<LeafKeys>,
    validity: Duration,
}

impl Minter {
    /// With leaves that hold for `validity`, [`VALIDITY_MAX`] at most, and never longer than the authority.
    #[must_use]
    pub fn new(authority: Authority, keys: Arc<LeafKeys>, validity: Duration) -> Self {
        let validity = validity.clamp(VALIDITY_MIN, VALIDITY_MAX);
        Self { authority: Arc::new(RwLock::new(Arc::new(authority))), keys, validity }
    }

    /// As this one, over other keys.
    #[must_use]
    pub fn over(&self, keys: Arc<LeafKeys>) -> Self {
        Self { keys, ..self.clone() }
    }

    /// What makes its leaves differ from those of a minter of other settings.
    #[must_use]
    pub fn profile(&self) -> String {
        let urls = self.authority().crl_urls().join(" ");
        format!("{} s {urls}", self.validity.as_secs())
    }

    /// Which of its leaves stand over one key.
    #[must_use]
    pub fn keys(&self) -> KeysOfLeaves {
        self.keys.which()
    }

    /// Who signs now.
    #[must_use]
    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority.read())
    }

    /// Has another sign from now on, for all clones. Leaves below the one before have another identity, so they are given out
    /// no more.
    pub fn change_authority(&self, authority: Authority) {
        *self.authority.write() = Arc::new(authority);
    }

    /// A new leaf for `name`, in force at `now`.
    ///
    /// # Errors
    /// [`MintError`]
    pub async fn mint(&self, name: &LeafName, kind: LeafKeyKind, now: UnixTime) -> Result<Leaf, MintError> {
        let names = [general_name(name)];
        let wanted = Wanted { subject: &subject_of(name), names: &names, within: None };
        self.make(wanted, kind, now).await
    }

    /// A new leaf like a server's own certificate, in force at `now`, and never longer than that one.
    ///
    /// # Errors
    /// [`MintError`]
    pub async fn mint_like(
        &self,
        likeness: &Likeness,
        kind: LeafKeyKind,
        now: UnixTime,
    ) -> Result<Leaf, MintError> {
        let within = Some((likeness.not_before, likeness.not_after));
        let wanted = Wanted { subject: &likeness.subject, names: &likeness.names, within };
        self.make(wanted, kind, now).await
    }

    async fn make(&self, wanted: Wanted<'_>, kind: LeafKeyKind, now: UnixTime) -> Result<Leaf, MintError> {
        let key = self.keys.current(kind)?;
        let authority = self.authority();
        let is_too_short = |end: UnixTime| end.since(now) < VALIDITY_MIN.as_secs() as i64;
        let mut not_after = now.plus(self.validity.as_secs() as i64).min(authority.not_after());
        if is_too_short(not_after) {
            return Err(MintError::AuthorityEnds);
        }
        let mut not_before = now.plus(-CLOCK_SKEW_S).max(authority.not_before());
        if let Some((first, last)) = wanted.within {
            (not_before, not_after) = (not_before.max(first), not_after.min(last));
            if is_too_short(not_after) {
                return Err(MintError::MirroredEnds);
            }
        }
        let spec = CertificateSpec {
            serial: &new_serial()?,
            signature: authority.signer().algorithm(),
            issuer: authority.subject(),
            subject: &wanted.subject.der,
            not_before,
            not_after,
            spki: key.spki(),
            extensions: &extensions(&authority, &wanted, &key),
        };
        let tbs = build::tbs_certificate(&spec);
        let deadline = (Instant::now() + SIGN_TIMEOUT).into_std();
        let signature = authority.signer().sign(&tbs, deadline).await?;
        let der = build::signed(&tbs, &spec.signature, &signature);
        let chain = std::iter::once(CertificateDer::from(der)).chain(authority.chain()).collect();
        let certified = Arc::new(CertifiedKey::new(chain, key.signing()));
        Ok(Leaf { certified, not_before, not_after, key })
    }
}

/// What a leaf says of whom it is for.
struct Wanted<'a> {
    subject: &'a DistinguishedName,
    names: &'a [GeneralName],
    /// Its first and last second at most.
    within: Option<(UnixTime, UnixTime)>,
}

fn extensions(authority: &Authority, wanted: &Wanted<'_>, key: &LeafKey) -> Vec<Extension> {
    let usage = match key.kind() {
        LeafKeyKind::P256 => KeyUsage::DIGITAL_SIGNATURE,
        LeafKeyKind::Rsa2048 => KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT,
    };
    let mut all = vec![
        Extension::subject_alt_names(wanted.names, wanted.subject.is_empty()),
        Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }),
        Extension::key_usage(KeyUsage(usage)),
        Extension::extended_key_usage(&[SERVER_AUTH.to_owned()]),
        Extension::subject_key_id(key.id()),
        Extension::authority_key_id(authority.key_id()),
    ];
    if !authority.crl_urls().is_empty() {
        all.push(Extension::crl_distribution_points(authority.crl_urls()));
    }
    all
}

fn new_serial() -> Result<SerialNumber, MintError> {
    let mut random = [0; 16];
    rand::fill(&mut random).map_err(|_| MintError::NoRandomness)?;
    Ok(SerialNumber::from_random(random))
}

/// The name as common name, for old clients; none where it would be too long for one.
fn subject_of(name: &LeafName) -> DistinguishedName {
    let text = name.to_string();
    match text.len() <= COMMON_NAME_MAX {
        true => build::distinguished_name(&[(build::Attribute::CommonName, text)]),
        false => DistinguishedName::empty(),
    }
}

fn general_name(name: &LeafName) -> GeneralName {
    match name {
        LeafName::Dns(host) => GeneralName::Dns(host.as_str().to_owned()),
        LeafName::Ip(address) => GeneralName::Ip(*address),
    }
}
