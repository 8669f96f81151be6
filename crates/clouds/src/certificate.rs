//! Certificates as clouds and clusters list them.

use std::sync::Arc;

use scan::observation::Use;
use scan::target::CloudStore;
use x509::{Fingerprint, UnixTime};

use crate::tags::Tags;

/// A resource of a cloud or cluster that holds a certificate.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CloudResource {
    /// The kind of resource.
    pub store: CloudStore,
    /// Its full name: the same in every listing.
    pub name: Arc<str>,
}

/// What is known of a certificate's bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Chain {
    /// As read now, DER, leaf first.
    Read(Vec<Vec<u8>>),
    /// Unchanged since it was read; these are in the inventory.
    Unchanged(Vec<Fingerprint>),
    /// There is none that could be read; for people, why.
    None(String),
}

/// A certificate as a cloud or cluster keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CloudCertificate {
    /// The resource that holds the certificate.
    pub place: CloudResource,
    /// Its bytes, or where they are.
    pub chain: Chain,
    /// End of validity as the listing says; the chain's own word counts where there is one.
    pub not_after: Option<UnixTime>,
    /// Resources that use it, sorted.
    pub used_by: Vec<Use>,
    /// Its tags there; `None` when they are not known, as where they may not be read.
    pub tags: Option<Tags>,
    /// Whatever changes whenever the certificate does: compared, never read.
    pub marker: String,
}
