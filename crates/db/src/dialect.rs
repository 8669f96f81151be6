//! SQL for both databases from one text: [`bulk!`](crate::bulk) and [`with_codes!`](crate::with_codes) generate the SQL of each
//! database at compile time.
//!
//! Write a statement for many rows as SQLite executes it, for one row. Name the columns of a row with their PostgreSQL types, in
//! the order of the [`Column`](crate::Column)s, and refer to each as `:name`:
//!
//! ```
//! const EXTEND: db::BulkStatement = db::bulk! { (id bigint, until bigint)
//!     "-- jobs_extend\nUPDATE jobs SET lease_until = :until WHERE id = :id AND lease_until < :until"
//! };
//! assert_eq!(EXTEND.sqlite, "-- jobs_extend\nUPDATE jobs SET lease_until = ?2 WHERE id = ?1 AND lease_until < ?2");
//! assert_eq!(
//!     EXTEND.postgres,
//!     "-- jobs_extend\nUPDATE jobs SET lease_until = _until FROM UNNEST(?1::bigint[], ?2::bigint[]) AS input (_id, _until) \
//!      WHERE id = _id AND lease_until < _until"
//! );
//! ```
//!
//! PostgreSQL executes the statement once for all rows. The rows are a relation `input`. Its columns have the given names with the
//! prefix `_`, so that they differ from the columns of tables. The relation is added to the statement as follows:
//!
//! | statement | for SQLite | for PostgreSQL |
//! | --- | --- | --- |
//! | `INSERT` | `VALUES (:a, 0)` | `SELECT _a, 0 FROM UNNEST(…) AS input (_a)` |
//! | `UPDATE` | `WHERE …` | `FROM UNNEST(…) AS input (…) WHERE …` |
//! | `DELETE` | `WHERE …` | `USING UNNEST(…) AS input (…) WHERE …` |
//! | `SELECT`, `INSERT … SELECT` | `FROM t …` | `FROM UNNEST(…) AS input (…) CROSS JOIN t …` |
//!
//! The relation is added at the first `VALUES`, `FROM` or `WHERE` outside parentheses. Marks are replaced by words that differ
//! between the databases:
//!
//! | mark | for SQLite | for PostgreSQL |
//! | --- | --- | --- |
//! | `{any name}`: a key, after `=`; no relation is added | `?1` | `ANY(?1::bigint[])` |
//! | `{among ?1 bytea}`: a JSON list, after a column; also of `uuid`, `bigint`, `text` | `IN (SELECT …)` | `= ANY(ARRAY(SELECT …))` |
//! | <code>{max&#124;greatest}</code>: either side may be empty | `max` | `greatest` |
//!
//! These marks can also be used in a statement that is not for many rows. Such a statement has no list of columns:
//! `bulk! { "… LIMIT ?1{| FOR UPDATE}" }`. If the statements for the databases differ in more than words, write both
//! ([`BulkStatement`](crate::BulkStatement) with both fields).
//!
//! Codes of an enum are written `{JobState::Queued}`. [`with_codes!`](crate::with_codes) inserts the numbers, so that no statement
//! contains a number that needs a comment.
//!
//! An unknown mark or name is a compile error.

/// The database whose SQL is generated.
#[derive(Clone, Copy)]
pub enum Dialect {
    /// SQLite: one statement per row.
    Sqlite,
    /// PostgreSQL: one statement for all rows.
    Postgres,
}

/// Generates a statement for both databases from one text. The module [`dialect`](crate::dialect) describes the syntax.
#[macro_export]
macro_rules! bulk {
    (($($name:ident $sql_type:ident),+ $(,)?) $text:expr) => {
        $crate::dialect::bulk!(@of &[$((stringify!($name), stringify!($sql_type))),+], $text)
    };
    (@of $columns:expr, $text:expr) => {
        $crate::BulkStatement {
            sqlite: $crate::dialect::bulk!(@one Sqlite, $columns, $text),
            postgres: $crate::dialect::bulk!(@one Postgres, $columns, $text),
        }
    };
    (@one $dialect:ident, $columns:expr, $text:expr) => {{
        const BYTES: &[u8] = &$crate::dialect::statement::<
            { $crate::dialect::statement::<0>($crate::dialect::Dialect::$dialect, $columns, $text).1 },
        >($crate::dialect::Dialect::$dialect, $columns, $text).0;
        $crate::dialect::text(BYTES)
    }};
    ($text:expr) => {
        $crate::dialect::bulk!(@of &[], $text)
    };
}

