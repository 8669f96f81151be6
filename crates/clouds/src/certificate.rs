//! Certificates and their resources, as the APIs of clouds and clusters list them.

use std::sync::Arc;

use scan::observation::Use;
use scan::target::CloudStore;
use x509::{Fingerprint, UnixTime};

use crate::tags::Tags;

/// A resource of a cloud or cluster that holds a certificate.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CloudResource {
    /// Service or object type that stores the certificate, such as `aws-acm`.
    pub store: CloudStore,
    /// Full name of the resource: the same in every listing.
    pub name: Arc<str>,
}

/// A certificate chain, or the reason why it is missing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Chain {
    /// The chain as read in this listing, DER, leaf first.
    Read(Vec<Vec<u8>>),
    /// Fingerprints of an unchanged chain, which is already in the inventory.
    Unchanged(Vec<Fingerprint>),
    /// No chain could be read. Contains the human-readable reason.
    None(String),
}

/// A certificate as listed by a cloud or cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CloudCertificate {
    /// The resource that holds the certificate.
    pub resource: CloudResource,
    /// The certificate's chain.
    pub chain: Chain,
    /// Expiry as reported by the listing. The expiry in the chain takes precedence.
    pub not_after: Option<UnixTime>,
    /// Resources that use the certificate, sorted.
    pub used_by: Vec<Use>,
    /// Tags of the certificate; `None` if they are unknown, for example for lack of permission.
    pub tags: Option<Tags>,
    /// Text that changes whenever the certificate changes. Used only to detect changes.
    pub marker: String,
}
