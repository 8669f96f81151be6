//! The tables of Bulla: schema, migrations, every SQL statement. Knows no rule of the domain.
//!
//! [`Store`] opens the database: SQLite (one file) or PostgreSQL 14+, alike to its callers. It has one accessor for each
//! noun, such as [`Store::jobs`] and [`Store::credentials`]; each returns a small handle with the methods of that noun.
//! What every table needs (transactions, leases, audit log, outbox) is in crate `db`; [`Store`] dereferences to its
//! handle. [`Writer`] puts a bounded channel, batches and retries in front of [`Scans::record`].
//!
//! Times are microseconds since 1970-01-01 UTC, given by the caller; fingerprints are 32 raw bytes. Pages are keyset
//! pages: a [`Cursor`] names the last row given.

mod access;
pub mod acme;
pub mod agents;
pub mod alerts;
pub mod approvals;
mod cas;
mod catalogue;
mod clouds;
pub mod credentials;
pub mod ct;
mod enrolments;
pub mod history;
mod inventory;
mod issued;
mod issuers;
pub mod jobs;
pub mod kept_tags;
mod keys;
mod known;
pub mod managed;
mod master_keys;
pub mod ownership;
pub mod people;
pub mod places;
pub mod policies;
mod profiles;
pub mod proxy_leaves;
mod revocations;
mod store;
pub mod told;
pub mod watch_parts;
pub mod watches;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use access::{
    Access, AccessChange, Begun, Identity, IdentityKind, IdentitySettings, KeptAnswer, NewIdentity,
    NewSession, Role, RoleChange, Session, delete_identity, delete_role, delete_session, delete_sessions_of,
    insert_identity, insert_session, put_role, rekey_identity, update_identity,
};
pub use cas::{
    CAS_MAX, CaCertificateRole, CaCertificateRow, CaRow, CaRows, CaWithKey, begin_retiring_ca,
    delete_pending_ca, finish_retiring_ca, insert_ca, insert_ca_certificates, install_ca, renew_ca,
};
pub use clouds::Sources;
#[doc(hidden)]
pub use db::Fault;
#[doc(hidden)]
#[cfg(unix)]
pub use db::testing;
pub use db::{
    Abandoned, AuditEvent, AuditFilter, AuditRow, AuditVerification, Batcher, BatcherOptions,
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CONNECTIONS_MIN, Cause, Clock, Connections, Cursor, Event,
    OutboxPlace, OutboxRow, PAGE_ROWS_MAX, Page, PoolUse, REPLICA_ALONE_DEFAULT, StoreError, StoreOptions,
    StoreUrl, Tx, audit, audit_and_emit, audit_if, emit, outbox_advance,
};
pub use enrolments::{
    EnrolmentDecision, EnrolmentRow, EnrolmentState, Enrolments, NewEnrolment, RecipientRow,
    decide_enrolment, insert_enrolment, put_recipient,
};
pub use inventory::certificates::NamedCertificate;
pub use inventory::handle::{Inventory, Scans};
pub use inventory::key::HOST_BYTES_MAX;
pub use inventory::model::{
    CertificateRow, ChainId, ChangeKind, ChangeRow, EndpointKey, InventoryFilter, InventoryOrder,
    InventoryRow, IssuerRow, KnownEndpoint, LastObservation, LeafFacts, NewCertificate, NewObservation,
    ObservationRow, Recorded, ScanRow, ScanState, Summary,
};
pub use inventory::writer::{OnFlush, Sender, Status, Totals, Writer, WriterError, WriterOptions};
pub use issued::{
    Insertion, Issued, IssuedFilter, IssuedRow, NewIssued, Once, RevocationFacts, UsedKey, insert_issued,
};
pub use issuers::{
    ConfiguredIssuer, ExternalIssuers, IssuerAccount, IssuerChange, IssuerHealth, IssuerOrder,
    IssuerSettings, SEALED_ISSUERS, delete_configured_issuer, insert_configured_issuer, set_issuer_account,
    update_configured_issuer,
};
pub use keys::{
    KeyRow, Keys, SEALED_HEAD, SEALED_KEYS, SealedColumn, SealedValue, block_stored_key, insert_key,
    replace_sealed,
};
pub use known::insert_known_certificates;
pub use master_keys::{MASTER_KEY_ID, MasterKeyRow, forget_other_master_keys, insert_master_key};
pub use profiles::{ProfileRow, Profiles, delete_profile, put_profile};
pub use revocations::{
    BuiltCrl, CrlRow, CrlState, Matched, OcspResponderRow, RevocationMark, RevocationRow, RevocationTarget,
    Revocations, RevokedRow, block_spki, crl_store, crls_begin, put_ocsp_responder, revoke, revoke_ids,
    revoked_by,
};
pub use store::Store;