pub use bulk;

/// Replaces each `{Enum::Variant}` in a text by the value of its `const fn code(self) -> i64`.
///
/// `with_codes!([JobState::{Queued, Running}, JobKind::{Deploy}] "… WHERE state = {JobState::Queued}")`. An unlisted variant is a
/// compile error. Other marks are left for [`bulk!`].
#[macro_export]
macro_rules! with_codes {
    ([$($enum:ident::{$($variant:ident),+ $(,)?}),+ $(,)?] $text:expr) => {{
        const CODES: &[(&str, i64)] =
            &[$($((concat!(stringify!($enum), "::", stringify!($variant)), $enum::$variant.code())),+),+];
        const BYTES: &[u8] = &$crate::dialect::coded::<{ $crate::dialect::coded::<0>(CODES, $text).1 }>(CODES, $text).0;
        $crate::dialect::text(BYTES)
    }};
}

/// Converts the bytes from [`statement`] or [`coded`] to text.
#[doc(hidden)]
#[must_use]
pub const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a statement is text"),
    }
}

/// Output buffer. Bytes beyond `N` are only counted.
struct FixedBuffer<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> FixedBuffer<N> {
    const fn push(&mut self, byte: u8) {
        if self.length < N {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
    }

    const fn push_all(&mut self, text: &str) {
        self.push_part(text.as_bytes(), 0, text.len());
    }

    const fn push_part(&mut self, text: &[u8], mut at: usize, end: usize) {
        while at < end {
            self.push(text[at]);
            at += 1;
        }
    }

    const fn push_number(&mut self, number: i64) {
        if number < 0 {
            self.push(b'-');
        }
        let magnitude = number.unsigned_abs();
        let mut unit = 1;
        while magnitude / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            self.push(b'0' + (magnitude / unit % 10) as u8);
            unit /= 10;
        }
    }

    /// Writes the relation of all rows.
    const fn push_rows(&mut self, columns: &[(&str, &str)]) {
        self.push_all("UNNEST(");
        let mut at = 0;
        while at < columns.len() {
            self.push_all(if at == 0 { "" } else { ", " });
            self.push_array(at, columns[at].1);
            at += 1;
        }
        self.push_all(") AS input (");
        at = 0;
        while at < columns.len() {
            self.push_all(if at == 0 { "_" } else { ", _" });
            self.push_all(columns[at].0);
            at += 1;
        }
        self.push(b')');
    }

    /// Writes an array parameter such as `?1::bigint[]`.
    const fn push_array(&mut self, column: usize, sql_type: &str) {
        self.push(b'?');
        self.push_number(column as i64 + 1);
        self.push_all("::");
        self.push_all(sql_type);
        self.push_all("[]");
    }
}

/// Position in a statement at which the relation of all rows is inserted, by the verb of the statement.
#[derive(Clone, Copy)]
enum Verb {
    /// After `INSERT`, until `VALUES`, `FROM` or `WHERE`.
    Insert,
    Select,
    Update,
    Delete,
    /// The relation is already written, or not needed.
    Done,
}

