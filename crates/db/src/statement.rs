//! SQL texts: the name of a statement, its parameter marks, its two forms over many rows, and the lists of all statements.
//!
//! A statement begins with a comment that contains its name. The name appears in errors and in the server's logs. Parameters are
//! `?1`, `?2`, …; on PostgreSQL they are sent as `$1`, `$2`, ….

/// Returns the name in a statement's first line.
pub(crate) fn name_of(statement: &str) -> &str {
    statement.lines().next().and_then(|line| line.strip_prefix("-- ")).unwrap_or("a statement").trim()
}

/// Converts the parameter marks to PostgreSQL's. Statements use `?` only as a parameter mark.
pub(crate) fn for_postgres(statement: &str) -> String {
    statement.replace('?', "$")
}

/// A statement with a separate text for each database, usually over many rows. [`bulk!`](crate::bulk) generates both from one text.
#[derive(Debug)]
pub struct BulkStatement {
    /// SQL for SQLite. A statement over many rows is written for one row, with its columns as ?1, ?2, …, and runs once for each
    /// row.
    pub sqlite: &'static str,
    /// SQL for PostgreSQL. A statement over many rows runs once for all rows, with each column as an array.
    pub postgres: &'static str,
}

/// The statements of one module: for both databases, for one of them, and over many rows.
pub struct ModuleStatements {
    /// Statements with the same text on both databases.
    pub both: &'static [&'static str],
    /// Statements for SQLite only.
    pub sqlite: &'static [&'static str],
    /// Statements for PostgreSQL only.
    pub postgres: &'static [&'static str],
    /// Statements with a separate text for each database.
    pub bulks: &'static [&'static BulkStatement],
    /// Returns every form of the statements that are composed at run time.
    pub composed: fn() -> Vec<String>,
}

impl ModuleStatements {
    /// Creates a list from statements for both databases and bulk statements. The lists for a single database and for composed
    /// statements are empty.
    #[must_use]
    pub const fn of(both: &'static [&'static str], bulks: &'static [&'static BulkStatement]) -> Self {
        Self { both, sqlite: &[], postgres: &[], bulks, composed: Vec::new }
    }
}
