//! From the inventory into management: what `scan` has found, and what people say about it.

use std::collections::BTreeMap;

use inventory::ownership::Assignment;
use keys::KeyType;
use store::EndpointKey;
use uuid::Uuid;
use x509::{Certificate, Fingerprint, GeneralName};

use crate::managed::{KeyLocation, Options, TargetRef};
use crate::tables::people::Dismissal;

/// A certificate that was found, to be managed from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The found certificate.
    pub what: ClaimSubject,
    /// Its name under management; its first name when `None`.
    pub name: Option<String>,
    /// The profile its next version is issued by.
    pub profile: String,
    /// The issuer of its next version; our own CA when `None`.
    pub issuer: Option<String>,
    /// Who answers for it. When neither this nor the team is given, both are as the rules of ownership say.
    pub owner: Option<String>,
    /// The team that does.
    pub team: Option<String>,
    /// Where it is used; as the rules of ownership say when `None`.
    pub environment: Option<String>,
    /// The policy.
    pub policy: Option<String>,
    /// Where its next key is to be.
    pub key_location: KeyLocation,
    /// Targets in addition to the endpoint at which it was found.
    pub targets: Vec<TargetRef>,
    /// The rest.
    pub options: Options,
}

/// The object of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimSubject {
    /// What this endpoint shows; the endpoint becomes a target.
    Endpoint(EndpointKey),
    /// This certificate, wherever it was seen.
    Fingerprint(Fingerprint),
}

/// Whether a certificate that was found is managed.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundState {
    /// Neither claimed nor dismissed.
    Unmanaged,
    /// It is a version of this certificate.
    Managed(Uuid),
    /// It is not to be managed, or not until then, with the reason given.
    Dismissed(Dismissal),
}

/// The fields of a leaf that a claim needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeafFacts {
    pub(crate) names: Vec<String>,
    pub(crate) key_type: KeyType,
    pub(crate) serial: String,
    pub(crate) spki_sha256: [u8; 32],
    pub(crate) not_before_us: i64,
    pub(crate) not_after_us: i64,
}

/// Why a certificate that was found cannot be claimed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadClaim {
    /// The certificate does not parse.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    /// It speaks for nothing that can be asked for again.
    #[error("the certificate has no names that a new one could have")]
    NoNames,
    /// The certificate is a CA's.
    #[error("the certificate is an authority's: authorities are imported, not claimed")]
    Authority,
}

impl Claim {
    /// With what a rule of ownership says and the claim does not. Owner and team are one answer to one question: a claim
    /// that gives one of them gets nothing of the other. Answers the tags.
    pub(crate) fn filled(&mut self, by: &Assignment) -> BTreeMap<String, String> {
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

/// Reads a leaf for a claim. A key of a kind that is not made here is replaced by P-256 at the next version.
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
