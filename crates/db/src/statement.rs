//! The text of a statement: its name, its parameter marks, its two forms over many rows, and the lists of all of them.
//!
//! A statement begins with a comment that names it. The name appears in errors and in the server's logs. Parameters
//! are `?1`, `?2`, …; on PostgreSQL they are sent as `$1`, `$2`, ….

/// The name in a statement's first line.
pub(crate) fn name_of(statement: &str) -> &str {
    statement.lines().next().and_then(|line| line.strip_prefix("-- ")).unwrap_or("a statement").trim()
}

/// The same statement with PostgreSQL's parameter marks. No statement holds a `?` for any other purpose.
pub(crate) fn for_postgres(statement: &str) -> String {
    statement.replace('?', "$")
}

/// A statement with a text for each database, mostly over many rows. [`bulk!`](crate::bulk) makes both from one.
#[derive(Debug)]
pub struct Bulk {
    /// Over rows: for one row, its columns as ?1, ?2, …; run for each inside the process.
    pub sqlite: &'static str,
    /// Over rows: for all rows at once, its columns as arrays.
    pub postgres: &'static str,
}

/// The statements of one module: for both databases, for one of them, and over many rows.
pub struct Sends {
    /// Statements that are the same text on both databases.
    pub both: &'static [&'static str],
    /// Statements for SQLite only.
    pub sqlite: &'static [&'static str],
    /// Statements for PostgreSQL only.
    pub postgres: &'static [&'static str],
    /// Statements with a text for each database.
    pub bulks: &'static [&'static Bulk],
    /// Returns every form of the statements that are put together from parts.
    pub composed: fn() -> Vec<String>,
}

impl Sends {
    /// Statements of fixed text that need no form of their own on either database.
    #[must_use]
    pub const fn of(both: &'static [&'static str], bulks: &'static [&'static Bulk]) -> Self {
        Self { both, sqlite: &[], postgres: &[], bulks, composed: Vec::new }
    }
}
