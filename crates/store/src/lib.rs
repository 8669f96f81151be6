//! The schema of Bulla, and the tables that several domains share. Contains no business rules.
//!
//! [`Store`] opens the database: SQLite (one file) or PostgreSQL 14+, with the same interface. Each kind of object has a small
//! handle, such as [`Inventory`] and [`Keys`], created by `Keys::of(&store)`. [`handle!`] declares a handle. The tables of one
//! domain, with their handles, are in the `tables` module of that domain's crate. Transactions, leases, audit log and outbox are in
//! crate `db`; [`Store`] dereferences to its handle. [`Writer`] adds a bounded channel, batches and retries to [`Scans::record`].
//!
//! Times are microseconds since 1970-01-01 UTC, given by the caller. Fingerprints are 32 raw bytes. Pages are keyset pages: a
//! [`Cursor`] contains the key of the last returned row.

mod access;
mod catalogue;
mod events;
mod inventory;
mod keys;
mod known;
mod master_keys;
pub mod nodes;
pub mod series;
pub mod states;
mod store;
pub mod time_limits;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use access::{
    Access, AccessChange, ApprovalSignatureRow, CeremonyPurpose, IdempotencyState, Identity, IdentityKind,
    IdentitySettings, KeyCeremony, LINKS_MAX, NewIdentity, NewPassword, NewSession, Role, RoleChange,
    SECURITY_KEYS_MAX, SESSIONS_MAX, SecurityKey, SecurityKeyUse, Session, SignInLink, SignInMethod,
    StoredResponse, UsableIdentity, delete_identity, delete_other_sessions, delete_role, delete_security_key,
    delete_session, delete_sessions_of, insert_identity, insert_key_ceremony, insert_security_key,
    insert_session, insert_sign_in_link, lock_access, prove_session, put_approval_signature, put_password,
    put_role, rekey_identity, roles_in, security_key_used, security_keys_in, sign_out, sign_out_others,
    take_key_ceremony, update_identity, usable_identities, use_sign_in_link,
};
#[doc(hidden)]
pub use catalogue::STATEMENTS;
#[doc(hidden)]
pub use db::Fault;
#[doc(hidden)]
#[cfg(unix)]
pub use db::testing;
pub use db::{
    AuditBounds, AuditEvent, AuditFilter, AuditHead, AuditRow, AuditVerification, Batcher, BatcherOptions,
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CONNECTIONS_MIN, Cause, Clock, Connections, Cursor, Disk, Lease,
    NewEvent, OutboxPosition, OutboxRow, PAGE_ROWS_MAX, Page, PoolUse, REPLICA_ALONE_DEFAULT, StoreError,
    StoreOptions, StoreUrl, Tx, VisiblePage, WorkAborted, audit, audit_and_emit, audit_if, emit,
    outbox_advance, visible_page,
};
pub use events::{new_event, read_event};
pub use inventory::certificates::NamedCertificate;
pub use inventory::endpoints::address;
pub use inventory::handle::{Inventory, Scans};
pub use inventory::key::{HOST_BYTES_MAX, endpoint_key, stored_key};
pub use inventory::model::{
    CertificateRow, ChainId, ChangeKind, ChangeRow, EndpointKey, InventoryFilter, InventoryOrder,
    InventoryRow, IssuerRow, KnownEndpoint, LastObservation, LeafFacts, NewCertificate, NewObservation,
    ObservationRow, Recorded, ScanRow, ScanState, Summary,
};
pub use inventory::pruning::{PRUNE_ROWS_MAX, PruneMode, Pruned, PrunedObservations, PrunedSoFar, Pruning};
pub use inventory::search::FoundEndpoint;
pub use inventory::writer::{OnFlush, Sender, Status, Totals, Writer, WriterError, WriterOptions};
pub use keys::{
    KeyRow, Keys, SEALED_HEAD, SEALED_KEYS, SealedColumn, SealedKey, SealedValue, block_stored_key,
    insert_key, move_key, replace_sealed,
};
pub use known::insert_known_certificates;
pub use master_keys::{
    MASTER_KEY_ID, MasterKeyRow, forget_other_master_keys, insert_first_master_key, insert_master_key,
};
pub use series::DAY_US;
pub use store::Store;
