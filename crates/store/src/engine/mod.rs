//! The engine: connections, transactions and statements of either database, and what every table needs. Knows no table.

pub(crate) mod audit;
pub(crate) mod batcher;
pub(crate) mod clock;
pub(crate) mod cursor;
pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod leases;
pub(crate) mod migrate;
pub(crate) mod options;
pub(crate) mod outbox;
pub(crate) mod plans;
pub(crate) mod postgres;
pub(crate) mod sqlite;
#[doc(hidden)]
#[cfg(unix)]
pub mod testing;
pub(crate) mod tx;
pub(crate) mod url;
pub(crate) mod value;
