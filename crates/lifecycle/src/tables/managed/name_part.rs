//! The filter condition on a part of a name. A rare text is found by the index of parts; for a common one, the names of the other
//! matches are read until enough are found.

use db::{BulkStatement, Value, contains};

/// Maximum certificates that the index returns for a condition. A text in more names is common: among the certificates that a page
/// reads in its order, enough have it.
pub(super) const RARE_MAX: i64 = 5_000;
/// Minimum characters of a text that the index finds.
const CHARACTERS_MIN: usize = 3;

/// Counts the certificates with a text in a name. ?1 is a phrase for SQLite's full-text index, or a pattern for PostgreSQL.
const COUNT: BulkStatement = BulkStatement {
    sqlite: "-- managed_part_count\nSELECT count(*) FROM (SELECT rowid FROM managed_search WHERE managed_search MATCH ?1 LIMIT ?2) x",
    postgres: "-- managed_part_count\nSELECT count(*) FROM managed_search(?1, ?2)",
};

pub(crate) const SQLITE: &[&str] = &[COUNT.sqlite];
pub(crate) const POSTGRES: &[&str] = &[COUNT.postgres];

/// Source of the certificates with a part of a name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NamePartSource {
    /// The names of the certificates that match the other conditions.
    #[default]
    Names,
    /// SQLite's full-text index.
    SqliteIndex,
    /// PostgreSQL's index of trigrams.
    PostgresIndex,
}

/// Returns a phrase of SQLite's full-text index that matches a text.
pub(super) fn phrase(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Returns the condition that a name contains a text. `bind` returns the mark of a parameter.
pub(super) fn condition(text: &str, source: NamePartSource, mut bind: impl FnMut(Value) -> String) -> String {
    match source {
        NamePartSource::Names => {
            let mark = bind(contains(text).into());
            format!("(lower(name) LIKE {mark} ESCAPE '\\' OR lower(names) LIKE {mark} ESCAPE '\\')")
        }
        NamePartSource::SqliteIndex => {
            let mark = bind(phrase(text).into());
            format!("id IN (SELECT rowid FROM managed_search WHERE managed_search MATCH {mark})")
        }
        NamePartSource::PostgresIndex => {
            let (mark, most) = (bind(contains(text).into()), bind(RARE_MAX.into()));
            format!("id = ANY (ARRAY(SELECT f.id FROM managed_search({mark}, {most}) f(id)))")
        }
    }
}

/// Returns a statement that counts the certificates with a text in a name, up to slightly more than [`RARE_MAX`], and the source
/// to use if there are not more. `None` for a text that is too short for the index.
pub(super) fn count(text: &str, is_postgres: bool) -> Option<(&'static str, Vec<Value>, NamePartSource)> {
    text.chars().nth(CHARACTERS_MIN - 1)?;
    let (statement, pattern, source) = match is_postgres {
        true => (COUNT.postgres, contains(text), NamePartSource::PostgresIndex),
        false => (COUNT.sqlite, phrase(text), NamePartSource::SqliteIndex),
    };
    Some((statement, vec![pattern.into(), (RARE_MAX + 1).into()], source))
}
