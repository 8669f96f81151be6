//! Current use of connections to the database.

/// Use of one resource that database calls wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections. On SQLite, `writers` counts calls that wait for the single writer.
    pub name: &'static str,
    /// Number of connections or calls in use now.
    pub in_use: usize,
    /// Maximum number of connections or calls in use. Further callers wait.
    pub size: usize,
}
