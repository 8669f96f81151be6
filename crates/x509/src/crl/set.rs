//! Combined CRLs of several CAs, to look up the revocation status of certificates.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Crl, ParseError};
use crate::{Certificate, UnixTime};

/// Serial numbers, in their shortest form, from the CRLs of one issuer name.
type Serials = HashSet<Box<[u8]>>;

/// CRLs of several CAs. If there are several CRLs for the same CA and distribution point, only the newest is used.
#[derive(Clone, Debug, Default)]
pub struct CrlSet {
    lists: Vec<Crl>,
    /// Serial numbers by the issuer's DER name.
    revoked: HashMap<Arc<[u8]>, Serials>,
    superseded: Vec<String>,
}

/// Status of a certificate by a set of CRLs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrlVerdict {
    /// A CRL of the issuer contains the certificate.
    Revoked,
    /// The issuer's CRLs do not contain the certificate.
    NotRevoked,
    /// The set has no CRL of the issuer.
    NoList,
}

impl CrlSet {
    /// Parses CRLs in DER. Does not verify their signatures: the source must be trusted.
    ///
    /// # Errors
    /// [`ParseError`] of the first CRL that cannot be read.
    pub fn parse(ders: &[Vec<u8>]) -> Result<Self, ParseError> {
        let mut set = Self::default();
        let lists: Result<Vec<Crl>, ParseError> = ders.iter().map(|der| Crl::parse(der)).collect();
        let mut lists = lists?;
        lists.sort_by_cached_key(|list| Reverse(age(list)));
        for list in lists {
            if set.lists.iter().any(|newer| is_same_scope(newer, &list)) {
                set.superseded.push(list.issuer.text.clone());
                continue;
            }
            let serials = list.entries().map(|entry| entry.serial.shortest().into());
            set.revoked.entry(Arc::clone(&list.issuer.der)).or_default().extend(serials);
            set.lists.push(list);
        }
        Ok(set)
    }

    /// Returns the revocation status of `certificate`.
    #[must_use]
    pub fn verdict(&self, certificate: &Certificate) -> CrlVerdict {
        match self.revoked.get(&certificate.issuer.der) {
            None => CrlVerdict::NoList,
            Some(serials) if serials.contains(certificate.serial.shortest()) => CrlVerdict::Revoked,
            Some(_) => CrlVerdict::NotRevoked,
        }
    }

    /// Returns whether the set has no CRLs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns the CRLs in use, newest first.
    pub fn lists(&self) -> impl Iterator<Item = &Crl> {
        self.lists.iter()
    }

    /// Returns the issuers of CRLs that are not used because there is a newer one.
    #[must_use]
    pub fn superseded(&self) -> &[String] {
        &self.superseded
    }

    /// Returns the number of CRLs whose nextUpdate has passed.
    #[must_use]
    pub fn outdated(&self, now: UnixTime) -> usize {
        self.lists.iter().filter(|list| list.next_update.is_some_and(|next| next < now)).count()
    }
}

fn age(list: &Crl) -> (UnixTime, usize, Vec<u8>) {
    let number = list.number.as_ref().map(|number| number.shortest().to_vec()).unwrap_or_default();
    (list.this_update, number.len(), number)
}

fn is_same_scope(newer: &Crl, list: &Crl) -> bool {
    newer.issuer.der == list.issuer.der
        && newer.distribution_points == list.distribution_points
        && newer.unnamed_distribution_point == list.unnamed_distribution_point
        && newer.scope == list.scope
}
