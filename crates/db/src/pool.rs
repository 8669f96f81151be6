//! How much of the database's capacity is in use.

/// Use of one resource that calls to the database wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolUse {
    /// `readers`, `writers` or `replica`: connections. On SQLite, `writers` counts calls that wait for the one writer.
    pub name: &'static str,
    /// In use now.
    pub in_use: usize,
    /// The maximum. Callers wait once it is reached.
    pub size: usize,
}
