//! Current use of connections to the database.

/// Current use of one connection pool, or of the SQLite writer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// Name of the pool: `readers`, `writers` or `replica`. The other fields count connections; for `writers` on SQLite, they count
    /// calls that wait for the single writer.
    pub name: &'static str,
    /// Number of connections or calls in use now.
    pub in_use: usize,
    /// Maximum number of connections or calls in use. Further callers wait.
    pub size: usize,
}
