//! Event bodies about endpoints.

use serde::{Deserialize, Serialize};
use x509::Fingerprint;

use crate::ownership::Ownership;

/// A certificate that a watch found at an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointCertificate {
    /// The endpoint as text, such as `www.example.org:443`.
    pub name: String,
    /// Name of the watch that probed the endpoint.
    pub watch: String,
    /// The watch's group. May be empty.
    pub group: String,
    /// Name of the certificate's issuer.
    pub issuer: String,
    /// SHA-256 of the certificate.
    pub certificate: Fingerprint,
    /// The first name of the certificate, or its subject.
    pub certificate_name: String,
}

/// A condition of an endpoint that requires attention.
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
    /// The certificate was replaced longer ago than a twentieth of its lifetime (at most a day), but is still served.
    Outdated,
    /// The endpoint responded before and no longer responds.
    Silent,
    /// The certificate is not yet valid.
    NotYetValid,
    /// A CA certificate in the chain expires before the leaf, or soon.
    ChainEnds,
    /// A critical finding that is none of the other conditions.
    Critical,
}

/// Difference between the new and the previous certificate of an endpoint.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateChange {
    /// The endpoint was not seen before.
    New,
    /// Another certificate of the same issuer.
    Renewed,
    /// Another issuer, or another chain for the same certificate.
    Chain,
}

/// An endpoint has a condition that requires attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointTrouble {
    /// The endpoint and its certificate.
    #[serde(flatten)]
    pub endpoint: EndpointCertificate,
    /// The condition that requires attention.
    pub condition: Condition,
    /// Code of the rule, such as `chain.untrusted-root`.
    pub code: String,
    /// Human-readable description of the finding.
    pub detail: String,
    /// Owner, team, environment and tags by the ownership rules.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// A condition of an endpoint ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointTroubleOver {
    /// The endpoint as text, such as `www.example.org:443`.
    pub name: String,
    /// The condition that ended.
    pub condition: Condition,
    /// Owner, team, environment and tags by the ownership rules.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// An endpoint serves another certificate or chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointCertificateChanged {
    /// The endpoint and its new certificate.
    #[serde(flatten)]
    pub endpoint: EndpointCertificate,
    /// Difference to the endpoint's previous certificate.
    pub change: CertificateChange,
    /// Whether no alert is raised: the change is expected, or the run found too many changes.
    pub quiet: bool,
    /// Human-readable description of the certificate.
    pub detail: String,
    /// Owner, team, environment and tags by the ownership rules.
    #[serde(flatten)]
    pub ownership: Ownership,
}
