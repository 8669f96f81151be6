//! Events of a listing.

use std::sync::Arc;

use x509::Fingerprint;

use crate::api_error::chain;
use crate::certificate::{CloudCertificate, CloudResource};
use crate::error::SourceError;
use crate::state::State;
use crate::tags::Tags;

/// An event of a listing.
#[derive(Debug)]
pub enum Event {
    /// Certificates, some at a time.
    Certificates {
        /// The source's name.
        source: Arc<str>,
        /// At most a hundred.
        certificates: Vec<CloudCertificate>,
    },
    /// A source was listed, as far as it could be. Exactly one for each source, after all of its certificates, unless the
    /// listing was stopped.
    Ended(Box<Listed>),
}

/// How the listing of one source ended.
#[derive(Debug)]
pub struct Listed {
    /// The source's name.
    pub source: Arc<str>,
    /// What to start from next time. Keep it once the certificates before it are stored.
    pub state: State,
    /// Places that were listed last time and are not there any more.
    pub gone: Vec<CloudResource>,
    /// Parts that could not be listed, and why. An empty part is the source itself.
    pub failed: Vec<(String, SourceError)>,
    /// What could not be read beside the certificates, and why, once each: the certificates are whole without it.
    pub remarks: Vec<(String, SourceError)>,
    /// Places whose tags, or whose certificate under them, are other than last time.
    pub tagged: Vec<Tagged>,
    /// Certificates listed.
    pub certificates: u64,
    /// Those of them that were read, because they are new or changed.
    pub read: u64,
}

/// The tags of a place, where something about them is new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tagged {
    /// Which.
    pub place: CloudResource,
    /// The certificate that the resource holds.
    pub leaf: Option<Fingerprint>,
    /// Its tags now.
    pub tags: Tags,
    /// Its tags before, where the same certificate had others there: whose it is may have been told already.
    pub before: Option<Tags>,
}

impl Listed {
    /// What could not be listed, for people.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.written(&self.failed)
    }

    /// What could not be read beside the certificates, for people.
    pub fn remarked(&self) -> impl Iterator<Item = String> {
        self.written(&self.remarks)
    }

    fn written<'a>(&'a self, parts: &'a [(String, SourceError)]) -> impl Iterator<Item = String> + 'a {
        parts.iter().map(|(part, error)| {
            let space = if part.is_empty() { "" } else { " " };
            format!("{}{space}{part}: {}", self.source, chain(error))
        })
    }
}
