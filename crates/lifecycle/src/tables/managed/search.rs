//! Search: certificates by the beginning, the end or a part of a name, and by the beginning of a serial number or a
//! fingerprint. Each statement probes one index and reads a bounded number of rows.

use super::handle::Managed;
use super::row::{ManagedView, managed_columns, managed_row};
use db::{Bulk, Cost, StoreError, Value, contains, reversed};

/// Conditions of a search.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManagedSearch {
    /// A name that begins so.
    NamePrefix(String),
    /// A DNS name that ends so, in lower case.
    NameSuffix(String),
    /// A name or DNS name with this in it, three characters at least.
    Part(String),
    /// A version whose serial number, lower-case hexadecimal, begins so.
    Serial(String),
    /// A version whose SHA-256 is this or later, and before that.
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

/// ?1: of the full-text index, a phrase; of PostgreSQL, a pattern.
const PART: Bulk = Bulk {
    sqlite: concat!(
        "-- managed_search_part\nSELECT ",
        managed_columns!(),
        " FROM managed_certificates m WHERE m.id IN (SELECT rowid FROM managed_search WHERE managed_search MATCH ?1 LIMIT ?2)"
    ),
    postgres: concat!(
        "-- managed_search_part\nSELECT ",
        managed_columns!(),
        // An array is a few probes of the key, whatever the planner takes the function's rows for.
        " FROM managed_certificates m WHERE m.id = ANY (ARRAY(SELECT f.id FROM managed_search(?1, ?2) f(id)))"
    ),
};

pub(crate) const ALL: &[&str] = &[PREFIX, SUFFIX, SERIAL, FINGERPRINT];
pub(crate) const SQLITE: &[&str] = &[PART.sqlite];
pub(crate) const POSTGRES: &[&str] = &[PART.postgres];

/// Follows every text that begins with the text before it.
const LAST: char = '\u{10ffff}';

fn range(low: String, most: i64) -> Vec<Value> {
    let high = format!("{low}{LAST}");
    vec![low.into(), high.into(), most.into()]
}

/// The statement and its parameters.
fn statement(what: &ManagedSearch, most: i64, is_postgres: bool) -> (&'static str, Vec<Value>) {
    match what {
        ManagedSearch::NamePrefix(text) => (PREFIX, range(text.clone(), most)),
        ManagedSearch::NameSuffix(text) => (SUFFIX, range(reversed(text), most)),
        ManagedSearch::Serial(digits) => (SERIAL, range(digits.clone(), most)),
        ManagedSearch::Fingerprint(low, high) => {
            (FINGERPRINT, vec![Value::Blob(low.clone()), Value::Blob(high.clone()), most.into()])
        }
        ManagedSearch::Part(text) if is_postgres => (PART.postgres, vec![contains(text).into(), most.into()]),
        ManagedSearch::Part(text) => {
            let phrase = format!("\"{}\"", text.replace('"', "\"\""));
            (PART.sqlite, vec![phrase.into(), most.into()])
        }
    }
}

/// The statements whose query plans a test checks.
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
    /// Certificates that match, at most `most`, in no order of use. Open runs are left out.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn search(self, what: &ManagedSearch, most: usize) -> Result<Vec<ManagedView>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let (text, parameters) = statement(what, most, self.0.is_postgres());
        let rows = self.0.rows(Cost::Point, text, parameters).await?;
        rows.into_iter().map(|mut row| Ok(ManagedView { row: managed_row(&mut row)?, run: None })).collect()
    }
}
