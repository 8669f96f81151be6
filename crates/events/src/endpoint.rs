//! Bodies about endpoints.

use serde::{Deserialize, Serialize};
use x509::Fingerprint;

use crate::ownership::Ownership;

/// A certificate at an endpoint, as a watch saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointCertificate {
    /// The endpoint as people write it: `www.example.org:443`.
    pub name: String,
    /// The watch's name.
    pub watch: String,
    /// The watch's group; may be empty.
    pub group: String,
    /// The issuer's name.
    pub issuer: String,
    /// SHA-256 of the certificate.
    pub certificate: Fingerprint,
    /// The first name of the certificate, or its subject.
    pub certificate_name: String,
}

/// A condition of an endpoint that people must know of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The certificate is for another name.
    Mismatch,
    /// Clients do not trust the chain.
    Untrusted,
    /// A key, signature or protocol is too weak.
    Weak,
    /// The certificate is revoked.
    Revoked,
    /// The endpoint did not prove that it has the private key.
    KeyNotProven,
    /// The certificate was replaced, and longer ago than a twentieth of its life (at most a day).
    Outdated,
    /// The endpoint answered before and does not answer any more.
    Silent,
    /// The certificate is not valid yet.
    NotYetValid,
    /// A certificate above the leaf ends before the leaf does, or soon.
    ChainEnds,
    /// A critical finding that is no other condition.
    Critical,
}

/// How the certificate of an endpoint differs from the one before.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateChange {
    /// The endpoint was never seen before.
    New,
    /// Another certificate of the same issuer.
    Renewed,
    /// Another issuer, or another chain above the same certificate.
    Chain,
}

/// An endpoint is in a condition that people must know of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointTrouble {
    /// The endpoint and its certificate.
    #[serde(flatten)]
    pub endpoint: EndpointCertificate,
    /// The condition.
    pub condition: Condition,
    /// The code of the rule: `chain.untrusted-root`.
    pub code: String,
    /// The finding, for people.
    pub detail: String,
    /// The owner by the rules of ownership.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// An endpoint is no longer in a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointTroubleOver {
    /// The endpoint as people write it: `www.example.org:443`.
    pub name: String,
    /// The condition.
    pub condition: Condition,
    /// The owner by the rules of ownership.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// An endpoint shows another certificate or chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointCertificateChanged {
    /// The endpoint and its new certificate.
    #[serde(flatten)]
    pub endpoint: EndpointCertificate,
    /// The difference.
    pub change: CertificateChange,
    /// Whether the change is expected, or one too many for an alert each.
    pub quiet: bool,
    /// The certificate, for people.
    pub detail: String,
    /// The owner by the rules of ownership.
    #[serde(flatten)]
    pub ownership: Ownership,
}
