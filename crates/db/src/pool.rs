//! Use of the database's capacity.

/// Use of one resource that database calls wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections. On SQLite, `writers` counts calls that wait for the single writer.
    pub name: &'static str,
    /// Number in use now.
    pub in_use: usize,
    /// The maximum. Callers wait once it is reached.
    pub size: usize,
}
