//! Batches of observations on their way into the tables.

pub(crate) mod postgres;
pub(crate) mod postgres_statements;
pub(crate) mod sqlite;
pub(crate) mod sqlite_statements;
pub(crate) mod tally;
