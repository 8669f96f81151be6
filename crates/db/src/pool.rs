//! Current use of connections to the database.

/// Current use of one connection pool, or of the SQLite writer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections. On SQLite, `writers` counts calls that wait for the single writer.
    pub name: &'static str,
    /// Number of connections or calls in use now.
    pub in_use: usize,
    /// Maximum number of connections or calls in use. Further callers wait.
    pub size: usize,
}
