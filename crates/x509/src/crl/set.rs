//! The CRLs of several CAs together: whether a certificate is in one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Crl, ParseError};
use crate::{Certificate, UnixTime};

/// The serial numbers, in their shortest form, that lists of one issuer name.
type Serials = HashSet<Box<[u8]>>;

/// The CRLs of several CAs. Of several lists of one CA and one distribution point the newest counts.
#[derive(Clone, Debug, Default)]
pub struct CrlSet {
    lists: Vec<Crl>,
    /// By the issuer's name (DER).
    revoked: HashMap<Arc<[u8]>, Serials>,
    superseded: Vec<String>,
}

/// What a set of CRLs says of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrlVerdict {
    /// A list of its issuer names it.
    Revoked,
    /// Lists of its issuer do not name it.
    NotRevoked,
    /// There is no list of its issuer.
    NoList,
}

impl CrlSet {
    /// Reads lists (DER). Their signatures are not checked: they come from a place that is trusted.
    ///
    /// # Errors
    /// [`ParseError`] of the first that cannot be read.
    pub fn parse(ders: &[Vec<u8>]) -> Result<Self, ParseError> {
        let mut set = Self::default();
        let lists: Result<Vec<Crl>, ParseError> = ders.iter().map(|der| Crl::parse(der)).collect();
        let mut lists = lists?;
        lists.sort_by_cached_key(|list| Reverse(age(list)));
        for list in lists {
            if set.lists.iter().any(|newer| speak_of_the_same(newer, &list)) {
                set.superseded.push(list.issuer.text.clone());
                continue;
            }
            let serials = list.entries().map(|entry| entry.serial.shortest().into());
            set.revoked.entry(Arc::clone(&list.issuer.der)).or_default().extend(serials);
            set.lists.push(list);
        }
        Ok(set)
    }

    /// Whether `certificate` is revoked.
    #[must_use]
    pub fn verdict(&self, certificate: &Certificate) -> CrlVerdict {
        match self.revoked.get(&certificate.issuer.der) {
            None => CrlVerdict::NoList,
            Some(serials) if serials.contains(certificate.serial.shortest()) => CrlVerdict::Revoked,
            Some(_) => CrlVerdict::NotRevoked,
        }
    }

    /// Whether there is no list at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists that count, the newest first.
    pub fn lists(&self) -> impl Iterator<Item = &Crl> {
        self.lists.iter()
    }

    /// The issuers of lists that do not count, as there is a newer one.
    #[must_use]
    pub fn superseded(&self) -> &[String] {
        &self.superseded
    }

    /// How many lists are past their nextUpdate.
    #[must_use]
    pub fn outdated(&self, now: UnixTime) -> usize {
        self.lists.iter().filter(|list| list.next_update.is_some_and(|next| next < now)).count()
    }
}

fn age(list: &Crl) -> (UnixTime, usize, Vec<u8>) {
    let number = list.number.as_ref().map(|number| number.shortest().to_vec()).unwrap_or_default();
    (list.this_update, number.len(), number)
}

fn speak_of_the_same(newer: &Crl, list: &Crl) -> bool {
    newer.issuer.der == list.issuer.der
        && newer.distribution_points == list.distribution_points
        && newer.unnamed_distribution_point == list.unnamed_distribution_point
        && newer.scope == list.scope
}
