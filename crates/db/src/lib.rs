//! The database engine: SQLite (one file) or PostgreSQL 14+, with the same interface. Independent of the tables of the domains.
//!
//! [`Database`] is the handle: it opens the database, applies migrations, and runs statements and transactions ([`Tx`]). The owner
//! of the tables passes its [`Schema`], the migrations, when it opens a database. Every database also has leases, an audit log and
//! an outbox, which this crate reads and writes.
//!
//! Times are microseconds since 1970-01-01 UTC, given by the caller.

mod audit;
mod batcher;
mod clock;
mod column;
mod connections;
mod cursor;
mod database;
pub mod dialect;
mod digest;
mod disk;
mod error;
mod fullness;
mod joint;
mod leases;
mod migrate;
mod options;
mod outbox;
mod page;
mod plans;
mod pool;
pub mod postgres;
mod schema;
pub mod sqlite;
mod statement;
#[doc(hidden)]
#[cfg(unix)]
pub mod testing;
mod text;
mod tx;
mod url;
mod value;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use audit::head::AuditHead;
pub use audit::verify::{AuditBounds, AuditVerification};
pub use audit::{AuditEvent, AuditFilter, AuditRow, audit, audit_and_emit, audit_if};
pub use batcher::{Batcher, BatcherOptions, WorkAborted};
pub use clock::Clock;
pub use column::Column;
pub use connections::Connections;
pub use cursor::Cursor;
pub use database::{Cost, Database};
pub use digest::{hex, sha256};
pub use disk::{DISK_FREE_BYTES_MIN, Disk};
pub use error::{Cause, PREFIX_DIGITS_MIN, StoreError};
pub use leases::Lease;
pub use migrate::Migration;
#[doc(hidden)]
pub use options::Fault;
pub use options::{
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CONNECTIONS_MIN, REPLICA_ALONE_DEFAULT, StoreOptions,
};
pub use outbox::{NewEvent, OutboxPosition, OutboxRow, emit, outbox_advance};
pub use page::{
    PAGE_ROWS_MAX, Page, VISIBLE_ROWS_READ_MAX, VisiblePage, key_or, limit_of, page, visible_page, with_limit,
};
pub use pool::PoolUse;
pub use schema::Schema;
pub use sqlite::SqliteTransaction;
pub use statement::{BulkStatement, ModuleStatements};
pub use text::{contains, reversed, storable};
pub use tx::Tx;
pub use url::StoreUrl;
pub use value::{Row, Value, coded};
