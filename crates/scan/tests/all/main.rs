//! Everything that needs a peer: the fleet, openssl, real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod ct_follow;
mod ct_ledger;
mod ct_monitor;
mod ct_search;
mod engine;
mod history;
mod revocation;
mod revocation_clouds;
mod starttls_postgres;
mod tls_openssl;
mod tls_rustls;
mod truth;
mod watch;
mod watch_clouds;
mod watch_telling;
mod world;
