//! Set of trust anchors, with lookups by subject and by fingerprint.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::{Certificate, DistinguishedName, Fingerprint, ParseError};

/// Set of trust anchors. The number of anchors has no limit, because lookups use hash tables.
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    anchors: Vec<Arc<Certificate>>,
    fingerprints: HashSet<Fingerprint>,
    by_subject: HashMap<Arc<[u8]>, Vec<usize>>,
    /// Anchors by normalised subject (RFC 5280 section 7.1). Used only if no exact subject matches, because issuers usually copy
    /// names byte by byte.
    by_folded_subject: HashMap<Vec<u8>, Vec<usize>>,
}

impl TrustStore {
    /// Creates a store without trust anchors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a trust anchor. Adding it twice changes nothing.
    pub fn add(&mut self, anchor: Arc<Certificate>) {
        if !self.fingerprints.insert(anchor.fingerprint) {
            return;
        }
        let index = self.anchors.len();
        self.by_subject.entry(anchor.subject.der.clone()).or_default().push(index);
        self.by_folded_subject.entry(anchor.subject.folded()).or_default().push(index);
        self.anchors.push(anchor);
    }

    /// Adds the DER certificate as a trust anchor.
    ///
    /// # Errors
    /// If the bytes are not a certificate.
    pub fn add_der(&mut self, der: &[u8]) -> Result<(), ParseError> {
        Certificate::parse(der).map(|anchor| self.add(Arc::new(anchor)))
    }

    /// Returns the anchors with this subject.
    pub fn named<'a>(
        &'a self,
        subject: &DistinguishedName,
    ) -> impl Iterator<Item = &'a Arc<Certificate>> + use<'a> {
        let indices = self.by_subject.get(&subject.der);
        let indices = indices.or_else(|| self.by_folded_subject.get(&subject.folded()));
        indices.into_iter().flatten().map(|&index| &self.anchors[index])
    }

    /// Returns whether `certificate` is trusted: the store contains it, or another certificate with the same subject and key (roots
    /// are reissued with new dates and the same key).
    #[must_use]
    pub fn contains(&self, certificate: &Certificate) -> bool {
        self.fingerprints.contains(&certificate.fingerprint)
            || self
                .named(&certificate.subject)
                .any(|anchor| anchor.public_key.spki_sha256 == certificate.public_key.spki_sha256)
    }

    /// Returns whether the store contains exactly this certificate.
    #[must_use]
    pub fn contains_exactly(&self, certificate: &Fingerprint) -> bool {
        self.fingerprints.contains(certificate)
    }

    /// Returns the anchor with this fingerprint.
    #[must_use]
    pub fn exactly(&self, certificate: &Fingerprint) -> Option<&Arc<Certificate>> {
        if !self.fingerprints.contains(certificate) {
            return None;
        }
        self.anchors.iter().find(|anchor| anchor.fingerprint == *certificate)
    }

    /// Returns the anchors, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.anchors.iter()
    }

    /// Returns the number of anchors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Returns whether there are no trust anchors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }
}

impl FromIterator<Arc<Certificate>> for TrustStore {
    fn from_iter<I: IntoIterator<Item = Arc<Certificate>>>(anchors: I) -> Self {
        let mut store = Self::default();
        anchors.into_iter().for_each(|anchor| store.add(anchor));
        store
    }
}
