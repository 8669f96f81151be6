//! Certificate Transparency: finds certificates that were logged for the watched domains.
//!
//! There are two sources of issued certificates:
//!
//! - **Search services** ([`search`]): Cert Spotter and services with crt.sh's API, queried by registered domain with a cursor.
//!   They return results immediately but require trust in the operator of the service.
//! - **Logs** ([`follow`]): static-ct (tiled) logs, read directly. Every entry is verified against the log's signed checkpoints, so
//!   that a log cannot remove or change an entry without an alarm. Detecting a log that shows other clients a different tree requires
//!   gossip or witnesses, which are not implemented; the stored notes would be the proof.
//!
//! Both return [`Issuance`]s. A precertificate and its certificate are one issuance ([`IssuanceId`]). The pure function [`judge`]
//! decides whether it was expected.
//!
//! [`monitor`] combines all parts: the server's background tasks and the API for users.
//!
//! # Parts
//!
//! 1. [`registered_domain`] of each known name gives the domains to watch. [`DomainSet::compile`] prepares them for matching at the
//!    full speed of a log.
//! 2. Search: one [`search::SearchService`] per service, created once. [`search::SearchService::issuances_since`] returns one page
//!    and the next cursor: store both in one transaction, then query again immediately while `more` is set, otherwise after
//!    `poll_after`. [`search::poll`] does this for many domains, with limited concurrency per service.
//! 3. Follow: one [`follow::Follower`] per log, created once. [`follow::Follower::step`] returns one batch of matches and the next
//!    [`follow::LogPosition`]: store both in one transaction. A [`follow::Alarm`] is an error value, and the position does not advance
//!    past it.
//! 4. [`ledger::record`] stores the results in the same transaction, each issuance once. After [`ledger::GRACE`] (our own renewals
//!    are logged before their issuer responds) [`ledger::judge_issuances`] looks up the known certificates and stores the verdicts:
//!    raise alerts on [`Verdict::Unasked`] in that transaction.
//!
//! Limits are constants next to the items that they limit. Only [`ledger`] and [`monitor`] use the database, through
//! `crate::tables`.

pub mod domains;
pub mod entry;
pub mod follow;
mod gate;
pub mod issuance;
pub mod ledger;
mod list_signer;
pub mod log_list;
pub use x509::merkle;
pub mod monitor;
pub mod names;
pub mod note;
pub mod search;
pub mod tables;
pub mod tile;

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use domains::{BadDomain, DomainSet, registered_domain};
pub use issuance::{
    Decision, Issuance, IssuanceId, IssuerRule, KnownAs, KnownCertificate, Unasked, Verdict, judge,
};
pub use list_signer::{BadListSignature, LIST_SIGNATURE_BYTES_MAX, ListSigner};
pub use log_list::{LogList, TiledLog};
pub use monitor::{Monitor, MonitorError, MonitorOptions};
pub use note::{Checkpoint, LogKey};
