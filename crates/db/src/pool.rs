//! Use of the database's capacity.

/// Use of one resource that database calls wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections. On SQLite, `writers` counts calls that wait for the single writer.
    pub name: &'static str,
    /// Number in use now.
    pub in_use: usize,
    /// Maximum number in use. Further callers wait.
    pub size: usize,
}
