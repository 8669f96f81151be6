//! Search of issued certificates by the beginning of a serial number, fingerprint or key hash, or by a name and its subdomains.
//! Each statement uses one index and reads a limited number of rows.

use super::{Issued, IssuedRow, row_of};
use db::{Cost, StoreError, Value, reversed};

/// Search term for issued certificates. A range includes its first value and excludes its second.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IssuedSearch {
    /// Range of serial numbers (content bytes).
    Serial(Vec<u8>, Vec<u8>),
    /// Range of SHA-256 fingerprints of certificates.
    Sha256(Vec<u8>, Vec<u8>),
    /// Range of SHA-256 hashes of the SubjectPublicKeyInfo.
    Key(Vec<u8>, Vec<u8>),
    /// Certificates for this name or a subdomain of it.
    Name(String),
}

macro_rules! found {
    ($name:literal, $of:literal) => {
        concat!("-- ", $name, "\n", super::columns!(), "WHERE i.certificate_id IN (", $of, ")")
    };
}

const SERIAL: &str = found!(
    "issued_search_serial",
    "SELECT s.certificate_id FROM issued s WHERE s.serial >= ?1 AND s.serial < ?2 ORDER BY s.serial LIMIT ?3"
);
const SHA256: &str = found!(
    "issued_search_sha256",
    "SELECT s.id FROM certificates s WHERE s.sha256 >= ?1 AND s.sha256 < ?2 ORDER BY s.sha256 LIMIT ?3"
);
const KEY: &str = found!(
    "issued_search_key",
    "SELECT s.certificate_id FROM issued s WHERE s.spki_sha256 >= ?1 AND s.spki_sha256 < ?2 ORDER BY s.spki_sha256 LIMIT ?3"
);
const NAME: &str = found!(
    "issued_search_name",
    "SELECT s.certificate_id FROM (SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed = ?1 LIMIT ?4) s \
     UNION SELECT t.certificate_id FROM (SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed >= ?2 \
     AND n.name_reversed < ?3 ORDER BY n.name_reversed LIMIT ?4) t"
);

pub(crate) const ALL: &[&str] = &[SERIAL, SHA256, KEY, NAME];

impl Issued<'_> {
    /// Returns matching issued certificates in no particular order. At most `most` rows are examined.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn search(self, what: &IssuedSearch, most: usize) -> Result<Vec<IssuedRow>, StoreError> {
        let most: Value = i64::try_from(most).unwrap_or(i64::MAX).into();
        let range = |low: &Vec<u8>, high: &Vec<u8>| vec![Value::Blob(low.clone()), Value::Blob(high.clone())];
        let (statement, mut parameters) = match what {
            IssuedSearch::Serial(low, high) => (SERIAL, range(low, high)),
            IssuedSearch::Sha256(low, high) => (SHA256, range(low, high)),
            IssuedSearch::Key(low, high) => (KEY, range(low, high)),
            IssuedSearch::Name(name) => {
                let name = reversed(name.trim_start_matches('.'));
                (NAME, vec![name.as_str().into(), format!("{name}.").into(), format!("{name}/").into()])
            }
        };
        parameters.push(most);
        self.0.rows(Cost::Walk, statement, parameters).await?.into_iter().map(row_of).collect()
    }
}
