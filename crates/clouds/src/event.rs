//! Events that a listing of cloud certificates sends.

use std::sync::Arc;

use x509::Fingerprint;

use crate::api_error::chain;
use crate::certificate::{CloudCertificate, CloudResource};
use crate::error::SourceError;
use crate::state::State;
use crate::tags::Tags;

/// An event of a listing: certificates, or the end of a source.
#[derive(Debug)]
pub enum Event {
    /// A batch of certificates that the source lists.
    Certificates {
        /// Name of the source, such as `aws/123456789012`.
        source: Arc<str>,
        /// At most a hundred certificates.
        certificates: Vec<CloudCertificate>,
    },
    /// The listing of a source ended, possibly with failures. Sent exactly once for each source, after all of its certificates,
    /// unless the listing was stopped.
    Ended(Box<Listed>),
}

/// Result of listing one source.
#[derive(Debug)]
pub struct Listed {
    /// Name of the source, such as `aws/123456789012`.
    pub source: Arc<str>,
    /// State for the next listing. Store it only after the certificates of this listing are stored.
    pub state: State,
    /// Resources that the last listing contained and that no longer exist.
    pub removed: Vec<CloudResource>,
    /// Parts that could not be listed, with the error. An empty part name means the source itself.
    pub failed: Vec<(String, SourceError)>,
    /// Errors about additional data such as tags, one per part. The list of certificates is complete without this data.
    pub remarks: Vec<(String, SourceError)>,
    /// Resources whose tags changed, or whose certificate changed, since the last listing.
    pub tagged: Vec<Tagged>,
    /// Number of certificates listed.
    pub certificates: u64,
    /// Number of certificates read because they are new or changed.
    pub read: u64,
}

/// Changed tags of a resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tagged {
    /// The resource whose tags changed.
    pub resource: CloudResource,
    /// The certificate that the resource holds.
    pub leaf: Option<Fingerprint>,
    /// Current tags of the resource.
    pub tags: Tags,
    /// Previous tags, if the resource had the same certificate with other tags. An owner may already have been assigned by the
    /// previous tags.
    pub before: Option<Tags>,
}

impl Listed {
    /// Returns the parts that could not be listed, as human-readable text.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.format_parts(&self.failed)
    }

    /// Returns the remarks, as human-readable text.
    pub fn remark_texts(&self) -> impl Iterator<Item = String> {
        self.format_parts(&self.remarks)
    }

    fn format_parts<'a>(&'a self, parts: &'a [(String, SourceError)]) -> impl Iterator<Item = String> + 'a {
        parts.iter().map(|(part, error)| {
            let space = if part.is_empty() { "" } else { " " };
            format!("{}{space}{part}: {}", self.source, chain(error))
        })
    }
}