/// Translates a statement to the SQL of a database. Returns the first `N` bytes of the result and its full length: with `N` = 0,
/// the length alone.
///
/// # Panics
/// At compile time, when the statement is invalid. The message says what is wrong.
#[doc(hidden)]
#[must_use]
pub const fn statement<const N: usize>(
    dialect: Dialect,
    columns: &[(&str, &str)],
    text: &str,
) -> ([u8; N], usize) {
    let from = text.as_bytes();
    let is_postgres = matches!(dialect, Dialect::Postgres);
    let mut out = FixedBuffer { bytes: [0; N], length: 0 };
    let mut at = statement_start(from);
    out.push_part(from, 0, at);
    let mut verb =
        if columns.is_empty() || contains(from, at, "{any ") { Verb::Done } else { verb_of(from, at) };
    let wants_rows = !matches!(verb, Verb::Done);
    let mut depth = 0;
    // Nesting depth inside `VALUES (`, until its closing parenthesis.
    let mut values = None;
    // Inside `{a|b}`: whether the current part is written.
    let mut either = None;
    while at < from.len() {
        let byte = from[at];
        if let Some(is_written) = either {
            if byte == b'|' {
                either = Some(is_postgres);
                at += 1;
                continue;
            }
            if byte == b'}' {
                either = None;
                at += 1;
                continue;
            }
            if !is_written {
                at += 1;
                continue;
            }
        }
        if byte == b'\'' || byte == b'"' {
            let end = quoted_end(from, at);
            out.push_part(from, at, end);
            at = end;
            continue;
        }
        if byte == b'{' && starts(from, at, "{any ") {
            let end = find(from, at, b'}');
            let column = position(columns, from, at + 5, end);
            if is_postgres {
                out.push_all("ANY(");
                out.push_array(column, columns[column].1);
                out.push(b')');
            } else {
                out.push(b'?');
                out.push_number(column as i64 + 1);
            }
            at = end + 1;
            continue;
        }
        if byte == b'{' && starts(from, at, "{among ") {
            let end = find(from, at, b'}');
            let space = find(from, at + 7, b' ');
            push_in_list(&mut out, dialect, from, at + 7, space, end);
            at = end + 1;
            continue;
        }
        if byte == b'{' {
            assert!(find(from, at, b'|') < find(from, at, b'}'), "a mark that does not exist");
            either = Some(!is_postgres);
            at += 1;
            continue;
        }
        if byte == b':' && starts(from, at, "::") {
            out.push_all("::");
            at += 2;
            continue;
        }
        if byte == b':' {
            let end = word_end(from, at + 1);
            let column = position(columns, from, at + 1, end);
            if is_postgres {
                out.push(b'_');
                out.push_all(columns[column].0);
            } else {
                out.push(b'?');
                out.push_number(column as i64 + 1);
            }
            at = end;
            continue;
        }
        if byte == b'(' {
            depth += 1;
        }
        if byte == b')' {
            depth -= 1;
            if let Some(inside) = values
                && inside == depth + 1
            {
                values = None;
                out.push_all(" FROM ");
                out.push_rows(columns);
                at += 1;
                continue;
            }
        }
        if depth == 0 && is_word_start(from, at) {
            let is_insert = matches!(verb, Verb::Insert);
            if is_insert && starts(from, at, "VALUES (") {
                verb = Verb::Done;
                if is_postgres {
                    out.push_all("SELECT ");
                    depth += 1;
                    values = Some(depth);
                    at += "VALUES (".len();
                    continue;
                }
            }
            if (is_insert || matches!(verb, Verb::Select)) && is_keyword(from, at, "FROM") {
                verb = Verb::Done;
                if is_postgres {
                    out.push_all("FROM ");
                    out.push_rows(columns);
                    out.push_all(" CROSS JOIN");
                    at += "FROM".len();
                    continue;
                }
            }
            if !matches!(verb, Verb::Done) && is_keyword(from, at, "WHERE") {
                if is_postgres {
                    out.push_all(if matches!(verb, Verb::Delete) { "USING " } else { "FROM " });
                    out.push_rows(columns);
                    out.push(b' ');
                }
                verb = Verb::Done;
            }
        }
        out.push(byte);
        at += 1;
    }
    assert!(matches!(verb, Verb::Done), "no VALUES, FROM or WHERE outside parentheses");
    assert!(either.is_none() && values.is_none(), "a mark or a parenthesis without its end");
    assert!(
        wants_rows || columns.is_empty() || contains(from, 0, "{any "),
        "columns, and nothing that takes them"
    );
    (out.bytes, out.length)
}

