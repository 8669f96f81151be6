//! Certificate Transparency: what was logged for the watched domains.
//!
//! Two ways to know, for one question ("what was issued for these domains?"):
//!
//! - **Search services** ([`search`]): Cert Spotter and crt.sh-shaped ones, asked by registered domain with a cursor.
//!   Works on day one; depends on somebody else's reading of the logs.
//! - **Following logs** ([`follow`]): static-ct (tiled) logs read by ourselves, every entry held against the log's own
//!   signed checkpoints, so that a log cannot take back or change what it has shown us without an alarm. That it shows
//!   others the same is for gossip and witnesses, which are not here; the notes kept would be the proof.
//!
//! Both give [`Issuance`]s. A precertificate and its certificate are one issuance ([`IssuanceId`]); whether somebody
//! asked for it is decided by [`judge`], a function of values.
//!
//! [`monitor`] puts them together: what a server does by itself, and what its users ask of it.
//!
//! # The parts
//!
//! 1. [`registered_domain`] of each name of the estate gives the domains to watch; [`DomainSet::compile`] makes them
//!    fit to be held against names at a log's full speed.
//! 2. Search: a [`search::SearchService`] a service, built once. [`search::SearchService::issuances_since`] gives one
//!    page and the cursor after it: store both in one transaction, ask again at once while `more`, else after
//!    `poll_after`. [`search::poll`] does so for many domains, with a bounded number under way at each service.
//! 3. Follow: a [`follow::Follower`] a log, built once. [`follow::Follower::step`] gives one batch of matches and the
//!    [`follow::LogPosition`] after it: store both in one transaction. An [`follow::Alarm`] is a value to be told, and the
//!    place does not move past it.
//! 4. [`ledger::record`] writes what either found into the same transaction, each issuance once. After
//!    [`ledger::GRACE`] (our own renewals are logged before their issuer answers) [`ledger::judge_issuances`] looks up what
//!    is known and stores the verdicts: alert on [`Verdict::Unasked`], in that transaction.
//!
//! Limits are constants beside what they bound. Only [`ledger`] and [`monitor`] touch the database, by `crate::tables`.

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

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use domains::{BadDomain, DomainSet, registered_domain};
pub use issuance::{
    Decision, Issuance, IssuanceId, IssuerRule, KnownAs, KnownCertificate, Unasked, Verdict, judge,
};
pub use list_signer::{BadListSignature, LIST_SIGNATURE_OCTETS_MAX, ListSigner};
pub use log_list::{LogList, TiledLog};
pub use monitor::{Monitor, MonitorError, MonitorOptions};
pub use note::{Checkpoint, LogKey};
