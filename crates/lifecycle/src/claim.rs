//! Claims: moves certificates that `scan` found from the inventory into management.

use std::collections::BTreeMap;

use inventory::ownership::Assignment;
use keys::KeyType;
use store::EndpointKey;
use uuid::Uuid;
use x509::{Certificate, Fingerprint, GeneralName};

use crate::managed::{KeyLocation, Options, TargetRef};
use crate::tables::people::Dismissal;

/// Request to manage a certificate that a scan found.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The certificate to claim, selected by endpoint or by fingerprint.
    pub what: ClaimSubject,
    /// Name of the managed certificate. Default: the first name in the certificate.
    pub name: Option<String>,
    /// Profile for the next version.
    pub profile: String,
    /// Issuer of the next version. Default: the CA of this installation.
    pub issuer: Option<String>,
    /// Owner of the certificate. If neither owner nor team is given, the ownership rules supply both.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Environment in which the certificate is used. Default: set by the ownership rules.
    pub environment: Option<String>,
    /// Name of the policy of the certificate.
    pub policy: Option<String>,
    /// Location of the next private key.
    pub key_location: KeyLocation,
    /// Targets, in addition to the endpoint at which the certificate was found.
    pub targets: Vec<TargetRef>,
    /// Further settings of the managed certificate, such as automatic renewal and notes.
    pub options: Options,
}

/// Selector of the certificate to claim: an endpoint or a fingerprint.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimSubject {
    /// The certificate that this endpoint presents. The endpoint becomes a target.
    Endpoint(EndpointKey),
    /// The certificate with this fingerprint, at any endpoint.
    Fingerprint(Fingerprint),
}

/// Management state of a certificate that a scan found.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundState {
    /// Neither claimed nor dismissed.
    Unmanaged,
    /// The certificate is a version of this managed certificate.
    Managed(Uuid),
    /// The certificate was dismissed: it is not to be managed, either permanently or until a given time.
    Dismissed(Dismissal),
}

/// Fields of a leaf certificate that are needed to claim it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeafFacts {
    pub(crate) names: Vec<String>,
    pub(crate) key_type: KeyType,
    pub(crate) serial: String,
    pub(crate) spki_sha256: [u8; 32],
    pub(crate) not_before_us: i64,
    pub(crate) not_after_us: i64,
}

/// Reason why the certificate cannot be claimed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadClaim {
    /// The certificate cannot be parsed.
    #[error("cannot parse the certificate: {0}")]
    Unreadable(String),
    /// The certificate contains no name for which a new certificate could be requested.
    #[error("the certificate has no name that Bulla can request in a new certificate")]
    NoNames,
    /// The certificate is a CA certificate.
    #[error("this is a CA certificate: import the CA instead of claiming the certificate")]
    Authority,
}

impl Claim {
    /// Fills missing fields of the claim from an ownership rule, and returns the rule's tags. Owner and team belong together: if
    /// the claim has one of them, the rule supplies neither.
    pub(crate) fn fill_from(&mut self, by: &Assignment) -> BTreeMap<String, String> {
        if self.owner.is_none() && self.team.is_none() {
            self.owner.clone_from(&by.owner);
            self.team.clone_from(&by.team);
        }
        if self.environment.is_none() {
            self.environment.clone_from(&by.environment);
        }
        by.tags.clone()
    }
}

/// Reads a leaf certificate for a claim. If its key type is not supported, the next version uses P-256.
pub(crate) fn read(der: &[u8]) -> Result<LeafFacts, BadClaim> {
    let leaf = Certificate::parse(der).map_err(|error| BadClaim::Unreadable(error.to_string()))?;
    if leaf.is_ca() {
        return Err(BadClaim::Authority);
    }
    let names: Vec<String> = leaf
        .names()
        .into_iter()
        .filter_map(|name| GeneralName::parse(&name).ok())
        .map(|name| name.to_string())
        .collect();
    if names.is_empty() {
        return Err(BadClaim::NoNames);
    }
    Ok(LeafFacts {
        names,
        key_type: KeyType::of(&leaf.public_key).unwrap_or(KeyType::P256),
        serial: leaf.serial.to_string(),
        spki_sha256: *x509::SpkiHash::of(&leaf.public_key.spki).as_bytes(),
        not_before_us: leaf.not_before.0.saturating_mul(1_000_000),
        not_after_us: leaf.not_after.0.saturating_mul(1_000_000),
    })
}
