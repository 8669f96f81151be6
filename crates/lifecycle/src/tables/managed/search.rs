//! Search for certificates by start, end or part of a name, and by the start of a serial number or fingerprint. Each statement uses
//! one index and reads a bounded number of rows.

use super::handle::Managed;
use super::name_part::phrase;
use super::row::{ManagedView, managed_columns, managed_row};
use db::{BulkStatement, Cost, StoreError, Value, contains, reversed};

/// Criterion of a search for managed certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManagedSearch {
    /// The name starts with this text.
    NamePrefix(String),
    /// A DNS name ends with this text, in lower case.
    NameSuffix(String),
    /// The name or a DNS name contains this text of at least three characters.
    Part(String),
    /// The serial number of a version starts with this text, in lower-case hexadecimal.
    Serial(String),
    /// The SHA-256 of a version is at least the first value and less than the second value.
    Fingerprint(Vec<u8>, Vec<u8>),
}

const PREFIX: &str = concat!(
    "-- managed_search_prefix\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.name >= ?1 AND m.name < ?2 ORDER BY m.name LIMIT ?3"
);

const SUFFIX: &str = concat!(
    "-- managed_search_suffix\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.id IN (SELECT certificate_id FROM managed_names WHERE name_reversed >= ?1 \
     AND name_reversed < ?2 ORDER BY name_reversed LIMIT ?3)"
);

const SERIAL: &str = concat!(
    "-- managed_search_serial\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.id IN (SELECT certificate_id FROM managed_versions WHERE serial >= ?1 \
     AND serial < ?2 ORDER BY serial LIMIT ?3)"
);

const FINGERPRINT: &str = concat!(
    "-- managed_search_fingerprint\nSELECT ",
    managed_columns!(),
    " FROM managed_certificates m WHERE m.id IN (SELECT certificate_id FROM managed_versions WHERE fingerprint >= ?1 \
     AND fingerprint < ?2 ORDER BY fingerprint LIMIT ?3)"
);

/// Certificates whose name or DNS name contains a text. ?1 is a phrase for SQLite's full-text index, or a pattern for PostgreSQL.
const PART: BulkStatement = BulkStatement {
    sqlite: concat!(
        "-- managed_search_part\nSELECT ",
        managed_columns!(),
        " FROM managed_certificates m WHERE m.id IN (SELECT rowid FROM managed_search WHERE managed_search MATCH ?1 LIMIT ?2)"
    ),
    postgres: concat!(
        "-- managed_search_part\nSELECT ",
        managed_columns!(),
        // With an array, PostgreSQL uses a few primary-key lookups, regardless of the number of rows that the planner expects from
        // the function.
        " FROM managed_certificates m WHERE m.id = ANY (ARRAY(SELECT f.id FROM managed_search(?1, ?2) f(id)))"
    ),
};

pub(crate) const ALL: &[&str] = &[PREFIX, SUFFIX, SERIAL, FINGERPRINT];
pub(crate) const SQLITE: &[&str] = &[PART.sqlite];
pub(crate) const POSTGRES: &[&str] = &[PART.postgres];

/// The last Unicode character. A text with this suffix sorts after every text with the same prefix.
const LAST: char = '\u{10ffff}';

fn range(low: String, most: i64) -> Vec<Value> {
    let high = format!("{low}{LAST}");
    vec![low.into(), high.into(), most.into()]
}

fn statement(what: &ManagedSearch, most: i64, is_postgres: bool) -> (&'static str, Vec<Value>) {
    match what {
        ManagedSearch::NamePrefix(text) => (PREFIX, range(text.clone(), most)),
        ManagedSearch::NameSuffix(text) => (SUFFIX, range(reversed(text), most)),
        ManagedSearch::Serial(digits) => (SERIAL, range(digits.clone(), most)),
        ManagedSearch::Fingerprint(low, high) => {
            (FINGERPRINT, vec![Value::Blob(low.clone()), Value::Blob(high.clone()), most.into()])
        }
        ManagedSearch::Part(text) if is_postgres => (PART.postgres, vec![contains(text).into(), most.into()]),
        ManagedSearch::Part(text) => (PART.sqlite, vec![phrase(text).into(), most.into()]),
    }
}

/// Returns the statements whose query plans a test checks.
pub(super) fn plans(is_postgres: bool) -> Vec<(String, Vec<Value>)> {
    let hash = || vec![0; 32];
    let all = [
        ManagedSearch::NamePrefix("n0001".to_owned()),
        ManagedSearch::NameSuffix("1.example.org".to_owned()),
        ManagedSearch::Part("0001".to_owned()),
        ManagedSearch::Serial("01".to_owned()),
        ManagedSearch::Fingerprint(hash(), hash()),
    ];
    let plan = |what| {
        let (text, parameters) = statement(what, 10, is_postgres);
        (text.to_owned(), parameters)
    };
    all.iter().map(plan).collect()
}

impl Managed<'_> {
    /// Returns at most `most` certificates that match, in no particular order, without open runs.
    ///
    /// # Errors
    /// Database errors.
    pub async fn search(self, what: &ManagedSearch, most: usize) -> Result<Vec<ManagedView>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let (text, parameters) = statement(what, most, self.0.is_postgres());
        let rows = self.0.rows(Cost::Point, text, parameters).await?;
        rows.into_iter().map(|mut row| Ok(ManagedView { row: managed_row(&mut row)?, run: None })).collect()
    }
}
