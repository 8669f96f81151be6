//! Simulated clouds with documented pagination, quotas, errors and delays, and the list of certificates that a scanner should find.
//!
//! Requests are counted when they arrive, before any delay, over sliding windows: the strictest interpretation of a quota. Tokens
//! are checked; request signatures are not, because tests target the content of requests.

pub mod aws;
pub mod azure;
pub mod gcp;
pub mod keys;
pub mod kubernetes;
mod ledger;
mod manners;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use x509::{DAY, Fingerprint, UnixTime};

pub use ledger::{OperationCounts, Quota};
pub use manners::CloudBehavior;
pub use server::Fault;
pub(crate) use server::{CloudRequest, Reply, Server};

use crate::FleetError;
use crate::forge::{AlternativeName, Authority, Order, Role, forge, random_serial};
use crate::key::{Key, SignedWith};
use crate::key_kind::KeyKind;

/// A certificate that a scanner should find in a simulated cloud.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SimulatedCertificate {
    /// Kind of certificate store in the inventory: `aws-acm`.
    pub store: &'static str,
    /// Full name of the resource.
    pub name: String,
    /// SHA-256 of the leaf in hexadecimal; `None` if no certificate has been issued.
    pub leaf_sha256: Option<String>,
    /// Names of the resources that use the certificate.
    pub used_by: Vec<String>,
    /// Tags of the certificate; empty if the cloud has no tags for this kind.
    pub tags: BTreeMap<String, String>,
}

/// Returns the tags of the certificate with this number: two out of three have a team, every other one an environment, some have
/// none.
pub(crate) fn tags_of(number: usize) -> BTreeMap<String, String> {
    let team = [Some("payments"), Some("web"), None][number % 3];
    let environment = number.is_multiple_of(2).then_some("production");
    let tags = [("team", team), ("environment", environment)];
    tags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
}

/// A certificate with its issuers.
#[derive(Clone, Debug)]
pub(crate) struct MintedCertificate {
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) above: CertificateDer<'static>,
    pub(crate) names: Vec<String>,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) kind: KeyKind,
    pub(crate) serial: String,
}

impl MintedCertificate {
    pub(crate) fn leaf_pem(&self) -> String {
        crate::pem(&self.leaf)
    }

    pub(crate) fn chain_pem(&self) -> String {
        crate::pem(&self.leaf) + &crate::pem(&self.above)
    }

    pub(crate) fn sha256(&self) -> String {
        Fingerprint::of(&self.leaf).to_string()
    }
}

/// A factory for the certificates of simulated clouds, with its own CA.
pub(crate) struct CertificateFactory {
    now: UnixTime,
    root: Authority,
    issuing: Authority,
    /// One RSA key for all certificates: creating one takes a tenth of a second.
    rsa: Arc<Key>,
}

impl CertificateFactory {
    pub(crate) fn new() -> Result<Self, FleetError> {
        let now = crate::clock::now();
        let (from, to) = (now.plus(-365 * DAY), now.plus(3_650 * DAY));
        let key = |kind| Key::generate(kind).map(Arc::new);
        let root = Authority::root("Cloud Root", key(KeyKind::P256)?, from, to)?;
        let issuing = root.below("Cloud Issuing 1", key(KeyKind::P256)?, from, to)?;
        Ok(Self { now, root, issuing, rsa: key(KeyKind::Rsa2048)? })
    }

    /// Returns the current time and the CA of all certificates.
    pub(crate) fn anchor(&self) -> (UnixTime, &Authority) {
        (self.now, &self.root)
    }

    /// Creates a certificate for `names` that expires in `days`.
    pub(crate) fn mint(
        &self,
        names: Vec<String>,
        kind: KeyKind,
        days: i64,
    ) -> Result<MintedCertificate, FleetError> {
        let (not_before, not_after) = (self.now.plus(-10 * DAY), self.now.plus(days * DAY));
        let serial = random_serial();
        let order = Order {
            role: Role::Server,
            common_name: names.first().filter(|name| name.len() <= 64).cloned(),
            names: names.iter().cloned().map(AlternativeName::Dns).collect(),
            serial: serial.clone(),
            not_before,
            not_after,
            signed_with: SignedWith::Usual,
            crl_url: None,
        };
        let own;
        let key = match kind {
            KeyKind::Rsa2048 => &*self.rsa,
            other => {
                own = Key::generate(other)?;
                &own
            }
        };
        let leaf = forge(&order, key, &self.issuing)?;
        let serial = HEXLOWER.encode(&serial);
        let above = self.issuing.certificate.clone();
        Ok(MintedCertificate { leaf, above, names, not_before, not_after, kind, serial })
    }
}

/// Returns the page of `all` that starts at `token`, and the token of the next page.
pub(crate) fn page<'a, T>(
    all: &'a [T],
    token: Option<&str>,
    requested_size: Option<usize>,
    default: usize,
    most: usize,
) -> Option<(&'a [T], Option<String>)> {
    let from = match token {
        Some(token) => token.strip_prefix("page-")?.parse().ok()?,
        None => 0,
    };
    let size = requested_size.unwrap_or(default).clamp(1, most);
    let to = (from + size).min(all.len());
    let next = (to < all.len()).then(|| format!("page-{to}"));
    Some((all.get(from..to)?, next))
}

/// Formats a time in RFC 3339 with whole seconds.
pub(crate) fn rfc3339(time: UnixTime) -> String {
    jiff::Timestamp::from_second(time.0).map(|time| time.to_string()).unwrap_or_default()
}
