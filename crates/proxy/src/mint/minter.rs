//! Minting of leaf certificates.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use x509::build::{self, CertificateSpec, Extension};
use x509::{BasicConstraints, DistinguishedName, GeneralName, HostOrIp, KeyUsage, UnixTime};

use super::authority::{Authority, SIGN_TIMEOUT};
use super::error::MintError;
use super::key::{LeafKey, LeafKeyKind};
use super::keys::{LeafKeySharing, LeafKeys};
use super::leaf::Leaf;
use super::likeness::MirrorTemplate;
use super::serial::new_serial;
use super::validity::{CLOCK_SKEW_S, VALIDITY_MAX, VALIDITY_MIN};

/// id-kp-serverAuth (RFC 5280 section 4.2.1.12).
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
/// Maximum length of a common name (RFC 5280 appendix A.1, ub-common-name).
const COMMON_NAME_MAX: usize = 64;

/// Issuer of leaf certificates below a CA. Clones share the CA.
#[derive(Clone, Debug)]
pub struct Minter {
    /// The current CA, shared by all clones.
    authority: Arc<RwLock<Arc<Authority>>>,
    keys: Arc<LeafKeys>,
    validity: Duration,
}

impl Minter {
    /// Creates a minter. Leaves are valid for `validity`, at most [`VALIDITY_MAX`], and never longer than the CA.
    #[must_use]
    pub fn new(authority: Authority, keys: Arc<LeafKeys>, validity: Duration) -> Self {
        let validity = validity.clamp(VALIDITY_MIN, VALIDITY_MAX);
        Self { authority: Arc::new(RwLock::new(Arc::new(authority))), keys, validity }
    }

    /// Returns a minter with the same CA and validity that uses `keys`.
    #[must_use]
    pub fn with_keys(&self, keys: Arc<LeafKeys>) -> Self {
        Self { keys, ..self.clone() }
    }

    /// Returns a text of all settings that affect leaves. Minters with different settings have different profiles.
    #[must_use]
    pub fn profile(&self) -> String {
        let urls = self.authority().crl_urls().join(" ");
        format!("{} s {urls}", self.validity.as_secs())
    }

    /// Returns which leaves of this minter share a key.
    #[must_use]
    pub fn keys(&self) -> LeafKeySharing {
        self.keys.sharing()
    }

    /// Returns the current CA.
    #[must_use]
    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority.read())
    }

    /// Changes the CA for all clones. Leaves of the previous CA have other identities, so they are no longer served.
    pub fn change_authority(&self, authority: Authority) {
        *self.authority.write() = Arc::new(authority);
    }

    /// Mints a leaf for `name`, valid from `now`.
    ///
    /// # Errors
    /// [`MintError`]
    #[crate::boxed]
    pub async fn mint(&self, name: &HostOrIp, kind: LeafKeyKind, now: UnixTime) -> Result<Leaf, MintError> {
        let names = [general_name(name)];
        let wanted = LeafFields { subject: &subject_of(name), names: &names, within: None };
        self.make(wanted, kind, now).await
    }

    /// Mints a leaf that mirrors a server's certificate, valid from `now`, and never longer than that certificate.
    ///
    /// # Errors
    /// [`MintError`]
    #[crate::boxed]
    pub async fn mint_mirrored(
        &self,
        likeness: &MirrorTemplate,
        kind: LeafKeyKind,
        now: UnixTime,
    ) -> Result<Leaf, MintError> {
        let within = Some((likeness.not_before, likeness.not_after));
        let wanted = LeafFields { subject: &likeness.subject, names: &likeness.names, within };
        self.make(wanted, kind, now).await
    }

    async fn make(
        &self,
        wanted: LeafFields<'_>,
        kind: LeafKeyKind,
        now: UnixTime,
    ) -> Result<Leaf, MintError> {
        let key = self.keys.current(kind).await?;
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

/// The subject, names and dates of a leaf.
struct LeafFields<'a> {
    subject: &'a DistinguishedName,
    names: &'a [GeneralName],
    /// Limits of the leaf's validity: first and last second.
    within: Option<(UnixTime, UnixTime)>,
}

fn extensions(authority: &Authority, wanted: &LeafFields<'_>, key: &LeafKey) -> Vec<Extension> {
    let usage = match key.kind() {
        LeafKeyKind::P256 => KeyUsage::DIGITAL_SIGNATURE,
        LeafKeyKind::Rsa2048 => KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT,
    };
    let mut all = vec![
        Extension::subject_alt_names(wanted.names).critical(wanted.subject.is_empty()),
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

/// Returns a subject with the name as common name, for old clients. Empty if the name is too long for a common name.
fn subject_of(name: &HostOrIp) -> DistinguishedName {
    let text = name.to_string();
    match text.len() <= COMMON_NAME_MAX {
        true => build::distinguished_name(&[(build::Attribute::CommonName, text)]),
        false => DistinguishedName::empty(),
    }
}

fn general_name(name: &HostOrIp) -> GeneralName {
    match name {
        HostOrIp::Dns(host) => GeneralName::Dns(host.as_str().to_owned()),
        HostOrIp::Ip(address) => GeneralName::Ip(*address),
    }
}