/// Returns the first `N` bytes of a text with its marks replaced by codes, and its full length.
///
/// # Panics
/// At compile time, for an unlisted code.
#[doc(hidden)]
#[must_use]
pub const fn coded<const N: usize>(codes: &[(&str, i64)], text: &str) -> ([u8; N], usize) {
    let from = text.as_bytes();
    let mut out = FixedBuffer { bytes: [0; N], length: 0 };
    let mut at = 0;
    while at < from.len() {
        let word = word_end(from, at + 1);
        if from[at] == b'{' && starts(from, word, "::") {
            let end = word_end(from, word + 2);
            assert!(starts(from, end, "}"), "a code is written {{Enum::Variant}}");
            let mut listed = 0;
            while listed < codes.len() && !equals(from, at + 1, end, codes[listed].0) {
                listed += 1;
            }
            assert!(listed < codes.len(), "a code that is not listed");
            out.push_number(codes[listed].1);
            at = end + 1;
        } else {
            out.push(from[at]);
            at += 1;
        }
    }
    (out.bytes, out.length)
}

/// Writes `IN (…)` or `= ANY(…)` for a JSON list. The parameter is `from[at..space]`, its type `from[space + 1..end]`.
const fn push_in_list<const N: usize>(
    out: &mut FixedBuffer<N>,
    dialect: Dialect,
    from: &[u8],
    at: usize,
    space: usize,
    end: usize,
) {
    let is_bytes = equals(from, space + 1, end, "bytea");
    let is_uuid = equals(from, space + 1, end, "uuid");
    let is_text = equals(from, space + 1, end, "text");
    assert!(
        is_bytes || is_uuid || is_text || equals(from, space + 1, end, "bigint"),
        "no type of a JSON list"
    );
    if matches!(dialect, Dialect::Sqlite) {
        out.push_all(if is_bytes || is_uuid { "IN (SELECT unhex(h.value)" } else { "IN (SELECT h.value" });
        out.push_all(" FROM json_each(");
        out.push_part(from, at, space);
        out.push_all(") h)");
    } else {
        out.push_all("= ANY(ARRAY(SELECT ");
        out.push_all(if is_bytes {
            "decode(h, 'hex')"
        } else if is_uuid {
            "h::uuid"
        } else if is_text {
            "h"
        } else {
            "h::bigint"
        });
        out.push_all(" FROM json_array_elements_text(");
        out.push_part(from, at, space);
        out.push_all("::text::json) AS h))");
    }
}

/// Returns the start of the statement after the comment line with its name.
const fn statement_start(from: &[u8]) -> usize {
    assert!(starts(from, 0, "-- "), "a statement begins with a comment that names it");
    find(from, 0, b'\n') + 1
}

const fn verb_of(from: &[u8], at: usize) -> Verb {
    if starts(from, at, "INSERT ") {
        Verb::Insert
    } else if starts(from, at, "SELECT ") {
        Verb::Select
    } else if starts(from, at, "UPDATE ") {
        Verb::Update
    } else if starts(from, at, "DELETE ") {
        Verb::Delete
    } else {
        panic!("a statement over rows is an INSERT, a SELECT, an UPDATE or a DELETE")
    }
}

/// Returns the position of the column that `from[at..end]` names.
const fn position(columns: &[(&str, &str)], from: &[u8], at: usize, end: usize) -> usize {
    let mut index = 0;
    while index < columns.len() {
        if equals(from, at, end, columns[index].0) {
            return index;
        }
        index += 1;
    }
    panic!("a name that is not among the columns")
}

const fn equals(from: &[u8], at: usize, end: usize, word: &str) -> bool {
    end - at == word.len() && starts(from, at, word)
}

const fn starts(from: &[u8], at: usize, word: &str) -> bool {
    let word = word.as_bytes();
    let mut matched = 0;
    while matched < word.len() {
        if at + matched >= from.len() || from[at + matched] != word[matched] {
            return false;
        }
        matched += 1;
    }
    true
}

const fn is_keyword(from: &[u8], at: usize, word: &str) -> bool {
    starts(from, at, word) && word_end(from, at) == at + word.len()
}

const fn contains(from: &[u8], mut at: usize, word: &str) -> bool {
    while at < from.len() {
        if starts(from, at, word) {
            return true;
        }
        at += 1;
    }
    false
}

/// Returns the position of the first `byte` from `at`, or the end of the text.
const fn find(from: &[u8], mut at: usize, byte: u8) -> usize {
    while at < from.len() && from[at] != byte {
        at += 1;
    }
    at
}

