//! The inventory's database: schema, migrations, every SQL statement, batching. Knows no rule of the domain.
//!
//! [`Store`] is the one handle: SQLite (one file) or PostgreSQL 14+, alike to its callers. [`Writer`] puts a bounded
//! channel, batches and patience in front of [`Store::record`].
//!
//! Times are microseconds since 1970-01-01 UTC, given by the caller; fingerprints are 32 raw bytes. Pages are keyset
//! pages: a [`Cursor`] names the last row given.

mod access;
pub mod acme;
pub mod agents;
pub mod alerts;
pub mod approvals;
mod audit;
mod batcher;
mod cas;
mod certificates;
mod changes;
mod clock;
mod clouds;
pub mod credentials;
pub mod ct;
mod cursor;
mod enrolments;
mod error;
pub mod history;
mod inventory;
mod issued;
mod issuers;
pub mod jobs;
pub mod kept_tags;
mod keys;
mod known;
mod leases;
pub mod managed;
mod master_keys;
mod migrate;
mod model;
mod options;
mod outbox;
pub mod ownership;
pub mod people;
pub mod places;
pub mod policies;
mod postgres;
mod profiles;
pub mod proxy_leaves;
mod record;
mod revocations;
mod scans;
mod sql;
mod sqlite;
mod statements;
mod store;
#[doc(hidden)]
#[cfg(unix)]
pub mod testing;
pub mod told;
mod tx;
mod url;
mod value;
pub mod watch_parts;
pub mod watches;
mod writer;

pub use access::{
    AccessChange, Begun, Identity, IdentityKind, IdentitySettings, KeptAnswer, NewIdentity, NewSession, Role,
    RoleChange, Session, delete_identity, delete_role, delete_session, delete_sessions_of, insert_identity,
    insert_session, put_role, rekey_identity, update_identity,
};
pub use audit::{AuditEvent, AuditFilter, AuditRow, AuditVerification, audit, audit_and_emit, audit_if};
pub use batcher::{Abandoned, Batcher, BatcherOptions};
pub use cas::{
    CAS_MAX, CaCertificateRole, CaCertificateRow, CaRow, CaRows, CaWithKey, begin_retiring_ca,
    delete_pending_ca, finish_retiring_ca, insert_ca, insert_ca_certificates, install_ca, renew_ca,
};
pub use certificates::NamedCertificate;
pub use clock::Clock;
pub use clouds::Connections;
pub use cursor::{Cursor, Page};
pub use enrolments::{
    EnrolmentDecision, EnrolmentRow, EnrolmentState, NewEnrolment, RecipientRow, decide_enrolment,
    insert_enrolment, put_recipient,
};
pub use error::{Cause, StoreError};
pub use issued::{
    Insertion, IssuedFilter, IssuedRow, NewIssued, Once, RevocationFacts, UsedKey, insert_issued,
};
pub use issuers::{
    ConfiguredIssuer, IssuerAccount, IssuerChange, IssuerHealth, IssuerOrder, IssuerSettings, SEALED_ISSUERS,
    delete_configured_issuer, insert_configured_issuer, set_issuer_account, update_configured_issuer,
};
pub use keys::{
    KeyRow, SEALED_HEAD, SEALED_KEYS, SealedColumn, SealedValue, block_stored_key, insert_key, replace_sealed,
};
pub use known::insert_known_certificates;
pub use master_keys::{MASTER_KEY_ID, MasterKeyRow, forget_other_master_keys, insert_master_key};
pub use model::{
    CertificateRow, ChainId, ChangeKind, ChangeRow, EndpointKey, InventoryFilter, InventoryOrder,
    InventoryRow, IssuerRow, KnownEndpoint, LastObservation, LeafFacts, NewCertificate, NewObservation,
    ObservationRow, Recorded, ScanRow, ScanState, Summary,
};
#[doc(hidden)]
pub use options::Fault;
pub use options::{
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CONNECTIONS_MIN, REPLICA_ALONE_DEFAULT, StoreOptions,
};
pub use outbox::{Event, OutboxPlace, OutboxRow, emit, outbox_advance};
pub use profiles::{ProfileRow, delete_profile, put_profile};
pub use record::HOST_BYTES_MAX;
pub use revocations::{
    BuiltCrl, CrlRow, CrlState, Matched, OcspResponderRow, RevocationMark, RevocationRow, RevocationTarget,
    RevokedRow, block_spki, crl_store, crls_begin, put_ocsp_responder, revoke, revoke_ids, revoked_by,
};
pub use store::{PAGE_ROWS_MAX, PoolUse, Store};
pub use tx::Tx;
pub use url::StoreUrl;
pub use writer::{OnFlush, Sender, Status, Totals, Writer, WriterError, WriterOptions};