/// Returns the end of the quoted text that starts at `at`.
const fn quoted_end(from: &[u8], at: usize) -> usize {
    let end = find(from, at + 1, from[at]);
    assert!(end < from.len(), "a quotation without its end");
    end + 1
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn is_word_start(from: &[u8], at: usize) -> bool {
    at == 0 || !is_word(from[at - 1])
}

const fn word_end(from: &[u8], mut at: usize) -> usize {
    while at < from.len() && is_word(from[at]) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use crate::statement::BulkStatement;

    #[test]
    fn bulk_statements_expand_per_dialect() {
        let insert = bulk! { (a bigint, b text)
            "-- x\nINSERT INTO t (a, b, c) VALUES (:a, coalesce(:b, ''), 0){| ORDER BY :b} ON CONFLICT DO NOTHING"
        };
        assert_eq!(
            insert.sqlite,
            "-- x\nINSERT INTO t (a, b, c) VALUES (?1, coalesce(?2, ''), 0) ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            insert.postgres,
            "-- x\nINSERT INTO t (a, b, c) SELECT _a, coalesce(_b, ''), 0 \
             FROM UNNEST(?1::bigint[], ?2::text[]) AS input (_a, _b) ORDER BY _b ON CONFLICT DO NOTHING"
        );
        let from: &[(BulkStatement, &str)] = &[
            (
                bulk! { (a uuid) "-- x\nDELETE FROM t WHERE a = :a AND b IN (SELECT b FROM u WHERE c = 1)" },
                "-- x\nDELETE FROM t USING UNNEST(?1::uuid[]) AS input (_a) \
                 WHERE a = _a AND b IN (SELECT b FROM u WHERE c = 1)",
            ),
            (
                bulk! { (a uuid) "-- x\nSELECT (SELECT 1 FROM u), b FROM t JOIN u ON u.a = t.a WHERE t.a = :a" },
                "-- x\nSELECT (SELECT 1 FROM u), b FROM UNNEST(?1::uuid[]) AS input (_a) \
                 CROSS JOIN t JOIN u ON u.a = t.a WHERE t.a = _a",
            ),
            (
                bulk! { (a uuid) "-- x\nINSERT INTO t (a) SELECT :a WHERE NOT EXISTS (SELECT 1 FROM t WHERE a = :a)" },
                "-- x\nINSERT INTO t (a) SELECT _a FROM UNNEST(?1::uuid[]) AS input (_a) \
                 WHERE NOT EXISTS (SELECT 1 FROM t WHERE a = _a)",
            ),
            (
                bulk! { (a uuid) "-- x\nDELETE FROM t WHERE a = {any a}" },
                "-- x\nDELETE FROM t WHERE a = ANY(?1::uuid[])",
            ),
        ];
        for (bulk, postgres) in from {
            assert_eq!(bulk.postgres, *postgres);
            assert_eq!(bulk.sqlite.matches("?1").count(), postgres.matches("_a").count().max(2) - 1);
        }
    }

    #[test]
    fn dialect_alternatives_expand_per_database() {
        let text =
            bulk! { "-- x\nSELECT {max|greatest}(a, ?1), ':b' FROM t WHERE a {among ?2 uuid}{| FOR UPDATE}" };
        assert_eq!(
            text.sqlite,
            "-- x\nSELECT max(a, ?1), ':b' FROM t WHERE a IN (SELECT unhex(h.value) FROM json_each(?2) h)"
        );
        assert_eq!(
            text.postgres,
            "-- x\nSELECT greatest(a, ?1), ':b' FROM t \
             WHERE a = ANY(ARRAY(SELECT h::uuid FROM json_array_elements_text(?2::text::json) AS h)) FOR UPDATE"
        );
    }

    #[derive(Clone, Copy)]
    enum State {
        New,
        Old,
    }

    impl State {
        const fn code(self) -> i64 {
            match self {
                Self::New => -3,
                Self::Old => 120,
            }
        }
    }

    #[test]
    fn enum_codes_are_substituted_in_sql() {
        let text = with_codes!([State::{New, Old}]
            "-- x\nDELETE FROM t WHERE a = :a AND s IN ({State::New}, {State::Old}){| AND TRUE}");
        assert_eq!(text, "-- x\nDELETE FROM t WHERE a = :a AND s IN (-3, 120){| AND TRUE}");
    }
}
